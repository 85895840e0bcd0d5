"""Train a small residual network on the handwritten digits of scikit-learn, enlarged to 24 x 24 pixels."""

import argparse
import contextlib
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

EPOCHS, BATCH, WIDTH = 3, 64, 32


class ResidualBlock(nn.Module):
    """Two convolutions, and the input added to their result."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Run the block."""
        return torch.relu(self.body(maps) + self.shortcut(maps))


def load_data() -> tuple[DataLoader, DataLoader]:
    """Return the images for training and for the test, in batches."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    images = nn.functional.interpolate(images, size=(24, 24), mode="bilinear")
    data = TensorDataset(images, torch.tensor(digits.target))
    train, test = random_split(data, [1437, 360], torch.Generator().manual_seed(0))
    return DataLoader(train, BATCH, shuffle=True, drop_last=True), DataLoader(test, 360)


def read_options() -> argparse.Namespace:
    """Return what the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--amp", action="store_true", help="train with autocast in bfloat16")
    parser.add_argument("--channels-last", action="store_true", help="keep channels last in memory")
    return parser.parse_args()


def main() -> None:
    """Train for some epochs, and print the speed of the last one."""
    options = read_options()
    torch.manual_seed(0)
    train, test = load_data()
    model = nn.Sequential(
        nn.Conv2d(1, WIDTH, 3, padding=1),
        ResidualBlock(WIDTH, WIDTH, 1),
        ResidualBlock(WIDTH, 2 * WIDTH, 2),
        ResidualBlock(2 * WIDTH, 4 * WIDTH, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * WIDTH, 10),
    )
    memory_format = torch.channels_last if options.channels_last else torch.contiguous_format
    model = model.to(memory_format=memory_format)
    precision = torch.autocast("cpu", dtype=torch.bfloat16) if options.amp else contextlib.nullcontext()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for images, classes in train:
            optimizer.zero_grad()
            with precision:
                loss = nn.functional.cross_entropy(model(images.to(memory_format=memory_format)), classes)
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - start

    model.eval()
    with torch.inference_mode():
        images, classes = next(iter(test))
        accuracy = (model(images).argmax(dim=1) == classes).float().mean().item()
    print(f"accuracy: {accuracy:.3f}")
    print(f"images per second: {BATCH * len(train) / seconds:.2f}")


if __name__ == "__main__":
    main()

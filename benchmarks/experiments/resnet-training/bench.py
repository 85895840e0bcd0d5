"""Train a ResNet-18 on random images of 224 x 224 pixels, and print the seconds of the steps after the first."""

import time

import torch
from torch import nn

BATCH, STEPS = 16, 3


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images of the next level."""
        return torch.relu(self.layers(images) + self.shortcut(images))


def build() -> nn.Module:
    """Return a ResNet-18 (https://arxiv.org/abs/1512.03385)."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    channels = 64
    for outputs in (64, 128, 256, 512):
        layers += [Block(channels, outputs, 1 if outputs == channels else 2), Block(outputs, outputs, 1)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    images, labels = torch.randn(BATCH, 3, 224, 224), torch.randint(1000, (BATCH,))
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    start = 0.0
    for step in range(STEPS + 1):
        if step == 1:
            start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds: {time.perf_counter() - start:.6f}")


if __name__ == "__main__":
    main()

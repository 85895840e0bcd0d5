"""Trains a small convolutional network on random images: a program for `advisor workload profile`."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images of the next level."""
        hidden = torch.relu(self.norm(self.first(images)))
        return torch.relu(self.second(hidden) + self.shortcut(images))


def build(classes: int) -> nn.Module:
    """Return a network for images of 32 x 32 pixels."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        Block(32, 64, 2),
        Block(64, 128, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, classes),
    )


def main() -> None:
    """Train, and print the loss of each epoch and the throughput of the last one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(1024, 3, 32, 32), torch.randint(10, (1024,)))
    model = build(classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    seconds = 0.0
    for epoch in range(options.epochs):
        started = time.perf_counter()
        for images, labels in DataLoader(data, options.batch, shuffle=True):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
    if seconds:
        print(f"throughput: {len(data) / seconds:.1f} images/s", flush=True)


if __name__ == "__main__":
    main()

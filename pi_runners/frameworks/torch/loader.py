"""A loader of batches from memory with ``torch.utils.data``."""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

import torch
from torch.utils.data import DataLoader, Dataset


class _Images(Dataset):
    """Images in memory, normalised one by one."""

    def __init__(self, images: Any) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Any:
        return (self._images[index].to(torch.float32) - 127.5) / 127.5


def load_batches(raw: bytes, shape: Sequence[int], batch: int, workers: int) -> Callable[[], Tuple[int, float]]:
    """Return a call that reads one epoch; see :meth:`pi_runners.harness.contract.Backend.load_batches`."""
    images = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(tuple(shape))
    # Forked workers share the images and need no modules of this program, which it imports from an archive.
    options = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    loader = DataLoader(_Images(images), batch_size=batch, shuffle=True, num_workers=workers, **options)

    def run() -> Tuple[int, float]:
        number, total = 0, 0.0
        for loaded in loader:
            number += len(loaded)
            total += float(loaded.sum())
        return number, total

    return run

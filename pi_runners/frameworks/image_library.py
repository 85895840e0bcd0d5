"""What the backends of libraries that prepare images share."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from pi_runners.harness.contract import Array, Backend, Call, Crop, Scale


class ImageLibrary(Backend):
    """Images are NumPy arrays, and are prepared one by one on the CPU."""

    dtypes = ("float32",)

    def read_all(self, result: Any, index: Tuple[Any, ...]) -> List[Any]:
        return list(result[tuple(index)].reshape(-1).tolist())

    def prepare(self, file: bytes, size: int, crop: Crop, crop_size: int) -> Array:
        """Return the pixels of an image, decoded, resized, cropped and flipped, as float32."""
        raise NotImplementedError

    def decode_images(
        self, files: Sequence[bytes], size: int, crops: Sequence[Crop], crop_size: int, scale: Sequence[Scale]
    ) -> Call:
        # Imported here, because a stack of Pillow alone lacks it.
        import numpy as np

        gains, offsets = (np.array(numbers, np.float32) for numbers in zip(*scale))

        images = list(zip(files, crops))
        return lambda: np.stack([self.prepare(f, size, crop, crop_size) * gains + offsets for f, crop in images])

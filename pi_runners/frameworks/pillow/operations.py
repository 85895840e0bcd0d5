"""Pillow on the CPU, with NumPy for the arithmetic of pixels; it only prepares images."""

from __future__ import annotations

import io
from typing import Any, Dict, List, Sequence, Tuple

import PIL
from PIL import Image

from pi_runners.harness.contract import Backend, Call, Crop, Parameters, Scale, Unsupported

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]


class PillowBackend(Backend):
    """Images are decoded, resized, cropped and flipped one by one."""

    name = "pillow"
    dtypes = ("float32",)

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        super().__init__(device, dtype, settings)
        if device != "cpu":
            raise Unsupported("Pillow runs on the CPU only")
        if np is None:
            raise Unsupported("the images of Pillow are normalised with NumPy, which is not installed")

    def describe(self) -> Dict[str, Any]:
        """Return the versions of Pillow, of its JPEG library, and of NumPy."""
        from PIL import features

        return {
            "pillow": PIL.__version__,
            "pillow_jpeg": features.version("jpg"),
            "pillow_jpeg_turbo": bool(features.check("libjpeg_turbo")),
            "pillow_numpy": np.__version__,
        }

    def read_all(self, result: Any, index: Tuple[Any, ...]) -> List[Any]:
        return list(result[tuple(index)].reshape(-1).tolist())

    def encode_jpeg(self, pixels: bytes, height: int, width: int) -> bytes:
        stream = io.BytesIO()
        Image.frombytes("RGB", (width, height), pixels).save(stream, "JPEG", quality=90)
        return stream.getvalue()

    def decode_images(
        self, files: Sequence[bytes], size: int, crops: Sequence[Crop], crop_size: int, scale: Sequence[Scale]
    ) -> Call:
        gains, offsets = (np.array(numbers, np.float32) for numbers in zip(*scale))

        def prepare(file: bytes, crop: Tuple[int, int, bool]) -> Any:
            top, left, flip = crop
            image = Image.open(io.BytesIO(file)).convert("RGB").resize((size, size), Image.BILINEAR)
            image = image.crop((left, top, left + crop_size, top + crop_size))
            if flip:
                image = image.transpose(Image.FLIP_LEFT_RIGHT)
            return np.asarray(image, np.float32) * gains + offsets

        return lambda: np.stack([prepare(file, crop) for file, crop in zip(files, crops)])

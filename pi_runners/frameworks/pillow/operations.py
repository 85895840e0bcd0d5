"""Pillow on the CPU, with NumPy for the arithmetic of pixels; it only prepares images."""

from __future__ import annotations

import io
from typing import Any, Dict

import PIL
from PIL import Image

from pi_runners.frameworks.image_library import ImageLibrary
from pi_runners.harness.contract import Array, Crop, Parameters, Unsupported

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]


class PillowBackend(ImageLibrary):
    """Images are decoded, resized, cropped and flipped one by one."""

    name = "pillow"
    on_processors = "Pillow"

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        super().__init__(device, dtype, settings)
        if np is None:
            raise Unsupported("the images of Pillow are normalised with NumPy, which is not installed")

    def describe(self) -> Dict[str, Any]:
        from PIL import features

        return {
            "pillow": PIL.__version__,
            "pillow_jpeg": features.version("jpg"),
            "pillow_jpeg_turbo": bool(features.check("libjpeg_turbo")),
            "pillow_numpy": np.__version__,
        }

    def encode_jpeg(self, pixels: bytes, height: int, width: int) -> bytes:
        stream = io.BytesIO()
        Image.frombytes("RGB", (width, height), pixels).save(stream, "JPEG", quality=90)
        return stream.getvalue()

    def prepare(self, file: bytes, size: int, crop: Crop, crop_size: int) -> Array:
        top, left, flip = crop
        image = Image.open(io.BytesIO(file)).convert("RGB").resize((size, size), Image.BILINEAR)
        image = image.crop((left, top, left + crop_size, top + crop_size))
        return np.asarray(image.transpose(Image.FLIP_LEFT_RIGHT) if flip else image, np.float32)

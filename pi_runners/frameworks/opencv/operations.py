"""OpenCV on the CPU; it only prepares images."""

from __future__ import annotations

from typing import Any, Dict

import cv2
import numpy as np

from pi_runners.frameworks.image_library import ImageLibrary
from pi_runners.harness.contract import Array, Crop, Parameters


class OpencvBackend(ImageLibrary):
    """Images are NumPy arrays, and are prepared one by one."""

    name = "opencv"
    on_processors = "OpenCV"

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        super().__init__(device, dtype, settings)
        if "threads" in settings:
            cv2.setNumThreads(settings["threads"])

    def describe(self) -> Dict[str, Any]:
        return {"opencv": cv2.__version__, "opencv_threads": cv2.getNumThreads(), "opencv_numpy": np.__version__}

    def encode_jpeg(self, pixels: bytes, height: int, width: int) -> bytes:
        image = np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
        encoded = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
        return bytes(encoded.tobytes())

    def prepare(self, file: bytes, size: int, crop: Crop, crop_size: int) -> Array:
        top, left, flip = crop
        image = cv2.cvtColor(cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        image = cv2.resize(image, (size, size), interpolation=cv2.INTER_LINEAR)
        image = image[top : top + crop_size, left : left + crop_size]
        return (cv2.flip(image, 1) if flip else image).astype(np.float32)

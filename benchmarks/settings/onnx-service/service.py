"""Answers requests: the classes of images that a client sends as bytes."""

import numpy as np
import onnxruntime
from model import SIDE


class ImageService:
    """A service with one model.

    Args:
        model: The model as an ONNX file.
        options: Options of the session; by default those of ONNX Runtime.
    """

    def __init__(self, model: bytes, options: object = None) -> None:
        self._session = onnxruntime.InferenceSession(model, options)

    def answer(self, request: bytes) -> list[int]:
        """Return the class of each image.

        Args:
            request: Pixels of the images: bytes of red, green and blue.
        """
        pixels = np.frombuffer(request, np.uint8).reshape(-1, SIDE, SIDE, 3)
        images = pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255
        (logits,) = self._session.run(None, {"images": images})
        return logits.argmax(axis=1).tolist()

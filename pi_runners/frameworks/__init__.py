"""Implementations of the operations that indicators use, one for each framework."""

from __future__ import annotations

import importlib

from pi_runners.harness.contract import Backend, Parameters, Unsupported

_CLASSES = {
    "numpy": "NumpyBackend",
    "tensorflow": "TensorflowBackend",
    "torch": "TorchBackend",
    "jax": "JaxBackend",
    "onnxruntime": "OnnxruntimeBackend",
    "pillow": "PillowBackend",
    "opencv": "OpencvBackend",
    "tokenizers": "TokenizersBackend",
}
"""Class of each backend; the module has the name of the backend."""


def make_backend(name: str, device: str, dtype: str, settings: Parameters) -> Backend:
    """Import a framework and return its backend.

    Args:
        name: Name of the backend.
        device: ``cpu`` or ``cuda``.
        dtype: Element type.
        settings: Run-time settings by name.

    Raises:
        Unsupported: If there is no such backend, or it does not support the device or the element type.
        ImportError: If the framework cannot be imported; a framework may also raise any other exception.
    """
    if name not in _CLASSES:
        raise Unsupported("there is no backend `{}`".format(name))
    module = importlib.import_module("pi_runners.frameworks.{}.operations".format(name))
    backend: Backend = getattr(module, _CLASSES[name])(device, dtype, settings)
    return backend

"""How each framework spells the operations that indicators are written in."""

from __future__ import annotations

import importlib

from pi_runners.harness.contract import Backend, Parameters, Unsupported

FRAMEWORKS = {
    "numpy": "numpy",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tf-nightly": "tensorflow",
    "torch": "torch",
    "jax": "jax",
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime",
}
"""Backend of each distribution that provides a framework."""

BACKENDS = {
    "numpy": "NumpyBackend",
    "tensorflow": "TensorflowBackend",
    "torch": "TorchBackend",
    "jax": "JaxBackend",
    "onnxruntime": "OnnxruntimeBackend",
}
"""Class of each backend, in the module of its name."""


def make_backend(name: str, device: str, dtype: str, settings: Parameters) -> Backend:
    """Import a framework and return its backend.

    Raises:
        Unsupported: If the backend, the device or the element type is not to be had.
        ImportError: If the framework does not import; frameworks may raise anything else, too.
    """
    if name not in BACKENDS:
        raise Unsupported("there is no backend `{}`".format(name))
    module = importlib.import_module("pi_runners.backends." + name)
    backend: Backend = getattr(module, BACKENDS[name])(device, dtype, settings)
    return backend

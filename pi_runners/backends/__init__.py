"""How each framework spells an indicator."""

from __future__ import annotations

from pi_runners.harness.contract import Backend, Unsupported

FRAMEWORKS = {
    "numpy": "numpy",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tf-nightly": "tensorflow",
    "torch": "torch",
}
"""Backend of each distribution that provides a framework."""


def make_backend(name: str, device: str, dtype: str) -> Backend:
    """Import a framework and return its backend.

    Raises:
        Unsupported: If the backend, the device or the element type is not to be had.
        ImportError: If the framework does not import; frameworks may raise anything else, too.
    """
    if name == "numpy":
        from pi_runners.backends.numpy import NumpyBackend

        return NumpyBackend(device, dtype)
    if name == "tensorflow":
        from pi_runners.backends.tensorflow import TensorflowBackend

        return TensorflowBackend(device, dtype)
    if name == "torch":
        from pi_runners.backends.torch import TorchBackend

        return TorchBackend(device, dtype)
    raise Unsupported("there is no backend `{}`".format(name))

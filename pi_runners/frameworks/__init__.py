"""The frameworks: a folder for each, found by its name.

The modules of a folder run inside measured environments, as :mod:`pi_runners.harness` does: `operations` has the class
of the backend, such as ``TorchBackend``; `models`, if there is one, has the function `build` for whole models. Its
folder ``profile`` reads traces, and its file ``framework.toml`` describes the framework for the rest of the program
(:mod:`knowledge.domain.frameworks`).
"""

from __future__ import annotations

import importlib
import importlib.util

from pi_runners.harness.contract import Backend, Parameters, Unsupported


def make_backend(name: str, device: str, dtype: str, settings: Parameters) -> Backend:
    """Import a framework and return its backend.

    Args:
        name: Name of its folder.
        device: ``cpu`` or ``cuda``.
        dtype: Element type.
        settings: Run-time settings by name.

    Raises:
        Unsupported: If there is no such backend, or it does not support the device or the element type.
        ImportError: If the framework cannot be imported; a framework may also raise any other exception.
    """
    if not name.isidentifier() or importlib.util.find_spec("{}.{}".format(__name__, name)) is None:
        raise Unsupported("there is no backend `{}`".format(name))
    operations = importlib.import_module("{}.{}.operations".format(__name__, name))
    backend: Backend = getattr(operations, name.capitalize() + "Backend")(device, dtype, settings)
    return backend

"""Settings around the models of a program that nobody edits; it runs in the program, after ``import torch``.

The outermost call of a module with parameters is what a person would write the code around: ``model(images)``. A result
becomes float32 again, so that what follows, such as the loss, computes in float32.

``torch.compile`` is not applied here. Checked with PyTorch 2.13: with replaced calls it compiled more graphs than
``torch.compile(model)`` does, and gave other numbers, so another program would be measured.
"""

import threading
from typing import Any, Callable

import torch

_calls = threading.local()


def autocast(dtype: Any, use: Callable[[], None], refuse: Callable[[str], None]) -> None:
    """Compute the outermost calls of modules with ``torch.autocast``, and return their results as float32.

    Args:
        dtype: Element type.
        use: Called after each call that computed with it.
        refuse: Called with the reason if one cannot.
    """
    if not hasattr(torch, "get_autocast_dtype"):
        raise RuntimeError("it needs PyTorch 2.4 or newer")

    def compute(module: Any, call: Callable[[], Any]) -> Any:
        parameters = [p for p in module.parameters() if p.is_floating_point()]
        device = parameters[0].device.type if parameters else ""
        if not device:
            return call()
        if torch.is_autocast_enabled(device):
            if torch.get_autocast_dtype(device) != dtype:
                refuse("the program computes with `torch.autocast` and another type")
            # Checkpoints call modules again for the gradients, with autocast as before.
            return call()
        if any(p.dtype != torch.float32 for p in parameters):
            refuse("a model of the program has parameters that are not float32")
            return call()
        with torch.autocast(device, dtype=dtype):
            result = call()
        if hasattr(result, "__next__"):
            refuse("a model of the program returns a generator, which computes after the call")
        use()
        return _as_float32(result, dtype)

    _around_outermost_calls(compute)


def _around_outermost_calls(compute: Callable[[Any, Callable[[], Any]], Any]) -> None:
    original = torch.nn.Module.__call__

    def outermost(module: Any, *arguments: Any, **named: Any) -> Any:
        if getattr(_calls, "is_inside", False):
            return original(module, *arguments, **named)
        _calls.is_inside = True
        try:
            return compute(module, lambda: original(module, *arguments, **named))
        finally:
            _calls.is_inside = False

    torch.nn.Module.__call__ = outermost


def _as_float32(result: Any, dtype: Any) -> Any:
    """Return a result whose tensors of a type are float32, also those in lists, tuples and dictionaries."""
    if isinstance(result, torch.Tensor):
        return result.float() if result.dtype == dtype else result
    if isinstance(result, dict):
        return type(result)({name: _as_float32(value, dtype) for name, value in result.items()})
    if isinstance(result, (list, tuple)):
        values = [_as_float32(value, dtype) for value in result]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)
    return result

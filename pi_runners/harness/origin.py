"""Finds the origin of an exception: the measured framework, or this program.

An exception of the framework says something about its version. An exception of the program's inputs, checks and timing
does not, and neither does a call of a backend that does not fit the version's interface. The innermost frame that
belongs to the framework or to this program decides; frames of the standard library count as their caller's.
"""

from __future__ import annotations

import sysconfig
import traceback
from types import FrameType
from typing import Optional

from pi_runners.harness.contract import Backend

_MEMORY_WORDS = ("memoryerror", "outofmemory", "out of memory", "resourceexhausted", "oom when allocating")
_UNSUPPORTED_WORDS = (
    *("notimplemented", "not implemented", "unimplemented"),
    *("registered kernels", "allowed values", "does not support"),
)
MISUSE = (AttributeError, TypeError, NameError, LookupError, AssertionError)
"""Exceptions in a backend's own frame that mean that its call does not fit the framework's version.

C code of a framework raises some of them, too, and has no frame of its own. In both cases the call was wrong; this
says nothing about the version's behaviour with a correct call."""


def is_ours(error: BaseException, instruments: Optional[str] = None) -> bool:
    """Return whether an exception comes from this program or a library in ``instruments``, not from the framework."""
    if isinstance(error, KeyboardInterrupt):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("pi_runners.frameworks.") or isinstance(frame.f_locals.get("self"), Backend):
            return isinstance(error, MISUSE)
        if module.startswith("pi_runners."):
            return True
        if instruments and frame.f_code.co_filename.startswith(instruments):
            return True
        if not _is_standard(frame):
            return False
    return True


def _is_standard(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    if path.startswith("<frozen "):
        return True
    standard = sysconfig.get_paths()["stdlib"]
    return path.startswith(standard) and "site-packages" not in path and "dist-packages" not in path


def failure_class(error: BaseException) -> str:
    """Return the status for an exception of a framework.

    Many frameworks report a missing kernel only in the message of the exception.
    """
    text = "{} {}".format(type(error).__name__, error).lower()
    if any(word in text for word in _MEMORY_WORDS):
        return "out-of-memory"
    return "unsupported" if any(word in text for word in _UNSUPPORTED_WORDS) else "error"

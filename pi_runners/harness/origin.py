"""Where an exception comes from: the measured framework, or this harness.

What the framework raises is knowledge about its version. What inputs, checks and timing raise is not, and neither is a
backend of ours that names what a version does not have. The innermost frame that belongs to one of them decides; frames
of the standard library belong to whom called it.
"""

from __future__ import annotations

import sysconfig
import traceback
from types import FrameType
from typing import Optional

from pi_runners.harness.contract import Backend

MISUSE = (AttributeError, TypeError, NameError, LookupError, AssertionError)
"""What a backend of ours raises itself where it does not know a version of its framework.

C code of a framework raises some of these, too, and then without a frame of its own. Both say that our call was wrong,
and nothing of how the version does with a right one."""


def is_ours(error: BaseException, instruments: Optional[str] = None) -> bool:
    """Whether an exception says nothing of the framework.

    Args:
        error: The exception, with its traceback.
        instruments: Directory of measuring libraries, which are no part of the stack.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("pi_runners.backends.") or isinstance(frame.f_locals.get("self"), Backend):
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

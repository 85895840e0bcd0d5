"""Whether programs may use AMX: on Linux, the kernel gives the state of its tiles only to programs that ask for it.

``/proc/cpuinfo`` also lists AMX where a container, an older kernel or a hypervisor does not permit it. Libraries that
use AMX ask the same question, and use other instructions if the answer is no.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import dataclass

SOURCE = "https://docs.kernel.org/arch/x86/xstate.html"
"""Page that describes the system call, its options and the numbers of the states."""
# 158 is `arch_prctl` on x86-64. A permission lasts as long as the process, so a process of its own asks.
_PROGRAM = """\
import ctypes
ARCH_GET_XCOMP_SUPP, ARCH_REQ_XCOMP_PERM, XTILEDATA = 0x1021, 0x1023, 18
arch_prctl = lambda *arguments: ctypes.get_errno() if libc.syscall(158, *arguments) else 0
libc = ctypes.CDLL(None, use_errno=True)
states = ctypes.c_uint64()
print(
    arch_prctl(ARCH_GET_XCOMP_SUPP, ctypes.byref(states)),
    states.value >> XTILEDATA & 1,
    arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA),
)
"""
_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AmxPermission:
    """Answer of the kernel.

    Attributes:
        granted: Whether programs may use AMX; none if that could not be found out.
        reason: Why not, or why it could not be found out; else empty.
    """

    granted: bool | None
    reason: str = ""


def ask_amx_permission() -> AmxPermission:
    """Ask the kernel of this machine, which is Linux on x86-64, in a process of its own."""
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return AmxPermission(granted=None, reason=f"the kernel gave no answer: {error}")
    return read_amx_answer(run.stdout)


def read_amx_answer(text: str) -> AmxPermission:
    """Read three numbers: the error of the question, whether the kernel has the state, and the error of the request.

    Args:
        text: The numbers, separated by spaces; an error is a number of ``errno``, 0 for none.
    """
    unanswered, has_state, refused = (int(number) for number in text.split())
    if unanswered:
        reason = f"the kernel does not answer `arch_prctl(ARCH_GET_XCOMP_SUPP)` ({_error(unanswered)})"
    elif not has_state:
        reason = "the kernel does not have the state of the tiles (XTILEDATA)"
    elif refused:
        reason = f"the kernel refuses `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)` ({_error(refused)})"
    else:
        return AmxPermission(granted=True)
    return AmxPermission(granted=False, reason=reason)


def _error(number: int) -> str:
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"

"""Features of processors that decide about matrix arithmetic: whether a reduced precision is fast or slow.

The name of a microarchitecture is not enough. If a hypervisor hides one feature, the processor has the name of an older
one: archspec calls a Xeon with AMX `icelake` if `waitpkg` is hidden, because its `sapphirerapids` has this feature.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from knowledge.domain.hardware import Cpu
from knowledge.records import shipped_yaml

_GENERIC = "generic"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameGap:
    """What the name of a processor's microarchitecture does not say.

    Attributes:
        beyond: Features for matrix arithmetic that the processor has, but not the microarchitecture, in order.
        nearest: The most similar microarchitecture that has some of them; empty if there is none.
        missing: Features without which the processor is not called that, sorted.
    """

    beyond: tuple[str, ...]
    nearest: str = ""
    missing: tuple[str, ...] = ()


def feature_meanings() -> Mapping[str, Mapping[str, str]]:
    """Return meaning and source of each feature that decides about matrix arithmetic, by its name."""
    return dict(shipped_yaml("knowledge.hardware", "matrix_features.yaml")["features"])


def features_by_element_type() -> Mapping[str, Sequence[str]]:
    """Return the features that multiply matrices of each element type, the fastest first."""
    return dict(shipped_yaml("knowledge.hardware", "matrix_features.yaml")["units"])


def element_types() -> tuple[str, ...]:
    """Return the element types that features decide about, in the order of :func:`matrix_units`."""
    return tuple(features_by_element_type())


@lru_cache(maxsize=256)
def matrix_features(cpu: Cpu) -> tuple[str, ...] | None:
    """Return a processor's features that decide about matrix arithmetic, in the order of the catalogue.

    If the features of the processor are not listed, the features of its microarchitecture count; ``None`` if both are
    unknown.
    """
    listed = cpu.features or features_by_name(cpu.microarchitecture)
    return None if listed is None else _in_order(listed)


@lru_cache(maxsize=256)
def matrix_units(cpu: Cpu) -> tuple[str, ...]:
    """Return the fastest feature that multiplies matrices, or an empty text, for each of :func:`element_types`.

    The result is an empty tuple if the features are unknown.
    """
    features = matrix_features(cpu)
    if features is None:
        return ()
    listed = features_by_element_type().values()
    return tuple(next((name for name in names if name in features), "") for names in listed)


def name_gap(cpu: Cpu) -> NameGap | None:
    """Return what the name of a processor's microarchitecture does not say about its matrix arithmetic.

    The result is ``None`` if the name says all of it, or archspec does not know the name.
    """
    by_name = features_by_name(cpu.microarchitecture, also_generic=True)
    if not cpu.features or by_name is None:
        return None
    beyond = tuple(name for name in _in_order(cpu.features) if name not in by_name)
    if not beyond:
        return None
    import archspec.cpu

    targets = archspec.cpu.TARGETS
    # A partial target resolves features with different names in archspec and the kernel.
    own = archspec.cpu.Microarchitecture("", [], cpu.vendor, set(cpu.features), {})
    microarchitecture = targets[cpu.microarchitecture]
    newer = [
        (sorted(feature for feature in target.features if feature not in own), target.name)
        for target in targets.values()
        if target > microarchitecture and target.vendor == cpu.vendor and target.features & set(beyond)
    ]
    if not newer:
        return NameGap(beyond=beyond)
    missing, nearest = min(newer, key=lambda pair: (len(pair[0]), pair[1]))
    return NameGap(beyond=beyond, nearest=nearest, missing=tuple(missing))


def _in_order(features: Iterable[str]) -> tuple[str, ...]:
    """Return the features that decide about matrix arithmetic, in the order of the catalogue."""
    available = set(features)
    return tuple(name for name in feature_meanings() if name in available)


def features_by_name(microarchitecture: str, *, also_generic: bool = False) -> frozenset[str] | None:
    """Return the features of a microarchitecture; ``None`` if they are unknown.

    The processors of a generic level have more features than the level. With ``also_generic``, only the level's count.
    """
    try:
        import archspec.cpu
    except ImportError:
        return None
    target = archspec.cpu.TARGETS.get(microarchitecture)
    if target is None or (target.vendor == _GENERIC and not also_generic):
        return None
    more = shipped_yaml("knowledge.hardware", "matrix_features.yaml")["beyond_archspec"].get(microarchitecture, {})
    return frozenset(target.features) | frozenset(more.get("features", ()))


AMX_SOURCE = "https://docs.kernel.org/arch/x86/xstate.html"
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
    """Answer of the kernel, which on Linux gives the state of AMX's tiles only to programs that ask for it.

    ``/proc/cpuinfo`` also lists AMX where a container, an older kernel or a hypervisor does not permit it. Libraries
    that use AMX ask the same question, and use other instructions if the answer is no.

    Attributes:
        granted: Whether programs may use AMX; ``None`` if that could not be found out.
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

    An error is a number of ``errno``, 0 for none.
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

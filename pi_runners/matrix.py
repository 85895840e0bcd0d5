"""Which jobs a measurement is made of: stacks x indicators x rounds."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from knowledge.domain.errors import InputError
from knowledge.domain.observation import IndicatorRun
from pi_runners.backends import FRAMEWORKS
from pi_runners.environment import StackLock
from pi_runners.indicators import INDICATORS


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A stack's place in a block.

    Attributes:
        number: Place in the order of the first round, from 0.
        lock: The stack.
        framework: Distribution that provides the backend.
        reference: Whether the other slots are compared with this one.
        indicators: What is run on it.
    """

    number: int
    lock: StackLock
    framework: str
    reference: bool
    indicators: tuple[IndicatorRun, ...]

    @property
    def backend(self) -> str:
        """Backend that runs the indicators."""
        return FRAMEWORKS[self.framework]


def framework_of(lock: StackLock) -> str:
    """Return the distribution whose backend measures a stack: the first requested one that has a backend.

    Raises:
        InputError: If none has.
    """
    for requested in lock.requested:
        name = canonicalize_name(Requirement(requested).name)
        if name in FRAMEWORKS:
            return name
    raise InputError(
        f"stack `{lock.label}` names no framework that can be measured",
        hint=f"name one of {', '.join(f'`{name}`' for name in FRAMEWORKS)}",
    )


def plan_slots(
    locks: tuple[StackLock, ...], names: tuple[str, ...], *, size: str, dtype: str, device: str, again: bool
) -> tuple[Slot, ...]:
    """Plan the slots of a block.

    The first stack of each backend is that backend's reference.

    Args:
        locks: The stacks, in order.
        names: Indicators.
        size: Parameter set.
        dtype: Element type.
        device: ``cpu`` or ``cuda``; backends without CUDA run on the CPU.
        again: Whether each reference takes a second slot: an A/A comparison, the noise floor.

    Raises:
        InputError: If an indicator, a size or a stack's framework is not known.
    """
    for name in names:
        if name not in INDICATORS:
            raise InputError(f"there is no indicator `{name}`", hint="`advisor pi list` names them")
        if size not in INDICATORS[name].sizes:
            raise InputError(
                f"indicator `{name}` has no size `{size}`", hint=f"take one of {list(INDICATORS[name].sizes)}"
            )
    slots: list[Slot] = []
    referenced: set[str] = set()
    twins: list[tuple[StackLock, str]] = []
    for lock in locks:
        framework = framework_of(lock)
        backend = FRAMEWORKS[framework]
        runs = _runs(names, backend, size=size, dtype=dtype, device=device)
        slots.append(
            Slot(
                number=len(slots), lock=lock, framework=framework, reference=backend not in referenced, indicators=runs
            )
        )
        if backend not in referenced:
            twins.append((lock, framework))
        referenced.add(backend)
    for lock, framework in twins if again else ():
        runs = _runs(names, FRAMEWORKS[framework], size=size, dtype=dtype, device=device)
        slots.append(Slot(number=len(slots), lock=lock, framework=framework, reference=False, indicators=runs))
    return tuple(slots)


def _runs(names: tuple[str, ...], backend: str, *, size: str, dtype: str, device: str) -> tuple[IndicatorRun, ...]:
    return tuple(
        IndicatorRun(
            name=name,
            version=INDICATORS[name].version,
            backend=backend,
            device="cpu" if backend == "numpy" else device,
            dtype=dtype,
            parameters=INDICATORS[name].parameters_for(size, backend),
        )
        for name in names
        if backend in INDICATORS[name].backends
    )

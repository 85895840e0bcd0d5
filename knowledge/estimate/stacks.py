"""Which of the stacks that were measured is faster, for one indicator: what is comparable, and why the rest is not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.estimate.compare import Comparison, References, compare_block, measured_references, refusals


class NotComparableError(InputError):
    """Raised when stacks that are to be compared were not measured so that they can be."""

    code = "not-comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackComparisons:
    """The comparisons of one indicator, and what was not compared.

    Attributes:
        comparisons: By block, label and arm.
        refused: One sentence for each group of runs that is not compared, with the reason.
    """

    comparisons: tuple[Comparison, ...]
    refused: tuple[str, ...]


def stack_name(o: Observation) -> str:
    """Return the framework's version and the settings of a run, for people."""
    switches = "".join(f" {name}={value}" for name, value in sorted(o.settings.items()))
    return f"{o.framework} {o.stack.version_of(o.framework) or '(version not told)'}{switches}"


def is_machine(hardware: HardwareProfile, wanted: str) -> bool:
    """Whether a machine is meant by its name, microarchitecture, accelerator model, or a prefix of its identity."""
    names = {hardware.name, hardware.cpu.microarchitecture, *(a.model for a in hardware.accelerators)}
    if wanted.lower() in {name.lower() for name in names}:
        return True
    return len(wanted) > 5 and hardware.identity.startswith(wanted)


def compare_stacks(observations: Iterable[Observation], *, stacks: Sequence[str] = ()) -> StackComparisons:
    """Compare stacks within the blocks that they share.

    Without ``stacks``, each stack is compared with the reference of its block. Stacks that are named are compared with
    each other: with the reference of the block if it is one of them, else with the first of them that the block holds.

    Args:
        observations: Observations of one indicator, in any sizes.
        stacks: Stacks to compare, written as ``FRAMEWORK==VERSION``; all if empty.

    Returns:
        The comparisons, and the runs that are not compared.

    Raises:
        NotComparableError: If stacks are named and no block compares them; the message says why.
    """
    observations = tuple(observations)
    if not stacks:
        return StackComparisons(
            comparisons=compare_block(observations),
            refused=(*_refused(observations, measured_references(observations)), *_alone(observations)),
        )
    _check(observations, frozenset(stacks))
    chosen = frozenset(stacks)
    references = _references(observations, stacks)
    comparisons = tuple(
        c
        for c in compare_block(observations, references=references)
        if {_requirement(c.observation), _requirement(c.reference)} <= chosen
    )
    refused = _refused([o for o in observations if _requirement(o) in chosen], references)
    if not comparisons:
        raise _nothing_compared(chosen, refused)
    return StackComparisons(comparisons=comparisons, refused=refused)


def _references(observations: Sequence[Observation], stacks: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return what named stacks are compared with, by block and label: the block's reference, or else the first stack.

    If a stack was measured with several settings, the arm with the fewest settings counts.
    """
    arms: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for o in observations:
        if o.status == "ok" and (name := _requirement(o)) in stacks:
            place = -1 if o.reference else stacks.index(name)
            arms[o.block, o.indicator.label].append((place, len(o.settings), o.arm))
    return {key: min(candidates)[-1] for key, candidates in arms.items()}


def _refused(observations: Iterable[Observation], references: References) -> tuple[str, ...]:
    return tuple(
        f"`{stack_name(r.observation)}` in block `{r.block}`, {r.indicator}, {r.rounds} rounds: {r.reason}"
        for r in refusals(observations, references=references)
    )


def _nothing_compared(stacks: Collection[str], refused: Sequence[str]) -> NotComparableError:
    if len(stacks) == 1:
        return NotComparableError(
            f"only {_listed(stacks)} is named, and it was measured with one combination of settings",
            hint="name two stacks, or omit `--stack` to compare all stacks with the reference of their block",
        )
    return NotComparableError(
        f"{_listed(stacks)} cannot be compared: fewer than two rounds of a block measured them under equal conditions",
        hint=refused[0] if refused else "measure them with more rounds (`advisor pi run --rounds`)",
    )


def _requirement(o: Observation) -> str:
    return f"{o.framework}=={o.stack.version_of(o.framework)}"


def _listed(names: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in sorted(names))


def _check(observations: tuple[Observation, ...], asked: frozenset[str]) -> None:
    """Refuse stacks that no one block holds with one indicator."""
    places: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in asked}
    for o in observations:
        if o.status == "ok" and (name := _requirement(o)) in asked:
            for key, value in (
                ("label", o.indicator.label),
                ("block", o.block),
                ("machine", o.hardware.identity),
                ("both", f"{o.block} {o.indicator.label}"),
            ):
                places[name][key].add(value)
    missing = [name for name in asked if not places[name]]
    if missing:
        raise NotComparableError(
            f"{_listed(missing)} was not measured with this indicator",
            hint="`advisor knowledge compare --indicator NAME` lists what was",
        )
    if set.intersection(*(places[name]["both"] for name in asked)):
        return
    reasons = {
        "machine": "they were measured on different machines",
        "label": "they ran other sizes, element types, backends or versions of the indicator",
        "block": "they were measured in different blocks, at different times",
    }
    why = next(
        (reason for key, reason in reasons.items() if not set.intersection(*(places[name][key] for name in asked))),
        "no block ran one size of the indicator on all of them",
    )
    raise NotComparableError(
        f"{_listed(asked)} cannot be compared: {why}, and ratios across those are not of stacks alone",
        hint="measure them in one block with `advisor pi run`, or ask `advisor knowledge estimate`",
    )


def _alone(observations: Iterable[Observation]) -> list[str]:
    """Tell which runs have no reference to be compared with."""
    references: set[tuple[str, str]] = set()
    others: dict[tuple[str, str], set[str]] = defaultdict(set)
    for o in observations:
        if o.status == "ok":
            key = o.block, o.indicator.label
            if o.reference:
                references.add(key)
            else:
                others[key].add(stack_name(o))
    return [
        f"{', '.join(f'`{name}`' for name in sorted(names))} in block `{block}`, {label}: the reference did not run"
        for (block, label), names in sorted(others.items())
        if (block, label) not in references
    ]

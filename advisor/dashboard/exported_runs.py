"""Runs of a block, as an exported page lists them: a row for each arm, a cell for each round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack
from knowledge.evidence.conditions import differing_conditions
from knowledge.evidence.stacks import stack_name
from knowledge.store.base import KnowledgeBase

IDENTITY_LENGTH = 10
"""Characters of an identity on the page."""
_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"))
_OF_MOMENT = "load_"
"""Beginning of the names of conditions that differ in every run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run: its median in the unit of its size, or how it failed, and the identity of its observation."""

    text: str
    is_failed: bool
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOfArm:
    """The runs of an arm at one size.

    Attributes:
        anchor: Where it is on the page.
        name: Framework, version and settings.
        is_reference: Whether the others are compared with it.
        runs: The run of each round; ``None`` if there is none.
        differences: Rounds whose conditions differed from those of the reference, with the conditions.
    """

    anchor: str
    name: str
    is_reference: bool
    runs: tuple[ListedRun | None, ...]
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOfSize:
    """The runs at one size of an indicator: its label, the unit of the medians, and its arms."""

    label: str
    unit: str
    rows: tuple[RunsOfArm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedStack:
    """A stack of the block.

    Attributes:
        arm: Number of its arm.
        name: Framework, version and settings.
        identity: Identity of the stack.
        environment: Conditions of its first run that differ from those of the reference's first run.
    """

    arm: int
    name: str
    identity: str
    environment: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRuns:
    """The runs of a block.

    Attributes:
        block: The block.
        machines: Names of the machines.
        first: Start time of the first run, ISO 8601.
        newest: The same of the newest one.
        observations: Number of runs.
        reference: Framework, version and settings of the reference, or of the first arm if there is none.
        environment: Conditions of its first run.
        stacks: The arms with their stacks.
        rounds: Numbers of the rounds.
        sizes: The runs of each size.
        identity_length: Characters of an identity on the page.
    """

    block: str
    machines: tuple[str, ...]
    first: str
    newest: str
    observations: int
    reference: str
    environment: tuple[tuple[str, str], ...]
    stacks: tuple[ListedStack, ...]
    rounds: tuple[int, ...]
    sizes: tuple[RunsOfSize, ...]
    identity_length: int = IDENTITY_LENGTH


def anchor_of(place: int, arm: int) -> str:
    """Return where an arm is on the page, for the place of its label among the sorted labels of the block."""
    return f"{place}.{arm}"


def block_runs(store: KnowledgeBase, block: str) -> tuple[BlockRuns, Mapping[str, tuple[str, Stack]]]:
    """Return the runs of a block, and its stacks with their names by identity."""
    observations = tuple(store.observations(block=block))
    first = next((o for o in observations if o.reference), observations[0])
    by_label: dict[str, list[Observation]] = defaultdict(list)
    arms: dict[tuple[int, str], Observation] = {}
    for o in observations:
        by_label[o.indicator.label].append(o)
        arms.setdefault((o.arm, stack_name(o)), o)
    rounds = tuple(sorted({o.round for o in observations}))
    times = [o.started_at for o in observations]
    runs = BlockRuns(
        block=block,
        machines=tuple(sorted({o.hardware.name for o in observations})),
        first=min(times),
        newest=max(times),
        observations=len(observations),
        reference=stack_name(first),
        environment=tuple((name, _text(first, name)) for name in sorted(first.environment)),
        stacks=tuple(
            ListedStack(arm=arm, name=name, identity=o.stack.identity, environment=_differences(o, first))
            for (arm, name), o in sorted(arms.items(), key=lambda item: item[0])
        ),
        rounds=rounds,
        sizes=tuple(_size(place, *item, rounds) for place, item in enumerate(sorted(by_label.items()))),
    )
    return runs, {o.stack.identity: (_version_name(o), o.stack) for o in arms.values()}


def _size(place: int, label: str, members: Sequence[Observation], rounds: Sequence[int]) -> RunsOfSize:
    by_arm: dict[int, dict[int, Observation]] = defaultdict(dict)
    for o in members:
        by_arm[o.arm][o.round] = o
    references = {o.round: o for o in members if o.reference}
    factor, unit = _unit(references.values() or members)
    return RunsOfSize(
        label=label,
        unit=unit,
        rows=tuple(
            RunsOfArm(
                anchor=anchor_of(place, arm),
                name=stack_name(runs[min(runs)]),
                is_reference=runs[min(runs)].reference,
                runs=tuple(_listed(runs.get(number), factor) for number in rounds),
                differences=tuple(
                    f"round {number}: {', '.join(conditions)}"
                    for number, run in sorted(runs.items())
                    if number in references and (conditions := differing_conditions(run, references[number]))
                ),
            )
            for arm, runs in sorted(by_arm.items())
        ),
    )


def _unit(runs: Iterable[Observation]) -> tuple[float, str]:
    """Return the unit in which the first median of some runs is a number from 1 to 1000, with its factor."""
    seconds = next((o.median for o in runs if o.median), 1.0)
    return next(((factor, unit) for factor, unit in _UNITS if seconds * factor >= 1), _UNITS[-1])


def _listed(o: Observation | None, factor: float) -> ListedRun | None:
    if o is None:
        return None
    is_failed = o.median is None
    text = o.status if o.median is None else f"{o.median * factor:.4g}"
    return ListedRun(text=text, is_failed=is_failed, identity=o.identity[:IDENTITY_LENGTH])


def _differences(own: Observation, reference: Observation) -> tuple[str, ...]:
    names = sorted({*own.environment, *reference.environment})
    return tuple(
        f"{name} {_text(own, name) or 'not set'}"
        for name in names
        if not name.startswith(_OF_MOMENT) and _text(own, name) != _text(reference, name)
    )


def _text(o: Observation, name: str) -> str:
    return str(o.environment.get(name, ""))


def _version_name(o: Observation) -> str:
    return f"{o.framework} {o.stack.version_of(o.framework) or '(unknown version)'}"

"""Two stacks, their differences, and the stacks in between: which differences can change alone.

The metadata of both stacks say which differences need others: if the bad version of a package requires what only the
bad version of another one satisfies, the first cannot be as in the bad stack without the second. Differences that need
each other are a group, which changes as a whole. So every stack in between satisfies all requirements that both stacks
satisfy, and consists of their files alone: no third version confuses the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from packaging.utils import NormalizedName

from advisor.experiment.arms import ExperimentArm
from advisor.experiment.bisection import Combination
from advisor.experiment.change import Change
from advisor.resolve.candidates.problem import Candidate, CandidateStack, Dependency, admits
from knowledge.domain.observation import Scalar

INTERPRETER = "python"
Kind = Literal["package", "setting", "interpreter"]
Side = Literal[0, 1]
"""The good (0) or the bad (1) stack."""
_SIDES: tuple[Side, Side] = (0, 1)


@dataclass(frozen=True, kw_only=True)
class StackEnd:
    """One of the two stacks.

    Attributes:
        name: What the user named.
        python: Path or version of its interpreter.
        python_minor: `major.minor` of its interpreter.
        stack: Its packages, with the files to install.
        settings: Run-time settings that are applied from outside of the program.
        notes: What of it is not measured, and why.
    """

    name: str
    python: str
    python_minor: str
    stack: CandidateStack = field(repr=False)
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class StackDifference(NamedTuple):
    """A difference between two stacks. They are sorted by kind and name.

    Attributes:
        kind: What differs.
        name: The package or the setting.
        good: Its version or value in the good stack; empty if it has none.
        bad: The same in the bad stack.
    """

    kind: Kind
    name: str
    good: str
    bad: str

    @property
    def text(self) -> str:
        """The difference in one line."""
        return f"{self.name} {self.good or 'absent'} -> {self.bad or 'absent'}"

    @property
    def pin(self) -> str:
        """What a requirement or a setting must be to have it as in the good stack; empty if nothing states it."""
        separator = {"package": "==", "setting": "=", "interpreter": " "}[self.kind]
        return f"{self.name}{separator}{self.good}" if self.good and not self.is_build else ""

    @property
    def is_build(self) -> bool:
        """Whether only the file differs, not the version."""
        return self.kind == "package" and self.good.partition(" ")[0] == self.bad.partition(" ")[0]


_Needed = tuple[StackDifference, StackDifference]


class StackPair:
    """Two stacks with their differences in groups, each after the groups that it needs.

    Attributes:
        good: The good stack.
        bad: The bad stack.
        groups: Differences that change together.
        needs: For each group, the numbers of the groups that it needs.
    """

    def __init__(
        self,
        good: StackEnd,
        bad: StackEnd,
        *,
        dependencies: Callable[[Candidate, NormalizedName | None, Side], Iterable[Dependency]],
        other_file: Callable[[Candidate, Side], Candidate | None],
    ) -> None:
        """Compare two stacks.

        Args:
            good: The good stack.
            bad: The bad stack.
            dependencies: Returns what a package requires, or one of its extras in addition, with the interpreter of a
                side.
            other_file: Returns the file of the same version for the interpreter of a side; ``None`` without one.
        """
        self.good, self.bad = good, bad
        self._ends = (good, bad)
        self._dependencies, self._other_file = dependencies, other_file
        pythons = (good.python_minor, bad.python_minor)
        self._interpreter = StackDifference("interpreter", INTERPRETER, *pythons) if pythons[0] != pythons[1] else None
        self._by_name = {(d.kind, d.name): d for d in self._differences()}
        self._extras: dict[NormalizedName, set[NormalizedName]] = {}
        for side, end in zip(_SIDES, self._ends, strict=True):
            for candidate in end.stack:
                for dependency in dependencies(candidate, None, side):
                    self._extras.setdefault(dependency.name, set()).update(dependency.extras)
        self.groups, self.needs = self._in_needed_order()

    def _in_needed_order(self) -> tuple[tuple[tuple[StackDifference, ...], ...], tuple[Combination, ...]]:
        """Return groups of differences that need each other, and for each group those that it needs."""
        import networkx

        graph: networkx.DiGraph[StackDifference] = networkx.DiGraph()
        graph.add_nodes_from(self._by_name.values())
        graph.add_edges_from(self._needed())
        groups = networkx.condensation(graph)
        members: dict[int, set[StackDifference]] = networkx.get_node_attributes(groups, "members")
        # Equal input gives equal order: by the first difference of each group.
        order = [*networkx.lexicographical_topological_sort(groups, key=lambda group: min(members[group]))]
        needs = (frozenset(map(order.index, groups.predecessors(group))) for group in order)
        return tuple(tuple(sorted(members[group])) for group in order), tuple(needs)

    def arm(self, combination: Combination) -> ExperimentArm:
        """Return the stack with some groups as in the bad stack, and the others as in the good one."""
        present = set(self.differences_in(combination))
        sides: dict[tuple[str, str], Side] = {key: 1 if d in present else 0 for key, d in self._by_name.items()}
        python = sides.get(("interpreter", INTERPRETER), 0)
        stack = (self._candidate(name, sides.get(("package", name), python), python) for name in self._names())
        values = {name: self._ends[sides.get(("setting", name), 0)].settings.get(name) for name in self._settings()}
        settings = (Change(name=n, value=v, is_setting=True) for n, v in values.items() if v is not None)
        return ExperimentArm(
            changes=tuple(settings),
            stack=CandidateStack(candidate for candidate in stack if candidate is not None),
            python=self._ends[python].python,
            name=self.name(combination),
        )

    def differences_in(self, combination: Iterable[int]) -> tuple[StackDifference, ...]:
        """Return the differences of some groups."""
        return tuple(difference for group in sorted(combination) for difference in self.groups[group])

    @property
    def has_equal_versions(self) -> bool:
        """Whether some files differ although their versions are equal: versions do not distinguish the stacks."""
        return any(difference.is_build for difference in self.all)

    @property
    def all(self) -> tuple[StackDifference, ...]:
        """All differences."""
        return self.differences_in(range(len(self.groups)))

    def name(self, combination: Combination) -> str:
        """Return how a stack differs from the nearer one of the two."""
        if len(combination) in (0, len(self.groups)):
            return "bad" if combination else "good"
        if 2 * len(combination) > len(self.groups):
            rest = self.differences_in(set(range(len(self.groups))) - combination)
            return f"bad with {' '.join(d.pin or f'no {d.name}' for d in rest)}"
        present = self.differences_in(combination)
        return f"good with {' '.join(f'{d.name}=={d.bad}' if d.bad else f'no {d.name}' for d in present)}"

    def _names(self) -> list[NormalizedName]:
        return sorted({*self.good.stack.by_name, *self.bad.stack.by_name})

    def _settings(self) -> list[str]:
        return sorted({*self.good.settings, *self.bad.settings})

    def _differences(self) -> Iterator[StackDifference]:
        if self._interpreter:
            yield self._interpreter
        for name in self._names():
            good_file, bad_file = (end.stack.by_name.get(name) for end in self._ends)
            if self._differ(good_file, bad_file):
                good, bad = _version_texts(good_file, bad_file)
                yield StackDifference("package", name, good, bad)
        for setting in self._settings():
            good, bad = (str(end.settings.get(setting, "")) for end in self._ends)
            if good != bad:
                yield StackDifference("setting", setting, good, bad)

    def _differ(self, good: Candidate | None, bad: Candidate | None) -> bool:
        if good is None or bad is None or good.version != bad.version:
            return True
        # Of one version, each interpreter has a file of its own.
        return not self._interpreter and good.file.sha256 != bad.file.sha256

    def _candidate(self, name: NormalizedName, side: Side, python: Side) -> Candidate | None:
        """Return the version that a package has on a side, as a file for the interpreter of a side."""
        candidate = self._ends[side].stack.by_name.get(name)
        if candidate is None or side == python or not self._interpreter:
            return candidate
        other = self._ends[python].stack.by_name.get(name)
        return other if other and other.version == candidate.version else self._other_file(candidate, python)

    # What needs what: pairs of a difference and another one that cannot be as in the bad stack without it.

    def _needed(self) -> Iterator[_Needed]:
        for name in self._names():
            own = self._by_name.get(("package", name))
            for side in _SIDES if own else _SIDES[:1]:
                for python in _SIDES if self._interpreter else (side,):
                    if candidate := self._candidate(name, side, python):
                        for dependency in self._all_dependencies(candidate, python):
                            yield from self._needed_by(own, dependency, side, python)
                    elif name in self._ends[side].stack.by_name:
                        yield from _pair(own, self._interpreter, side)

    def _needed_by(
        self, own: StackDifference | None, dependency: Dependency, side: Side, python: Side
    ) -> Iterator[_Needed]:
        """Yield what follows from one requirement of a package on a side, with the interpreter of a side."""
        required = self._by_name.get(("package", dependency.name))
        satisfied = [self._satisfies(dependency, other) for other in _SIDES]
        if required is None or all(satisfied):
            return
        if own is None:
            # The package is the same on both sides, and only one interpreter requires the other one.
            if satisfied[python]:
                yield from _pair(self._interpreter, required, python)
        elif satisfied[side]:
            yield from _pair(own, required, side)
        elif python != side:
            # It does not work with the other interpreter.
            yield from _pair(own, self._interpreter, side)

    def _satisfies(self, dependency: Dependency, side: Side) -> bool:
        candidate = self._ends[side].stack.by_name.get(dependency.name)
        return candidate is not None and admits(dependency.requirement, candidate.version)

    def _all_dependencies(self, candidate: Candidate, python: Side) -> Iterator[Dependency]:
        """Yield what a package requires, with each of its extras that anything in the stacks requires."""
        for extra in (None, *sorted(self._extras.get(candidate.name, ()))):
            yield from self._dependencies(candidate, extra, python)


def _pair(first: StackDifference | None, second: StackDifference | None, side: Side) -> Iterator[_Needed]:
    """Yield that the first difference is on a side only if the second one is."""
    if first and second and first != second:
        yield (second, first) if side == 1 else (first, second)


def _version_texts(good: Candidate | None, bad: Candidate | None) -> Sequence[str]:
    """Return the versions; with the beginning of the hashes, if only the files differ."""
    texts = [str(candidate.version) if candidate else "" for candidate in (good, bad)]
    if good and bad and texts[0] == texts[1]:
        return [f"{text} ({(c.file.sha256 or '')[:8]})" for text, c in zip(texts, (good, bad), strict=True)]
    return texts

"""The optimum is compared with brute force on thousands of small random problems."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.index.page import DistributionFile
from advisor.resolve.encode import Candidates, Limits
from advisor.resolve.optimise import NoSolution, Objective, optimise
from advisor.resolve.problem import Candidate, Dependency, Problem
from tests.advisor.made import problem_of

Made = dict[str, dict[int, dict[str, frozenset[int]]]]
"""Package -> version -> dependency -> admitted versions."""

NAMES = ("a", "b", "c", "d")


class MadeSource:
    """Candidates from a dictionary; metadata counts as unknown until it is fetched."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self._known: set[str] = set()

    @property
    def fetched(self) -> set[str]:
        return self._known

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(
                name=name,
                version=Version(str(v)),
                file=DistributionFile(filename=f"{name}-{v}.whl", url=f"{name}-{v}", index=""),
            )
            for v in sorted(self._made.get(name, {}), reverse=True)
        )

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...]:
        assert candidate.file.url in self._known, "metadata that was not fetched must not be looked at"
        required = self._made[candidate.name][candidate.version.major] if extra is None else {}
        return tuple(
            Dependency(name=canonicalize_name(name), requirement=_requirement(name, admitted))
            for name, admitted in sorted(required.items())
        )

    def vulnerabilities(self, candidate: Candidate) -> tuple[str, ...] | None:
        """Return no record."""
        return None

    def is_known(self, candidate: Candidate) -> bool:
        return candidate.file.url in self._known

    def fetch(self, candidates: Iterable[Candidate]) -> None:
        self._known.update(c.file.url for c in candidates)

    def prefetch(self, names: Iterable[NormalizedName]) -> None:
        """Nothing to do ahead."""


def _requirement(name: str, admitted: frozenset[int]) -> Requirement:
    excluded = "".join(f",!={v}" for v in range(1, 6) if v not in admitted)
    return Requirement(f"{name}>=0{excluded}")


def _stacks(made: Made, roots: Mapping[str, frozenset[int]]) -> Iterator[dict[str, int]]:
    """Yield every stack that satisfies the roots and holds nothing that is not required."""
    for choice in itertools.product(*([None, *made[name]] for name in NAMES)):
        stack = {name: v for name, v in zip(NAMES, choice, strict=True) if v is not None}
        if any(stack.get(name) not in admitted for name, admitted in roots.items()):
            continue
        needed, queue, fits = set(roots), list(roots), True
        while queue and fits:
            for name, admitted in made[(parent := queue.pop())][stack[parent]].items():
                fits = fits and stack.get(name) in admitted
                if fits and name not in needed:
                    needed.add(name)
                    queue.append(name)
        if fits and needed == set(stack):
            yield stack


versions = st.integers(1, 5)
subsets = st.frozensets(versions, min_size=1)
packages = st.dictionaries(
    versions, st.dictionaries(st.sampled_from(NAMES), subsets, max_size=2), min_size=1, max_size=4
)
problems = st.fixed_dictionaries(dict.fromkeys(NAMES, packages))
costs = st.dictionaries(st.tuples(st.sampled_from(NAMES), versions), st.integers(0, 5), max_size=12)


@settings(max_examples=400, deadline=None)
@given(
    made=problems,
    roots=st.dictionaries(st.sampled_from(NAMES[:2]), subsets, min_size=1),
    first=costs,
    second=costs,
    pairs=st.lists(st.tuples(versions, versions), max_size=3),
    forbidden=st.sets(st.tuples(st.sampled_from(NAMES), versions), max_size=3),
)
def test_the_optimum_is_that_of_brute_force(
    made: Made,
    roots: dict[str, frozenset[int]],
    first: dict[tuple[str, int], int],
    second: dict[tuple[str, int], int],
    pairs: list[tuple[int, int]],
    forbidden: set[tuple[str, int]],
) -> None:
    def value(stack: dict[str, int]) -> tuple[int, int]:
        paired = sum(stack.get("a") == v and stack.get("b") == w for v, w in set(pairs))
        return sum(first.get(item, 0) for item in stack.items()) + paired, sum(second.get(i, 0) for i in stack.items())

    allowed = [s for s in _stacks(made, roots) if not forbidden & set(s.items())]
    best = min(map(value, allowed), default=None)

    def objectives(reached: Candidates) -> tuple[Objective, ...]:
        there = {(name, c.version): (name, c.version.major) for name, offered in reached.items() for c in offered}
        a, b = canonicalize_name("a"), canonicalize_name("b")
        both = {((a, Version(str(v))), (b, Version(str(w)))): 1 for v, w in set(pairs)}
        return (
            Objective(
                name="first",
                costs={choice: first.get(key, 0) for choice, key in there.items()},
                pairs={p: c for p, c in both.items() if p[0] in there and p[1] in there},
            ),
            Objective(name="second", costs={choice: second.get(key, 0) for choice, key in there.items()}),
        )

    def limits(reached: Candidates) -> Limits:
        return Limits(
            forbidden={
                (n, c.version): "refused"
                for n, offered in reached.items()
                for c in offered
                if (n, c.version.major) in forbidden
            }
        )

    problem: Problem = problem_of(*(str(_requirement(name, admitted)) for name, admitted in sorted(roots.items())))
    source = MadeSource(made)
    try:
        optimum = optimise(problem, source, objectives=objectives, limits=limits, start=())
    except NoSolution:
        assert best is None
        return
    stack = {str(c.name): c.version.major for c in optimum.stack}
    assert best is not None
    assert stack in allowed
    assert value(stack) == best == tuple(b.value for b in optimum.bounds)
    assert optimum.proven

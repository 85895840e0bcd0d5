"""The optimum and the conflict are compared with brute force on hundreds of small random problems."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.resolve.candidates.problem import NoStackError
from advisor.resolve.explanation.conflict import find_conflict, find_pinned_conflict
from advisor.resolve.optimum.baseline import BaselineLimitError, resolve_baseline, verify
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.optimum.result import InfeasibleError, Optimum
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.score.costs import Candidates, Limits, Objective
from tests.advisor.factories import build_problem, empty_estimator
from tests.advisor.small_problems import (
    NAMES,
    FixedCosts,
    Releases,
    ReleaseSource,
    Requirements,
    Stack,
    VersionSet,
    criteria_for,
    newest_first,
    plain,
    problem,
    problems,
    request_of,
    some_roots,
    stacks,
    version_sets,
    versions,
)
from tests.examples import examples

choices = st.tuples(st.sampled_from(NAMES), versions)
costs = st.dictionaries(choices, st.integers(0, 5), max_size=12)
rewards = st.dictionaries(choices, st.integers(-3, 3), max_size=12)

Costs = dict[tuple[str, int], int]


def objective(name: str, costs: Costs, pairs: Iterable[tuple[int, int]], reached: Candidates) -> Objective:
    there = {(name, c.version): (name, c.version.major) for name, offered in reached.items() for c in offered}
    a, b = canonicalize_name("a"), canonicalize_name("b")
    both = {((a, Version(str(v))), (b, Version(str(w)))): 1 for v, w in pairs}
    return Objective(
        name=name,
        costs={choice: costs.get(key, 0) for choice, key in there.items()},
        pairs={p: c for p, c in both.items() if p[0] in there and p[1] in there},
    )


def solve(
    releases: Releases,
    roots: Mapping[str, VersionSet],
    ordered: Iterable[tuple[Costs, set[tuple[int, int]]]],
    *,
    forbidden: Iterable[tuple[str, int]] = (),
    explicit: int = 2,
    workers: int = 1,
) -> Optimum | None:
    """Return the optimum of the program, verified by the independent resolver; none if there is no stack."""
    ordered, forbidden = list(ordered), set(forbidden)
    source = ReleaseSource(releases)
    try:
        optimum = optimise(
            problem(roots),
            source,
            FixedCosts(
                objectives=lambda reached: [objective(str(i), c, p, reached) for i, (c, p) in enumerate(ordered)],
                limits=lambda reached: Limits(
                    forbidden={
                        (n, c.version): "refused"
                        for n, offered in reached.items()
                        for c in offered
                        if (n, c.version.major) in forbidden
                    }
                ),
                rewarded=tuple(map(canonicalize_name, NAMES))
                if any(c < 0 for costs, _ in ordered for c in costs.values())
                else (),
            ),
            start=(),
            explicit=explicit,
            effort=Effort(workers=workers),
        )
    except InfeasibleError:
        return None
    verify(problem(roots), source, optimum.stack)
    return optimum


def value(stack: Stack, costs: Costs, pairs: Iterable[tuple[int, int]]) -> int:
    paired = sum(stack.get("a") == v and stack.get("b") == w for v, w in pairs)
    return sum(costs.get(item, 0) for item in stack.items()) + paired


@settings(max_examples=examples(200), deadline=None)
@given(
    releases=problems,
    roots=some_roots,
    first=costs,
    second=costs,
    pairs=st.sets(st.tuples(versions, versions), max_size=3),
    forbidden=st.sets(choices, max_size=3),
    explicit=st.integers(1, 4),
)
def test_the_optimum_equals_the_unique_optimum_of_brute_force(
    releases: Releases,
    roots: dict[str, VersionSet],
    first: Costs,
    second: Costs,
    pairs: set[tuple[int, int]],
    forbidden: set[tuple[str, int]],
    explicit: int,
) -> None:
    def rank(stack: Stack) -> tuple[object, ...]:
        return value(stack, first, pairs), value(stack, second, ()), newest_first(stack)

    best = min((s for s in stacks(releases, roots) if not forbidden & set(s.items())), key=rank, default=None)

    optimum = solve(releases, roots, [(first, pairs), (second, set())], forbidden=forbidden, explicit=explicit)

    assert (None if optimum is None else plain(optimum)) == best
    if optimum is not None and best is not None:
        assert [b.value for b in optimum.bounds] == [value(best, first, pairs), value(best, second, ())]
        assert optimum.proven
        assert optimum.unique


@settings(max_examples=examples(125), deadline=None)
# An older version of a package that nothing requires; only its newest version is an explicit candidate.
@example(
    releases={"a": {1: ({}, {})}, "b": {1: ({}, {})}, "c": {1: ({}, {})}, "d": {1: ({}, {}), 6: ({}, {})}},
    roots={"a": VersionSet(admitted=frozenset({1}), extra=False)},
    gains={("d", 1): -1, ("d", 6): -1},
    second={},
    explicit=1,
)
@given(releases=problems, roots=some_roots, gains=rewards, second=costs, explicit=st.integers(1, 4))
def test_a_reward_counts_only_for_required_packages(
    releases: Releases, roots: dict[str, VersionSet], gains: Costs, second: Costs, explicit: int
) -> None:
    best = min(((value(s, gains, ()), value(s, second, ())) for s in stacks(releases, roots)), default=None)

    optimum = solve(releases, roots, [(gains, set()), (second, set())], explicit=explicit)

    assert (None if optimum is None else tuple(b.value for b in optimum.bounds)) == best
    if optimum is not None:
        assert (value(plain(optimum), gains, ()), value(plain(optimum), second, ())) == best


@settings(max_examples=examples(60), deadline=None)
@given(releases=problems, roots=some_roots, first=costs)
def test_one_thread_and_several_give_the_same_optimum(
    releases: Releases, roots: dict[str, VersionSet], first: Costs
) -> None:
    one = solve(releases, roots, [(first, set())])
    several = solve(releases, roots, [(first, set())], workers=4)

    if one is not None and several is not None:
        # On the way there, equally good solutions may differ, and with them the metadata that is read.
        several = replace(several, iterations=one.iterations, fetched=one.fetched, candidates=one.candidates)
    assert one == several


@settings(max_examples=examples(125), deadline=None)
@given(releases=problems, roots=some_roots)
def test_the_baseline_exists_if_any_stack_exists(releases: Releases, roots: dict[str, VersionSet]) -> None:
    source = ReleaseSource(releases)
    source.fetch(c for name in NAMES for c in source.candidates(canonicalize_name(name)))
    try:
        baseline = {str(c.name): c.version.major for c in resolve_baseline(problem(roots), source)}
    except BaselineLimitError:
        # resolvelib recurses endlessly if packages that it gave up require each other: advice continues without it.
        return
    except NoStackError:
        baseline = None

    all_stacks = list(stacks(releases, roots))
    assert (baseline in all_stacks) if all_stacks else baseline is None


@settings(max_examples=examples(125), deadline=None)
@given(releases=problems, roots=st.dictionaries(st.sampled_from(NAMES), version_sets, min_size=2))
def test_a_conflict_is_a_smallest_unsatisfiable_set_of_requirements(
    releases: Releases, roots: dict[str, VersionSet]
) -> None:
    source = ReleaseSource(releases)
    conflict = find_conflict(request_of(roots, source, criteria_for(roots, source, empty_estimator(), "latest")))

    if any(True for _ in stacks(releases, roots)):
        assert conflict is None
        return
    assert conflict is not None
    sizes = [
        len(part)
        for size in range(1, len(roots) + 1)
        for part in itertools.combinations(sorted(roots), size)
        if not any(True for _ in stacks(releases, {name: roots[name] for name in part}))
    ]
    conflicting = {str(root.name): roots[root.name] for root in conflict.roots}
    assert not any(True for _ in stacks(releases, conflicting))
    assert len(conflicting) == min(sizes)


@settings(max_examples=examples(125), deadline=None)
@given(releases=problems, roots=st.dictionaries(st.sampled_from(NAMES), version_sets, min_size=2))
def test_a_conflict_of_pins_is_a_conflict_of_at_most_two_requirements(
    releases: Releases, roots: dict[str, VersionSet]
) -> None:
    conflict = find_pinned_conflict(problem(roots), ReleaseSource(releases))

    if conflict is not None:
        conflicting = {str(root.name): roots[root.name] for root in conflict.roots}
        assert len(conflicting) <= 2
        assert not any(True for _ in stacks(releases, conflicting))


def test_a_package_with_ten_thousand_versions_is_solved() -> None:
    releases: dict[str, dict[int, tuple[Requirements, Requirements]]] = {name: {1: ({}, {})} for name in NAMES}
    source = ReleaseSource(releases)
    many = tuple(
        replace(source.candidates(canonicalize_name("a"))[0], version=Version(f"1.{n}")) for n in range(10_000, 0, -1)
    )
    source.candidates = lambda name: many if name == "a" else ReleaseSource(releases).candidates(name)  # type: ignore[method-assign]
    source.dependencies = lambda candidate, extra=None: ()  # type: ignore[method-assign]

    optimum = optimise(
        build_problem("a<1.5000"),
        source,
        FixedCosts(
            lambda reached: [
                Objective(name="age", costs={(c.name, c.version): i for r in reached.values() for i, c in enumerate(r)})
            ]
        ),
        start=(),
    )

    assert [str(c.version) for c in optimum.stack] == ["1.4999"]
    assert optimum.candidates == 10_000

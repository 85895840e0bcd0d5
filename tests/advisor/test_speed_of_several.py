"""The rule of speed for several interpreters and several targets, compared with brute force over all their stacks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from hypothesis import assume, given, settings
from packaging.utils import canonicalize_name

from advisor.domain.time_limit import TimeLimit
from advisor.resolve.optimum.request import Solved
from advisor.resolve.optimum.request import solve as solve_request
from advisor.resolve.recommendation.agreement import agree
from advisor.resolve.recommendation.problem_variants import ProblemVariant, Selection, compare_variants
from tests.advisor.small_problems import Releases, Stack, VersionSet, newest_first, plain, problems, some_roots
from tests.advisor.speed_problems import BruteForce, Speeds, request_for, solve, speeds_of_any_size
from tests.examples import examples

Roots = Mapping[str, VersionSet]


def same_versions(releases: Releases, other: Releases) -> Releases:
    """Return releases with the requirements of others, as far as these have the versions."""
    return {name: {v: other[name].get(v, ({}, {})) for v in versions} for name, versions in releases.items()}


def best_of_variants(several: Sequence[Releases], roots: Roots, speeds: Speeds) -> tuple[int, Stack]:
    """Return the number of the variant that the rule recommends, and its stack."""
    forces = [BruteForce(releases, roots, speeds) for releases in several]
    every = [(number, force, stack) for number, force in enumerate(forces) for stack in force.every]

    def age(number: int, force: BruteForce, stack: Stack) -> tuple[object, ...]:
        return *force.ages.hours(stack), number, newest_first(stack)

    newest = min(every, key=lambda entry: age(*entry))
    for force in forces:
        force.newest = newest[2]
    first = min(every, key=lambda entry: (-entry[1].counted_credit(entry[2]), entry is not newest, age(*entry)))
    return first[0], first[2]


def solve_variants(several: Sequence[Releases], roots: Roots, speeds: Speeds) -> tuple[int, Stack]:
    def variant(number: int) -> ProblemVariant:
        return ProblemVariant(
            label=str(number), select=lambda: Selection(request=request_for(several[number], roots, speeds))
        )

    comparison = compare_variants(
        [variant(number) for number in range(len(several))], limit=TimeLimit(60), direct=map(canonicalize_name, roots)
    )
    best = comparison.solved[0]
    assert best.optimum.proven
    return int(best.variant.label), plain(best.optimum)


@settings(max_examples=examples(200), deadline=None)
@given(releases=problems, other=problems, roots=some_roots, speeds=speeds_of_any_size)
def test_the_best_of_two_interpreters_is_that_of_brute_force(
    releases: Releases, other: Releases, roots: dict[str, VersionSet], speeds: Speeds
) -> None:
    several = [releases, same_versions(releases, other)]
    assume(all(BruteForce(one, roots, speeds).every for one in several))

    assert solve_variants(several, roots, speeds) == best_of_variants(several, roots, speeds)


@settings(max_examples=examples(200), deadline=None)
@given(releases=problems, other=problems, roots=some_roots, speeds=speeds_of_any_size)
def test_the_versions_of_two_targets_are_those_of_brute_force(
    releases: Releases, other: Releases, roots: dict[str, VersionSet], speeds: Speeds
) -> None:
    several = [releases, same_versions(releases, other)]
    forces = [BruteForce(one, roots, speeds) for one in several]
    assume(all(force.every for force in forces))

    def cost(pair: Sequence[Stack]) -> tuple[int, ...]:
        one, another = pair
        different = sum(name in another and one[name] != another[name] for name in one)
        ages = [force.ages.hours(stack) for force, stack in zip(forces, pair, strict=True)]
        credit = sum(force.counted_credit(stack) for force, stack in zip(forces, pair, strict=True))
        return different, -credit, sum(age[0] for age in ages), sum(age[1] for age in ages)

    requests = {str(number): request_for(one, roots, speeds) for number, one in enumerate(several)}
    solved = {name: Selection(request=request).solve() for name, request in requests.items()}

    agreement = agree(solved, limit=TimeLimit(60))

    common = [plain(solve_request(agreement.requests[name])) for name in solved]
    assert cost(common) == min(map(cost, itertools.product(*(force.every for force in forces))))
    assert agreement.proven


GAIN = {("a", 1): (0.1, 0.01), ("a", 2): (0.0, 0.01), ("c", 2): (0.0, 0.01)}
CERTAIN: Speeds = GAIN | {("c", 1): (-0.01, 0.01)}
UNCERTAIN: Speeds = GAIN | {("c", 1): (-0.01, 0.1)}
ROOTS = {name: VersionSet(frozenset({1, 2})) for name in "ac"}
BOTH: Releases = {name: {1: ({}, {}), 2: ({}, {})} for name in "abcd"}
OLDER: Releases = BOTH | {
    "a": {1: ({}, {}), 2: ({"b": VersionSet(frozenset({3}))}, {})},
    "c": {1: ({}, {}), 2: ({"b": VersionSet(frozenset({3}))}, {})},
}
"""Only the older releases of `a` and `c` can be installed."""
NEWEST: Releases = BOTH | {
    "a": {1: ({"b": VersionSet(frozenset({3}))}, {}), 2: ({}, {})},
    "c": {1: ({"b": VersionSet(frozenset({3}))}, {}), 2: ({}, {})},
}
"""Only the newest releases of `a` and `c` can be installed."""


def test_an_interpreter_is_not_chosen_for_a_gain_that_does_not_count_for_its_whole_stack() -> None:
    assert solve_variants([OLDER, NEWEST], ROOTS, CERTAIN) == (0, {"a": 1, "c": 1})
    assert solve_variants([OLDER, NEWEST], ROOTS, UNCERTAIN) == (1, {"a": 2, "c": 2})


def test_common_versions_are_not_chosen_for_a_gain_that_does_not_count_for_the_whole_stack() -> None:
    releases: Releases = BOTH | {"a": {v: ({"c": VersionSet(frozenset({v}))}, {}) for v in (1, 2)}}
    common_stacks = []
    for speeds in (CERTAIN, UNCERTAIN):
        request = request_for(releases, ROOTS, speeds)
        optimum = solve(releases, ROOTS, speeds)
        assert optimum is not None
        agreement = agree(dict.fromkeys("xy", Solved(request=request, optimum=optimum)), limit=TimeLimit(60))
        common_stacks.append([plain(solve_request(agreement.requests[name])) for name in "xy"])

    assert common_stacks == [[{"a": 1, "c": 1}] * 2, [{"a": 2, "c": 2}] * 2]


def test_an_interpreter_without_a_companion_is_not_as_fast_as_one_with_a_faster_release_of_it() -> None:
    needs_b = VersionSet(frozenset({1, 2}))
    releases: Releases = {"a": {1: ({}, {})}, "b": {1: ({}, {}), 2: ({}, {})}, "c": {1: ({}, {})}, "d": {1: ({}, {})}}
    with_companion: Releases = releases | {"a": {1: ({"b": needs_b}, {})}}
    speeds: Speeds = {("b", 1): (0.05, 0.001), ("b", 2): (0.0, 0.001)}

    assert solve_variants([with_companion, releases], ROOTS, speeds) == (0, {"a": 1, "b": 1, "c": 1})

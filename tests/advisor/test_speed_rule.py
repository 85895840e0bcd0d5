"""The rule of speed: the newest stack that runs, or one whose gain over it counts, compared with brute force."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.resolve.optimum.request import solve as solve_request
from tests.advisor.small_problems import (
    NAMES,
    Releases,
    VersionSet,
    plain,
    problems,
    some_roots,
)
from tests.advisor.speed_problems import (
    BruteForce,
    Speeds,
    measured,
    request_for,
    solve,
    speeds_of_any_size,
)
from tests.examples import examples


@settings(max_examples=examples(200), deadline=None)
@given(releases=problems, roots=some_roots, speeds=speeds_of_any_size)
def test_the_stack_is_that_of_brute_force(releases: Releases, roots: dict[str, VersionSet], speeds: Speeds) -> None:
    expected = BruteForce(releases, roots, speeds)

    optimum = solve(releases, roots, speeds)

    assert (None if optimum is None else plain(optimum)) == expected.best()
    if optimum is not None:
        assert optimum.proven
        assert optimum.unique
        assert {str(c.name): c.version.major for c in optimum.newest} == expected.newest
        assert plain(optimum) == expected.newest or expected.counts(plain(optimum))


@settings(max_examples=examples(200), deadline=None)
@given(
    releases=problems,
    roots=some_roots,
    noise=st.dictionaries(measured, st.tuples(st.floats(-1.6, 1.6), st.floats(0.001, 0.3))),
)
def test_a_difference_within_the_noise_changes_nothing(
    releases: Releases, roots: dict[str, VersionSet], noise: Speeds
) -> None:
    speeds = {key: (deviations * error, error) for key, (deviations, error) in noise.items()}

    optimum = solve(releases, roots, speeds)

    if optimum is not None:
        assert plain(optimum) == BruteForce(releases, roots, {}).newest


SIMPLE: Releases = {name: {v: ({}, {}) for v in range(1, 7)} for name in NAMES}
ROOTS = {name: VersionSet(frozenset(SIMPLE[name])) for name in "abc"}


def knowledge_base(seed: int, gain: float = 0.0) -> Speeds:
    """Return measurements of releases that are equally fast, but for one release of `a`, each with its error."""
    generator = random.Random(seed)
    speeds = {}
    for name in "abc":
        for version in SIMPLE[name]:
            error = generator.choice((0.003, 0.01, 0.03, 0.1))
            speeds[name, version] = (generator.gauss(gain * ((name, version) == ("a", 2)), error), error)
    return speeds


def test_noise_changes_at_most_one_of_twenty_stacks() -> None:
    changed = []
    for seed in range(200):
        optimum = solve(SIMPLE, ROOTS, knowledge_base(seed))
        assert optimum is not None
        if plain(optimum) != {"a": 6, "b": 6, "c": 6}:
            changed.append(seed)
            assert BruteForce(SIMPLE, ROOTS, knowledge_base(seed)).counts(plain(optimum))

    assert len(changed) <= 10


def test_a_release_that_is_really_faster_is_found_in_the_same_noise() -> None:
    stacks_with_gain = [solve(SIMPLE, ROOTS, knowledge_base(seed, gain=0.6)) for seed in range(20)]

    assert sum(optimum is not None and plain(optimum)["a"] == 2 for optimum in stacks_with_gain) >= 16


def test_of_releases_that_are_equally_much_faster_the_newest_is_taken() -> None:
    # All old releases of `a` are faster than the newest; the oldest seems the fastest of them, by less than its error.
    speeds = {("a", v): (0.2 - v / 1000, 0.01) for v in range(1, 6)} | {("a", 6): (0.0, 0.001)}

    optimum = solve(SIMPLE, ROOTS, speeds)

    assert optimum is not None
    assert plain(optimum) == {"a": 5, "b": 6, "c": 6}


def test_a_gain_below_the_smallest_one_that_counts_changes_nothing() -> None:
    speeds = {("a", v): (0.028, 0.0001) for v in range(1, 6)} | {("a", 6): (0.0, 0.0001)}
    request = request_for(SIMPLE, ROOTS, speeds)

    assert plain(solve_request(request)) == {"a": 6, "b": 6, "c": 6}
    request = replace(request, score=replace(request.score, min_gain=0.02))
    assert plain(solve_request(request)) == {
        "a": 5,
        "b": 6,
        "c": 6,
    }


def test_a_gain_that_another_package_makes_uncertain_does_not_count() -> None:
    # The faster release of `a` needs an old `c`, of which nobody knows how fast it is.
    releases: Releases = {name: dict(versions) for name, versions in SIMPLE.items()}
    releases["a"] = {6: ({}, {}), 5: ({"c": VersionSet(frozenset({1}))}, {})}
    speeds = {("a", 5): (0.1, 0.01), ("a", 6): (0.0, 0.01), ("c", 6): (0.0, 0.01)}
    certain = speeds | {("c", 1): (-0.01, 0.01)}
    uncertain = speeds | {("c", 1): (-0.01, 0.1)}

    stacks_found = [solve(releases, ROOTS, s) for s in (certain, uncertain)]

    assert [optimum and plain(optimum)["a"] for optimum in stacks_found] == [5, 6]

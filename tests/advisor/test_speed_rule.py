"""The rule of speed: the newest stack that runs, or one whose gain over it counts, compared with brute force."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.request import solve as solve_request
from advisor.resolve.optimum.result import InfeasibleError, Optimum
from advisor.resolve.score.speed_steps import MIN_GAIN
from knowledge.estimate.gains import RISK, CompanionGain, FrameworkGains, PredictedGain, ScoreTerms
from tests.advisor.factories import FixedScores, builds_of
from tests.advisor.small_problems import (
    NAMES,
    Ages,
    Releases,
    ReleaseSource,
    Stack,
    VersionSet,
    criteria_for,
    plain,
    problems,
    request_of,
    some_roots,
    stacks,
    versions,
)
from tests.examples import examples

Speeds = Mapping[tuple[str, int], tuple[float, float]]
"""Log speed and its standard deviation, by package and version."""


class Measured(FixedScores):
    """An estimator for the frameworks `a` and `c`, and `b`, a companion of `a`, with independent errors."""

    def __init__(self, speeds: Speeds) -> None:
        super().__init__({})
        self._speeds = speeds
        self.comparisons = max(1, len(speeds))

    def gain(self, name: str, version: Version, base: Version) -> PredictedGain:
        if version == base:
            return PredictedGain(mean=0.0, variance=0.0)
        (mean, error), (other, other_error) = (self._speeds.get((name, v.major), (0.0, 0.01)) for v in (version, base))
        return PredictedGain(mean=mean - other, variance=error**2 + other_error**2)

    def terms(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> ScoreTerms:
        frameworks = []
        for name in sorted({"a", "c"} & set(candidates) & set(baseline)):
            alone = {v: self.gain(name, v, baseline[name]) for v in candidates[name]}
            pairs = {}
            if name == "a" and "b" in candidates and "b" in baseline:
                nothing = PredictedGain(mean=0.0, variance=0.0)
                own = {w: self.gain("b", w, baseline["b"]) for w in candidates["b"]} | {None: nothing}
                pairs = {
                    (v, "b", w): CompanionGain(joint=total([alone[v], own[w]]), own=own[w], framework=alone[v])
                    for v in alone
                    for w in own
                }
            gains = FrameworkGains(framework=name, alone=alone, with_companion=pairs, comparisons=self.comparisons)
            frameworks.append(gains)
        return ScoreTerms(frameworks=tuple(frameworks))


def total(gains: Sequence[PredictedGain]) -> PredictedGain:
    return PredictedGain(mean=sum(g.mean for g in gains), variance=sum(g.variance for g in gains))


def counted(gain: PredictedGain, comparisons: int) -> int:
    """Return the steps that a difference counts for, from the definition in the documentation."""
    quantile = statistics.NormalDist().inv_cdf(1 - 0.025 / comparisons)
    size = abs(gain.mean) - RISK / 2 * gain.variance
    if abs(gain.mean) <= quantile * math.sqrt(gain.variance) or size < math.log(1 + MIN_GAIN):
        return 0
    return int(size / 0.01) * (1 if gain.mean > 0 else -1)


def request_for(releases: Releases, roots: Mapping[str, VersionSet], speeds: Speeds) -> ResolutionRequest:
    estimator, source, builds = Measured(speeds), ReleaseSource(releases), builds_of()
    return request_of(roots, source, criteria_for(roots, source, estimator, builds=builds))


class BruteForce:
    """The recommended stack by the rule of the documentation, over every stack."""

    def __init__(self, releases: Releases, roots: Mapping[str, VersionSet], speeds: Speeds) -> None:
        self._releases = releases
        estimator = Measured(speeds)
        self._gain = estimator.gain
        self.counted = partial(counted, comparisons=estimator.comparisons)
        source = ReleaseSource(releases)
        self.ages = Ages(roots, source)
        self.every = list(stacks(releases, roots))
        self.newest = min(self.every, key=self.ages.rank, default=None)

    def change(self, stack: Stack, name: str) -> PredictedGain:
        assert self.newest is not None
        if name not in stack or name not in self.newest:
            return PredictedGain(mean=0.0, variance=0.0)
        return self._gain(name, Version(str(stack[name])), Version(str(self.newest[name])))

    def whole(self, stack: Stack) -> PredictedGain:
        """Return the gain of a stack; packages whose own gain does not count add their uncertainty alone."""

        def if_counted(gain: PredictedGain) -> PredictedGain:
            return replace(gain, mean=min(0.0, gain.mean)) if self.counted(gain) <= 0 else gain

        companions = [if_counted(self.change(stack, "b"))]
        return total(
            [
                if_counted(total([self.change(stack, name), *(companions if name == "a" else [])]))
                for name in {"a", "c"} & stack.keys()
            ]
        )

    def counts(self, stack: Stack) -> bool:
        return self.counted(self.whole(stack)) > 0

    def tiers(self, name: str) -> dict[int, int]:
        """Return the steps of each version; those that the fastest does not beat are as fast as it."""
        assert self.newest is not None
        base = Version(str(self.newest[name]))
        steps = {v: self.counted(self._gain(name, Version(str(v)), base)) for v in self._releases[name]}
        faster = {v for v in steps if steps[v] > 0}
        result = dict(steps)
        while faster:
            best = max(faster, key=lambda v: (steps[v], v))
            beaten = {v for v in faster if self.counted(self._gain(name, Version(str(v)), Version(str(best)))) < 0}
            result |= dict.fromkeys(faster - beaten, steps[best])
            faster = {v for v in faster & beaten if steps[v] < steps[best]}
        return result

    def credit(self, stack: Stack) -> int:
        assert self.newest is not None
        credit = 0
        for name in {"a", "c"} & set(self.newest) & set(stack):
            credit += self.tiers(name)[stack[name]]
            if name == "a" and {"b"} <= set(self.newest) & set(stack):
                credit += self.tiers("b")[stack["b"]]
        return credit

    def counted_credit(self, stack: Stack) -> int:
        """Return the steps of a stack; if the gain of the whole does not count, it is as fast as the newest one."""
        credit = self.credit(stack)
        return credit if credit <= 0 or self.counts(stack) else 0

    def best(self) -> Stack | None:
        return min(self.every, key=lambda stack: (-self.counted_credit(stack), *self.ages.rank(stack)), default=None)


measured = st.tuples(st.sampled_from("abc"), versions)
speeds_of_any_size = st.dictionaries(measured, st.tuples(st.floats(-0.4, 0.4), st.sampled_from((0.001, 0.02, 0.08))))


def solve(releases: Releases, roots: Mapping[str, VersionSet], speeds: Speeds) -> Optimum | None:
    try:
        return solve_request(request_for(releases, roots, speeds))
    except InfeasibleError:
        return None


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

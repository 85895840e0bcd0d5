"""Small problems with measured speeds, and their best stack by brute force."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from hypothesis import strategies as st
from packaging.version import Version

from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.request import solve as solve_request
from advisor.resolve.optimum.result import InfeasibleError, Optimum
from knowledge.domain.ratio import MIN_GAIN, RISK, Ratio
from knowledge.estimate.gains import CompanionGain, FrameworkGains
from tests.advisor.factories import FixedScores, builds_of, companion_gains
from tests.advisor.small_problems import (
    Ages,
    Releases,
    ReleaseSource,
    Stack,
    VersionSet,
    criteria_for,
    request_of,
    stacks,
    versions,
)

Speeds = Mapping[tuple[str, int], tuple[float, float]]
"""Log speed and its standard deviation, by package and version."""


class Measured(FixedScores):
    """An estimator for the frameworks `a` and `c`, and `b`, a companion of `a`, with independent errors."""

    def __init__(self, speeds: Speeds) -> None:
        super().__init__({})
        self._speeds = speeds
        self.comparisons = max(1, len(speeds))

    def gain(self, name: str, version: Version, base: Version) -> Ratio:
        if version == base:
            return Ratio(mean=0.0, variance=0.0)
        (mean, error), (other, other_error) = (self._speeds.get((name, v.major), (0.0, 0.01)) for v in (version, base))
        return Ratio(mean=mean - other, variance=error**2 + other_error**2)

    def terms(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]
    ) -> tuple[FrameworkGains, ...]:
        frameworks = []
        for name in sorted({"a", "c"} & set(candidates) & set(baseline)):
            alone = {v: self.gain(name, v, baseline[name]) for v in candidates[name]}
            pairs = {}
            if name == "a" and "b" in candidates and "b" in baseline:
                nothing = Ratio(mean=0.0, variance=0.0)
                own = {w: self.gain("b", w, baseline["b"]) for w in candidates["b"]} | {None: nothing}
                pairs = {
                    (v, "b", w): CompanionGain(joint=total([alone[v], own[w]]), own=own[w], framework=alone[v])
                    for v in alone
                    for w in own
                }
            gains = FrameworkGains(
                framework=name, alone=alone, with_companion=companion_gains(pairs), comparisons=self.comparisons
            )
            frameworks.append(gains)
        return tuple(frameworks)


def total(gains: Sequence[Ratio]) -> Ratio:
    return Ratio(mean=sum(g.mean for g in gains), variance=sum(g.variance for g in gains))


def counted(gain: Ratio, comparisons: int) -> int:
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

    def change(self, stack: Stack, name: str) -> Ratio:
        assert self.newest is not None
        if name not in stack or name not in self.newest:
            return Ratio(mean=0.0, variance=0.0)
        return self._gain(name, Version(str(stack[name])), Version(str(self.newest[name])))

    def whole(self, stack: Stack) -> Ratio:
        """Return the gain of a stack; packages whose own gain does not count add their uncertainty alone.

        A companion is only compared together with its framework, which the newest stack may not have.
        """
        assert self.newest is not None

        def if_counted(gain: Ratio) -> Ratio:
            return replace(gain, mean=min(0.0, gain.mean)) if self.counted(gain) <= 0 else gain

        companions = [if_counted(self.change(stack, "b"))]
        return total(
            [
                if_counted(total([self.change(stack, name), *(companions if name == "a" else [])]))
                for name in {"a", "c"} & stack.keys() & self.newest.keys()
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

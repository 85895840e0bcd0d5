"""Run-time settings as decisions: exact choices, compared with brute force."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from packaging.version import Version

from advisor.resolve.explanation.recommended_settings import recommended_settings
from advisor.resolve.score.setting_choice import TargetSettings, best_settings
from knowledge.catalogue.fit import contradictions
from knowledge.domain.codec import decoded, encoded
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.ratio import Ratio
from knowledge.estimate.gains import PairGain, SettingGains, SettingValue
from tests.advisor.factories import MACHINE, FixedScores
from tests.advisor.setting_estimates import ALLOCATOR, AMP, KnownTo
from tests.advisor.small_problems import (
    Ages,
    Releases,
    ReleaseSource,
    Stack,
    VersionSet,
    criteria_for,
    over_newest,
    plain,
    problems,
    solve_problem,
    some_roots,
    stacks,
    versions,
)
from tests.examples import examples

VALUES: tuple[SettingValue, ...] = (
    ("memory_format", "channels_last"),
    ("compile", "on"),
    ("compile", "max-autotune"),
    ("onednn", "off"),
    ("amp", "bfloat16"),
    ("amp", "float16"),
)
V = Version("1")


def machine_with(feature: str) -> HardwareProfile:
    return replace(MACHINE, cpu=replace(MACHINE.cpu, features=(feature,)))


def gain(steps: int) -> Ratio:
    # A little more than whole steps, so that rounding does not change them.
    return Ratio(mean=steps * 0.0101, variance=0.0)


def gains_of(
    alone: Mapping[SettingValue, int],
    together: Mapping[tuple[SettingValue, SettingValue], int] | None = None,
    framework: str = "torch",
    all_versions: Sequence[Version] = (V,),
) -> SettingGains:
    pairs = {
        (one, other): PairGain(
            joint=gain(steps),
            first=gain(steps - alone.get(other, 0)),
            second=gain(steps - alone.get(one, 0)),
        )
        for (one, other), steps in (together or {}).items()
    }
    return SettingGains(
        framework=framework,
        alone={v: {key: gain(steps) for key, steps in alone.items()} for v in all_versions},
        together=dict.fromkeys(all_versions, pairs),
    )


def whole_steps(predicted: Ratio) -> int:
    """Return a gain in steps, by the definition: 8 times the variance is the price of the uncertainty."""
    cautious = int((predicted.mean - 8 * predicted.variance) / 0.01)
    return cautious if cautious < 0 or predicted.mean > 1.96 * math.sqrt(predicted.variance) else 0


def steps_of(selection: Collection[SettingValue], gains: SettingGains, version: Version) -> int:
    """Return the gain of settings in steps, by the definition: two that were measured together gain what both did."""
    alone = {value: whole_steps(gains.alone[version][value]) for value in selection}
    total = sum(alone.values())
    for (one, other), pair in gains.together[version].items():
        if one in alone and other in alone:
            sums = gains.alone[version][one].mean + gains.alone[version][other].mean
            added = {one: whole_steps(pair.first), other: whole_steps(pair.second)}
            both = [alone[one] + alone[other] + int(min(0.0, pair.joint.mean - sums) / 0.01)]
            both += [alone[a] + added[b] for a, b in ((one, other), (other, one)) if alone[a] > 0 and added[b] > 0]
            both += [whole_steps(pair.joint)] if min(added.values()) > 0 else []
            total += max(both) - alone[one] - alone[other]
    return total


def by_brute_force(gains: SettingGains, version: Version, admissible: Sequence[SettingValue]) -> tuple[int, int]:
    """Return the largest gain of any combination in steps, and the fewest settings with this gain."""
    best = (0, 0)
    for size in range(len(admissible) + 1):
        for selection in itertools.combinations(admissible, size):
            if len({name for name, _ in selection}) == size and not contradictions(dict(selection)):
                best = min(best, (-steps_of(selection, gains, version), size))
    return -best[0], best[1]


numbers = st.integers(-30, 30)
pairs_of_values = st.sampled_from([pair for pair in itertools.combinations(VALUES, 2) if pair[0][0] != pair[1][0]])


@settings(max_examples=examples(300), deadline=None)
@given(
    alone=st.fixed_dictionaries(dict.fromkeys(VALUES, numbers)),
    together=st.dictionaries(pairs_of_values, numbers, max_size=6),
    admissible=st.lists(st.sampled_from(VALUES), unique=True),
)
def test_the_best_settings_are_those_of_brute_force(
    alone: dict[SettingValue, int],
    together: dict[tuple[SettingValue, SettingValue], int],
    admissible: list[SettingValue],
) -> None:
    gains = gains_of(alone, together)

    best = best_settings(gains, V, admissible)

    assert (best.steps, len(best.values)) == by_brute_force(gains, V, admissible)
    assert best.steps == steps_of(best.values, gains, V)
    assert set(best.values) <= set(admissible)
    assert not contradictions(dict(best.values))


class ScoresWithSettings(FixedScores):
    """An estimator with gains of settings of package ``a``."""

    def __init__(self, scores: dict[tuple[str, str], float], alone: Mapping[SettingValue, int]) -> None:
        super().__init__(scores)
        self._alone = alone

    def setting_gains(self, candidates: object, stack: object) -> tuple[SettingGains, ...]:
        assert isinstance(candidates, dict)
        return (gains_of(self._alone, None, "a", candidates["a"]),) if candidates.get("a") else ()


@settings(max_examples=examples(200), deadline=None)
@given(
    releases=problems,
    roots=some_roots,
    scores=st.dictionaries(versions, st.integers(-40, 40), max_size=4),
    alone=st.fixed_dictionaries(dict.fromkeys(VALUES, numbers)),
    knowing=st.fixed_dictionaries(dict.fromkeys(VALUES, st.sets(versions))),
    explicit=st.integers(1, 4),
)
def test_the_optimum_with_settings_equals_that_of_brute_force(
    releases: Releases,
    roots: dict[str, VersionSet],
    scores: dict[int, int],
    alone: dict[SettingValue, int],
    knowing: dict[SettingValue, set[int]],
    explicit: int,
) -> None:
    estimator = ScoresWithSettings(
        {("a", str(v)): steps * 0.0101 for v, steps in scores.items()} | {("a", "0"): 0.0}, alone
    )
    source = ReleaseSource(releases)
    known_to = KnownTo({("a", value): known for value, known in knowing.items()})
    criteria = replace(criteria_for(roots, source, estimator), min_gain=0.0, settings=known_to)
    ages = Ages(roots, source)
    criteria, newest = over_newest(criteria, releases, roots, source)

    def gained(version: int) -> int:
        """Return the largest gain of a version with any combination of the settings that it knows."""
        gains = gains_of(alone, None, "a", [Version(str(version))])
        admissible = [value for value in VALUES if version in knowing[value]]
        return scores.get(version, 0) + by_brute_force(gains, Version(str(version)), admissible)[0]

    most = max(map(gained, releases["a"]))

    def speed(stack: Stack) -> int:
        # Only what the newest stack contains is compared, and a stack without it is as fast.
        return most - gained(stack.get("a", newest["a"])) if "a" in newest else 0

    best = min(stacks(releases, roots), key=lambda stack: (speed(stack), *ages.rank(stack)), default=None)
    optimum = solve_problem(roots, source, criteria, explicit)

    if optimum is None:
        assert best is None
        return
    assert best is not None
    assert {b.objective: b.value for b in optimum.bounds}["speed"] == speed(best)
    assert optimum.proven
    assert plain(optimum) == best


@st.composite
def uncertain_gains(draw: st.DrawFn) -> SettingGains:
    """Gains of settings alone and in pairs, with variances of any size."""
    means, variances = st.floats(-0.5, 0.5), st.floats(0, 0.03)
    predicted = st.builds(Ratio, mean=means, variance=variances)
    pairs = st.builds(PairGain, joint=predicted, first=predicted, second=predicted)
    return SettingGains(
        framework="torch",
        alone={V: draw(st.fixed_dictionaries(dict.fromkeys(VALUES, predicted)))},
        together={V: draw(st.dictionaries(pairs_of_values, pairs, max_size=5))},
    )


@settings(max_examples=examples(200), deadline=None)
@given(gains=uncertain_gains())
def test_the_best_settings_are_those_of_brute_force_with_uncertain_gains(gains: SettingGains) -> None:
    best = best_settings(gains, V, VALUES)

    assert (best.steps, len(best.values)) == by_brute_force(gains, V, VALUES)
    assert best.steps == steps_of(best.values, gains, V)


@pytest.mark.parametrize(
    ("joint", "second", "expected"),
    [
        # What the allocator adds to mixed precision is significant.
        ((0.33, 0.03), (0.15, 0.002), ((ALLOCATOR, AMP), 17 + 13)),
        # Nothing is certain about both, and they gain no less than the sum: 0.172 and 0.112, in whole steps.
        ((0.33, 0.03), (0.15, 0.03), ((ALLOCATOR, AMP), 17 + 11)),
        # Both gain less than the sum, by 0.05.
        ((0.249, 0.03), (0.07, 0.03), ((ALLOCATOR, AMP), 17 + 11 - 5)),
        # Both gain no more than mixed precision alone.
        ((0.18, 0.03), (0.0, 0.03), ((AMP,), 17)),
    ],
)
def test_what_two_settings_gain_together_is_uncertain(
    joint: tuple[float, float], second: tuple[float, float], expected: tuple[tuple[SettingValue, ...], int]
) -> None:
    alone = {AMP: Ratio(mean=0.18, variance=0.001), ALLOCATOR: Ratio(mean=0.12, variance=0.001)}
    both, more = (Ratio(mean=mean, variance=variance) for mean, variance in (joint, second))
    pair = PairGain(joint=both, first=Ratio(mean=joint[0] - 0.12, variance=0.03), second=more)

    best = best_settings(
        SettingGains(framework="torch", alone={V: alone}, together={V: {(AMP, ALLOCATOR): pair}}), V, [AMP, ALLOCATOR]
    )

    assert (best.values, best.steps) == expected


def test_a_setting_is_not_credited_with_what_its_partner_gains() -> None:
    """bfloat16 gains; the order of memory has no significant effect, alone or with bfloat16."""
    layout = ("memory_format", "channels_last")
    alone = {AMP: Ratio(mean=0.181, variance=0.072**2), layout: Ratio(mean=-0.049, variance=0.031**2)}
    pair = PairGain(
        joint=Ratio(mean=0.317, variance=0.141**2),
        first=Ratio(mean=0.366, variance=0.07**2),
        second=Ratio(mean=0.136, variance=0.098**2),
    )
    gains = SettingGains(framework="torch", alone={V: alone}, together={V: {(AMP, layout): pair}})

    assert best_settings(gains, V, alone).values == (AMP,)


def test_reduced_precision_needs_to_be_allowed() -> None:
    gains = gains_of({("amp", "bfloat16"): 70, ("memory_format", "channels_last"): 20}, all_versions=[Version("2.6")])
    with_amx = TargetSettings(hardware=machine_with("amx_bf16"))

    careful = with_amx.best(gains, Version("2.6"))
    allowed = TargetSettings(hardware=machine_with("amx_bf16"), allows_reduced=True).best(gains, Version("2.6"))
    without = TargetSettings(hardware=machine_with("avx2"), allows_reduced=True).best(gains, Version("2.6"))

    assert careful.values == (("memory_format", "channels_last"),)
    assert allowed.values == (("amp", "bfloat16"), ("memory_format", "channels_last"))
    assert without.values == careful.values


class GainsOfTorch(FixedScores):
    """An estimator with one gain of a setting of PyTorch."""

    def __init__(self, version: Version, value: SettingValue, predicted: Ratio) -> None:
        super().__init__({})
        self.gains = SettingGains(framework="torch", alone={version: {value: predicted}}, together={version: {}})

    def setting_gains(self, candidates: object, stack: object) -> tuple[SettingGains, ...]:
        return (self.gains,)


@pytest.mark.parametrize(
    ("features", "mean", "expected"),
    [
        (("avx2",), -2.0, "it needs one of amx_bf16, avx512_bf16, bf16"),
        (("avx2",), -1.0, None),
        (("avx2",), 3.0, None),
        (("avx2", "amx_bf16"), -2.0, None),
    ],
)
def test_a_value_that_a_machine_emulates_is_advised_against_if_it_probably_loses(
    features: tuple[str, ...], mean: float, expected: str | None
) -> None:
    version = Version("2.13.0")
    estimator = GainsOfTorch(version, ("amp", "bfloat16"), Ratio(mean=mean, variance=1.5**2))
    machine = replace(MACHINE, cpu=replace(MACHINE.cpu, features=features))

    advice = recommended_settings({"torch": version}, estimator, TargetSettings(hardware=machine))

    assert [(s.status, s.missing) for s in advice] == ([("advised-against", expected)] if expected else [])


class GainsOfSeveral(FixedScores):
    """An estimator with gains of settings of several frameworks."""

    def __init__(self, **alone: Mapping[SettingValue, int]) -> None:
        super().__init__({})
        self.every = tuple(gains_of(table, framework=name, all_versions=[V]) for name, table in alone.items())

    def setting_gains(self, candidates: object, stack: object) -> tuple[SettingGains, ...]:
        return self.every


@pytest.mark.parametrize(
    ("torch", "jax", "disputed"),
    [
        # One process has one allocator, and the values of both are different.
        ({ALLOCATOR: 20}, {("allocator", "jemalloc"): 10}, {ALLOCATOR, ("allocator", "jemalloc")}),
        # The other framework is slower with it.
        ({ALLOCATOR: 20}, {ALLOCATOR: -5}, {ALLOCATOR}),
        ({ALLOCATOR: 20}, {ALLOCATOR: 5}, set()),
        ({ALLOCATOR: 20}, {}, set()),
        # Each has a variable of its own.
        ({("isa", "avx2"): 20}, {("isa", "avx2"): -20}, set()),
        # Both read one variable.
        ({("threads", "1"): 20}, {("threads", "1"): -20}, set()),
    ],
)
def test_frameworks_of_one_process_agree_about_its_settings(
    torch: Mapping[SettingValue, int], jax: Mapping[SettingValue, int], disputed: set[SettingValue]
) -> None:
    allowed = TargetSettings(hardware=MACHINE).in_one_process(
        {"torch": V, "jax": V}, GainsOfSeveral(torch=torch, jax=jax)
    )

    assert allowed.disputed == disputed
    assert not any(allowed.may_choose(name, value, V) for name in ("torch", "jax") for value in disputed)


def test_gains_survive_the_cache() -> None:
    gains = gains_of({("amp", "bfloat16"): 7}, {(("amp", "bfloat16"), ("compile", "on")): 3})

    assert decoded(tuple[SettingGains, ...], json.loads(json.dumps(encoded([gains])))) == (gains,)

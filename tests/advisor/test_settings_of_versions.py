"""Whether what settings gain in another version of a framework is a reason to choose it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.resolve.score.speed_comparison import SpeedComparison
from knowledge.domain.ratio import Ratio
from knowledge.estimate.gains import FrameworkGains, SettingGains
from tests.advisor.factories import FixedScores
from tests.advisor.setting_estimates import ALLOCATOR, KnownTo
from tests.advisor.small_problems import Releases, ReleaseSource
from tests.examples import examples


class GainsByVersion(FixedScores):
    """An estimator with a gain of one setting by version of package ``a``."""

    def __init__(self, scores: Mapping[str, float], predicted: Mapping[str, Ratio], *, comparisons: int = 1) -> None:
        super().__init__({("a", version): score for version, score in scores.items()})
        self._predicted = predicted
        self._comparisons = comparisons
        self.versions = tuple(predicted)

    def terms(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]
    ) -> tuple[FrameworkGains, ...]:
        frameworks = super().terms(candidates, baseline)
        return tuple(replace(f, comparisons=self._comparisons) for f in frameworks)

    def setting_gains(self, candidates: object, stack: object) -> tuple[SettingGains, ...]:
        alone = {Version(v): {ALLOCATOR: predicted} for v, predicted in self._predicted.items()}
        return (SettingGains(framework="a", alone=alone, together={v: {} for v in alone}),)


@pytest.mark.parametrize(
    ("score", "old", "new", "expected"),
    [
        # Both versions have the setting, and nothing says that it gains more in the old one.
        (0.0, (0.30, 0.0025), (0.25, 0.0025), {"2": 0, "1": 0}),
        # It gains significantly more there.
        (0.0, (0.60, 0.0004), (0.25, 0.0004), {"2": 34, "1": 0}),
        # It does, but the old version is slower without it.
        (-0.2, (0.60, 0.0004), (0.25, 0.0004), {"2": 14, "1": 0}),
        (-0.4, (0.60, 0.0004), (0.25, 0.0004), {"2": 0, "1": 0}),
        (-0.5, (0.60, 0.0004), (0.25, 0.0004), {"2": 0, "1": 14}),
        # The old version without the setting is slower: that costs as without settings.
        (-0.2, (0.30, 0.0025), (0.25, 0.0025), {"2": 0, "1": 20}),
        # With the setting, the old version is faster by less than is certain.
        (-0.33, (0.60, 0.0004), (0.25, 0.0004), {"2": 0, "1": 0}),
        # The setting does nothing in the new version.
        (0.0, (0.305, 0.0025), (0.0, 0.0), {"2": 28, "1": 0}),
        # What it does there is too uncertain to set it: nothing says that it gains less.
        (0.0, (0.30, 0.0025), (0.28, 0.0225), {"2": 0, "1": 0}),
        # The gain is more certain in the new version, and so counts there.
        (0.0, (0.30, 0.03), (0.30, 0.0025), {"2": 0, "1": 27}),
    ],
)
def test_a_setting_that_gains_no_more_in_another_version_is_no_reason_to_choose_it(
    score: float, old: tuple[float, float], new: tuple[float, float], expected: dict[str, int]
) -> None:
    predicted = {"1": Ratio(mean=old[0], variance=old[1]), "2": Ratio(mean=new[0], variance=new[1])}

    assert costs_of(GainsByVersion({"1": score, "2": 0.0}, predicted)) == expected


def test_a_setting_that_only_the_older_version_has_is_a_reason_to_choose_it() -> None:
    predicted = dict.fromkeys("12", Ratio(mean=0.305, variance=0.0025))

    assert costs_of(GainsByVersion({"1": 0.0, "2": 0.0}, predicted), having=[1]) == {"2": 28, "1": 0}


@pytest.mark.parametrize(("comparisons", "cost"), [(1, 8), (5, 0)])
def test_of_many_versions_one_seems_better_by_chance(comparisons: int, cost: int) -> None:
    """A difference of 0.1 with a standard deviation of 0.045."""
    predicted = {"1": Ratio(mean=0.305, variance=0.001), "2": Ratio(mean=0.205, variance=0.001)}

    costs = costs_of(GainsByVersion({"1": 0.0, "2": 0.0}, predicted, comparisons=comparisons))

    assert costs == {"2": cost, "1": 0}


@settings(max_examples=examples(200), deadline=None)
@given(
    predicted=st.fixed_dictionaries(
        dict.fromkeys("123", st.builds(Ratio, mean=st.floats(-0.5, 0.5), variance=st.floats(0, 0.03)))
    ),
    baseline=st.sampled_from("123"),
)
def test_versions_whose_settings_do_not_differ_significantly_are_no_better_than_the_baseline(
    predicted: dict[str, Ratio], baseline: str
) -> None:
    mine = predicted[baseline]
    differences = {v: abs(other.mean - mine.mean) for v, other in predicted.items()}
    errors = {v: math.sqrt(other.variance + mine.variance) for v, other in predicted.items()}

    costs = costs_of(GainsByVersion(dict.fromkeys("123", 0.0), predicted), baseline=baseline)

    better = {v for v, cost in costs.items() if cost < costs[baseline]}
    assert not {v for v in better if differences[v] <= 1.96 * errors[v]}


def costs_of(estimator: GainsByVersion, *, baseline: str = "2", having: Collection[int] = (1, 2, 3)) -> dict[str, int]:
    """Return the cost of each version in the criterion speed.

    Args:
        estimator: The gains.
        baseline: Version of the baseline.
        having: Versions that have the setting.
    """
    name = canonicalize_name("a")
    releases: Releases = {"a": {int(v): ({}, {}) for v in estimator.versions}}
    candidates = {name: ReleaseSource(releases).candidates(name)}
    stack = {str(name): Version(baseline)}
    of_settings = KnownTo({("a", ALLOCATOR): having})
    comparison = SpeedComparison(
        estimator=estimator,
        reference=stack,
        settings=of_settings,
    )

    objective, _ = comparison.objective(candidates)

    return {str(version): cost for (_, version), cost in objective.costs.items()}

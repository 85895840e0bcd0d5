"""The objective of the optimiser: significant gains of frameworks and companions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from advisor.resolve.score.costs import SPEED_STEP, speed_steps
from knowledge.domain.ratio import Ratio
from knowledge.estimate.gains import CompanionGain, FrameworkGains
from tests.advisor.factories import (
    FixedScores,
    build_problem,
    companion_gains,
    exact_gain,
    recommend_stack,
    versions_of,
)
from tests.examples import examples
from tests.package_index import PackageIndex


@given(steps=st.lists(st.integers(-8, 8), min_size=4, max_size=4))
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_score_of_a_companion_is_that_of_the_estimator(
    index: PackageIndex, tmp_path: Path, steps: list[int]
) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version, ["b"])
        index.add("b", version)
    both = [("2.0", "2.0"), ("2.0", "1.0"), ("1.0", "2.0"), ("1.0", "1.0")]
    gained = dict(zip(both, steps, strict=True))
    # A little more than whole steps, so that rounding towards zero does not change them.
    with_companion = {pair: count * 0.0101 for pair, count in gained.items()}
    alone = {("a", v): with_companion[v, "2.0"] for v in ("1.0", "2.0")}

    advice, _ = recommend_stack(
        index,
        tmp_path,
        build_problem("a"),
        estimator=FixedScores(alone, with_companion=with_companion),
        min_gain=0.0,
    )

    stack = versions_of(advice.optimum.stack)
    assert gained[stack["a"], stack["b"]] == max(gained.values())


@given(with_old=st.integers(-8, 8), with_new=st.integers(-8, 8), without=st.integers(0, 8))
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_absent_companion_gets_no_part_of_a_companions_gain(
    index: PackageIndex, tmp_path: Path, with_old: int, with_new: int, without: int
) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0", ["b"])
    index.add("b", "1.0")
    index.add("b", "2.0")
    # By versions of `a` and `b`: version 1.0 of `a` does not require `b`, and would gain with it.
    gained = {("2.0", "2.0"): 0, ("2.0", "1.0"): with_old, ("1.0", ""): without, ("1.0", "1.0"): with_new}
    # An absent companion counts as that of the baseline.
    gained |= {("2.0", ""): 0, ("1.0", "2.0"): without}
    gains = FrameworkGains(
        framework="a",
        alone={Version("2.0"): exact_gain(0.0), Version("1.0"): exact_gain(without * 0.0101)},
        with_companion=companion_gains(
            {
                (Version(a), "b", Version(b) if b else None): CompanionGain(
                    joint=exact_gain(steps * 0.0101),
                    own=exact_gain((steps - (without if a == "1.0" else 0)) * 0.0101),
                    framework=exact_gain((steps - gained.get(("2.0", b), 0)) * 0.0101),
                )
                for (a, b), steps in gained.items()
            }
        ),
    )

    class FixedGains(FixedScores):
        def terms(self, candidates: object, baseline: object) -> tuple[FrameworkGains, ...]:
            return (gains,)

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"), estimator=FixedGains({}), min_gain=0.0)

    stack = versions_of(advice.optimum.stack)
    possible = {("2.0", "2.0"): 0, ("2.0", "1.0"): with_old, ("1.0", ""): without}
    assert possible[stack["a"], stack.get("b", "")] == max(possible.values())


def test_no_package_leaves_the_baseline_for_a_gain_that_is_not_significant() -> None:
    doubtful = Ratio(mean=0.032, variance=0.0215**2)
    clear = Ratio(mean=0.046, variance=0.0215**2)

    assert doubtful.cautious > SPEED_STEP
    assert speed_steps(doubtful, 1) == 0
    assert speed_steps(clear, 1) > 0
    assert speed_steps(Ratio(mean=-0.032, variance=0.0215**2), 1) < 0
    # The best of ten versions is likely to be that much better by chance.
    assert speed_steps(clear, 10) == 0


@pytest.mark.parametrize(("mean", "counts", "too_doubtful"), [(0.05, 0.025, 0.026), (0.60, 0.271, 0.272)])
def test_a_gain_counts_from_the_documented_significance(mean: float, counts: float, too_doubtful: float) -> None:
    assert speed_steps(Ratio(mean=mean, variance=counts**2), 1) > 0
    assert speed_steps(Ratio(mean=mean, variance=too_doubtful**2), 1) == 0


@pytest.mark.parametrize(("sure", "expected"), [("a", {"a": "1.0", "b": "2.0"}), ("b", {"a": "2.0", "b": "1.0"})])
def test_neither_framework_nor_companion_leaves_the_baseline_for_the_gain_of_the_other(
    index: PackageIndex, tmp_path: Path, sure: str, expected: dict[str, str]
) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version, ["b"])
        index.add("b", version)
    # Both old versions gain: one significantly, the other within its noise.
    means = {name: 0.2 if name == sure else 0.05 for name in ("a", "b")}
    variances = {name: 0.0 if name == sure else 0.03**2 for name in ("a", "b")}

    def of(*names: str) -> Ratio:
        return Ratio(mean=sum(means[n] for n in names), variance=sum(variances[n] for n in names))

    gains = FrameworkGains(
        framework="a",
        alone={Version("1.0"): of("a"), Version("2.0"): exact_gain(0.0)},
        with_companion=companion_gains(
            {
                (Version(v), "b", Version(w)): CompanionGain(
                    joint=of(*["a"] * (v == "1.0"), *["b"] * (w == "1.0")),
                    own=of(*["b"] * (w == "1.0")),
                    framework=of(*["a"] * (v == "1.0")),
                )
                for v in ("1.0", "2.0")
                for w in ("1.0", "2.0")
            }
        ),
    )

    class FixedGains(FixedScores):
        def terms(self, candidates: object, baseline: object) -> tuple[FrameworkGains, ...]:
            return (gains,)

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"), estimator=FixedGains({}))

    assert versions_of(advice.optimum.stack) == expected
    # The certainty equivalents must not be negative: otherwise the test would pass for another reason.
    assert min(g.cautious for g in gains.alone.values()) >= 0.0


def test_the_best_of_many_versions_must_gain_more(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version)
    gain = Ratio(mean=0.046, variance=0.0215**2)
    selected = []
    for comparisons in (1, 10):
        gains = FrameworkGains(
            framework="a",
            alone={Version("1.0"): gain, Version("2.0"): exact_gain(0.0)},
            with_companion=companion_gains({}),
            comparisons=comparisons,
        )

        class FixedGains(FixedScores):
            def terms(
                self, candidates: object, baseline: object, gains: FrameworkGains = gains
            ) -> tuple[FrameworkGains, ...]:
                return (gains,)

        advice, _ = recommend_stack(index, tmp_path, build_problem("a"), estimator=FixedGains({}))
        selected.append(versions_of(advice.optimum.stack)["a"])

    assert selected == ["1.0", "2.0"]


@pytest.mark.parametrize("doubtful", ["a", "b"])
def test_the_best_of_many_stacks_must_gain_more_with_each_of_its_packages(
    index: PackageIndex, tmp_path: Path, doubtful: str
) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version, ["b"])
        index.add("b", version)
    # One old version gains significantly; the gain of the other is significant only as a single comparison.
    of = {name: exact_gain(0.2) for name in ("a", "b")} | {doubtful: Ratio(mean=0.046, variance=0.0215**2)}

    def both(*names: str) -> Ratio:
        return Ratio(mean=sum(of[n].mean for n in names), variance=sum(of[n].variance for n in names))

    selected = []
    for comparisons in (1, 10):
        gains = FrameworkGains(
            framework="a",
            alone={Version("1.0"): of["a"], Version("2.0"): exact_gain(0.0)},
            with_companion=companion_gains(
                {
                    (Version(v), "b", Version(w)): CompanionGain(
                        joint=both(*["a"] * (v == "1.0"), *["b"] * (w == "1.0")),
                        own=both(*["b"] * (w == "1.0")),
                        framework=both(*["a"] * (v == "1.0")),
                    )
                    for v in ("1.0", "2.0")
                    for w in ("1.0", "2.0")
                }
            ),
            comparisons=comparisons,
        )

        class FixedGains(FixedScores):
            def terms(
                self, candidates: object, baseline: object, gains: FrameworkGains = gains
            ) -> tuple[FrameworkGains, ...]:
                return (gains,)

        advice, _ = recommend_stack(index, tmp_path, build_problem("a"), estimator=FixedGains({}))
        selected.append(versions_of(advice.optimum.stack)[doubtful])

    assert selected == ["1.0", "2.0"]

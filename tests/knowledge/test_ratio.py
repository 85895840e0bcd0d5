"""Properties of ratios of speeds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.domain.ratio import NO_GAIN, Ratio, product

RATIOS = st.builds(Ratio, mean=st.floats(-2, 2), variance=st.floats(0, 1))
WIDER = st.builds(Ratio, mean=st.floats(-2, 2), variance=st.floats(0, 1), quantile=st.floats(1.96, 12.7))
"""Ratios with intervals of Student's t distribution."""


@given(WIDER)
def test_the_inverse_has_the_inverse_interval(ratio: Ratio) -> None:
    inverse = ratio.inverse()

    assert inverse.quantile == ratio.quantile
    assert inverse.speedup * ratio.speedup == pytest.approx(1)
    assert inverse.low * ratio.high == pytest.approx(1)
    assert inverse.is_significant() == ratio.is_significant()


@given(RATIOS, RATIOS)
def test_errors_of_a_product_are_independent(one: Ratio, other: Ratio) -> None:
    both = one.times(other)

    assert both == product((one, other))
    assert both.speedup == pytest.approx(one.speedup * other.speedup)
    assert both.half_width == pytest.approx(math.hypot(one.half_width, other.half_width))
    assert both.over(other).mean == pytest.approx(one.mean, abs=1e-9)
    assert one.over(other).variance == both.variance
    assert one.times(NO_GAIN) == one


@given(RATIOS, st.floats(0, 1))
def test_of_a_share_of_the_time_the_logarithm_counts(ratio: Ratio, share: float) -> None:
    assert ratio.scaled(share).half_width == pytest.approx(share * ratio.half_width, abs=1e-9)
    assert math.log(ratio.scaled(share).speedup) == pytest.approx(share * ratio.mean, abs=1e-9)


def test_an_interval_that_excludes_1_is_significant_and_less_often_so_after_many_comparisons() -> None:
    ratio = Ratio(mean=0.1, variance=0.05**2)

    assert (round(ratio.low, 3), round(ratio.high, 3)) == (1.002, 1.219)
    assert ratio.is_significant()
    assert not ratio.is_significant(comparisons=2)
    assert not NO_GAIN.is_significant()


def test_an_interval_of_one_degree_of_freedom_has_finite_ends() -> None:
    assert math.isfinite(Ratio(mean=0.0, variance=1.0, quantile=1e6).high)


def test_a_difference_of_variances_that_is_slightly_negative_counts_as_none() -> None:
    assert Ratio(mean=0.1, variance=-1e-18).deviation == 0


@given(WIDER, WIDER)
def test_a_product_is_as_uncertain_as_its_least_certain_factor(one: Ratio, other: Ratio) -> None:
    assert one.times(other).quantile == one.over(other).quantile == max(one.quantile, other.quantile)


@given(WIDER, st.integers(2, 50))
def test_what_is_not_significant_alone_is_not_among_many(ratio: Ratio, comparisons: int) -> None:
    assert ratio.is_significant() or not ratio.is_significant(comparisons)

"""The arithmetic of the numerical checks: errors, picked positions, exact sums and layouts."""

from __future__ import annotations

import math

import pytest

from pi_runners.harness.random_inputs import decode, random_bytes
from pi_runners.indicators.checks.exact import field_bytes, pack, unpack, whole_numbers
from pi_runners.indicators.checks.results import Result, difference, pick, signed_sum, worst_error
from pi_runners.indicators.indicator import refuse_error
from tests.pi_runners.trials import cpu_backend


@pytest.mark.parametrize("errors", [[math.nan], [0.0, math.nan], [math.nan, 0.0], [math.inf, 0.0], []])
def test_the_error_of_nan_or_of_no_elements_is_infinite(errors: list[float]) -> None:
    assert worst_error(errors) == math.inf


def test_the_worst_of_finite_errors_is_the_largest() -> None:
    assert worst_error([0.5, 2.0, 1.0]) == 2.0


def test_the_difference_of_rows_of_different_lengths_is_infinite() -> None:
    assert difference([1.0], [1.0, 2.0]) == math.inf
    assert difference([], []) == math.inf
    assert difference([1.0, 3.0], [1.0, 2.0], 2.0) == 0.5
    assert signed_sum([[1, 2], [3]], [1, 1]) == []


@pytest.mark.parametrize("error", [math.nan, math.inf, -1.0, 0.2])
def test_only_an_error_within_the_tolerance_is_accepted(error: float) -> None:
    assert refuse_error(error, 0.1)["status"] == "wrong-result"
    assert refuse_error(0.1, 0.1) == {}


def test_pick_returns_all_positions_or_the_first_the_last_and_random_ones() -> None:
    assert pick(5, 5) == [0, 1, 2, 3, 4]
    samples = [pick(1000, 10) for _ in range(20)]
    assert all(len(s) == 10 and s[0] == 0 and s[-1] == 999 for s in samples)
    assert len({tuple(s) for s in samples}) > 1
    assert len(pick(1000, 0)) == 1


def test_sums_of_packed_rows_equal_sums_of_single_numbers() -> None:
    for dtype in ("float32", "int8"):
        numbers = whole_numbers(dtype)
        raws = [random_bytes(seed, 9) for seed in (1, 2, 3)]
        factors = [-7, 300, 11]

        total = sum(f * pack(raw, 4, numbers) for f, raw in zip(factors, raws, strict=True))

        assert unpack(total, 9, 4) == [
            sum(f * row[i] for f, row in zip(factors, map(numbers.row, raws), strict=True)) for i in range(9)
        ]
        assert [n / numbers.denominator for n in numbers.row(raws[0])] == pytest.approx(decode(raws[0], dtype))


def test_a_sum_that_fits_no_field_is_an_error() -> None:
    assert field_bytes(2**31 - 1) == 4
    assert field_bytes(2**31) == 8
    with pytest.raises(OverflowError):
        field_bytes(2**63)


def test_a_result_is_read_in_the_layout_of_its_framework() -> None:
    numpy = pytest.importorskip("numpy")
    framework = cpu_backend("numpy", "float64")
    images = numpy.arange(24.0).reshape(1, 2, 3, 4)

    channels_first = Result(framework, images, (1, 2, 3, 4)).channel(0, 1)
    framework.channels_last = True
    channels_last = Result(framework, numpy.moveaxis(images, 1, -1), (1, 3, 4, 2)).channel(0, 1)

    assert channels_first == channels_last == list(range(12, 24))

"""Results that are too large to be read completely: every element must be finite."""

from __future__ import annotations

import math

import pytest

from pi_runners.frameworks import make_backend
from pi_runners.indicators.checks.results import FINITE, Result


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_fails_however_large_the_result_is(framework: str, value: float) -> None:
    module = pytest.importorskip(framework)
    backend = make_backend(framework, "cpu", "float32", {})
    shape = (3, FINITE // 2)
    array = module.ones(shape, dtype=module.float32)

    assert Result(backend, array, shape).finite()
    for index in ((0, 0), (1, 4321), (2, shape[1] - 1)):
        array[index] = value
        # The check reads random elements only; the framework itself tests every element.
        assert not Result(backend, array, shape).finite()
        array[index] = 1.0


def test_a_result_that_is_not_finite_fails_even_if_the_framework_reports_it_as_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numpy = pytest.importorskip("numpy")
    backend = make_backend("numpy", "cpu", "float32", {})
    monkeypatch.setattr(type(backend), "all_finite", lambda *_: True)
    shape = (3, FINITE // 2)

    assert not Result(backend, numpy.full(shape, math.nan, dtype="float32"), shape).finite()

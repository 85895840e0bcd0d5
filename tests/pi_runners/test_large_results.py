"""Results that are too large to be read as a whole must be finite all the same."""

from __future__ import annotations

import math

import pytest

from pi_runners.backends import make_backend
from pi_runners.indicators.checks import FINITE, Result


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_is_detected_in_a_result_of_any_size(framework: str, value: float) -> None:
    module = pytest.importorskip(framework)
    backend = make_backend(framework, "cpu", "float32", {})
    shape = (3, FINITE // 2)
    array = module.ones(shape, dtype=module.float32)

    assert Result(backend, array, shape).finite()
    for place in ((0, 0), (1, 4321), (2, shape[1] - 1)):
        array[place] = value
        # Reading sees a random part alone: the framework is asked about every element.
        assert not Result(backend, array, shape).finite()
        array[place] = 1.0


def test_a_framework_that_calls_everything_finite_does_not_hide_a_result_that_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numpy = pytest.importorskip("numpy")
    backend = make_backend("numpy", "cpu", "float32", {})
    monkeypatch.setattr(type(backend), "all_finite", lambda *_: True)
    shape = (3, FINITE // 2)

    assert not Result(backend, numpy.full(shape, math.nan, dtype="float32"), shape).finite()

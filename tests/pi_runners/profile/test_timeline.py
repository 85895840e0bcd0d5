"""The time of a trace is divided among its operations, and nothing is counted twice."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pi_runners.profile.timeline import Claim, Kind, Level, Timeline

CONV = Kind("conv", "DNN library", Claim("conv2d"))
PLAIN = Kind("plain", "framework")


def test_an_operation_counts_without_the_operations_inside_it() -> None:
    timeline = Timeline()
    timeline.add(PLAIN, "main", 0, 10)
    timeline.add(CONV, "main", 2, 3)

    division = timeline.divide()

    assert division.layers == {"framework": 7, "DNN library": 3}
    assert division.claims == {Claim("conv2d"): 3}
    assert (division.total, division.idle) == (10, 0)


def test_an_indicator_stands_for_everything_inside_its_operation() -> None:
    timeline = Timeline()
    timeline.add(CONV, "main", 0, 10)
    timeline.add(PLAIN, "main", 1, 4)
    timeline.add(Kind("product", "BLAS", Claim("matmul")), "main", 6, 2)

    division = timeline.divide()

    assert division.claims == {Claim("conv2d"): 10}
    assert division.calls == {Claim("conv2d"): 1}


def test_a_repeated_call_with_converted_arrays_replaces_the_outer_one() -> None:
    outer = Kind("linear", "framework", Claim("matmul", dtype="float32"))
    inner = Kind("linear", "framework", Claim("matmul", dtype="bfloat16"))
    timeline = Timeline()
    timeline.add(outer, "main", 0, 10)
    timeline.add(inner, "main", 2, 8)

    division = timeline.divide()

    assert division.claims == {Claim("matmul", dtype="float32"): 2, Claim("matmul", dtype="bfloat16"): 8}
    assert division.calls == {Claim("matmul", dtype="bfloat16"): 1}


def test_operations_on_several_threads_share_the_time() -> None:
    timeline = Timeline()
    timeline.add(CONV, "first", 0, 10)
    timeline.add(PLAIN, "second", 5, 10)

    division = timeline.divide()

    assert division.layers == pytest.approx({"DNN library": 7.5, "framework": 7.5})
    assert division.total == 15


def test_a_kernel_hides_the_thread_that_waits_for_it_and_has_the_indicator_of_its_operation() -> None:
    timeline = Timeline()
    timeline.add(CONV, "main", 0, 4)
    timeline.add(Kind("cudaLaunchKernel", "framework"), "main", 1, 1, link=7)
    timeline.add(Kind("cudaStreamSynchronize", "framework"), "main", 4, 8)
    timeline.add(Kind("implicit_gemm", "DNN library"), "stream 7", 3, 8, level=Level.DEVICE, link=7)

    division = timeline.divide()

    assert division.kernels["implicit_gemm"] == 8
    assert division.claims == {Claim("conv2d"): 3 + 8}
    assert division.kernels["cudaStreamSynchronize"] == 1


def test_only_the_time_of_the_window_counts() -> None:
    timeline = Timeline()
    timeline.add(CONV, "main", 0, 10)
    timeline.add(CONV, "main", 20, 10)

    division = timeline.divide((5, 25))

    assert (division.total, division.idle) == (20, 10)
    assert division.claims == {Claim("conv2d"): 10}
    assert division.calls == {Claim("conv2d"): 1}


def test_a_full_timeline_leaves_operations_out() -> None:
    timeline = Timeline(maximum=2)
    for start in range(3):
        timeline.add(PLAIN, "main", start, 1)

    assert timeline.is_full
    assert timeline.divide().total == 2


SPANS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 60),
        st.integers(0, 30),
        st.sampled_from(list(Level)),
        st.sampled_from([CONV, PLAIN, Kind("input", "input pipeline", None, inherited=True)]),
    ),
    max_size=40,
)


@given(SPANS, st.integers(0, 40), st.integers(1, 60))
def test_the_times_add_up_to_the_window(
    spans: list[tuple[str, int, int, Level, Kind]], first: int, length: int
) -> None:
    timeline = Timeline()
    for thread, start, duration, level, kind in spans:
        timeline.add(kind, thread, start, duration, level=level)

    division = timeline.divide((first, first + length))

    assert sum(division.layers.values()) + division.idle == pytest.approx(length)
    assert sum(division.kernels.values()) + division.idle == pytest.approx(length)
    assert sum(division.claims.values()) <= length + 1e-9
    assert min([*division.layers.values(), division.idle]) >= -1e-9
    with patch("pi_runners.profile.timeline._SLICE", 3):
        sliced = timeline.divide((first, first + length))
    assert sliced.idle == pytest.approx(division.idle)
    assert dict(sliced.kernels) == pytest.approx(dict(division.kernels))

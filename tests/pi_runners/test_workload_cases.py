"""The parts of a profiled workload are measured with their own parameters and element types."""

from __future__ import annotations

from typing import Any

from knowledge.domain.workload import ProfiledWorkload, WorkloadPart
from pi_runners.execution.environment import StackLock
from pi_runners.plan.matrix import IndicatorCase, check_fit, plan_arms, workload_cases
from tests.knowledge.samples import MACHINE

CONV: dict[str, Any] = {"batch": 4, "channels": 3, "filters": 8, "size": 8, "kernel": 3}
PARTS = (
    WorkloadPart(indicator="conv2d", share=0.3, parameters={**CONV, "direction": "backward"}, direction="backward"),
    WorkloadPart(indicator="matmul", share=0.2, parameters={"m": 8, "n": 8, "k": 8}, dtype="bfloat16"),
    WorkloadPart(indicator="softmax", share=0.1, parameters={"rows": 8, "columns": 8}, direction="backward"),
    WorkloadPart(indicator="elementwise", share=0.1),
    WorkloadPart(indicator="sort", share=0.1, parameters={"rows": 8, "columns": 8}, dtype="int64"),
    WorkloadPart(indicator="made_up", share=0.05, parameters={"n": 1}),
    WorkloadPart(indicator="fft", share=0.001, parameters={"rows": 8, "columns": 8}),
)
WORKLOAD = ProfiledWorkload(name="w", framework="torch", parts=PARTS, unattributed=0.149)


def test_parts_that_an_indicator_measures_are_cases() -> None:
    assert workload_cases(WORKLOAD) == (
        (IndicatorCase(name="conv2d", parameters={**CONV, "direction": "backward"}, dtype="float32"), 0.3),
        (IndicatorCase(name="matmul", parameters={"m": 8, "n": 8, "k": 8}, dtype="bfloat16"), 0.2),
    )


def test_a_case_runs_in_its_own_element_type() -> None:
    measured = [case for case, _ in workload_cases(WORKLOAD)]
    cases = (*measured, IndicatorCase(name="softmax", parameters={"rows": 8, "columns": 8}))
    check_fit(cases, ["float32", "float64"], MACHINE, device="cpu")

    lock = StackLock(requested=("torch==2.9.1",), packages=(), python="3.11", platform="manylinux_2_28_x86_64")
    arms = plan_arms([(lock, {})], cases, dtypes=["float32", "float64"], device="cpu", control=False)

    runs = [(run.name, run.dtype) for run in arms[0].indicators]
    assert runs == [("softmax", "float32"), ("softmax", "float64"), ("conv2d", "float32"), ("matmul", "bfloat16")]

"""Stacks with two measured frameworks: the optimiser maximises the number that is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from knowledge.estimate.evidence import Contrast, Machine, RunOutcome, Side
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.interface import NORMAL_QUANTILE, RISK
from knowledge.estimate.model_cache import shipped_amplitudes
from knowledge.estimate.estimator import WorkloadEstimator
from tests.examples import examples
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.knowledge.samples import MACHINE

HERE = Machine(identity=MACHINE.identity, name="zen4", kind="cpu zen4", family="cpu AuthenticAMD")
OFFERED = {
    "torch": ("2.9.0", "2.8.0", "2.4.0"),
    "jax": ("0.9.0", "0.7.0"),
    "numpy": ("2.2.0", "2.0.1", "1.26.4"),
    "mkl": ("2024.0.0", "2021.4.0"),
}
Stack = dict[str, str]


class Models:
    """Models of given contrasts, with intervals that are widened by a factor; no shipped contrast is used."""

    def __init__(self, contrasts: Sequence[Contrast], widening: float) -> None:
        self._contrasts = contrasts
        self._widening = widening

    def process(self, framework: str, device: str, own: Sequence[Contrast] = ()) -> GaussianProcess | None:
        contrasts = [c for c in self._contrasts if c.framework == framework]
        amplitudes = replace(shipped_amplitudes("torch", "cpu"), widening=self._widening, discrepancies={}, refused=())
        return GaussianProcess(contrasts, amplitudes) if contrasts and device == "cpu" else None

    def runs(self, framework: str, device: str) -> tuple[RunOutcome, ...]:
        return ()


def contrast(framework: str, one: Stack, other: Stack, mean: float, error: float, block: str) -> Contrast:
    sides = [
        Side(version=s[framework], companions={n: s[n] for n in ("numpy", "mkl") if n in s}, settings={})
        for s in (one, other)
    ]
    return Contrast(
        block=block,
        arm=1,
        label=f"sort@1[n=8] float32 {framework}/cpu",
        family="sort",
        backend=framework,
        framework=framework,
        machine=HERE,
        side=sides[0],
        reference=sides[1],
        mean=mean,
        error=error,
        common=error / 2,
        low=mean - 2 * error,
        high=mean + 2 * error,
        rounds=6,
        is_control=False,
    )


def estimator(contrasts: Sequence[Contrast], widening: float) -> WorkloadEstimator:
    return WorkloadEstimator(
        Models(contrasts, widening),  # type: ignore[arg-type]
        hardware=MACHINE,
        workload=EVERY_OPERATION,
        frameworks=("torch", "jax"),
    )


def versions(stack: Mapping[str, str]) -> dict[str, Version]:
    return {name: Version(version) for name, version in stack.items()}


CANDIDATES = {name: [Version(v) for v in listed] for name, listed in OFFERED.items()}
stacks = st.fixed_dictionaries(
    {name: st.sampled_from(OFFERED[name]) for name in ("torch", "jax")},
    optional={name: st.sampled_from(OFFERED[name]) for name in ("numpy", "mkl")},
)
NEWEST = {name: listed[0] for name, listed in OFFERED.items()}
BOTH = [
    contrast("torch", {**NEWEST, "torch": "2.4.0", "numpy": "2.0.1"}, NEWEST, 0.1, 0.03, "b1"),
    contrast("jax", {**NEWEST, "jax": "0.7.0"}, NEWEST, 0.2, 0.03, "b2"),
]


@given(
    measured=st.lists(
        st.tuples(st.sampled_from(("torch", "jax")), stacks, stacks, st.floats(-0.4, 0.4), st.floats(0.01, 0.2)),
        max_size=4,
    ),
    widening=st.sampled_from((1.0, 1.7)),
    stack=stacks,
    baseline=stacks,
)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_score_of_two_frameworks_agrees_with_the_printed_interval(
    measured: list[tuple[str, Stack, Stack, float, float]], widening: float, stack: Stack, baseline: Stack
) -> None:
    rows = [contrast(*row, block=f"m{number}") for number, row in enumerate(measured)]
    fitted = estimator([*BOTH, *rows], widening)

    terms = fitted.terms(CANDIDATES, versions(baseline))
    printed = fitted.predict(versions(stack), versions(baseline))

    deviation = math.log(printed.high / printed.low) / (2 * NORMAL_QUANTILE)
    expected = math.log(printed.speedup) - RISK / 2 * deviation**2
    assert printed.score == pytest.approx(expected, abs=1e-7)
    assert terms.score(versions(stack)) == pytest.approx(expected, abs=1e-7)


def test_the_widening_multiplies_the_width_of_an_interval() -> None:
    stacks = versions({**NEWEST, "torch": "2.4.0", "jax": "0.7.0", "numpy": "1.26.4"}), versions(NEWEST)

    models = [estimator(BOTH, widening) for widening in (1.0, 2.0)]
    plain, wide = (model.predict(*stacks) for model in models)

    assert [model.terms(CANDIDATES, stacks[1]).score(stacks[0]) for model in models] == pytest.approx(
        [plain.score, wide.score]
    )
    assert math.log(wide.high / wide.low) == pytest.approx(2 * math.log(plain.high / plain.low))
    # Each framework has half of the workload, so its variance is a part of the variance of the whole.
    change = {c.package: math.log(c.high / c.low) for c in plain.changes}
    assert set(change) == {"torch", "jax"}
    assert math.log(plain.high / plain.low) == pytest.approx(math.hypot(*change.values()) / 2)


def test_the_versions_of_all_frameworks_and_companions_count_as_comparisons() -> None:
    terms = estimator(BOTH, 1.0).terms(CANDIDATES, versions(NEWEST))

    # 2.4.0 of PyTorch, 2.0.1 of NumPy with PyTorch, and 0.7.0 of JAX.
    assert {gains.framework: gains.comparisons for gains in terms.frameworks} == {"torch": 3, "jax": 3}

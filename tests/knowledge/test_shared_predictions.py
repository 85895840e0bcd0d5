"""Predictions are those of the closed form, whatever is asked for together, and what they share is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from packaging.version import Version

from knowledge.estimate.amplitudes import add_noise, places, points_of
from knowledge.estimate.evidence import Contrast, Side, machine_of
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.kinds import KindsEstimator
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.model_cache import ModelCache, shipped_amplitudes
from tests.knowledge.samples import MACHINE
from tests.knowledge.test_gains import COMPANIONS, FRAMEWORK, HERE, LABEL, OTHER_LABEL, contrast, side

THREADS = {"threads": "1"}
LABELS = [(LABEL, "sort"), (OTHER_LABEL, "matmul")]


def rows() -> list[Contrast]:
    """Return contrasts of versions, companions and settings, several of them between the same stacks."""
    new = side("2.9.0", {"numpy": "2.2.0"})
    old, other = side("2.4.0", {"numpy": "2.2.0"}), side("2.8.0", {"numpy": "1.26.4", "triton": "3.4.0"})
    single = replace(new, settings=THREADS)
    arms = [(old, 0.2), (other, -0.1), (single, -0.4), (new, 0.01)]
    return [
        contrast(arm, new, mean + 0.01 * number, 0.02, block=block, label=label, arm=1 + number)
        for block in ("a", "b")
        for label, _ in LABELS
        for number, (arm, mean) in enumerate(arms)
    ]


def stacks() -> list[Side]:
    plain = [
        side(v, {"numpy": n, "triton": t}) for v in FRAMEWORK for n in COMPANIONS["numpy"] for t in ("3.5.0", "2.1.0")
    ]
    return [*plain, *(replace(stack, settings=THREADS) for stack in plain[:2])]


def closed_form(process: GaussianProcess, one: Side, other: Side) -> tuple[float, float]:
    """Return mean and variance of the log speed of a stack over another one at the first indicator."""
    asked = replace(process.contrasts[0], side=one, reference=other, machine=HERE)
    every = [*process.contrasts, asked]
    total = process.encode(points_of(every)).covariance(*places(len(every)), process.amplitudes.parts)
    count = len(process.contrasts)
    measured = np.tril(total[:count, :count])
    add_noise(measured, process.contrasts, process.amplitudes)
    measured = np.tril(measured)
    measured += np.tril(measured, -1).T
    weights = np.linalg.solve(measured, total[count, :count])
    means = np.array([c.mean for c in process.contrasts])
    return float(weights @ means), float(total[count, count] - weights @ total[count, :count])


@pytest.mark.parametrize("pair", [(0, 7), (3, 20), (24, 0), (25, 1), (24, 20)])
@pytest.mark.parametrize("together", [False, True])
def test_the_posterior_is_that_of_the_closed_form(pair: tuple[int, int], *, together: bool) -> None:
    process = GaussianProcess(rows(), shipped_amplitudes("torch", "cpu"))
    sides = stacks() if together else [stacks()[index] for index in pair]
    one, other = pair if together else (0, 1)
    weights = np.tile([1.0, 0.0], (len(sides), 1))

    sums = process.posterior(sides, LABELS, HERE).sums(weights, other)

    mean, variance = closed_form(process, sides[one], sides[other])
    assert sums.mean[one] - sums.mean[other] == pytest.approx(mean, rel=1e-9, abs=1e-12)
    assert sums.variances([one], [other])[0] == pytest.approx(variance, rel=1e-9)
    weighted = sums.contrast_weights(one, other) @ [c.mean for c in process.contrasts]
    assert weighted == pytest.approx(mean, rel=1e-9, abs=1e-12)


def test_a_posterior_knows_stacks_that_were_added_after_another_question() -> None:
    process = GaussianProcess(rows(), shipped_amplitudes("torch", "cpu"))
    sides, weights = stacks(), np.full((2, 2), 0.5)
    before = process.posterior(sides[:2], LABELS, HERE).sums(weights, 1).variances([0], [1])

    process.posterior(sides[2:], LABELS, HERE)
    after = process.posterior(sides[:2], LABELS, HERE).sums(weights, 1).variances([0], [1])

    assert after == pytest.approx(before, rel=1e-12)


def test_an_effect_of_a_setting_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    process = GaussianProcess(rows(), shipped_amplitudes("torch", "cpu"))
    model = FrameworkModel(MeasuredFramework("torch", process, HERE), dict.fromkeys(LABELS, 0.5))
    stack = {"torch": Version("2.9.0"), "numpy": Version("2.2.0")}
    first = model.gain_of_setting(stack, "threads", "1")

    monkeypatch.setattr(process, "posterior", None)

    assert model.gain_of_setting(stack, "threads", "1") == first


def test_all_kinds_of_workloads_share_one_factorisation(monkeypatch: pytest.MonkeyPatch) -> None:
    factorised: list[int] = []
    cholesky = np.linalg.cholesky

    def counted(matrix: np.ndarray) -> np.ndarray:
        factorised.append(len(matrix))
        return cholesky(matrix)

    machine = machine_of(MACHINE, "cpu")
    label = "model@1[batch=1,mode={},model=resnet50] float32 torch/cpu"
    measured = [
        replace(c, label=label.format("training" if c.label == LABEL else "inference"), family="model", machine=machine)
        for c in rows()
    ]
    estimator = KindsEstimator(_Models(measured), hardware=MACHINE, frameworks=["torch"])
    stack = {"torch": Version("2.9.0"), "numpy": Version("2.2.0")}
    candidates = {"torch": [Version(v) for v in FRAMEWORK], "numpy": [Version(v) for v in COMPANIONS["numpy"]]}
    monkeypatch.setattr(np.linalg, "cholesky", counted)

    kinds = {effect.workload for effect in estimator.compared_settings(stack)}
    estimator.setting_gains(candidates, stack)
    estimator.terms(candidates, stack)

    assert len(kinds) > 1
    assert factorised == [len(measured)]


class _Models(ModelCache):
    """Models of one framework with contrasts that no knowledge base has."""

    def __init__(self, contrasts: Sequence[Contrast]) -> None:
        self._contrasts = contrasts

    def process(self, framework: str, device: str, own: Sequence[Contrast] = ()) -> GaussianProcess | None:
        return GaussianProcess(self._contrasts, shipped_amplitudes(framework, device))

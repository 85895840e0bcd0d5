"""The speed-up of a workload, whose time is the sum of the times of its parts."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from packaging.version import Version

from knowledge.estimate.evidence import Machine, Side
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.model_cache import ModelCache
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.test_gains import HERE, contrast, side

FAST, SLOW = "matmul@1[n=4] float32 torch/cpu", "sort@1[n=8] float32 torch/cpu"


def model_of(gains: dict[str, float], shares: dict[str, float], error: float = 1e-4) -> FrameworkModel:
    """Return a model of two releases that were compared at some indicators."""
    rows = [
        contrast(side("2.4.0"), side("2.9.0"), gain, error, block=str(number), label=label)
        for number, (label, gain) in enumerate(gains.items())
    ]
    parts = {(label, label.partition("@")[0]): share for label, share in shares.items()}
    return FrameworkModel(MeasuredFramework("torch", GaussianProcess(rows), HERE), parts)


def speedup(model: FrameworkModel) -> float:
    return math.exp(model.gain({"torch": Version("2.4.0")}, {"torch": Version("2.9.0")}).mean)


def test_a_small_part_that_becomes_ten_times_slower_costs_real_time() -> None:
    parts = {FAST: 0.0, SLOW: -math.log(10)}

    slower = speedup(model_of(parts, {FAST: 0.9, SLOW: 0.1}))

    # 0.9 + 0.1 x 10; the average of the logarithms would be 0.79.
    assert slower == pytest.approx(1 / 1.9, rel=0.02)


def test_a_part_that_costs_no_time_any_more_gains_its_share_at_most() -> None:
    faster = speedup(model_of({FAST: 0.0, SLOW: math.log(1000)}, {FAST: 0.9, SLOW: 0.1}))

    assert faster == pytest.approx(1 / 0.9, rel=0.02)


def test_the_speed_up_of_one_part_is_that_of_the_part() -> None:
    assert speedup(model_of({FAST: 0.3}, {FAST: 1.0})) == pytest.approx(math.exp(0.3), rel=0.05)


@pytest.mark.parametrize("framework", ["tensorflow-cpu", "jax", "onnxruntime", "numpy", "torch"])
def test_the_variance_is_that_of_samples_of_the_posterior(first_knowledge: Path, framework: str) -> None:
    with open_knowledge_base(str(first_knowledge)) as store:
        process = ModelCache(store).process(framework, "cpu")
    assert process is not None
    # The machine on which most was measured.
    machine: Machine = statistics.mode(c.machine for c in process.contrasts)
    labels = sorted({(c.label, c.family) for c in process.contrasts})[:20]
    shares = {
        label: (1 + number % 5) / sum(1 + n % 5 for n in range(len(labels))) for number, label in enumerate(labels)
    }
    versions = sorted({c.side.version for c in process.contrasts if not c.side.settings}, key=Version)
    sides = [Side(version=v, companions={}, settings={}) for v in (versions[0], versions[-1])]
    model = FrameworkModel(MeasuredFramework(framework, process, machine), shares)

    gain = model.speeds(sides).gain(0, 1)

    means, covariance = joint_posterior(process, [*sides, model.anchor], list(shares), machine)
    draws = np.random.default_rng(1).multivariate_normal(means, covariance, 20000, method="svd")
    times = np.exp(-draws.reshape(20000, 2, len(labels))) @ np.array(list(shares.values()))
    sampled = np.log(times[:, 1]) - np.log(times[:, 0])
    deviation = math.sqrt(gain.variance) / process.amplitudes.widening
    assert float(np.median(sampled)) == pytest.approx(gain.mean, abs=0.15 * deviation + 1e-3)
    assert float(np.std(sampled)) == pytest.approx(deviation, rel=0.1)


def joint_posterior(
    process: GaussianProcess, sides: list[Side], labels: list[tuple[str, str]], machine: Machine
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and covariance of the log speed of stacks over the last one, stack by stack, at each indicator."""
    posterior = process.posterior(sides, labels, machine)
    count, stacks = len(labels), len(sides) - 1
    # One sum for each stack and indicator: the posterior of the same stack, once for each indicator.
    repeated = process.posterior([side for side in sides for _ in labels], labels, machine)
    sums = repeated.sums(np.tile(np.eye(count), (stacks + 1, 1)), stacks * count)
    rows, columns = (index.ravel() for index in np.indices((stacks * count, stacks * count)))
    levels = posterior.levels()
    means = (levels[:-1] - levels[-1]).ravel()
    return means, sums.covariances(rows.tolist(), columns.tolist()).reshape(stacks * count, -1)

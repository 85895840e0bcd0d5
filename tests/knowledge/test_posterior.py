"""The model: its terms, its cache, and the coverage of its intervals on simulated data."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from packaging.version import Version

from knowledge.domain.observation import Observation
from knowledge.domain.stack import PackageVersion, make_stack
from knowledge.estimate.amplitudes import fit_amplitudes
from knowledge.estimate.compare import common_shares
from knowledge.estimate.evidence import Side, evidence_of
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess, predict_held_out
from knowledge.estimate.interface import Prediction
from knowledge.estimate.kernel import distances
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.model_cache import (
    ACCELERATORS,
    USUAL,
    USUAL_ON_ACCELERATORS,
    ModelCache,
    framework_contrasts,
    frameworks_of,
    shipped_amplitudes,
)
from knowledge.estimate.posterior import PosteriorEstimator
from knowledge.estimate.stored_evidence import load_evidence
from knowledge.estimate.time_shares import time_shares
from knowledge.estimate.workloads import TimePart, find_workload
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.knowledge.samples import MACHINE, RUN, invented_blocks, observation


def torch_block(seed: int, *, sizes: int = 4, rounds: int = 6) -> Iterator[Observation]:
    """Yield a block of PyTorch with NumPy: each release is 4 % faster than the last one, and NumPy 2 is 3 % slower."""
    generator = random.Random(seed)
    stacks = [("2.4.0", "1.26.4"), ("2.5.0", "1.26.4"), ("2.6.0", "2.0.0"), ("2.7.0", "2.0.0"), ("2.7.0", "1.26.4")]
    for size in range(sizes):
        run = replace(RUN, backend="torch", parameters={"m": 8 * 2**size, "n": 8, "k": 8})
        for number in range(rounds):
            for arm, (torch, numpy) in enumerate(stacks):
                speed = 0.04 * (int(torch[2]) - 7) - 0.03 * (numpy == "2.0.0")
                one = observation(round=number, arm=arm, reference=arm == 4, block=f"t{seed}")
                packages = [PackageVersion(name="torch", version=torch), PackageVersion(name="numpy", version=numpy)]
                seconds = math.exp(-speed + generator.gauss(0, 0.01))
                yield replace(
                    one,
                    indicator=run,
                    framework="torch",
                    stack=make_stack(packages, python="3.11.7", platform="manylinux_2_28_x86_64"),
                    samples=(seconds, seconds),
                )


@pytest.fixture
def store() -> Iterator[SqlKnowledgeBase]:
    with open_knowledge_base("sqlite://", shipped=False) as opened:
        opened.add(torch_block(1))
        yield opened


def estimator(store: SqlKnowledgeBase) -> PosteriorEstimator:
    return PosteriorEstimator(
        ModelCache(store), hardware=MACHINE, workload=EVERY_OPERATION, frameworks=("torch", "numpy")
    )


CANDIDATES = {
    "torch": [Version(v) for v in ("2.7.0", "2.6.0", "2.5.0", "2.4.0", "2.3.0")],
    "numpy": [Version(v) for v in ("2.1.0", "2.0.0", "1.26.4")],
}
BASELINE = {"torch": Version("2.7.0"), "numpy": Version("2.1.0")}


def test_the_baseline_gains_nothing(store: SqlKnowledgeBase) -> None:
    terms = estimator(store).terms(CANDIDATES, BASELINE)

    (gains,) = terms.frameworks
    assert gains.alone[BASELINE["torch"]].mean == pytest.approx(0, abs=1e-12)
    assert gains.alone[BASELINE["torch"]].variance == pytest.approx(0, abs=1e-12)
    assert terms.score(BASELINE) == pytest.approx(0, abs=1e-12)


def test_the_interval_contains_a_simulated_effect(store: SqlKnowledgeBase) -> None:
    model = estimator(store).model("torch")
    assert model is not None

    estimate = model.estimate(
        {"torch": Version("2.4.0"), "numpy": Version("1.26.4")},
        {"torch": Version("2.7.0"), "numpy": Version("1.26.4")},
        confidence=0.95,
    )

    assert estimate.low < math.exp(-0.12) < estimate.high < 1
    assert estimate.measured
    # To first order: the workload's time is a sum over several indicators.
    weighted = sum(w * c.mean for w, c in estimate.weighted_contrasts)
    assert math.log(estimate.speedup) == pytest.approx(weighted, abs=0.01)


def test_intervals_of_left_out_versions_have_their_nominal_coverage() -> None:
    contrasts = [c for seed in range(4) for c in evidence_of(torch_block(seed)).contrasts]
    inside: list[bool] = []
    widths: list[float] = []
    for version in ("2.4.0", "2.5.0", "2.6.0"):
        training = [c for c in contrasts if c.side.version != version]
        held_out = [c for c in contrasts if c.side.version == version]
        mean, deviation = predict_held_out(training, held_out)
        inside += [abs(m - c.mean) < 1.645 * d for m, d, c in zip(mean, deviation, held_out, strict=True)]
        widths += list(deviation)

    # 90 % intervals that always contain the value because they are too wide are wrong, too.
    assert np.mean(inside) > 0.8
    assert np.mean(widths) < 0.1


@pytest.mark.parametrize(("common", "own", "share"), [(0.1, 0.01, 0.95), (0.05, 0.05, 0.5), (0.0, 0.1, 0.0)])
def test_the_share_of_noise_common_to_all_indicators_of_a_process_is_estimated(
    common: float, own: float, share: float
) -> None:
    generator = random.Random(3)
    rows = []
    for number in range(60):
        disturbed = generator.gauss(0, common)
        for size in range(6):
            run = replace(RUN, parameters={"m": size, "n": 8, "k": 8})
            for arm in range(2):
                seconds = math.exp(arm * (disturbed + generator.gauss(0, own)))
                one = observation(round=number, arm=arm, reference=arm == 0)
                rows.append(replace(one, indicator=run, samples=(seconds, seconds)))

    (estimate,) = common_shares(rows).values()

    assert estimate == pytest.approx(share, abs=0.12)


def test_shipped_amplitudes_are_used_regardless_of_the_knowledge_base(store: SqlKnowledgeBase) -> None:
    before = ModelCache(store).process("torch", "cpu")
    store.add(torch_block(2))
    after = ModelCache(store).process("torch", "cpu")

    assert before is not None
    assert after is not None
    assert len(after.contrasts) == 2 * len(before.contrasts)
    assert before.amplitudes == after.amplitudes == shipped_amplitudes("torch", "cpu")


def test_unchanged_knowledge_is_not_read_again(store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ModelCache(store).process("torch", "cpu")
    monkeypatch.setattr("knowledge.estimate.model_cache.load_evidence", None)

    again = ModelCache(store).process("torch", "cpu")

    assert first is not None
    assert again is not None
    # The second result came from the cache that the first one stored, in which numbers are rounded.
    assert [c.block for c in again.contrasts] == [c.block for c in first.contrasts]
    assert [c.mean for c in again.contrasts] == pytest.approx([c.mean for c in first.contrasts], abs=1e-8)


def test_cached_values_of_another_statistic_are_not_used(
    store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    ModelCache(store).process("torch", "cpu")
    monkeypatch.setattr("knowledge.estimate.model_cache.EVIDENCE_FORMAT", 99)
    monkeypatch.setattr("knowledge.estimate.stored_evidence.FORMAT", 99)
    monkeypatch.setattr("knowledge.estimate.evidence.compare_block", lambda _: ())

    assert ModelCache(store).process("torch", "cpu") is None


def test_only_changed_blocks_are_read_again(store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    load_evidence(store)
    store.add(torch_block(2))
    read: list[str | None] = []
    real = store.observations

    def reading(*, block: str) -> Iterator[Observation]:
        read.append(block)
        return real(block=block)

    monkeypatch.setattr(store, "observations", reading)

    evidence = load_evidence(store)

    assert read == ["t2"]
    assert {c.block for c in evidence.contrasts} == {"t1", "t2"}


def test_every_framework_with_shipped_observations_has_shipped_amplitudes(first_knowledge: Path) -> None:
    shipped = json.loads((files("knowledge.data") / "fits.json").read_text())
    with open_knowledge_base(str(first_knowledge)) as store:
        evidence = load_evidence(store)
    compared = {
        f"{framework}/{device}"
        for framework, device in frameworks_of(evidence)
        if any(c.side.version != c.reference.version for c in framework_contrasts(evidence, framework, device))
    }

    assert set(shipped) == compared | {USUAL, USUAL_ON_ACCELERATORS, ACCELERATORS}
    assert compared


@pytest.mark.slow
def test_the_shipped_amplitudes_are_reproduced_from_the_shipped_observations() -> None:
    with open_knowledge_base("sqlite://") as store:
        contrasts = framework_contrasts(load_evidence(store), "numpy", "cpu")

    fitted = fit_amplitudes(contrasts)

    shipped = shipped_amplitudes("numpy", "cpu")
    assert fitted.parts == pytest.approx(shipped.parts, rel=0.02, abs=1e-5)
    assert fitted.spans == shipped.spans
    assert fitted.scales == pytest.approx(shipped.scales, rel=0.01)


def test_only_sizes_of_the_model_of_the_workload_count() -> None:
    part = TimePart(indicator="inference", parameters={"model": "cnn"}, share=1.0)

    assert part.matches("inference@1[batch=1,model=cnn] float32 torch/cpu", "inference")
    assert not part.matches("inference@1[batch=1,model=transformer] float32 torch/cpu", "inference")
    assert part.matches("inference@1[batch=1] float32 torch/cpu", "inference")
    assert not part.matches("sort@1[n=1] float32 torch/cpu", "sort")


def test_the_weight_of_a_family_is_shared_by_its_sizes(store: SqlKnowledgeBase) -> None:
    contrasts = load_evidence(store).contrasts
    measured = {"operations": {f"{m} training": {"matmul": 1.0} for m in ("bert_base", "vit_b16")}}
    amplitudes = replace(shipped_amplitudes("torch", "cpu"), scales={}, shares=measured)
    basis, shares, *_ = time_shares(contrasts, find_workload("transformer-training"), amplitudes, MACHINE_SEEN)

    assert basis == "operations"
    assert len(shares) == 4
    assert list(shares.values()) == pytest.approx([0.25] * 4, rel=0.2)
    assert sum(shares.values()) == pytest.approx(1)


def test_distances_do_not_depend_on_the_selected_versions() -> None:
    versions = [Version(v) for v in ("1.24.0", "1.26.4", "2.0.0", "2.0.0+cu126")]

    few, many = distances(versions[:3], {1: 27}), distances([*versions, Version("1.25.0")], {1: 27})

    assert few[0, 1] == pytest.approx(2.4)
    assert few[1, 2] == pytest.approx(0.6)
    assert np.allclose(few, many[:3, :3])
    assert many[2, 3] == 1


def test_distances_of_calendar_versions_do_not_depend_on_the_selected_versions() -> None:
    apart = [Version("2021.4.0"), Version("2024.0.0")]

    few = distances(apart, {})
    many = distances([*apart, Version("2022.1.0"), Version("2023.2.0"), Version("0.1")], {})

    assert few[0, 1] == many[0, 1] == 3 * 4 - 4


def test_no_speed_is_predicted_from_operations_that_do_not_predict_whole_models(
    store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = ({"torch": Version(v)} for v in ("2.7.0", "2.4.0"))

    def predict() -> Prediction:
        return PosteriorEstimator(
            ModelCache(store),
            hardware=MACHINE,
            workload=find_workload("transformer-training"),
            frameworks=("torch",),
        ).predict(old, new)

    predicted = predict()
    refused = replace(shipped_amplitudes("torch", "cpu"), refused=("operations",))
    monkeypatch.setattr("knowledge.estimate.model_cache.shipped_amplitudes", lambda *_: refused)
    not_predicted = predict()

    assert (len(predicted.changes), predicted.operations_only, predicted.unmeasured) == (1, ("torch",), ())
    assert (not_predicted.changes, not_predicted.unmeasured, not_predicted.refused) == ((), ("torch",), ("torch",))


def test_an_unmeasured_version_keeps_its_prior_uncertainty(store: SqlKnowledgeBase) -> None:
    process = ModelCache(store).process("torch", "cpu")
    assert isinstance(process, GaussianProcess)
    shares = dict.fromkeys({(c.label, c.family) for c in process.contrasts}, 1.0)
    sides = [Side(version="2.7.0", companions={}, settings={}), Side(version="9.0.0", companions={}, settings={})]

    model = FrameworkModel(MeasuredFramework("torch", process, MACHINE_SEEN), shares)

    near = model.speeds([sides[0], replace(sides[0], version="2.6.0")]).gain(0, 1)
    far = model.speeds(sides).gain(0, 1)

    assert far.variance > near.variance > 0


MACHINE_SEEN = next(iter(evidence_of(torch_block(1)).contrasts)).machine


def test_tensorflow_on_processors_is_what_is_measured_of_it_without_accelerators() -> None:
    with open_knowledge_base("sqlite://", shipped=False) as store:
        ratios = {"2.20.0": 1.0, "2.21.0": 1.2}
        store.add(invented_blocks("tensorflow-cpu", ratios, device="cpu", hardware="cpu-zen4"))
        models = ModelCache(store)
        whole, part = (models.process(name, "cpu") for name in ("tensorflow", "tensorflow-cpu"))
        on_accelerators = models.process("tensorflow", "cuda")

    assert whole is not None
    assert part is not None
    assert whole.contrasts == part.contrasts
    assert on_accelerators is None
    assert shipped_amplitudes("tensorflow", "cpu") == shipped_amplitudes("tensorflow-cpu", "cpu")
    assert shipped_amplitudes("tensorflow", "cuda") != shipped_amplitudes("tensorflow-cpu", "cpu")


def test_what_is_measured_of_either_distribution_counts_for_both_on_processors() -> None:
    with open_knowledge_base("sqlite://", shipped=False) as store:
        for name in ("tensorflow", "tensorflow-cpu"):
            store.add(invented_blocks(name, {"2.20.0": 1.0, "2.21.0": 1.2}, device="cpu", hardware="cpu-zen4"))
        processes = [ModelCache(store).process(name, "cpu") for name in ("tensorflow", "tensorflow-cpu")]

    frameworks = [{c.framework for c in process.contrasts} for process in processes if process is not None]
    assert frameworks == [{"tensorflow", "tensorflow-cpu"}] * 2

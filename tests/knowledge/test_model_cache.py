"""The cache of models: what is read again, what the shipped variances are, and what simulated effects become."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from packaging.version import Version

from docs.fits import FEWEST, chosen, program_of
from knowledge.domain.observation import Observation
from knowledge.domain.stack import PackageVersion, make_stack
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.gain_fit import fit_variances
from knowledge.estimate.gain_model import GainModel
from knowledge.estimate.model_cache import (
    ACCELERATORS,
    LEVELS,
    OPERATIONS,
    SCALING,
    USUAL,
    ModelCache,
    frameworks_of,
    shipped_variances,
    variances_record,
)
from knowledge.estimate.workloads import TimePart
from knowledge.evidence.block_evidence import evidence_of, load_evidence
from knowledge.evidence.compare import common_shares
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.knowledge.samples import MACHINE, RUN, invented_blocks, observation


def torch_block(seed: int) -> Iterator[Observation]:
    """Yield a block of PyTorch with NumPy: each release is 4 % faster than the last one, and NumPy 2 is 3 % slower."""
    generator = random.Random(seed)
    stacks = [("2.4.0", "1.26.4"), ("2.5.0", "1.26.4"), ("2.6.0", "2.0.0"), ("2.7.0", "2.0.0"), ("2.7.0", "1.26.4")]
    for size in range(4):
        run = replace(RUN, backend="torch", parameters={"m": 8 * 2**size, "n": 8, "k": 8})
        for number in range(6):
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


def test_the_interval_contains_a_simulated_effect(store: SqlKnowledgeBase) -> None:
    model = WorkloadEstimator(
        ModelCache(store), hardware=MACHINE, workload=EVERY_OPERATION, frameworks=("torch", "numpy")
    ).model("torch")
    assert model is not None
    old, new = ({"torch": Version(v), "numpy": Version("1.26.4")} for v in ("2.4.0", "2.7.0"))

    estimate = model.estimate(old, new, confidence=0.95)

    assert estimate.low < math.exp(-0.12) < estimate.high < 1
    assert estimate.measured
    weighted = sum(weight * c.mean for weight, c in estimate.weighted_contrasts)
    assert math.log(estimate.speedup) == pytest.approx(weighted)


def test_intervals_of_left_out_versions_have_their_nominal_coverage() -> None:
    contrasts = [c for seed in range(4) for c in evidence_of(torch_block(seed)).contrasts]
    model = GainModel(contrasts, program_of, shipped_variances("torch", "cpu", of_operations=True))
    versions = ("2.4.0", "2.5.0", "2.6.0")
    groups = [[n for n, c in enumerate(contrasts) if c.side.version == version] for version in versions]

    errors, deviations = [], []
    for group, means, covariance in model.held_out(groups):
        errors.append(means - [contrasts[number].mean for number in group])
        deviations.append(np.diag(covariance) ** 0.5)

    # 90 % intervals that always contain the value because they are too wide are wrong, too.
    assert np.mean(np.abs(errors) < 1.645 * np.array(deviations)) > 0.8
    assert np.mean(deviations) < 0.1


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


def test_observations_of_the_user_change_no_variance_and_unchanged_ones_are_not_read_again(
    store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ModelCache(store).contrasts("torch", "cpu")
    store.add(torch_block(2))
    after = ModelCache(store).contrasts("torch", "cpu")
    monkeypatch.setattr("knowledge.estimate.model_cache.load_evidence", None)
    again = ModelCache(store).contrasts("torch", "cpu")

    assert len(after) == 2 * len(before)
    assert again == after
    machine = after[0].machine
    models = [ModelCache(store).model(contrasts, machine) for contrasts in (before, after)]
    assert models[0].variances == models[1].variances == shipped_variances("torch", "cpu")


def test_cached_values_of_another_statistic_are_not_used(
    store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ModelCache(store).contrasts("torch", "cpu")
    monkeypatch.setattr("knowledge.estimate.model_cache.EVIDENCE_FORMAT", 99)
    monkeypatch.setattr("knowledge.evidence.block_evidence.FORMAT", 99)
    monkeypatch.setattr("knowledge.evidence.block_evidence.compare_block", lambda _: ())

    assert before
    assert ModelCache(store).contrasts("torch", "cpu") == ()


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


def test_every_framework_with_enough_shipped_observations_has_shipped_variances(first_knowledge: Path) -> None:
    shipped = json.loads((files("knowledge.data") / "fits.json").read_text())
    with open_knowledge_base(str(first_knowledge)) as store:
        evidence = load_evidence(store)

    compared = set()
    for framework, device in frameworks_of(evidence):
        for of_operations, suffix in ((False, ""), (True, f"/{OPERATIONS}")):
            contrasts = chosen(evidence, framework, device, of_operations=of_operations)
            if len(contrasts) >= FEWEST and any(c.side.version != c.reference.version for c in contrasts):
                compared |= {f"{name}/{device}{suffix}" for name in (framework, USUAL)}
    assert set(shipped) == compared | {f"{USUAL}/cuda/{OPERATIONS}", ACCELERATORS, LEVELS, SCALING}


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "of_operations"), [("numpy", True), ("jax", False)])
def test_the_shipped_variances_are_reproduced_from_the_shipped_observations(
    framework: str, of_operations: bool
) -> None:
    with open_knowledge_base("sqlite://") as store:
        contrasts = chosen(load_evidence(store), framework, "cpu", of_operations=of_operations)

    fitted = fit_variances(contrasts, program_of)

    shipped = shipped_variances(framework, "cpu", of_operations=of_operations)
    # Effects at programs of the user are not fitted.
    shipped = replace(shipped, terms={term: shipped.terms[term] for term in fitted.terms})
    for name, value in variances_record(shipped).items():
        assert variances_record(fitted)[name] == pytest.approx(value, rel=0.02, abs=1e-5), name


def test_only_sizes_of_the_model_of_the_workload_count() -> None:
    part = TimePart(indicator="inference", parameters={"model": "cnn"}, share=1.0)

    assert part.matches("inference@1[batch=1,model=cnn] float32 torch/cpu", "inference")
    assert not part.matches("inference@1[batch=1,model=transformer] float32 torch/cpu", "inference")
    assert part.matches("inference@1[batch=1] float32 torch/cpu", "inference")
    assert not part.matches("sort@1[n=1] float32 torch/cpu", "sort")


def test_what_is_measured_of_tensorflow_on_processors_counts_for_both_distributions() -> None:
    with open_knowledge_base("sqlite://", shipped=False) as store:
        for name in ("tensorflow", "tensorflow-cpu"):
            store.add(invented_blocks(name, {"2.20.0": 1.0, "2.21.0": 1.2}, device="cpu", hardware="cpu-zen4"))
        models = ModelCache(store)
        whole, part = (models.contrasts(name, "cpu") for name in ("tensorflow", "tensorflow-cpu"))
        on_accelerators = models.contrasts("tensorflow", "cuda")

    assert whole == part
    assert Counter(c.framework for c in whole) == {"tensorflow": 4, "tensorflow-cpu": 4}
    assert on_accelerators == ()
    assert shipped_variances("tensorflow", "cpu") == shipped_variances("tensorflow-cpu", "cpu")
    assert shipped_variances("tensorflow", "cuda") != shipped_variances("tensorflow-cpu", "cpu")

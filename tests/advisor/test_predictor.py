"""Predictions from the cache equal those that were computed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from advisor.index.cache import DiskCache
from advisor.resolve.score.predictor import Predictor
from knowledge.domain.ratio import Ratio
from knowledge.estimate.gains import CompanionGain, CompanionGains, FrameworkGains
from knowledge.store.base import KnowledgeBaseError
from tests.advisor.factories import MACHINE

OLD, NEW = Version("1.0"), Version("2.0")


def gain(mean: float) -> Ratio:
    return Ratio(mean=mean, variance=mean / 7)


CELL = CompanionGain(joint=gain(0.1), own=gain(0.2), framework=gain(0.3))
TERMS = (
    FrameworkGains(
        framework="torch",
        alone={NEW: gain(0.0), OLD: gain(1 / 3)},
        with_companion=CompanionGains(
            own={NEW: "2.0", OLD: "2.0"},
            companions={"numpy": {Version("1.26"): "1.26", None: ""}},
            cells={("2.0", "numpy", "1.26"): CELL, ("2.0", "numpy", ""): CELL},
        ),
        comparisons=3,
    ),
)


class _Estimator:
    """Answers each question once."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def terms(self, *_: Any) -> tuple[FrameworkGains, ...]:
        self.calls.append("terms")
        return TERMS

    def is_measured(self, name: str, version: Version) -> bool:
        self.calls.append(f"{name} {version}")
        return version == NEW


def make_predictor(folder: Path, estimator: object, *, state: str = "state") -> Predictor:
    predictor = Predictor(DiskCache(folder), address="sqlite://", hardware=MACHINE)
    predictor.__dict__.update(estimator=estimator, evidence_state=state)
    return predictor


def test_the_second_question_is_answered_from_the_cache(tmp_path: Path) -> None:
    estimator = _Estimator()
    candidates = {"torch": [NEW, OLD], "numpy": [Version("1.26")]}
    answers = [
        (
            predictor.terms({**candidates, **unrelated}, {"torch": NEW}),
            predictor.is_measured("torch", OLD),
            predictor.is_measured("torch", NEW),
        )
        for predictor in (make_predictor(tmp_path, estimator) for _ in range(2))
        for unrelated in ({}, {"six": [OLD]})
    ]

    assert answers == [(TERMS, False, True)] * 4
    assert estimator.calls == ["terms", "torch 1.0", "torch 2.0"]


class _PreparedEstimator(_Estimator):
    """Answers after it was prepared, which fails for one package."""

    def prepare(self, names: Sequence[str]) -> None:
        time.sleep(0.05)
        if "jax" in names:
            raise KnowledgeBaseError("it cannot be read")
        self.calls.append(f"prepare {names}")


def test_measurements_are_loaded_once_and_before_the_first_question(tmp_path: Path) -> None:
    estimator = _PreparedEstimator()
    for _ in range(2):
        with make_predictor(tmp_path, estimator) as predictor:
            predictor.prepare(["six", "torch"])
            assert predictor.terms({"torch": [NEW]}, {"torch": NEW}) == TERMS

    assert estimator.calls == ["prepare ['torch']", "terms"]


def test_a_failed_preparation_is_left_to_the_question_that_needs_it(tmp_path: Path) -> None:
    estimator = _PreparedEstimator()
    for _ in range(2):
        with make_predictor(tmp_path, estimator) as predictor:
            predictor.prepare(["jax"])
            assert predictor.terms({"torch": [NEW]}, {"torch": NEW}) == TERMS

    assert estimator.calls == ["terms"]


def test_other_observations_or_candidates_are_other_questions(tmp_path: Path) -> None:
    estimator = _Estimator()
    for state, versions in (("a", [NEW]), ("b", [NEW]), ("b", [NEW, OLD]), ("b", [OLD, NEW])):
        make_predictor(tmp_path, estimator, state=state).terms({"torch": versions}, {"torch": NEW})

    assert estimator.calls == ["terms"] * 4


def test_packages_that_are_no_frameworks_count_as_measured_without_a_benchmark(tmp_path: Path) -> None:
    benchmarked = make_predictor(tmp_path, _Estimator())
    benchmarked._benchmark = "identity"

    assert make_predictor(tmp_path, None).is_measured("six", OLD)
    assert not benchmarked.is_measured("six", OLD)


def test_a_knowledge_base_has_the_same_state_at_its_first_use_and_later(tmp_path: Path) -> None:
    def state() -> str:
        path = f"sqlite:///{tmp_path / 'new.sqlite'}"
        with Predictor(DiskCache(tmp_path), address=path, hardware=MACHINE) as predictor:
            return predictor.evidence_state

    assert state() == state()


def test_predictions_start_no_threads_of_blas_and_leave_the_environment_as_it_was(tmp_path: Path) -> None:
    program = (
        "import os, psutil, sys; from pathlib import Path; from advisor.index.cache import DiskCache;"
        "from advisor.resolve.score.predictor import Predictor;"
        "from knowledge.domain.hardware import Cpu, HardwareProfile;"
        "assert 'numpy' not in sys.modules;"
        "machine = HardwareProfile(name='m', cpu=Cpu(architecture='x86_64', microarchitecture='zen4'));"
        f"predictor = Predictor(DiskCache(Path({str(tmp_path)!r})), address='', hardware=machine);"
        "predictor.__dict__['_store'] = None; predictor.estimator; import numpy;"
        "print(psutil.Process().num_threads(), 'OPENBLAS_NUM_THREADS' in os.environ)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}

    output = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)

    assert output.stdout.split() == ["1", "False"], output.stderr

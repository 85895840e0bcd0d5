"""`benchmarks/reduced_precision`: its data and measures, its table, and its program for PyTorch."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reduced_precision.digits import BATCH, STEPS, accuracy, batches, loss, relative_error
from benchmarks.reduced_precision.programs import PROGRAMS
from benchmarks.reduced_precision.table import markdown_table
from knowledge.estimate.numerical_effect import effects_of, numerical_effects

ROOT = Path(__file__).parents[1]


def test_the_page_has_the_table_of_the_shipped_results() -> None:
    page = (ROOT / "docs/reference/evidence/reduced-precision.md").read_text(encoding="utf-8")

    assert markdown_table(numerical_effects()) in page, "run `python -m benchmarks.reduced_precision --table`"


def test_the_shipped_results_are_those_of_the_programs() -> None:
    planned = {
        (program.framework, tuple(change.settings.items()), change.numerics, change.how)
        for program in PROGRAMS
        for change in program.changes
    }

    assert {(e.framework, tuple(e.settings.items()), e.numerics, e.how) for e in numerical_effects()} == planned


def test_every_pass_contains_each_sample_once() -> None:
    samples = 898

    order = batches(samples, seed=3)

    assert order.shape == (STEPS, BATCH)
    assert sorted(order.reshape(-1)[:samples]) == list(range(samples))
    assert (order == batches(samples, seed=3)).all()
    assert (order != batches(samples, seed=4)).any()


def test_equal_logits_have_the_loss_of_a_guess() -> None:
    logits = np.zeros((4, 10), np.float32)

    assert loss(logits, np.array([0, 3, 5, 9])) == pytest.approx(math.log(10))


def test_the_loss_of_large_logits_is_finite() -> None:
    logits = np.array([[1000.0, 0.0], [0.0, 1000.0]], np.float32)

    assert loss(logits, np.array([0, 0])) == pytest.approx(500)
    assert accuracy(logits, np.array([0, 0])) == 0.5


def test_the_relative_error_is_that_of_all_logits() -> None:
    reference = np.array([[3.0, 4.0]], np.float32)

    assert relative_error(reference + np.array([[0.0, 0.5]], np.float32), reference) == pytest.approx(0.1)


@pytest.mark.slow
def test_the_program_for_pytorch_repeats_the_shipped_forward_error(tmp_path: Path) -> None:
    for name in ("torch", "sklearn"):
        pytest.importorskip(name)
    shipped = {e.model: e.forward_error for e in effects_of("torch", {"amp": "bfloat16"})}

    for settings in ([], ["amp=bfloat16"]):
        answer = subprocess.run(
            [sys.executable, "-m", "benchmarks.reduced_precision.torch_program", *settings]
            + ["--seeds", "1", "--folder", str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )

    records = [json.loads(line) for line in answer.stdout.splitlines()]
    assert {r["model"] for r in records} == set(shipped)
    for record in records:
        assert record["forward_error"] == pytest.approx(shipped[record["model"]], rel=0.5)
        assert record["accuracy"] > 0.9

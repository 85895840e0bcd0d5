"""The projects of `benchmarks/settings`: their benchmarks are valid, and their programs print what these read."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.project.benchmark import read_benchmark

FOLDER = Path(__file__).parents[1] / "benchmarks" / "settings"
MODULES = {
    "torch-cnn": ("torch", "sklearn"),
    "keras-transformer": ("keras", "sklearn"),
    "onnx-service": ("onnxruntime",),
}
"""Modules that each project needs."""
SETTINGS = r"autocast|channels_last|torch\.compile|jit_compile|mixed_|set_num_threads|SessionOptions|environ"
"""What a program that sets something itself would contain."""


def test_each_project_has_a_benchmark() -> None:
    projects = [path.parent for path in sorted(FOLDER.glob("*/pyproject.toml"))]

    benchmarks = [read_benchmark(project) for project in projects]

    assert [benchmark.project for benchmark in benchmarks] == sorted(MODULES)
    assert {benchmark.metric.better for benchmark in benchmarks} == {"higher"}


def test_no_program_sets_anything_itself() -> None:
    programs = sorted(FOLDER.glob("*/*.py"))

    assert len(programs) == 5
    lines = [line for p in programs for line in p.read_text(encoding="utf-8").splitlines() if re.search(SETTINGS, line)]
    by_argument = [line for line in lines if "options." in line or "add_argument" in line]
    # Settings by arguments of a program are off by default, and each is measured one by one.
    assert [line for line in lines if line not in by_argument] == []


def test_the_service_writes_a_valid_model() -> None:
    onnx = pytest.importorskip("onnx")
    path = FOLDER / "onnx-service" / "model.py"
    spec = importlib.util.spec_from_file_location("onnx_service_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    model = onnx.load_from_string(module.write_model())

    onnx.checker.check_model(model, full_check=True)
    operators = [node.op_type for node in model.graph.node]
    assert operators.count("Conv") == operators.count("BatchNormalization") == 25


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_program_prints_the_metric_of_its_benchmark(name: str) -> None:
    for module in MODULES[name]:
        pytest.importorskip(module)
    benchmark = read_benchmark(FOLDER / name)
    assert benchmark.metric.pattern

    answer = subprocess.run(
        [sys.executable, *benchmark.command[1:]],
        cwd=FOLDER / name,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    match = re.search(benchmark.metric.pattern, answer.stdout)
    assert match is not None
    assert float(match[1]) > 0

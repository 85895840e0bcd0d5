"""Train small models in float32 and with other settings, and compare loss, accuracy and the forward pass.

    python -m benchmarks.reduced_precision                            write knowledge/data/reduced-precision.json
    python -m benchmarks.reduced_precision --frameworks torch,jax     replace the results of some frameworks
    python -m benchmarks.reduced_precision --table                    print the table of the written results

The results do not depend on the load of the machine. Each program runs on one processor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.environments import make_environment
from benchmarks.reduced_precision.programs import ONNXRUNTIME, PROGRAMS, TORCH, Change, Program
from benchmarks.reduced_precision.table import markdown_table
from knowledge.estimate.numerical_effect import numerical_effects
from knowledge.hardware.detect import detect

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "knowledge" / "data" / "reduced-precision.json"
FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "bf16")
"""Features of processors that decide how a reduced precision is computed."""
SHOWN = (
    "torch",
    "tensorflow-cpu",
    "keras",
    "jax",
    "jaxlib",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "numpy",
    "scikit-learn",
)
"""Packages whose versions are recorded."""


def run_program(
    python: Path, program: Program, change: Change | None, *, seeds: int, folder: Path
) -> list[dict[str, Any]]:
    """Return the results of all models and seeds with a change; in float32 if it is none."""
    settings, environment = (change.settings, change.environment) if change else ({}, {})
    words = [f"{name}={value}" for name, value in settings.items()]
    command = [str(python), "-m", f"benchmarks.reduced_precision.{program.module}", *words]
    answer = subprocess.run(
        [*command, "--seeds", str(seeds), "--folder", str(folder)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if answer.returncode:
        sys.exit(f"{program.module} {' '.join(words)}: exit code {answer.returncode}")
    print(f"{program.framework} {' '.join(words) or 'float32'}: done", file=sys.stderr, flush=True)
    lines = [line for line in answer.stdout.splitlines() if line.startswith("{")]
    return sorted((json.loads(line) for line in lines), key=lambda record: record["seed"])


def columns(records: Sequence[Mapping[str, Any]], model: str, *names: str) -> dict[str, list[float]]:
    """Return values of a model, one for each seed, rounded to what is significant."""
    return {name: [float(f"{r[name]:.5g}") for r in records if r["model"] == model] for name in names}


def measure(program: Program, *, python: Path, seeds: int, folder: Path) -> dict[str, Any]:
    """Return the versions, the results in float32 and those of every change of a framework."""
    reference = run_program(python, program, None, seeds=seeds, folder=folder)
    models = list(dict.fromkeys(record["model"] for record in reference))
    effects = []
    for change in program.changes:
        records = run_program(python, program, change, seeds=seeds, folder=folder)
        effects += [
            {
                "settings": dict(change.settings),
                "numerics": change.numerics,
                "how": change.how,
                "model": model,
                **columns(records, model, "loss", "accuracy", "forward_error"),
            }
            for model in models
        ]
    return {
        "mode": "training" if program.training else "inference",
        "packages": versions(python),
        "float32": {model: columns(reference, model, "loss", "accuracy") for model in models},
        "effects": effects,
    }


def versions(python: Path) -> list[str]:
    """Return the versions of the packages in an environment."""
    text = "import importlib.metadata as m; print('\\n'.join(f'{d.name}=={d.version}' for d in m.distributions()))"
    answer = subprocess.run([str(python), "-c", text], check=True, capture_output=True, text=True)
    return sorted(line for line in set(answer.stdout.split()) if line.partition("==")[0] in SHOWN)


def measure_all(names: Sequence[str], *, seeds: int, jobs: int, environments: Path) -> dict[str, Any]:
    """Return the results of frameworks by name; ONNX Runtime follows PyTorch, whose weights it tests."""

    def measure_chain(programs: Sequence[Program]) -> list[tuple[str, dict[str, Any]]]:
        with tempfile.TemporaryDirectory() as folder:
            results = []
            for program in programs:
                python = environments / program.framework / "bin" / "python"
                if not python.exists():
                    make_environment(program.requirements, environments / program.framework)
                result = measure(program, python=python, seeds=seeds, folder=Path(folder))
                results.append((program.framework, result))
        return results

    chains = [[p] for p in PROGRAMS if p.framework in names and p not in (TORCH, ONNXRUNTIME)]
    if {"torch", "onnxruntime"} & set(names):
        chains.insert(0, [TORCH, ONNXRUNTIME])
    with ThreadPoolExecutor(jobs) as pool:
        return dict(pair for pairs in pool.map(measure_chain, chains) for pair in pairs)


def main() -> None:
    """Measure what the command line selects, write the results, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = ",".join(program.framework for program in PROGRAMS)
    parser.add_argument("--frameworks", default=every, help=f"frameworks, separated by commas (default: {every})")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    parser.add_argument("--jobs", type=int, default=1, help="frameworks that are measured at a time (default: 1)")
    parser.add_argument("--environments", type=Path, help="folder that keeps the environments (default: none)")
    parser.add_argument("--table", action="store_true", help="print the table of the written results only")
    options = parser.parse_args()
    if not options.table:
        names = options.frameworks.split(",")
        if unknown := sorted(set(names) - set(every.split(","))):
            parser.error(f"there is no framework `{unknown[0]}`; there are {every}")
        with tempfile.TemporaryDirectory() as scratch:
            folder = (options.environments or Path(scratch)).absolute()
            results = measure_all(names, seeds=options.seeds, jobs=options.jobs, environments=folder)
        cpu = detect().cpu
        machine = {
            "microarchitecture": cpu.microarchitecture,
            "model": cpu.model,
            "features": [feature for feature in FEATURES if feature in cpu.features],
        }
        for result in results.values():
            result["machine"] = machine
        document = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"frameworks": {}}
        document["frameworks"] = dict(sorted({**document["frameworks"], **results}.items()))
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(markdown_table(numerical_effects()))


if __name__ == "__main__":
    main()

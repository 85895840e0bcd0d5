"""Measure what differs between interpreters: start, imports, pure Python, and the overhead of a framework's call.

python -m benchmarks.interpreters PYTHON... [--rounds 6] [--save FILE]

Each PYTHON is a path. The first one is the reference. All have the same versions of the packages. The benchmarks of
pure Python are those of pyperformance. In each round, every benchmark runs once on every interpreter, in an order that
changes from round to round; the ratio of a round is that of two runs which are close in time.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scipy.stats import t

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.domain.hardware import HardwareProfile
from knowledge.evidence.paired_ratio import locate
from knowledge.hardware.detect import detect

PACKAGES = ("pyperf==2.10.0", "pyperformance==1.14.0", "numpy==2.2.6", "jax==0.6.2", "jaxlib==0.6.2")
PURE_PYTHON = ("deltablue", "richards", "nbody", "json_dumps", "regex_compile", "go")
"""Benchmarks of pyperformance, without packages of their own."""
STATEMENTS = {
    "start": "pass",
    "import numpy": "import numpy",
    "import jax": "import jax",
}
"""Programs whose whole run is timed."""
CALLS = {
    "numpy: add 16 numbers": ("import numpy; a = numpy.ones(16)", "a + a"),
    "jax: add 16 numbers": (
        "import jax, jax.numpy as n; a = n.ones(16); f = jax.jit(lambda x: x + x); f(a).block_until_ready()",
        "f(a).block_until_ready()",
    ),
}
"""Set-up and call of frameworks on so few numbers that the overhead of the call is all that is measured."""
CONFIDENCE = 0.9


def make_environment(python: Path, folder: Path) -> Path:
    """Install the packages for an interpreter; return the interpreter of the environment."""
    uv = [sys.executable, "-m", "uv", "-q"]
    subprocess.run([*uv, "venv", "--python", str(python), str(folder)], check=True)
    environment = folder / "bin" / "python"
    subprocess.run([*uv, "pip", "install", "--python", str(environment), *PACKAGES], check=True)
    # Byte code is compiled at the first import.
    subprocess.run([str(environment), "-c", "import jax, numpy, pyperf"], check=True)
    return environment


def run_program(python: Path, program: str) -> float:
    """Return the seconds of the fastest of five runs of a program: the one that was disturbed least."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([str(python), "-c", program], check=True)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def run_call(python: Path, setup: str, call: str) -> float:
    """Return the seconds of a call: the median of fifteen loops that take a tenth of a second each."""
    program = f"""
import timeit, statistics
timer = timeit.Timer({call!r}, {setup!r})
loops, _ = timer.autorange()
print(statistics.median(timer.repeat(15, max(1, loops // 2))) / max(1, loops // 2))
"""
    answer = subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True)
    return float(answer.stdout)


def run_pyperformance(python: Path, name: str, scratch: Path) -> float:
    """Return the seconds of a benchmark of pyperformance, as pyperf measures it in two processes."""
    find = "import pyperformance, pathlib; print(pathlib.Path(pyperformance.__file__).parent)"
    answer = subprocess.run([str(python), "-c", find], check=True, capture_output=True, text=True)
    script = Path(answer.stdout.strip()) / "data-files" / "benchmarks" / f"bm_{name}" / "run_benchmark.py"
    output = scratch / "result.json"
    output.unlink(missing_ok=True)
    options = ["--processes", "2", "--values", "3", "--quiet", "-o", str(output)]
    subprocess.run([str(python), str(script), *options], check=True, stdout=subprocess.DEVNULL)
    runs = json.loads(output.read_text())["benchmarks"][0]["runs"]
    values: list[float] = [value for run in runs for value in run.get("values", ())]
    return statistics.median(values)


def run_all(python: Path, scratch: Path) -> dict[str, float]:
    """Return the seconds of every benchmark on one interpreter."""
    seconds = {name: run_program(python, program) for name, program in STATEMENTS.items()}
    seconds |= {name: run_call(python, *parts) for name, parts in CALLS.items()}
    return seconds | {name: run_pyperformance(python, name, scratch) for name in PURE_PYTHON}


def describe(python: Path) -> str:
    """Return the version of an interpreter, and whether it is that of the system's packages."""
    program = (
        "import platform, sys; print(platform.python_version(), "
        "'(package of the system)' if sys.base_prefix == '/usr' else '')"
    )
    answer = subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True)
    return answer.stdout.strip()


def ratio(reference: list[float], values: list[float]) -> tuple[float, float, float]:
    """Return how many times as fast an interpreter is as the reference, with its interval."""
    location = locate([math.log(r / v) for r, v in zip(reference, values, strict=True)])
    margin = float(t.ppf((1 + CONFIDENCE) / 2, location.degrees)) * math.sqrt(location.variance / len(values))
    return math.exp(location.value), math.exp(location.value - margin), math.exp(location.value + margin)


def result_document(
    names: dict[Path, str], rounds: list[dict[Path, dict[str, float]]], machine: HardwareProfile
) -> dict[str, Any]:
    """Return the ratios and all times as JSON-ready values."""
    reference, *others = names
    benchmarks = list(rounds[0][reference])
    ratios = {
        names[python]: {
            name: [round(x, 4) for x in ratio([r[reference][name] for r in rounds], [r[python][name] for r in rounds])]
            for name in benchmarks
        }
        for python in others
    }
    for python in others:
        # The mean of all benchmarks of pure Python in each round.
        def mean(one: dict[str, float]) -> float:
            return math.exp(statistics.fmean(math.log(one[name]) for name in PURE_PYTHON))

        pure = ratio([mean(r[reference]) for r in rounds], [mean(r[python]) for r in rounds])
        ratios[names[python]]["pure Python"] = [round(x, 4) for x in pure]
    return {
        "machine": {"microarchitecture": machine.cpu.microarchitecture, "model": machine.cpu.model},
        "packages": list(PACKAGES),
        "reference": names[reference],
        "confidence": CONFIDENCE,
        "ratios": ratios,
        "seconds": [{names[python]: times for python, times in one.items()} for one in rounds],
    }


def main() -> None:
    """Measure the interpreters, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pythons", type=Path, nargs="+", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="interpreters-") as folder:
        scratch = Path(folder)
        names = {
            make_environment(python, scratch / str(number)): describe(python)
            for number, python in enumerate(options.pythons)
        }
        rounds: list[dict[Path, dict[str, float]]] = []
        for number in range(options.rounds):
            ordered = list(names)[number % len(names) :] + list(names)[: number % len(names)]
            measured = {python: run_all(python, scratch) for python in ordered}
            rounds.append({python: measured[python] for python in names})
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        document = result_document(names, rounds, detect())
    for name, ratios in document["ratios"].items():
        print(f"{name} compared with {document['reference']}")
        for benchmark, (value, low, high) in ratios.items():
            print(f"  {benchmark:24} {value:.3f}x [{low:.3f}, {high:.3f}]")
    if options.save:
        options.save.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

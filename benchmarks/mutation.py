"""Mutation testing of one part of the program on a sample of mutants.

    python -m venv .venv-mutation && .venv-mutation/bin/pip install mutmut -e '.[test]'
    .venv-mutation/bin/python benchmarks/mutation.py index --sample 100

It runs mutmut (https://mutmut.readthedocs.io) in a copy of this checkout, so that the checkout does not change. One
part has thousands of mutants, and mutmut cannot run a sample: this program draws some of them with a fixed seed, runs
the tests that reach each one, and prints a table of the results and the diff of each survivor.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Files of each part, and the tests that cover it within a minute or two.
PARTS = {
    "index": (
        ("advisor/index/*",),
        ("tests/advisor/test_index.py", "tests/advisor/test_cache.py", "tests/advisor/test_configuration.py"),
    ),
    "resolve": (
        ("advisor/resolve/*",),
        (
            "tests/advisor/test_candidates.py",
            "tests/advisor/test_resolve.py",
            "tests/advisor/test_optimum.py",
            "tests/advisor/test_standard.py",
            "tests/advisor/test_explanations.py",
        ),
    ),
    "gate": (("advisor/gate/*",), ("tests/advisor/gate",)),
    "timing": (("pi_runners/harness/timing.py",), ("tests/pi_runners/test_timing.py",)),
    "estimate": (
        ("knowledge/estimate/*", "knowledge/evidence/*"),
        (
            "tests/knowledge/test_estimate.py",
            "tests/knowledge/test_model_cache.py",
            "tests/knowledge/test_gains.py",
            "tests/knowledge/test_gain_model.py",
            "tests/knowledge/test_conditions.py",
            "tests/knowledge/test_mlperf.py",
        ),
    ),
}
# mutmut's exit status of the tests under a mutant.
RESULTS = {0: "survived", 1: "killed", 3: "killed", 5: "not reached", 33: "not reached", 37: "killed"}
COLUMNS = ("killed", "survived", "timed out", "not reached")


def configuration(files: tuple[str, ...], tests: tuple[str, ...]) -> str:
    """Return mutmut's section of ``pyproject.toml``."""
    values = {
        "source_paths": ["advisor", "knowledge", "pi_runners"],
        "only_mutate": list(files),
        "also_copy": ["docs", "README.md", "benchmarks"],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-n0"],
        "pytest_add_cli_args_test_selection": list(tests),
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(["", "[tool.mutmut]", *lines, "timeout_multiplier = 5.0", "timeout_constant = 10.0", ""])


def fewer_examples(test: str, most: int) -> str:
    """Return a test module whose property tests use at most this many examples, because every mutant runs them."""
    return re.sub(r"max_examples=(\d+)", lambda match: f"max_examples={min(most, int(match[1]))}", test)


def results(copy: Path) -> dict[str, str | None]:
    """Return the result of each mutant; ``None`` for those that did not run."""
    by_name: dict[str, str | None] = {}
    for path in sorted((copy / "mutants").rglob("*.meta")):
        for name, status in json.loads(path.read_text())["exit_code_by_key"].items():
            by_name[name] = None if status is None else RESULTS.get(status, "timed out")
    return by_name


def mutmut(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mutmut in the copy."""
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    # Mutants exist in the test process only: programs that tests start are imported from this checkout.
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=copy, env=variables, capture_output=True, text=True, check=False)


def main() -> None:
    """Copy the checkout, draw mutants, run them, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS, help="part of the program to mutate")
    parser.add_argument("--sample", type=int, default=100, help="number of mutants to run (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    parser.add_argument("--files", nargs="+", help="patterns of files to mutate instead of the whole part")
    parser.add_argument("--tests", nargs="+", help="tests to run instead of those of the part")
    parser.add_argument("--examples", type=int, default=60, help="examples of a property test (default: 60)")
    parser.add_argument("--jobs", type=int, default=1, help="number of concurrent test processes (default: 1)")
    options = parser.parse_args()
    files, tests = PARTS[options.part]
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Path(folder) / "checkout"
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "mutants")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for path in (copy / "tests").rglob("test_*.py"):
            path.write_text(fewer_examples(path.read_text(encoding="utf-8"), options.examples), encoding="utf-8")
        with (copy / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(configuration(tuple(options.files or files), tuple(options.tests or tests)))
        # With the name of a mutant that does not exist, mutmut only creates the mutants and maps tests to them.
        first = mutmut(copy, "run", "none")
        names = [name for name, result in results(copy).items() if result is None]
        if not names:
            sys.exit(f"mutmut created no mutants: {(first.stdout + first.stderr)[-2000:]}")
        sample = sorted(random.Random(options.seed).sample(names, min(options.sample, len(names))))
        second = mutmut(copy, "run", "--max-children", str(options.jobs), *sample)
        ended = {name: result for name, result in results(copy).items() if name in set(sample) and result}
        if len(ended) < len(sample):
            sys.exit(f"mutmut ran {len(ended)} of {len(sample)} mutants: {(second.stdout + second.stderr)[-4000:]}")
        for name, result in ended.items():
            if result == "survived":
                print(mutmut(copy, "show", name).stdout)
    table: dict[str, Counter[str]] = {}
    for name, result in ended.items():
        table.setdefault(name.partition(".x")[0], Counter())[result] += 1
    print(f"{'module':44}{'mutants':>8}" + "".join(f"{column:>12}" for column in COLUMNS))
    for module, counts in [*sorted(table.items()), ("all", sum(table.values(), Counter[str]()))]:
        print(f"{module:44}{counts.total():>8}" + "".join(f"{counts[column]:>12}" for column in COLUMNS))
    print(f"{len(sample)} of {len(names)} mutants, seed {options.seed}")


if __name__ == "__main__":
    main()

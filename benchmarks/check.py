"""Measure the cost of `advisor check --offline` on a lock of a hundred packages.

It prints medians of the CPU and wall seconds of the whole process; the cases are interleaved over the rounds.
`unchanged`: the lock was checked before. `changed`: one package has a version that was not checked before, and the
previous lock is the base. `forgotten`: cached results are removed, except for pages and metadata of the index.
`--help` is a reference for the scale.

Usage: python benchmarks/check.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NUMPY_VERSIONS = ("2.4.6", "2.4.2", "2.3.5", "2.3.3", "2.3.1", "2.2.6", "2.2.4", "2.2.2", "2.1.3", "2.1.1")
ROOTS = ("jupyterlab", "pandas", "scikit-learn", "onnxruntime")
RESULT_CACHES = ("predictions", "recommended")


def run(*arguments: str, folder: Path, cache: Path) -> tuple[float, float, str]:
    """Return CPU seconds, wall seconds and output of a command; its exit code must be 0 or 1."""
    before, began = os.times(), time.perf_counter()
    command = [sys.executable, "-c", "from advisor.cli.app import main; main()", *arguments]
    variables = {**os.environ, "ADVISOR_CACHE_DIR": str(cache), "ADVISOR_KNOWLEDGE": str(cache / "knowledge.sqlite")}
    completed = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if completed.returncode not in (0, 1):
        raise SystemExit(completed.stderr)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu, time.perf_counter() - began, completed.stdout


def main() -> None:
    """Lock a project, then measure its check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name) / "cache"
        dependencies = ", ".join(f'"{root}"' for root in ROOTS)
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "p"\nversion = "1"\ndependencies = [{dependencies}]\n'
            '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\nworkload = "cnn-inference"\n'
        )
        run("advise", "-o", "pylock.toml", folder=folder, cache=cache)
        shutil.copy(folder / "pylock.toml", folder / "pylock.base.toml")
        output = run("check", folder=folder, cache=cache)[2]
        match = re.search(r"(\d+) packages", output)
        print(f"{match[1] if match else '?'} packages, {rounds} rounds")
        text = (folder / "pylock.toml").read_text()
        changed_locks = []
        for version in NUMPY_VERSIONS[: rounds + 1]:
            (folder / "pin.txt").write_text(f"numpy=={version}\n")
            run("advise", "-c", "pin.txt", "-o", "pylock.other.toml", folder=folder, cache=cache)
            changed_locks.append((folder / "pylock.other.toml").read_text())
        cases = {"--help": (), "unchanged": (), "changed": ("--base", "pylock.base.toml"), "forgotten": ()}
        seconds: dict[str, list[tuple[float, float]]] = {case: [] for case in cases}
        for number in range(rounds + 1):
            for case, options in cases.items():
                if case == "forgotten":
                    for bucket in RESULT_CACHES:
                        shutil.rmtree(cache / "index" / bucket, ignore_errors=True)
                if case == "changed":
                    # Another version in each round, so that its prediction is not cached.
                    (folder / "pylock.toml").write_text(changed_locks[number % len(changed_locks)])
                arguments = ("--help",) if case == "--help" else ("check", "--offline", *options)
                cpu, wall, _ = run(*arguments, folder=folder, cache=cache)
                (folder / "pylock.toml").write_text(text)
                if number:
                    seconds[case].append((cpu, wall))
        for case, values in seconds.items():
            cpus, walls = zip(*values, strict=True)
            print(
                f"{case:10} CPU {statistics.median(cpus):.2f} s ({min(cpus):.2f} to {max(cpus):.2f}), "
                f"wall {statistics.median(walls):.2f} s"
            )


if __name__ == "__main__":
    main()

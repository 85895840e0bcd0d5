"""Measure the CPU time of `advisor --help`, and its ratio to an empty interpreter.

python benchmarks/startup.py [ROUNDS]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "advisor --help": [sys.executable, "-c", "from advisor.cli.app import main; main()", "--help"],
    "advisor --version": [sys.executable, "-c", "from advisor.cli.app import main; main()", "--version"],
}


def cpu_seconds(command: list[str]) -> float:
    """Return user and system seconds of one run."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def main() -> None:
    """Print medians over interleaved rounds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=11, help="runs of each command (default: 11)")
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            seconds[name].append(cpu_seconds(command))
    empty = statistics.median(seconds["python -c pass"])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"{name:20} {middle * 1e3:6.0f} ms CPU (median of {rounds})  {middle / empty:5.1f}x an empty interpreter")


if __name__ == "__main__":
    main()

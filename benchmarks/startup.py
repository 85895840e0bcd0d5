"""CPU time of `advisor --help`, as a ratio to an empty interpreter, interleaved.

usage: python benchmarks/startup.py [ROUNDS]
"""

from __future__ import annotations

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
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    durations: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            durations[name].append(cpu_seconds(command))
    empty = statistics.median(durations["python -c pass"])
    for name, values in durations.items():
        middle = statistics.median(values)
        print(f"{name:20} {middle * 1e3:6.0f} ms CPU (median of {rounds})  {middle / empty:5.1f}x an empty interpreter")


if __name__ == "__main__":
    main()

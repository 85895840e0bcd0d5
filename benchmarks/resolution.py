"""Compare `advisor advise` on real requirement sets with `pip install --dry-run` and `uv pip compile`.

Every round runs each command once, so that drift of the machine affects all commands equally. It prints medians of the
wall and CPU seconds of the whole process and its children, and their ratios to those of uv. The first run of each
command fills its cache and is not counted; with `--cold`, each run has an empty cache instead.

Usage: python benchmarks/resolution.py [SET...] [--rounds N] [--cold] [--no-pip]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pi_runners.execution.environment import find_uv

SETS = Path(__file__).parent / "requirements"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """Time and memory of one run."""

    wall: float
    cpu: float
    megabytes: float
    status: int
    requests: str
    proof: str


def commands(requirements: Path, cache: Path, *, pip: bool, cold: bool) -> dict[str, list[str]]:
    """Return the commands to compare, by name."""
    advisor = [
        *(sys.executable, "-c", "from advisor.cli.app import main; main()"),
        *(
            "advise",
            "-r",
            str(requirements),
            "--python",
            PYTHON,
            "--dry-run",
            "-v",
            "--cache-dir",
            str(cache / "advisor"),
        ),
    ]
    uv = [
        find_uv(),
        "pip",
        "compile",
        str(requirements),
        "--python-version",
        PYTHON,
        "-q",
        "--cache-dir",
        str(cache / "uv"),
    ]
    by_name = {"advisor": advisor, "uv": uv}
    if not cold:
        by_name["advisor --offline"] = [*advisor, "--offline"]
    if pip:
        cached = ["--cache-dir", str(cache / "pip")]
        line = [*("install", "--dry-run", "--ignore-installed", "--quiet"), *cached, "-r", str(requirements)]
        by_name["pip"] = [sys.executable, "-m", "pip", *line]
    return by_name


def measure(command: list[str]) -> Run:
    """Run a command; the requests and the proof are read from its output."""
    with tempfile.TemporaryFile("w+") as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    requests = re.search(r"^index: (.*)$", text, re.MULTILINE)
    proof = re.search(r"over (\d+ candidate versions, \d+ of them read)", text)
    return Run(
        wall=wall,
        cpu=usage.ru_utime + usage.ru_stime,
        megabytes=usage.ru_maxrss / 1024,
        status=process.returncode,
        requests=requests[1] if requests else "",
        proof=proof[1] if proof else "",
    )


def compare(name: str, *, rounds: int, cold: bool, pip: bool) -> None:
    """Print a table for one set."""
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + (not cold)):
            cache = Path(folder) / (str(number) if cold else "warm")
            for tool, command in commands(SETS / f"{name}.txt", cache, pip=pip, cold=cold).items():
                run = measure(command)
                if cold or number:
                    runs.setdefault(tool, []).append(run)
    print(f"\n{name} ({'cold' if cold else 'warm'}, {rounds} rounds)")
    print("| command | wall s | CPU s | MB | exit | wall / uv | CPU / uv | requests to the index | candidates |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    middle = {
        tool: (statistics.median(r.wall for r in of), statistics.median(r.cpu for r in of)) for tool, of in runs.items()
    }
    for tool, of in runs.items():
        wall, cpu = middle[tool]
        ratios = f"{wall / middle['uv'][0]:.2f} | {cpu / middle['uv'][1]:.2f}"
        most = max(run.megabytes for run in of)
        about = f"{of[-1].status} | {ratios} | {of[-1].requests} | {of[-1].proof}"
        print(f"| {tool} | {wall:.2f} | {cpu:.2f} | {most:.0f} | {about} |")
    if "pip" in middle:
        wall, cpu = (middle["pip"][i] / middle["advisor"][i] for i in (0, 1))
        print(f"\npip takes {wall:.1f} times the wall time of advisor and {cpu:.1f} times its CPU time")


def main() -> None:
    """Compare the sets of the command line."""
    names = sorted(path.stem for path in SETS.glob("*.txt"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "sets", nargs="*", choices=[*names, []], help=f"requirement sets: {', '.join(names)} (default: all)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--no-pip", action="store_true")
    options = parser.parse_args()
    for name in options.sets or names:
        compare(name, rounds=options.rounds, cold=options.cold, pip=not options.no_pip)


if __name__ == "__main__":
    main()

"""Gives many damaged documents to a parser: `python -m tests.fuzz PARSER --inputs 10000 --seed N`.

`all` reads with each parser and prints a table in Markdown. The exit code is 1 where an input failed.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.harness import MOST_SECONDS, Report, run, table
from tests.fuzz.parsers import PARSERS


def main() -> int:
    """Print as JSON what became of the inputs of one parser, or of all as a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parser", choices=[*PARSERS, "all"])
    options.add_argument("--inputs", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=secrets.randbits(32))
    options.add_argument("--first", type=int, default=0, help="number of the first input, to repeat one: --inputs 1")
    options.add_argument("--keep", type=Path, help="folder for the inputs that failed, the slowest and the largest")
    options.add_argument(
        "--most-seconds", type=float, default=MOST_SECONDS, help="processor time after which an input is ended"
    )
    options.add_argument("--jobs", type=int, default=2, help="with `all`: how many parsers at a time")
    arguments = options.parse_args()
    if arguments.parser == "all":
        reports = list(_run_all(arguments))
        print(f"Seed {arguments.seed}:\n\n{table(reports)}")
        return int(any(report.failures for report in reports))
    print(f"{arguments.parser}: seed {arguments.seed}", file=sys.stderr, flush=True)
    report = run(
        arguments.parser,
        PARSERS[arguments.parser],
        seed=arguments.seed,
        inputs=arguments.inputs,
        first=arguments.first,
        most_seconds=arguments.most_seconds,
        keep=arguments.keep,
    )
    print(json.dumps(asdict(report)))
    return int(bool(report.failures))


def _run_all(arguments: argparse.Namespace) -> Iterator[Report]:
    def run_one(name: str) -> Report:
        command = [sys.executable, "-m", "tests.fuzz", name]
        for option in ("inputs", "seed", "first", "most_seconds"):
            command += [f"--{option.replace('_', '-')}", str(getattr(arguments, option))]
        if arguments.keep is not None:
            command += ["--keep", str(arguments.keep / name)]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(result.stdout, end="", file=sys.stderr, flush=True)
        return Report(**json.loads(result.stdout))

    with ThreadPoolExecutor(arguments.jobs) as pool:
        yield from pool.map(run_one, PARSERS)


if __name__ == "__main__":
    sys.exit(main())

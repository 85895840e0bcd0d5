"""Run a parser on many damaged documents: `python -m tests.fuzz PARSER --inputs 10000 --seed N`.

`all` runs every parser and prints a Markdown table. The exit code is 1 if an input failed.
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
    """Print the report of one parser as JSON, or the reports of all parsers as a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parser", choices=[*PARSERS, "all"])
    options.add_argument("--inputs", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=secrets.randbits(32))
    options.add_argument(
        "--first", type=int, default=0, help="number of the first input; with --inputs 1, to repeat a single one"
    )
    options.add_argument("--keep", type=Path, help="directory for failed inputs, the slowest one and the largest one")
    options.add_argument(
        "--most-seconds", type=float, default=MOST_SECONDS, help="limit of processor time of an input, in seconds"
    )
    options.add_argument("--jobs", type=int, default=2, help="with `all`: number of concurrent parsers")
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

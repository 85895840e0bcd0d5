"""Compare `advisor advise` with `uv pip compile`: cold, warm, without network, and with a changed requirement.

    python -m benchmarks.against_uv [CASE...] [--passes cold,warm,unchanged,changed] [--rounds N]
                                    [--advisor PROGRAM] [--other PROGRAM]

In each round, each program runs once for each case and pass, in turn, so that drift of the machine affects all alike.
The knowledge base and the compiled modules exist before the first run; every round starts with empty caches of indexes
and predictions.

- `cold`: the first run.
- `warm`: the same command again, with network.
- `unchanged`: the same command again, with `--offline`.
- `changed`: `--offline`, after a requirement has got another lower bound, which changes no version.

The tables have medians of the wall and CPU seconds of whole processes, and the largest memory. `--other` adds another
`advisor`, such as the one of the last release.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.resolution import SETS, Run, measure
from pi_runners.execution.environment import find_uv

PASSES = ("cold", "warm", "unchanged", "changed")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One set of requirements.

    Attributes:
        python: Version of the interpreter.
        options: Further options of `advisor advise`.
        passes: The passes that say something about it.
    """

    python: str = "3.12"
    options: tuple[str, ...] = ()
    passes: tuple[str, ...] = ("cold", "warm")


CASES = {
    "tensorflow-cpu": Case(passes=PASSES),
    "torch-small": Case(),
    "twenty-five": Case(passes=PASSES),
    "torch": Case(),
    "tensorflow": Case(),
    "lightning": Case(),
    "unsatisfiable": Case(python="3.11"),
    "vllm": Case(options=("--hardware", "h100")),
}
"""By the name of the file in `benchmarks/requirements`; two of them have about 40 and 150 packages."""


def commands(case: Case, folder: Path, programs: dict[str, str], *, offline: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the command of each program for the requirements in a folder, with caches next to it."""
    file = str(folder / "requirements.txt")
    network = ["--offline"] if offline else []
    for name, program in programs.items():
        cache = ["--cache-dir", str(folder.with_name(f"cache-{name}"))]
        if name == "uv":
            yield name, [program, "pip", "compile", file, "--python-version", case.python, "-q", *cache, *network]
        else:
            line = ["advise", str(folder), "-r", file, "--python", case.python, "--dry-run", "-v"]
            yield name, [program, *line, *case.options, *cache, *network]


def run_round(name: str, passes: Sequence[str], programs: dict[str, str]) -> Iterator[tuple[str, str, Run]]:
    """Yield pass, program and run of one case, with caches that are empty at first."""
    case, text = CASES[name], (SETS / f"{name}.txt").read_text()
    first = text.split()[0].split("=")[0]
    with tempfile.TemporaryDirectory(prefix="seshat-against-uv-") as scratch:
        # A cache of uv contains source files: inside the project, they would be a part of the question.
        folder = Path(scratch, "project")
        folder.mkdir()
        for name_of_pass in PASSES:
            if name_of_pass not in case.passes or (name_of_pass != "cold" and name_of_pass not in passes):
                continue
            added = f"{first}>=0.0.1\n" if name_of_pass == "changed" else ""
            (folder / "requirements.txt").write_text(text + added)
            for program, command in commands(case, folder, programs, offline=name_of_pass in ("unchanged", "changed")):
                yield name_of_pass, program, measure(command)


def table(runs: dict[tuple[str, str], dict[str, list[Run]]], programs: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table."""
    cells = [f"{program}: wall s, CPU s, MB" for program in programs]
    ratios = [f"{program} / uv" for program in programs if program != "uv"]
    yield f"| case | pass | {' | '.join(cells)} | {' | '.join(ratios)} | requests of {programs[1]} |"
    yield f"| --- | --- |{' --- |' * (len(cells) + len(ratios) + 1)}"
    for (case, name_of_pass), of in runs.items():
        middle = {
            program: (statistics.median(run.wall for run in of[program]), statistics.median(r.cpu for r in of[program]))
            for program in programs
        }
        row = [f"{middle[p][0]:.2f}, {middle[p][1]:.2f}, {max(run.megabytes for run in of[p]):.0f}" for p in programs]
        row += [f"{middle[p][0] / middle['uv'][0]:.1f}" for p in programs if p != "uv"]
        yield f"| {case} | {name_of_pass} | {' | '.join(row)} | {of[programs[1]][-1].requests} |"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="cases (default: all)")
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--advisor", default=str(Path(sys.executable).with_name("advisor")), metavar="PROGRAM")
    parser.add_argument("--other", metavar="PROGRAM", help="another `advisor` to compare with")
    options = parser.parse_args()
    programs = {"uv": find_uv(), "advisor": options.advisor}
    if options.other:
        programs["other"] = options.other
    names, passes = options.cases or list(CASES), options.passes.split(",")
    with tempfile.TemporaryDirectory(prefix="seshat-against-uv-") as scratch:
        # As after an installation, where modules are compiled once.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ |= {"PYTHONPYCACHEPREFIX": f"{scratch}/compiled", "XDG_DATA_HOME": f"{scratch}/data"}
        for _ in run_round("torch-small", ("cold", "warm"), programs):
            pass
        runs: dict[tuple[str, str], dict[str, list[Run]]] = {}
        for _ in range(options.rounds):
            for name in names:
                for name_of_pass, program, run in run_round(name, passes, programs):
                    if name_of_pass in passes:
                        runs.setdefault((name, name_of_pass), {}).setdefault(program, []).append(run)
                        print(
                            name, name_of_pass, program, f"{run.wall:.2f} {run.cpu:.2f} {run.status}", file=sys.stderr
                        )
    statuses = {key: {p: {r.status for r in of[p]} for p in programs} for key, of in runs.items()}
    print("\n".join(table(runs, list(programs))))
    for key, by_program in statuses.items():
        failed = {program: sorted(codes) for program, codes in by_program.items() if codes != {0}}
        if failed:
            print(f"\n{' '.join(key)}: exit codes {failed}")


if __name__ == "__main__":
    main()

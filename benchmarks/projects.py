"""Compare `advisor advise` with `uv pip compile` and `pip install --dry-run` on the dependency files of real projects.

    python -m benchmarks.projects FOLDER [--programs advisor,uv,pip] [--passes cold,warm] [--only NAME,...]
                                  [--limit SECONDS] [--save FILE] [-- OPTIONS OF advisor advise]

`FOLDER` has one folder of dependency files for each project. The programs run on a copy of it, in turn for each
project, once in each pass. Their caches are empty at the start of the pass `cold`, and are filled by `warm` itself
if it is the only one. uv and pip build sdists, which runs their code; so does `advisor advise` with
`-- --build-sdists`. pip resolves for the Python that runs this benchmark.

Outcomes: answered; explained (no stack, with the reason); refused (an input error); unavailable (an index or a host);
timeout; traceback. The table of versions compares the packages that both programs chose.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from pi_runners.execution.environment import find_uv

FILES = ("pyproject.toml", "requirements.txt", "setup.py", "setup.cfg")
"""Files that uv can read, in the order in which one is chosen."""
OTHER_FILES = ("Pipfile", "environment.yml", "environment.yaml", "pixi.toml")
OUTCOMES = {0: "answered", 2: "refused", 3: "explained", 4: "unavailable"}
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?(?:==(\S+)| @ (\S+))", re.MULTILINE)


@dataclass(kw_only=True)
class Run:
    """One run of one program on one project."""

    program: str
    outcome: str
    seconds: float
    cpu: float
    message: str
    versions: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def main_file(folder: Path) -> str:
    """Return the file that uv gets; empty if it can read none."""
    names = [name for name in FILES if (folder / name).is_file()]
    has_dependencies = "dependencies" in (folder / names[0]).read_text(errors="replace") if names else False
    if names[:2] == ["pyproject.toml", "requirements.txt"] and not has_dependencies:
        return "requirements.txt"
    if names:
        return names[0]
    if any((folder / name).is_file() for name in OTHER_FILES):
        return ""
    return next((path.name for path in sorted(folder.glob("*.txt")) if path.name != "origin.txt"), "")


def run(program: str, command: Sequence[str], folder: Path, limit: float) -> tuple[Run, str]:
    """Run a program; return what came of it, and its standard output."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    timed_out = False
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome = OUTCOMES.get(process.returncode, f"exit {process.returncode}")
    if program != "advisor" and process.returncode == 1:
        outcome = "explained"
    if timed_out:
        outcome = "timeout"
    if "Traceback" in errors and program == "advisor" and outcome != "explained":
        outcome = "traceback"
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    message = " ".join(errors.split()) if outcome != "answered" else ""
    return Run(program=program, outcome=outcome, seconds=seconds, cpu=cpu, message=message), output


def run_advisor(folder: Path, name: str, options: argparse.Namespace) -> Run:
    """Run `advisor advise` on a project."""
    command = [sys.executable, "-c", "from advisor.cli.app import main; main()", "advise", "--dry-run"]
    command += ["--format", "json", "--python", options.python, *options.options]
    if name.endswith(".txt"):
        command += ["-r", name]
    result, output = run("advisor", command, folder, options.limit)
    if result.outcome == "answered":
        packages = json.loads(output)["stack"]["packages"]
        result.versions = {package["name"]: package["version"] for package in packages}
        result.reasons = {package["name"]: package["why"] for package in packages}
    return result


def run_uv(folder: Path, name: str, options: argparse.Namespace) -> Run:
    """Run `uv pip compile` on a project."""
    command = [find_uv(), "pip", "compile", name, "--python-version", options.python]
    result, output = run("uv", [*command, "-q", "--no-header", "--no-annotate"], folder, options.limit)
    if result.outcome == "answered":
        result.versions = {
            canonicalize_name(match[1]): match[2] or match[3] for match in PIN.finditer(output) if match[1]
        }
    return result


def run_pip(folder: Path, name: str, options: argparse.Namespace) -> Run:
    """Run `pip install --dry-run` on a project."""
    source = ["-r", name] if name.endswith(".txt") else ["."]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-input", "--quiet"]
    result, output = run("pip", [*command, "--report", "-", *source], folder, options.limit)
    if result.outcome == "answered":
        packages = [item["metadata"] for item in json.loads(output)["install"]]
        result.versions = {canonicalize_name(package["name"]): package["version"] for package in packages}
    return result


RUNNERS = {"advisor": run_advisor, "uv": run_uv, "pip": run_pip}


def measure(corpus: Path, options: argparse.Namespace) -> Iterator[tuple[str, str, str, Run]]:
    """Yield pass, project, file and run."""
    names = set(filter(None, options.only.split(",")))
    projects = [folder for folder in sorted(corpus.iterdir()) if folder.is_dir()]
    for name_of_pass in options.passes.split(","):
        for folder in projects:
            if names and folder.name not in names:
                continue
            name = main_file(folder)
            for program in options.programs.split(","):
                # A project without a file that uv reads is for the advisor only.
                if name or program == "advisor":
                    yield name_of_pass, folder.name, name, RUNNERS[program](folder, name, options)


def quartiles(values: Sequence[float]) -> str:
    """Return the quartiles and the maximum as text."""
    if len(values) < 2:
        return ", ".join(f"{value:.1f}" for value in values)
    return " / ".join(f"{value:.1f}" for value in (*statistics.quantiles(values, n=4), max(values)))


def print_summary(rows: Sequence[tuple[str, str, str, Run]]) -> None:
    """Print the tables of the documentation."""
    for name_of_pass in dict.fromkeys(row[0] for row in rows):
        for program in RUNNERS:
            runs = [row[3] for row in rows if row[0] == name_of_pass and row[3].program == program]
            if runs:
                counts = ", ".join(f"{count} {outcome}" for outcome, count in Counter(r.outcome for r in runs).items())
                print(f"{name_of_pass} {program}: {counts}; seconds {quartiles([r.seconds for r in runs])}")
        explained = [
            (row[3].seconds, row[1])
            for row in rows
            if row[0] == name_of_pass and row[3].program == "advisor" and row[3].outcome == "explained"
        ]
        longest = ", ".join(f"{name} {seconds:.1f}" for seconds, name in sorted(explained, reverse=True)[:10])
        print(f"{name_of_pass} longest explanations in seconds: {longest}")
    last = {(project, one.program): one for _, project, _, one in rows}
    for project in dict.fromkeys(row[1] for row in rows):
        ours, theirs = last.get((project, "advisor")), last.get((project, "uv"))
        if ours is None or theirs is None:
            continue
        if (ours.outcome == "answered") != (theirs.outcome == "answered"):
            print(f"\n{project}: advisor {ours.outcome}: {ours.message[:400]}")
            print(f"{project}: uv {theirs.outcome}: {theirs.message[:400]}")
        elif ours.outcome == "answered":
            print_differences(project, ours, theirs)


def print_differences(project: str, ours: Run, theirs: Run) -> None:
    """Print the packages of a project for which the programs chose something else."""
    names = sorted({*ours.versions, *theirs.versions})
    different = [name for name in names if ours.versions.get(name) != theirs.versions.get(name)]
    if different:
        print(f"\n{project}: {len(different)} of {len(names)} packages differ")
    for name in different:
        print(f"  {name}: uv {theirs.versions.get(name, '-')}, advisor {ours.versions.get(name, '-')}", end="")
        print(f" ({ours.reasons[name]})" if name in ours.reasons else "")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passes", default="cold,warm")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--programs", default="advisor,uv")
    parser.add_argument("--caches", type=Path, help="folder of caches that stay for the next run")
    parser.add_argument("--save", type=Path)
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.options = arguments[end + 1 :]
    with tempfile.TemporaryDirectory(prefix="seshat-projects-") as scratch:
        caches = options.caches or Path(scratch)
        os.environ |= {"XDG_CACHE_HOME": str(caches / "cache"), "UV_CACHE_DIR": str(caches / "uv")}
        os.environ |= {"XDG_DATA_HOME": str(caches / "data"), "PIP_CACHE_DIR": str(caches / "pip")}
        corpus = Path(scratch, "corpus")
        shutil.copytree(options.folder, corpus)
        rows = []
        for row in measure(corpus, options):
            rows.append(row)
            print(*row[:3], row[3].program, row[3].outcome, f"{row[3].seconds:.1f}", len(row[3].versions), sep="\t")
            sys.stdout.flush()
            if options.save:
                options.save.write_text(json.dumps([[*r[:3], asdict(r[3])] for r in rows]))
    print_summary(rows)


if __name__ == "__main__":
    main()

"""Measure what the recommended run-time settings gain for three projects, and compare with the prediction.

    python -m benchmarks.settings_gains [PROJECT...] [--rounds 8] [--environments FOLDER] [--without NAME=VALUE...]

For each project in `benchmarks/settings`, `advisor advise` recommends a stack with settings, once as it is, and once
with `--allow reduced-precision`; the stack is installed. The benchmark of the project is then run without settings,
again without settings (A/A), and by `advisor run` with both locks, in turns. Settings that need code are arguments of
the programs; those that a program has no argument for are not measured, and named. Settings that have an argument are
also measured one by one, and all together, whatever the advice says. Run it while nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import t

from benchmarks.environments import make_environment

FOLDER = Path(__file__).parent / "settings"
PROJECTS = ("torch-cnn", "keras-transformer", "onnx-service")
ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "torch-cnn": {"amp=bfloat16": "--amp", "memory_format=channels_last": "--channels-last"},
    "keras-transformer": {"amp=bfloat16": "--amp", "xla=on": "--xla"},
    "onnx-service": {"threads=1": "--one-thread", "graph_optimisation=basic": "--basic"},
}
"""Arguments of the programs that apply settings."""
CONFIDENCE = 0.9
ADVISOR = (sys.executable, "-m", "advisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Advice for a project.

    Attributes:
        name: What it allows.
        lock: Its lock.
        packages: Requirements that install the stack.
        settings: Recommended settings, as ``name=value``.
        code: Those of them that need code.
        gain: Predicted speed-up by them: ``speedup``, ``low`` and ``high``; none without settings.
        effects: The same for each setting that was compared.
    """

    name: str
    lock: Path
    packages: tuple[str, ...]
    settings: tuple[str, ...]
    code: tuple[str, ...]
    gain: Mapping[str, float] | None
    effects: Mapping[str, Mapping[str, float]]


def advise(project: Path, lock: Path, name: str, *options: str) -> Advice:
    """Return the advice of the program for a project, and write its lock."""
    command = [*ADVISOR, "advise", str(project), "--format", "json", "--output", str(lock), *options]
    document: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    recommended = [s for s in document["settings"] if s["status"] == "recommended"]
    return Advice(
        name=name,
        lock=lock,
        packages=tuple(f"{package['name']}=={package['version']}" for package in document["stack"]["packages"]),
        settings=tuple(f"{s['name']}={s['value']}" for s in recommended),
        code=tuple(f"{s['name']}={s['value']}" for s in recommended if s["code"] and not s["environment"]),
        gain=document["settings_gain"],
        effects={effect["setting"]: effect for effect in document["setting_effects"]},
    )


def speed_of(command: Sequence[str], pattern: str, project: Path) -> float:
    """Return the figure that a program prints."""
    answer = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True)
    match = re.search(pattern, answer.stdout)
    if match is None:
        sys.exit(f"`{' '.join(command)}` does not print `{pattern}`")
    return float(match[1])


def interval(logs: Sequence[float]) -> str:
    """Return the geometric mean of ratios with its interval by Student's t."""
    mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1)) * error
    return f"{math.exp(mean):.2f} [{math.exp(mean - half):.2f}, {math.exp(mean + half):.2f}]"


def prediction(gain: Mapping[str, float]) -> str:
    """Return a predicted speed-up with its interval."""
    return f"{gain['speedup']:.2f} [{gain['low']:.2f}, {gain['high']:.2f}]"


def measure(name: str, *, rounds: int, folder: Path, without: Collection[str] = ()) -> None:
    """Print the rows of a project.

    Args:
        name: The project.
        rounds: Number of runs of each program.
        folder: Where locks and environments are.
        without: Settings that are not measured one by one, as ``name=value``.
    """
    project = FOLDER / name
    benchmark = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["advisor"]["benchmark"]
    every = [
        advise(project, folder / f"pylock.{name}-exact.toml", "exact and reordered"),
        advise(project, folder / f"pylock.{name}-reduced.toml", "reduced, too", "--allow", "reduced-precision"),
    ]
    python = folder / name / "bin" / "python"
    if not python.exists():
        make_environment(every[0].packages, folder / name)
    program = [str(python), *benchmark["command"].split()[1:]]
    commands = {"A/A": program}
    for advice in every:
        arguments = [ARGUMENTS[name][setting] for setting in advice.code if setting in ARGUMENTS[name]]
        if advice.settings:
            commands[advice.name] = [*ADVISOR, "run", "--lock", str(advice.lock), "--", *program, *arguments]
    own = {setting: argument for setting, argument in ARGUMENTS[name].items() if setting not in without}
    alone = {f"alone: `{setting}`": [*program, argument] for setting, argument in own.items()}
    commands |= alone
    if len(own) > 1:
        commands["all of these"] = [*program, *own.values()]
    logs: dict[str, list[float]] = {key: [] for key in commands}
    order = random.Random(0)
    for _ in range(rounds):
        # In another order each time, so that a machine that gets slower is no effect of a setting.
        runs = [("", program), *commands.items()]
        order.shuffle(runs)
        speeds = {key: speed_of(command, benchmark["metric"]["pattern"], project) for key, command in runs}
        for key, listed in logs.items():
            listed.append(math.log(speeds[key] / speeds[""]))
    print(f"| {name} | none (A/A) | 1 | {interval(logs['A/A'])} | |", flush=True)
    for advice in every:
        missing = [setting for setting in advice.code if setting not in ARGUMENTS[name]]
        gain = advice.gain
        predicted = prediction(gain) if gain else "1"
        measured = interval(logs[advice.name]) if advice.settings else ""
        settings = ", ".join(f"`{setting}`" for setting in advice.settings) or "none is recommended"
        note = f"not measured: {', '.join(missing)}" if missing else ""
        print(f"| {name} | {advice.name}: {settings} | {predicted} | {measured} | {note} |", flush=True)
    for setting, key in zip(own, alone, strict=True):
        predicted = prediction(every[0].effects[setting]) if setting in every[0].effects else "not measured"
        print(f"| {name} | {key} | {predicted} | {interval(logs[key])} | |", flush=True)
    if "all of these" in logs:
        print(f"| {name} | all of these | | {interval(logs['all of these'])} | |", flush=True)


def main() -> None:
    """Measure what the command line selects, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", metavar="PROJECT", help=f"projects (default: {', '.join(PROJECTS)})")
    parser.add_argument("--rounds", type=int, default=8, help="runs of each program (default: 8)")
    parser.add_argument("--environments", type=Path, help="folder that keeps the environments (default: none)")
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="settings that are not measured one by one: a processor without bfloat16 needs minutes for each run",
    )
    options = parser.parse_args()
    if unknown := sorted(set(options.projects) - set(PROJECTS)):
        parser.error(f"there is no project `{unknown[0]}`; there are {', '.join(PROJECTS)}")
    print("| project | settings | predicted | measured | |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.environments or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.projects or PROJECTS:
            measure(name, rounds=options.rounds, folder=folder, without=options.without)


if __name__ == "__main__":
    main()

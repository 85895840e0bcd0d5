"""Options of the API functions and of the commands that measure: what, how often, where, and campaigns of it.

Each option is declared here and nowhere else; see :mod:`advisor.api.option`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

from advisor.api.option import (
    MEASURING,
    Option,
    Scalar,
    option_group,
    read_duration,
    read_gigabytes,
    read_moment,
    read_pairs,
    read_scalar,
)
from advisor.api.options import HARDWARE, KNOWLEDGE, at_least_one, read_fraction
from advisor.domain.words import parse_size
from knowledge.domain.errors import InputError
from knowledge.domain.workload import ProfiledWorkload

MEMORY_LIMIT = Option(
    "--memory-limit",
    metavar="GB",
    reads=float,
    parse=read_gigabytes,
    minimum=0.01,
    help="Kill a process that holds more memory than this.\nResident memory, with its children.",
)
DISK_BUDGET = Option(
    "--disk-budget",
    metavar="GB",
    reads=float,
    parse=read_gigabytes,
    minimum=0.001,
    help="Refuse blocks that would take more disk than this.",
)


def _read_parameters(text: str) -> dict[str, Scalar]:
    return {name: read_scalar(value) for name, value in read_pairs(text.split(","), "--parameters")}


def _read_axes(texts: Sequence[str]) -> dict[str, Sequence[Scalar]]:
    """Read `threads=1,2` into the values of each setting."""
    return {name: [read_scalar(v) for v in values.split(",")] for name, values in read_pairs(texts, "--settings")}


@option_group
@dataclass(frozen=True, kw_only=True)
class IndicatorOptions:
    """What is measured: indicators, or with ``workload`` the parts of a profiled workload."""

    size: Annotated[str, Option("--size", help="Parameter set: small, medium or large.")] = "small"
    shapes: Annotated[
        str | None, Option("--shapes", metavar="NAME", help="List of shapes instead, such as deepbench.")
    ] = None
    parameters: Annotated[
        Mapping[str, Scalar] | None,
        Option("--parameters", metavar="NAME=VALUE", parse=_read_parameters, help="Parameters of your own instead."),
    ] = None
    settings: Annotated[
        Mapping[str, Sequence[Scalar]],
        Option(
            "--settings",
            metavar="NAME=VALUE",
            reads=list[str],
            parse=_read_axes,
            help="Sweep a run-time setting (repeatable).\n"
            "Every stack is measured without and with each combination of the values.",
        ),
    ] = field(default_factory=dict)
    dtypes: Annotated[tuple[str, ...], Option("--dtype", help="Element type (repeatable).")] = ("float32",)
    device: Annotated[str, Option("--device", metavar="auto|cpu|cuda", help="Where to compute.")] = "auto"
    workload: ProfiledWorkload | None = None


@option_group
@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How often, and for how long, it is measured."""

    rounds: Annotated[int, Option("--rounds", minimum=1, help="Passes over all stacks.")] = 8
    samples: Annotated[
        int | None,
        Option(
            "--samples",
            minimum=1,
            help="Samples in each process.\n"
            "Of an indicator (default: 7, up to three times as many if they vary), or runs of the benchmark "
            "(default: 3).",
        ),
    ] = None
    min_seconds: Annotated[
        float, Option("--min-time", metavar="SECONDS", minimum=0.001, help="Minimum seconds of one sample.")
    ] = 0.05
    timeout_seconds: Annotated[
        float, Option("--timeout", minimum=1, help="Most seconds of a process or benchmark run.")
    ] = 600.0
    memory_limit_bytes: Annotated[float | None, MEMORY_LIMIT] = None
    controls: Annotated[bool, Option("--aa/--no-aa", help="Measure each reference twice (A/A control).")] = True


def read_engine_options(texts: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` options of an executor.

    Raises:
        InputError: If one is not written like this.
    """
    return dict(read_pairs(texts, "--engine", example="partition=gpu", allow_empty=True))


ENGINE_OPTIONS = Option(
    "--engine",
    metavar="NAME=VALUE",
    reads=list[str],
    parse=read_engine_options,
    help="Option of the executor (repeatable).\nSuch as `partition=gpu`.",
)


def _read_tolerance(text: str) -> float:
    tolerance = read_fraction(text)
    if tolerance is None:
        raise InputError(f"`{text}` is not a loss of speed", hint="write it as `--tolerance 2%` or `0.02`")
    return tolerance


def _read_bytes(text: str) -> int:
    size = parse_size(text)
    if size is None:
        raise InputError(f"`{text}` is not a size", hint="write it as `5GB` or `500MB`")
    return size


@option_group
@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """Whether, how long and how exactly an advice is measured."""

    budget_seconds: Annotated[
        float | None,
        Option(
            "--measure",
            metavar="BUDGET",
            panel=MEASURING,
            reads=str,
            parse=read_duration,
            help="Measure until the choice is certain, or this long.\nThe project's benchmark, such as for 20m.",
        ),
    ] = None
    tolerance: Annotated[
        float,
        Option(
            "--tolerance",
            metavar="PERCENT",
            panel=MEASURING,
            reads=str,
            parse=_read_tolerance,
            help="Acceptable loss of speed.\nThe choice is certain once nothing can be faster by more.",
            default_text="2%",
        ),
    ] = 0.02
    max_download_bytes: Annotated[
        int | None,
        Option(
            "--max-download",
            metavar="SIZE",
            panel=MEASURING,
            reads=str,
            parse=_read_bytes,
            help="Largest download of all environments.\nOn a cluster, that of each node.",
        ),
    ] = None
    max_disk_bytes: Annotated[
        int | None,
        Option(
            "--max-disk",
            metavar="SIZE",
            panel=MEASURING,
            reads=str,
            parse=_read_bytes,
            help="Largest size of all environments.\nOn a cluster, that on each node.",
        ),
    ] = None
    max_load: Annotated[
        float,
        Option(
            "--max-load",
            metavar="PERCENT",
            panel=MEASURING,
            minimum=0.0,
            help="Most load by other programs.\nA run with more load does not count.",
        ),
    ] = 10.0
    executor: Annotated[
        str, Option("--executor", metavar="NAME", panel=MEASURING, help="local, slurm or kubernetes.")
    ] = "local"
    engine: Annotated[Mapping[str, str], replace(ENGINE_OPTIONS, panel=MEASURING)] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a tolerance that no choice is certainly within."""
        if self.tolerance <= 0:
            raise InputError("a tolerance of 0 % is never certain", hint="write it as `--tolerance 1%`")


@option_group
@dataclass(frozen=True, kw_only=True)
class EnvironmentOptions:
    """Where stacks are installed."""

    python: Annotated[str, Option("--python", help="Interpreter: path or version.", default_text="the running one")] = (
        sys.executable
    )
    keep: Annotated[
        bool, Option("--keep-environments/--remove-environments", help="Keep environments for the next block.")
    ] = True
    disk_budget_bytes: Annotated[float | None, DISK_BUDGET] = None


@option_group
@dataclass(frozen=True, kw_only=True)
class MeasurementStore:
    """Where observations go; ``cache_directory`` holds the environments and is by default the user's."""

    prometheus: Annotated[
        Path | None, Option("--prometheus", metavar="FILE", help="Write figures to a file for node_exporter.")
    ] = None
    knowledge: Annotated[str | None, KNOWLEDGE] = None
    cache_directory: Path | None = None


@option_group
@dataclass(frozen=True, kw_only=True)
class CampaignOptions:
    """What a campaign is planned for."""

    max_runs: Annotated[
        int, Option("--max-runs", metavar="MOST", minimum=1, help="Most indicator runs in a round.")
    ] = 20000
    python: Annotated[
        str | None,
        Option(
            "--python",
            help="Interpreter if the matrix names none.\nA path, or a version for other machines.",
            default_text="the running one",
        ),
    ] = None
    repetition: Annotated[int, Option("--repetition", minimum=1, help="A new number measures everything again.")] = 1
    hardware: Annotated[str, replace(HARDWARE, flags="--hardware --for")] = "detect"

    def __post_init__(self) -> None:
        """Refuse numbers that are less than 1."""
        at_least_one("max_runs", self.max_runs)
        at_least_one("repetition", self.repetition)


@option_group
@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Where a campaign runs."""

    name: Annotated[str, Option("--executor -e", metavar="NAME", help="local, slurm or kubernetes.")] = "local"
    options: Annotated[Mapping[str, str], ENGINE_OPTIONS] = field(default_factory=dict)
    disk_budget_bytes: Annotated[float | None, DISK_BUDGET] = None


@option_group
@dataclass(frozen=True, kw_only=True)
class HistoryOptions:
    """Which histories of measurements are read."""

    indicator: Annotated[str, Option("--indicator", metavar="NAME", help="Only this indicator.")] = ""
    framework: Annotated[str, Option("--framework", metavar="NAME", help="Only this framework.")] = ""
    stack: Annotated[
        str,
        Option(
            "--stack",
            metavar="REQUIREMENTS",
            help="Only stacks such as `torch==2.13.0`.\nBy default, the reference stack of each block.",
        ),
    ] = ""
    machine: Annotated[
        str,
        Option(
            "--machine",
            metavar="NAME",
            help="Only this machine.\nIts name, its processor, its accelerator, or the start of its identity.",
        ),
    ] = ""
    since: Annotated[
        datetime | None,
        Option(
            "--since",
            metavar="DATE",
            reads=str,
            parse=partial(read_moment, option="--since"),
            help="Only changes since this date.\nOlder measurements still count for them.",
        ),
    ] = None
    with_shipped: Annotated[
        bool, Option("--with-shipped", help="Also measurements that ship with the program.\nThose of other machines.")
    ] = False


TOKEN = Option("--token", has_variable=True, help="Token for the service.")


@option_group
@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How a worker measures, and where it delivers observations."""

    environments: Annotated[
        Path | None, Option("--environments", help="Directory of environments.\nBy default a temporary one.")
    ] = None
    keep_environments: Annotated[
        bool, Option("--keep-environments/--remove-environments", help="Keep environments for the next task.")
    ] = False
    memory_limit_bytes: Annotated[
        float | None,
        Option(
            "--memory-limit",
            metavar="GB",
            reads=float,
            parse=read_gigabytes,
            help="Maximum memory of one process.",
        ),
    ] = None
    service: Annotated[
        str | None, Option("--push", metavar="URL", help="Also deliver to the service of a knowledge base.")
    ] = None
    token: Annotated[str, TOKEN] = ""

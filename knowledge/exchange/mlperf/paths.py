"""Locations of results and descriptions in a tree: round, division, submitter, system, benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from knowledge.domain.errors import InputError
from knowledge.exchange.mlperf.facts import benchmark_name, inference_benchmark

_TRAINING_LOG = re.compile(r"^result_(?:run)?(\d+)(?:_\w+)?\.txt$")
_SUMMARY = "mlperf_log_summary.txt"
_RUN = re.compile(r"^run_(\d+)$")
_ROUND = re.compile(r"^(?:(?:training|inference)_results_)?v?(\d+\.\d+)(?:\.\d+)?$")
_DIVISIONS = ("closed", "open", "network")
_GENERIC_SYSTEMS = frozenset({"tpu"})

SystemKey = tuple[str, str, str, str]
"""Round, division (of Inference; else empty), submitter and name of a system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPlace:
    """Location of the log of a training run, or of LoadGen's summary of a performance run.

    Attributes:
        path: Path in the tree.
        key: System that ran it.
        benchmark: Usual name of the benchmark; of Inference with the required accuracy, ``bert-99`` and ``bert-99.9``.
            Empty if only the log names it.
        number: Number of the run, from 0 in Inference.
        version: Version of the benchmark's definition in a round of Inference.
    """

    path: str
    key: SystemKey
    benchmark: str
    number: int
    version: int = 1


def is_relevant(name: str) -> bool:
    """Return whether a file may be a result or a description of a system."""
    path = PurePosixPath(name)
    if path.name == _SUMMARY:
        # Logs of accuracy, compliance and power runs have the same name.
        return (
            "results" in path.parts and path.parent.parent.name == "performance" and bool(_RUN.match(path.parent.name))
        )
    return bool(_TRAINING_LOG.match(path.name)) or (path.suffix == ".json" and "systems" in path.parts[:-1])


def training_place(name: str, option: str | None) -> ResultPlace | None:
    """Return the location of a training log; ``None`` if it is not a log in `results`."""
    parts = PurePosixPath(name).parts
    match = _TRAINING_LOG.match(parts[-1])
    if match is None or "results" not in parts:
        return None
    here = len(parts) - 1 - parts[::-1].index("results")
    round_, index = _round_of(parts[:here], option)
    between, inside = parts[index + 1 : here], parts[here + 1 : -1]
    if not inside:
        return None
    # v0.5 put directories of its own between the submitter and the results, and called every TPU `tpu`.
    system = between[1] if inside[0] in _GENERIC_SYSTEMS and len(between) > 1 else inside[0]
    submitter = (between[0] if index >= 0 else between[-1]) if between else ""
    return ResultPlace(
        path=name,
        key=(round_, "", submitter, system),
        benchmark=benchmark_name(inside[1], round_) if len(inside) > 1 else "",
        number=int(match[1]),
    )


def inference_place(name: str, option: str | None) -> ResultPlace | None:
    """Return the location of a summary of a performance run; ``None`` if it is not one in `results`."""
    parts = PurePosixPath(name).parts
    if parts[-1] != _SUMMARY or "results" not in parts:
        return None
    here = len(parts) - 1 - parts[::-1].index("results")
    # Some submissions repeat the directory of the scenario.
    inside = parts[here + 1 : parts.index("performance", here)]
    round_, _ = _round_of(parts[:here], option)
    run = _RUN.match(parts[-2])
    if len(inside) < 3 or run is None:
        return None
    benchmark, version = inference_benchmark(inside[1], round_)
    return ResultPlace(
        path=name,
        key=(round_, _division(parts[:here]), parts[here - 1] if here else "", inside[0]),
        benchmark=benchmark,
        version=version,
        # Runs count from 1.
        number=max(0, int(run[1]) - 1),
    )


def described_system(name: str, option: str | None) -> SystemKey | None:
    """Return the system that a file describes; ``None`` if it is not in `systems`."""
    parts = PurePosixPath(name).parts
    if not parts[-1].endswith(".json") or len(parts) < 2 or parts[-2] != "systems":
        return None
    submitter = parts[-3] if len(parts) > 2 else ""
    return _round_of(parts[:-2], option)[0], _division(parts[:-2]), submitter, parts[-1].removesuffix(".json")


def _division(parts: Iterable[str]) -> str:
    return next((part for part in reversed(tuple(parts)) if part in _DIVISIONS), "")


def _round_of(parts: Iterable[str], option: str | None) -> tuple[str, int]:
    """Return the round of a path, and the index of the last part that contains it; -1 if no part does."""
    places = [(f"v{m[1]}", i) for i, part in enumerate(parts) if (m := _ROUND.match(part))]
    if places:
        return option or places[-1][0], places[-1][1]
    if option is None:
        raise InputError(
            "no directory name contains the round of these results",
            hint="set it with `--round`, such as `--round v0.7`",
        )
    return option, -1

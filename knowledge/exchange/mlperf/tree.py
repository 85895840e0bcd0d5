"""A tree of MLPerf results, a directory or a tar file, as observations: of Training or of Inference."""

from __future__ import annotations

import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation
from knowledge.exchange.mlperf.descriptions import read_description
from knowledge.exchange.mlperf.facts import UnreadableResultError, benchmark_name, inference_rules
from knowledge.exchange.mlperf.logs import TrainingRun, read_log
from knowledge.exchange.mlperf.observations import inference_observation, training_observation
from knowledge.exchange.mlperf.paths import (
    ResultPlace,
    SystemKey,
    described_system,
    inference_place,
    is_relevant,
    training_place,
)
from knowledge.exchange.mlperf.results import ImportResult, SkippedFile
from knowledge.exchange.mlperf.summaries import InferenceResult, read_summary
from knowledge.exchange.mlperf.systems import System, make_system

_LARGEST_LOG = 64 * 2**20
_LARGEST_RECORDS = 16 * 2**20
"""Bytes of the lines of a log that hold records; 2.7 MB is the largest of round v4.0."""
_LARGEST_DESCRIPTION = 2**20
_LARGEST_SUMMARY = 2**20
_OTHER_SUITE = re.compile(r"^(hpc|tiny|mobile|storage|client|automotive)_results", re.IGNORECASE)
_WANTED = (
    "name a tree of MLPerf Training (`results/SYSTEM/BENCHMARK/result_0.txt`) or of MLPerf Inference "
    "(`results/SYSTEM/BENCHMARK/SCENARIO/performance/run_1/mlperf_log_summary.txt`)"
)


class TreeKindError(InputError):
    """Raised when a tree is neither of MLPerf Training nor of MLPerf Inference."""

    code = "mlperf-tree-kind"


@dataclass(slots=True)
class _Content:
    """What a tree contains, as it is read."""

    runs: list[tuple[ResultPlace, TrainingRun]] = field(default_factory=list)
    results: list[tuple[ResultPlace, InferenceResult]] = field(default_factory=list)
    descriptions: dict[SystemKey, dict[str, str]] = field(default_factory=dict)
    skipped: list[SkippedFile] = field(default_factory=list)
    logs: int = 0
    summaries: int = 0
    described: int = 0
    other_suite: str = ""


def read_results(path: Path, *, round_: str | None = None) -> ImportResult:
    """Read a tree of results; whether they are of Training or of Inference is recognised by their files.

    Args:
        path: A checkout, any directory in one, or a tar file of it.
        round_: The round, such as ``v0.6``, if no name of a directory contains it.

    Returns:
        The observations, the skipped files, and what was not understood.

    Raises:
        TreeKindError: If the tree contains results of neither, or of both.
        InputError: If the path cannot be read.
    """
    try:
        content = _gather(path, round_)
    except (OSError, ValueError, OverflowError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"`{path}` cannot be read: {error}") from None
    _check_kind(path, content)
    observations: dict[str, Observation] = {}
    repeated = 0
    warnings: dict[str, None] = {}
    for place, observation in _observations(content, warnings):
        if isinstance(observation, Observation):
            repeated += observation.identity in observations
            observations.setdefault(observation.identity, observation)
        else:
            content.skipped.append(SkippedFile(path=place, reason=f"it is not a valid observation: {observation}"))
    return ImportResult(
        observations=tuple(observations.values()),
        skipped=tuple(sorted(content.skipped, key=lambda s: s.path)),
        repeated=repeated,
        warnings=tuple(sorted(warnings)),
    )


def _observations(content: _Content, warnings: dict[str, None]) -> Iterator[tuple[str, Observation | str]]:
    """Yield the path of each result in order, with its observation or the reason why there is none."""
    systems: dict[tuple[SystemKey, str, str, str], System] = {}

    def system_of(key: SystemKey, entry: str, benchmark: str, place: str = "") -> System:
        """Return the system of a result; a log may describe it, if no file does."""
        system_key = key, entry if key not in content.descriptions else "", benchmark, place
        if system_key not in systems:
            described = content.descriptions.get(key)
            if described is None:
                described = read_description(entry) if entry.startswith("{") else {}
            systems[system_key] = make_system(key[3], described, benchmark=benchmark, place=place)
        return systems[system_key]

    for place, run in sorted(content.runs, key=lambda entry: entry[0].path):
        try:
            benchmark = place.benchmark or benchmark_name(run.benchmark, place.key[0])
            system = system_of(place.key, run.entry, benchmark, run.place)
            observation = training_observation(place, run, system)
            # Values that JSON does not support, such as NaN, have no identity.
            _ = observation.identity
        except (ValueError, OverflowError, OSError, RecursionError) as error:
            yield place.path, str(error)
            continue
        warnings.update(dict.fromkeys(system.warnings))
        yield place.path, observation
    for place, result in sorted(content.results, key=lambda entry: entry[0].path):
        system = system_of(place.key, "", place.benchmark)
        warnings.update(dict.fromkeys(system.warnings))
        yield place.path, inference_observation(place, result, system, inference_rules(place.key[0]))


def _check_kind(path: Path, content: _Content) -> None:
    """Refuse a tree that is not of one of the two kinds."""
    if content.logs and content.summaries:
        raise TreeKindError(
            f"`{path}` contains results of MLPerf Training ({content.logs} logs) and of MLPerf Inference "
            f"({content.summaries} summaries)",
            hint="import the trees one by one",
        )
    if content.logs or content.summaries:
        return
    reason, hint = "no MLPerf results", f"{_WANTED}; if no directory names the round, set it with `--round`"
    nothing = "no results of MLPerf Training or MLPerf Inference"
    if content.other_suite:
        reason, hint = f"{nothing}: it is a tree of MLPerf {content.other_suite}", _WANTED
    elif content.described:
        reason, hint = f"descriptions of {content.described} systems, but {nothing}", _WANTED
    raise TreeKindError(f"`{path}` contains {reason}", hint=hint)


def _gather(path: Path, round_: str | None) -> _Content:
    """Read the files of a tree: results in any order, descriptions of systems, and what is neither."""
    content = _Content()
    for name, size, file in _files(path, content):
        try:
            _read(name, size, file, round_, content)
        except UnreadableResultError as error:
            content.skipped.append(SkippedFile(path=name, reason=str(error)))
        except (OverflowError, ValueError, RecursionError) as error:
            content.skipped.append(SkippedFile(path=name, reason=f"it cannot be read: {error}"))
    return content


def _read(name: str, size: int, file: IO[bytes], round_: str | None, content: _Content) -> None:
    if (place := training_place(name, round_)) is not None:
        content.logs += 1
        _check_number(place.number)
        content.runs.append((place, read_log(_log_lines(size, file))))
    elif (summary := inference_place(name, round_)) is not None:
        content.summaries += 1
        _check_number(summary.number)
        if size > _LARGEST_SUMMARY:
            raise UnreadableResultError(f"it is larger than {_LARGEST_SUMMARY // 2**20} MiB")
        text = file.read(_LARGEST_SUMMARY).decode("utf-8", "replace")
        content.results.append((summary, read_summary(text, inference_rules(summary.key[0]))))
    elif (key := described_system(name, round_)) is not None:
        content.described += 1
        try:
            content.descriptions[key] = read_description(file.read(_LARGEST_DESCRIPTION).decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a description of a system: {error}") from None


def _check_number(number: int) -> None:
    if number >= 10**9:
        raise ValueError("the number of the run has more than 9 digits")


def _log_lines(size: int, file: IO[bytes]) -> str:
    """Return the lines of a log that contain records; other lines are not kept in memory, and no large log is read."""
    if size > _LARGEST_LOG:
        raise UnreadableResultError(f"it is larger than {_LARGEST_LOG // 2**20} MiB")
    records: list[bytes] = []
    remaining = _LARGEST_RECORDS
    for line in file:
        if b":::ML" in line:
            records.append(line)
            remaining -= len(line)
            if remaining < 0:
                raise UnreadableResultError(f"it contains more than {_LARGEST_RECORDS // 2**20} MiB of log lines")
    return b"".join(records).decode("utf-8", "replace")


def _files(path: Path, content: _Content) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield the names, sizes and contents of results and descriptions."""
    if path.is_dir():
        # The path itself may name the round.
        root = path.resolve()
        for entry in sorted(root.rglob("*")):
            name = str(entry.relative_to(root.parent))
            _note_suite(name, content)
            if is_relevant(name) and entry.is_file():
                with entry.open("rb") as file:
                    yield name, entry.stat().st_size, file
        return
    with tarfile.open(path) as archive:
        for member in archive:
            name = f"{path.name.split('.tar')[0]}/{member.name}"
            _note_suite(name, content)
            # Read in memory, never unpacked: the paths in an archive are not trusted.
            if member.isfile() and is_relevant(member.name) and (stored := archive.extractfile(member)) is not None:
                yield name, member.size, stored
            # The archive would keep every member in memory, and millions of empty ones compress to almost nothing.
            archive.members = []  # type: ignore[attr-defined]


def _note_suite(name: str, content: _Content) -> None:
    for part in PurePosixPath(name).parts if not content.other_suite else ():
        if match := _OTHER_SUITE.match(part):
            content.other_suite = match[1].capitalize() if match[1] != "hpc" else "HPC"

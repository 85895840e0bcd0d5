"""A tree of MLPerf Training results, a directory or a tar file, as observations."""

from __future__ import annotations

import lzma
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO

from knowledge.domain.errors import InputError
from knowledge.domain.observation import IndicatorRun, Observation, Scalar
from knowledge.exchange.mlperf.catalogue import benchmark_name, round_rules
from knowledge.exchange.mlperf.logs import TrainingRun, UnreadableLogError, read_log
from knowledge.exchange.mlperf.systems import System, make_system, read_description

INDICATOR = "mlperf_training"
"""Name of the indicator: time to train a published model to its target quality."""
_RESULT = re.compile(r"^result_(?:run)?(\d+)(?:_\w+)?\.txt$")
_ROUND = re.compile(r"^(?:training_results_)?v?(\d+\.\d+)(?:\.\d+)?$")
_GENERIC_SYSTEMS = frozenset({"tpu"})
_LARGEST_LOG = 64 * 2**20
_LARGEST_RECORDS = 16 * 2**20
"""Bytes of the lines of a log that hold records; 2.7 MB is the largest of round v4.0."""
_LARGEST_DESCRIPTION = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file without an observation.

    Attributes:
        path: Path in the tree.
        reason: Why it was skipped.
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """Result of reading a tree.

    Attributes:
        observations: One observation per training run, in order of path.
        skipped: Files without an observation, in order of path.
    """

    observations: tuple[Observation, ...]
    skipped: tuple[SkippedFile, ...]


_Descriptions = dict[tuple[str, str, str], dict[str, str]]
"""Descriptions of systems, by round, submitter and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Location of a log in the tree."""

    path: str
    round_: str
    submitter: str
    system: str
    benchmark: str
    number: int


def read_results(path: Path, *, round_: str | None = None) -> ImportResult:
    """Read a tree of results.

    Args:
        path: A checkout, any directory in one, or a tar file of it.
        round_: The round, such as ``v0.6``, if no name of a directory contains it.

    Returns:
        The observations, and the skipped files.

    Raises:
        InputError: If the path cannot be read or contains no results.
    """
    try:
        runs, descriptions, skipped = _gather(path, round_)
    except (OSError, ValueError, OverflowError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"`{path}` cannot be read: {error}") from None
    observations: list[Observation] = []
    for place, run in runs:
        described = descriptions.get((place.round_, place.submitter, place.system))
        try:
            observation = _observation(place, run, described)
            # Values that JSON does not support, such as NaN, have no identity.
            _ = observation.identity
        except (ValueError, OverflowError, OSError, RecursionError) as error:
            skipped.append(SkippedFile(path=place.path, reason=f"it is not a valid observation: {error}"))
            continue
        observations.append(observation)
    return ImportResult(observations=tuple(observations), skipped=tuple(sorted(skipped, key=lambda s: s.path)))


def _gather(
    path: Path, round_: str | None
) -> tuple[list[tuple[_Place, TrainingRun]], _Descriptions, list[SkippedFile]]:
    """Read the files of a tree: runs in order of path, descriptions of systems, and what is neither."""
    runs: list[tuple[_Place, TrainingRun]] = []
    descriptions: _Descriptions = {}
    skipped: list[SkippedFile] = []
    logs = 0
    for name, size, file in _files(path):
        try:
            if (place := _place(name, round_)) is not None:
                logs += 1
                runs.append((place, read_log(_log_lines(size, file))))
            elif (key := _described_system(name, round_)) is not None:
                descriptions[key] = read_description(file.read(_LARGEST_DESCRIPTION).decode("utf-8", "replace"))
        except UnreadableLogError as error:
            skipped.append(SkippedFile(path=name, reason=error.message))
        except OverflowError as error:
            skipped.append(SkippedFile(path=name, reason=f"it is not a valid observation: {error}"))
        except (ValueError, RecursionError) as error:
            skipped.append(SkippedFile(path=name, reason=f"not a description of a system: {error}"))
    if not logs:
        raise InputError(
            f"`{path}` contains no MLPerf Training results",
            hint="name a tree that has `results/SYSTEM/BENCHMARK/result_0.txt` in it; name its round with `--round`",
        )
    return sorted(runs, key=lambda entry: entry[0].path), descriptions, skipped


def _log_lines(size: int, file: IO[bytes]) -> str:
    """Return the lines of a log that contain records; other lines are not kept in memory.

    Raises:
        UnreadableLogError: If the log, or its records, are too large.
    """
    if size > _LARGEST_LOG:
        raise UnreadableLogError(f"it is larger than {_LARGEST_LOG // 2**20} MiB")
    records: list[bytes] = []
    remaining = _LARGEST_RECORDS
    for line in file:
        if b":::ML" in line:
            records.append(line)
            remaining -= len(line)
            if remaining < 0:
                raise UnreadableLogError(f"it contains more than {_LARGEST_RECORDS // 2**20} MiB of log lines")
    return b"".join(records).decode("utf-8", "replace")


def _files(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield the names, sizes and contents of results and descriptions."""
    if path.is_dir():
        # The path itself may name the round.
        root = path.resolve()
        for entry in sorted(root.rglob("*")):
            name = str(entry.relative_to(root.parent))
            if _is_relevant(name) and entry.is_file():
                with entry.open("rb") as file:
                    yield name, entry.stat().st_size, file
        return
    with tarfile.open(path) as archive:
        for member in archive:
            # Read in memory, never unpacked: the paths in an archive are not trusted.
            if member.isfile() and _is_relevant(member.name) and (content := archive.extractfile(member)) is not None:
                yield f"{path.name.split('.tar')[0]}/{member.name}", member.size, content
            # The archive would keep every member in memory, and millions of empty ones compress to almost nothing.
            archive.members = []  # type: ignore[attr-defined]


def _is_relevant(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(_RESULT.match(path.name)) or (path.suffix == ".json" and "systems" in path.parts[:-1])


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


def _place(name: str, option: str | None) -> _Place | None:
    """Return the location of a log; none if it is not a log in `results`."""
    parts = PurePosixPath(name).parts
    match = _RESULT.match(parts[-1])
    if match is None or "results" not in parts:
        return None
    here = len(parts) - 1 - parts[::-1].index("results")
    round_, index = _round_of(parts[:here], option)
    between, inside = parts[index + 1 : here], parts[here + 1 : -1]
    if not inside:
        return None
    # v0.5 put directories of its own between the submitter and the results, and called every TPU `tpu`.
    system = between[1] if inside[0] in _GENERIC_SYSTEMS and len(between) > 1 else inside[0]
    return _Place(
        path=name,
        round_=round_,
        submitter=(between[0] if index >= 0 else between[-1]) if between else "",
        system=system,
        benchmark=benchmark_name(inside[1]) if len(inside) > 1 else "",
        number=int(match[1]),
    )


def _described_system(name: str, option: str | None) -> tuple[str, str, str] | None:
    parts = PurePosixPath(name).parts
    if parts[-1].endswith(".json") and parts[-2] == "systems":
        return _round_of(parts[:-2], option)[0], parts[-3], parts[-1].removesuffix(".json")
    return None


def _observation(place: _Place, run: TrainingRun, described: Mapping[str, str] | None) -> Observation:
    benchmark = place.benchmark or benchmark_name(run.benchmark)
    if described is None:
        described = read_description(run.entry) if run.entry.startswith("{") else {}
    system = make_system(place.system, described, benchmark=benchmark, submitter=place.submitter, place=run.place)
    rules = round_rules(place.round_, benchmark)
    parameters: dict[str, int | float | str] = {"benchmark": benchmark}
    if rules.target is not None:
        parameters["target"] = rules.target
    return Observation(
        indicator=IndicatorRun(
            name=INDICATOR,
            version=rules.version,
            backend=system.framework,
            device=system.device,
            dtype="as-submitted",
            parameters=parameters,
        ),
        framework=system.framework,
        stack=system.stack,
        hardware=system.hardware,
        block=f"mlperf-training-{place.round_}/{place.submitter}/{place.system}",
        round=place.number,
        arm=0,
        reference=True,
        started_at=datetime.fromtimestamp(run.started, UTC).isoformat(timespec="seconds"),
        status="ok" if run.converged else "not-converged",
        samples=(run.seconds,) if run.converged else (),
        loops=1 if run.converged else 0,
        steady=run.converged,
        environment=_environment(place, run, system),
        failure="" if run.converged else f"the quality target was not reached in {run.seconds:.0f} s",
        metrics=_metrics(run),
        schema=2,
    )


def _environment(place: _Place, run: TrainingRun, system: System) -> dict[str, Scalar]:
    logged = {key: value for key, value in run.values.items() if not key.startswith("submission_")}
    own = {
        "mlperf_round": place.round_,
        "submitter": place.submitter,
        "system": place.system,
        "division": system.division or str(run.values.get("submission_division", "closed")).lower(),
        "category": system.status or str(run.values.get("submission_status", "")).lower(),
    }
    return {
        **{f"system:{k}": v for k, v in system.described.items()},
        **{f"log:{k}": v for k, v in logged.items()},
        **own,
    }


def _metrics(run: TrainingRun) -> dict[str, float]:
    metrics = {"run_seconds": run.seconds, "quality": run.quality, "epochs": run.epochs}
    return {name: value for name, value in metrics.items() if value is not None}

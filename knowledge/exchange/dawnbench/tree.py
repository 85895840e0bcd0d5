"""Checkouts of DAWNBench's entries as observations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from knowledge.domain.errors import InputError
from knowledge.exchange.dawnbench.entries import TASKS, DawnEntry, UnreadableEntryError, read_entry
from knowledge.exchange.dawnbench.machines import DawnMachine, read_machine
from knowledge.exchange.dawnbench.observations import entry_observation
from knowledge.exchange.mlperf.results import ImportResult, SkippedFile

_MODES = ("train", "inference")
_COMMIT = re.compile(r"-([0-9a-f]{40})$")
_LARGEST_FILE = 2**20
_SAME_PRICE = 0.07
"""Relative difference of prices of one instance that are the same: regions and years differ more."""


class NoEntriesError(InputError):
    """Raised when a directory is not a checkout of DAWNBench's entries."""

    code = "no-dawnbench-entries"


@dataclass(slots=True)
class _Reading:
    """What the files contain, as they are read."""

    entries: list[tuple[DawnEntry, DawnMachine]] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_entries(paths: Sequence[Path]) -> ImportResult:
    """Read checkouts of https://github.com/stanford-futuredata/dawn-bench-entries together.

    A run that two entries describe counts once: the repository renamed some entries. GitHub's archives have the commit
    in the name of their directory, which becomes a part of the address of each entry.

    Args:
        paths: Directories with the folders ``CIFAR10``, ``ImageNet`` and ``SQuAD``, or some of them.

    Raises:
        NoEntriesError: If a directory has none of them, or does not exist.
        InputError: If a file cannot be read.
    """
    content = _Reading()
    for path in paths:
        files = [(file, name) for file, name in _files(path)]
        if not files:
            raise NoEntriesError(
                f"`{path}` contains no entries of DAWNBench",
                hint="name a checkout of https://github.com/stanford-futuredata/dawn-bench-entries, which has the "
                "folder `ImageNet/train`",
            )
        for file, name in files:
            _read(file, name, path, content)
    runs = _distinct(content.entries)
    observations = [
        entry_observation(entry, machine, hourly=_hourly(entry, machine, runs, content.warnings))
        for entry, machine in runs
    ]
    return ImportResult(
        observations=tuple(sorted(observations, key=lambda o: o.block)),
        skipped=tuple(sorted(content.skipped, key=lambda s: s.path)),
        repeated=len(content.entries) - len(runs),
        warnings=tuple(sorted(set(content.warnings))),
    )


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the descriptions in a checkout, with their paths in the repository, in order."""
    for task in TASKS:
        for mode in _MODES:
            for file in sorted((path / task / mode).glob("*.json")):
                yield file, f"{task}/{mode}/{file.name}"


def _read(file: Path, name: str, root: Path, content: _Reading) -> None:
    commit = _COMMIT.search(root.resolve().name)
    table = file.with_suffix(".tsv")
    try:
        progress = _text(table) if table.is_file() else None
        entry = read_entry(_text(file), progress, path=name, commit=commit[1] if commit else "master")
    except UnreadableEntryError as error:
        content.skipped.append(SkippedFile(path=name, reason=str(error)))
        return
    machine = read_machine(entry.hardware)
    content.entries.append((entry, machine))
    content.warnings += [f"`{name}`: {text}" for text in (entry.result.note, machine.warning) if text]


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise UnreadableEntryError(f"`{file.name}` is larger than {_LARGEST_FILE // 2**20} MiB")
        # A table has other ends of lines than this system's: they are kept.
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableEntryError(f"`{file.name}` is not UTF-8") from None
    except OSError as error:
        raise InputError(f"`{file}` cannot be read: {error}") from None


def _distinct(entries: Iterable[tuple[DawnEntry, DawnMachine]]) -> list[tuple[DawnEntry, DawnMachine]]:
    """Return the entries without earlier ones of the same run: the time and the quality have enough digits for that."""
    runs = {}
    for entry, machine in sorted(entries, key=lambda pair: (pair[0].date, pair[0].path)):
        runs[entry.task.name, entry.mode, entry.result.seconds, entry.result.quality] = entry, machine
    return list(runs.values())


def _hourly(
    entry: DawnEntry, machine: DawnMachine, runs: Iterable[tuple[DawnEntry, DawnMachine]], warnings: list[str]
) -> float | None:
    """Return the price of all machines of an entry.

    Entries of several machines state the price of all of them, or that of one: then other entries state the same price
    for one machine of this instance.
    """
    nodes = machine.hardware.nodes or 1
    if entry.hourly is None or nodes == 1 or not machine.instance:
        return entry.hourly
    for other, its_machine in runs:
        is_one = its_machine.instance == machine.instance and its_machine.hardware.nodes == 1
        if is_one and other.hourly is not None and abs(entry.hourly / other.hourly - 1) <= _SAME_PRICE:
            warnings.append(
                f"`{entry.path}`: its `costPerHour` is that of one machine, and is multiplied by {nodes} machines"
            )
            return entry.hourly * nodes
    return entry.hourly

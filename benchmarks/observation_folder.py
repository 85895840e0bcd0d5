"""A folder of observation files that grows while a machine measures.

Writing and resuming need only the standard library, because the measuring machine may have no other packages. The
import of the files validates them (:mod:`knowledge.exchange.files`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.observation import IndicatorRun, Observation
from knowledge.domain.shared_files import lock_file
from knowledge.exchange.files import write_observations

LIMIT_BYTES = 16 * 2**20
_PATTERN = "observations-*.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """Key of an observation among all blocks.

    Attributes:
        block: Name of the block.
        round: Pass over the block's arms.
        arm: Place in the block.
        label: Label of the indicator run.
    """

    block: str
    round: int
    arm: int
    label: str


class ObservationFolder:
    """Observation files in a folder: files of this session are extended, files of other sessions are only read.

    A session is a period without a restart of the machine or a long pause. Measurements of two sessions may come from
    two similar machines, or from one machine in two states.
    """

    def __init__(self, path: Path, *, session: str, limit_bytes: int = LIMIT_BYTES) -> None:
        """Open or create a folder, and read the keys of its observations.

        Args:
            path: The folder.
            session: Name of the session; part of the names of its files.
            limit_bytes: Largest size of one file.

        Raises:
            InputError: If a file is damaged, except at its end.
            UnavailableError: If the folder cannot be read or written.
        """
        self._path = path
        self._session = session
        self._limit = limit_bytes
        self._runs: dict[MeasuredRun, str] = {}
        self._number = 0
        self._identities: set[str] = set()
        try:
            path.mkdir(parents=True, exist_ok=True)
            for file in sorted(path.glob(_PATTERN), key=lambda f: (len(f.name), f.name)):
                self._read(file)
        except OSError as error:
            raise UnavailableError(f"the folder `{path}` cannot be used: {error}") from None

    def lock(self) -> None:
        """Lock the folder for this process until it ends; other processes can still read it.

        Raises:
            UnavailableError: If another process holds the lock.
        """
        try:
            self._lock = lock_file(self._path / ".lock")
        except OSError as error:
            raise UnavailableError(f"the folder `{self._path}` cannot be written: {error}") from None
        if self._lock is None:
            raise UnavailableError(
                f"another process writes to the folder `{self._path}`", hint="wait for it, or name another folder"
            )

    @property
    def runs(self) -> Mapping[MeasuredRun, str]:
        """Keys of the measured runs, each with the name of its session."""
        return MappingProxyType(self._runs)

    def add(self, observations: Iterable[Observation]) -> None:
        """Append observations that are not in the folder yet; they are on the disk when this returns.

        Raises:
            UnavailableError: If a file cannot be written.
        """
        try:
            for observation in observations:
                run = _run(observation.block, observation.round, observation.arm, observation.indicator)
                if run not in self._runs:
                    self._append(observation)
                    self._runs[run] = self._session
        except OSError as error:
            raise UnavailableError(f"the folder `{self._path}` cannot be written: {error}") from None

    def _append(self, observation: Observation) -> None:
        identities = set(self._identities)
        text = _text(observation, identities)
        file = self._file()
        if file.exists() and file.stat().st_size + len(text) > self._limit:
            self._number += 1
            # Each file is complete: stack and machine are written again.
            identities = set()
            file, text = self._file(), _text(observation, identities)
        with file.open("ab") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        self._identities = identities

    def _file(self) -> Path:
        return self._path / f"observations-{self._session}-{self._number:03d}.jsonl"

    def _read(self, file: Path) -> None:
        session, _, number = file.stem.removeprefix("observations-").rpartition("-")
        content = file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if session == self._session and number.isdigit():
            self._number, self._identities = int(number), set()
            if whole != content:
                # The process was killed during a write: remove the incomplete line.
                os.truncate(file, len(whole))
        for place, line in enumerate(whole.split(b"\n")[:-1], start=1):
            try:
                entry = json.loads(line)
                if entry["kind"] == "observation":
                    record: dict[str, Any] = entry["record"]
                    indicator = IndicatorRun(**record["indicator"])
                    self._runs[_run(record["block"], record["round"], record["slot"], indicator)] = session
                elif session == self._session:
                    self._identities.add(entry["id"])
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(
                    f"`{file}`, line {place}: not a record of an observation file: {error}",
                    hint="to continue, move the file away; `knowledge import --keep-valid` reads its valid lines",
                ) from None


def _run(block: str, number: int, arm: int, indicator: IndicatorRun) -> MeasuredRun:
    return MeasuredRun(block=block, round=number, arm=arm, label=indicator.label)


def _text(observation: Observation, identities: set[str]) -> bytes:
    return "".join(f"{line}\n" for line in write_observations([observation], identities)).encode()

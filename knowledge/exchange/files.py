"""Observation files: JSON Lines with each stack and machine once, before the observations that refer to them."""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import canonical_json
from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack
from knowledge.records import value_from

_SCHEMAS = (1, 2)
LARGEST_RATIO = 100
"""Largest compression ratio of a file; the shipped observations compress to a tenth."""
SMALLEST_LIMIT = 16 * 2**20
"""Decompressed bytes that a compressed file may always contain, for any compression ratio."""
LONGEST_LINE = 16 * 2**20
"""Longest line in bytes; a service accepts no larger delivery."""
MOST_DAMAGED = 10_000
"""Number of damaged lines after which reading a file fails."""
_KEEP_VALID = "nothing was stored; `--keep-valid` stores the readable part"
_GZIP = b"\x1f\x8b"
_DAMAGE = (EOFError, OSError, zlib.error)
"""Errors of reading a damaged or truncated compressed file."""
_SLICE_BYTES = 2**20
_LARGEST_NUMBER = 2**31 - 1
"""Largest integer of the database columns."""
_LARGEST_COUNT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedLine:
    """A line of a file that is left out: its number, from 1, and the reason."""

    number: int
    reason: str


def read_lines(
    content: bytes, *, where: str, damaged: list[SkippedLine] | None = None, hint: str = _KEEP_VALID
) -> Iterator[str]:
    """Return the lines of a file, which may be compressed with gzip, without keeping all of them in memory.

    Args:
        content: Content of the file.
        where: Name of the file, for messages.
        damaged: List to which damage is added; if none, damage is an error.
        hint: What to do about a compressed file that is damaged or truncated.

    Returns:
        The lines. Iteration raises InputError at a line that is not UTF-8 or longer than :data:`LONGEST_LINE` bytes.

    Raises:
        InputError: If the compressed file is damaged, or larger than :data:`LARGEST_RATIO` times its compressed size.
    """
    if content[:2] != _GZIP:
        return _lines(io.BytesIO(content), where, damaged)
    size, reason = 0, ""
    try:
        file = gzip.GzipFile(fileobj=io.BytesIO(content))
        while part := file.read(_SLICE_BYTES):
            size += len(part)
            if size > max(SMALLEST_LIMIT, LARGEST_RATIO * len(content)):
                raise InputError(
                    f"`{where}` cannot be read: its content is more than {LARGEST_RATIO} times its compressed size",
                    hint="observations compress less; if you trust the file, decompress it with `gunzip` first",
                )
    except _DAMAGE as error:
        reason = f"the compressed file is damaged or truncated: {error}"
    if reason and damaged is None:
        raise InputError(f"`{where}` cannot be read: {reason}", hint=hint)
    return _lines(gzip.GzipFile(fileobj=io.BytesIO(content)), where, damaged, reason=reason)


def _lines(
    file: io.BufferedIOBase, where: str, damaged: list[SkippedLine] | None, *, reason: str = ""
) -> Iterator[str]:
    """Yield lines as :func:`knowledge.domain.documents.lines_of` does, up to the first damage of a compressed file."""
    number = 0
    with suppress(*_DAMAGE):
        while line := file.readline(LONGEST_LINE + 2):
            number += 1
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) > LONGEST_LINE:
                raise InputError(f"{where}:{number}: the line is longer than {LONGEST_LINE // 2**20} MiB")
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                if damaged is None:
                    raise InputError(f"{where}:{number}: not UTF-8: {error}") from None
                yield line.decode("utf-8", "replace")
    if reason and damaged is not None:
        damaged.append(SkippedLine(number=number, reason=reason))


def observation_file(
    observations: Iterable[Observation], *, compressed: bool = False, with_identities: bool = True
) -> bytes:
    """Return an observation file; the same observations give the same bytes.

    Args:
        observations: The observations.
        compressed: Whether to compress it (gzip).
        with_identities: Whether it contains the hash of each observation; hashes are a third of a compressed file.
    """
    lines = write_observations(observations, with_identities=with_identities)
    content = "".join(f"{line}\n" for line in lines).encode()
    return gzip.compress(content, mtime=0) if compressed else content


def write_observations(
    observations: Iterable[Observation], identities: set[str] | None = None, *, with_identities: bool = True
) -> Iterator[str]:
    """Yield the lines of an observation file, without line ends; the same observations give the same lines.

    Args:
        observations: The observations.
        identities: Identities of the stacks and machines that the file already contains; new ones are added to the set.
        with_identities: Whether the lines of observations contain their hashes.
    """
    identities = set() if identities is None else identities
    for observation in observations:
        for kind, value in (("stack", observation.stack), ("hardware", observation.hardware)):
            if value.identity not in identities:
                identities.add(value.identity)
                yield canonical_json({"kind": kind, "id": value.identity, "record": value.record()})
        # Equal to the canonical JSON of kind, identity and record, without encoding the record again.
        identity = f'"id":"{observation.identity}",' if with_identities else ""
        yield f'{{{identity}"kind":"observation","record":{observation.document}}}'


def read_observations(
    lines: Iterable[str], *, where: str, damaged: list[SkippedLine] | None = None
) -> Iterator[Observation]:
    """Yield the observations of a file.

    Args:
        lines: Lines of the file.
        where: Name of the file, for messages.
        damaged: List to which lines that are not valid records are added; if none, the first one is an error. More
            than :data:`MOST_DAMAGED` are always an error.

    Raises:
        InputError: At the first line that is not a valid record; the message names the line. Observations that were
            yielded before are valid.
    """
    stacks: dict[str, Stack] = {}
    machines: dict[str, HardwareProfile] = {}
    valid = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            kind, record = entry["kind"], entry["record"]
            if kind == "stack":
                stacks[entry["id"]] = checked(value_from(Stack, record), entry["id"])
            elif kind == "hardware":
                machines[entry["id"]] = checked(value_from(HardwareProfile, record), entry["id"])
            elif kind == "observation":
                observation = _observation(entry.get("id"), record, stacks, machines)
                valid += 1
                yield observation
            else:
                raise ValueError(f"kind `{kind}` is not `stack`, `hardware` or `observation`")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = first_line(error)
            if damaged is None:
                raise InputError(
                    f"{where}:{number}: not a record of an observation file: {reason}",
                    hint=f"the file is damaged or was written by another version; nothing was stored, although "
                    f"{valid} observations before this line are valid: `--keep-valid` stores the valid ones",
                ) from None
            damaged.append(SkippedLine(number=number, reason=reason))
            if len(damaged) > MOST_DAMAGED:
                raise InputError(
                    f"`{where}` cannot be read: more than {MOST_DAMAGED} lines are not records",
                    hint="check that it is an observation file; nothing was stored",
                ) from None


_Value = TypeVar("_Value", Stack, HardwareProfile, Observation)


def checked(value: _Value, identity: str) -> _Value:
    """Return a value whose hash is the stated one; raise a ValueError for another."""
    if value.identity != identity:
        raise ValueError("its content does not match its hash")
    return value


def _observation(
    identity: str | None, record: dict[str, Any], stacks: dict[str, Stack], machines: dict[str, HardwareProfile]
) -> Observation:
    if record.get("schema") not in _SCHEMAS:
        raise ValueError(f"schema {record.get('schema')} is not 1 or 2")
    if record["stack"] not in stacks or record["hardware"] not in machines:
        raise ValueError("its stack or hardware is missing in the lines before it")
    observation = observation_from(record, stack=stacks[record["stack"]], hardware=machines[record["hardware"]])
    check_observation(observation)
    return observation if identity is None else checked(observation, identity)


def check_observation(observation: Observation) -> None:
    """Check the values of an observation.

    Raises:
        ValueError: If a time is not a positive number, or samples and status contradict each other.
    """
    if any(not math.isfinite(s) or s <= 0 for s in observation.samples):
        raise ValueError("a sample is not a positive number of seconds")
    if (observation.status == "ok") != bool(observation.samples):
        raise ValueError(f"status `{observation.status}` with {len(observation.samples)} samples")
    amounts = {"warmup_seconds": observation.warmup_seconds, "flops": observation.flops, "bytes": observation.bytes}
    for name, value in amounts.items():
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"`{name}` is {value}, not a finite number from 0 on")
    if observation.loops < 0 or observation.round < 0 or observation.arm < 0:
        raise ValueError("`loops`, `round` or `slot` is negative")
    if max(observation.round, observation.arm) > _LARGEST_NUMBER:
        raise ValueError(f"`round` or `slot` is larger than {_LARGEST_NUMBER}")
    sizes = (observation.loops, observation.indicator.version, *observation.indicator.parameters.values())
    if any(isinstance(size, int) and abs(size) > _LARGEST_COUNT for size in sizes):
        raise ValueError(f"`loops`, or a number of the indicator, is larger than {_LARGEST_COUNT}")


def first_line(error: Exception) -> str:
    """Return the error of a record in one line; characters that UTF-8 cannot encode are escaped."""
    reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return reason.encode("utf-8", "backslashreplace").decode()


def observation_from(record: dict[str, Any], *, stack: Stack, hardware: HardwareProfile) -> Observation:
    """Build an observation from its record and its stack and hardware, which many observations share.

    Raises:
        ValueError: If a field is missing, unknown or of the wrong type.
    """
    observation = value_from(Observation, {**record, "stack": stack, "hardware": hardware})
    return observation.with_document_of(record)

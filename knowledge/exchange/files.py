"""Observation files: JSON Lines, each stack and machine once, then the observations that name them."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import canonical_json
from knowledge.domain.lines import lines_of
from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack
from knowledge.exchange.records import hardware_from, observation_from, stack_from

_SCHEMAS = (1, 2)
_LARGEST_NUMBER = 2**31 - 1
"""Largest integer that every database stores."""
_LARGEST_COUNT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedLine:
    """A line that is not a record.

    Attributes:
        number: Its number, from 1.
        reason: What is wrong with it.
    """

    number: int
    reason: str


def read_lines(content: bytes, *, where: str, damaged: list[DamagedLine] | None = None) -> list[str]:
    """Return the lines of a file that may be compressed by gzip.

    Args:
        content: The file.
        where: Its name, for messages.
        damaged: Gathers what is wrong; by default that is an error.

    Raises:
        InputError: If it is no text, or damaged.
    """
    plain, reason = content, ""
    if content[:2] == b"\x1f\x8b":
        try:
            plain = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            plain, reason = _decompressed_part(content), f"the compressed file is damaged or cut off: {error}"
    if reason and damaged is None:
        raise InputError(
            f"`{where}` cannot be read: {reason}", hint="nothing was stored; `--keep-valid` stores what can be read"
        )
    try:
        lines = lines_of(plain.decode("utf-8"))
    except UnicodeDecodeError as error:
        if damaged is None:
            raise InputError(f"`{where}` cannot be read: {error}") from None
        lines = lines_of(plain.decode("utf-8", "replace"))
    if reason and damaged is not None:
        damaged.append(DamagedLine(number=len(lines), reason=reason))
    return lines


def _decompressed_part(content: bytes) -> bytes:
    """Return what can be decompressed of a damaged file."""
    stream = zlib.decompressobj(wbits=31)
    found = bytearray()
    for start in range(0, len(content), 4096):
        try:
            found += stream.decompress(content[start : start + 4096])
        except zlib.error:
            break
    return bytes(found)


def observation_file(observations: Iterable[Observation], *, compressed: bool = False) -> bytes:
    """Return an observation file; the same observations give the same bytes."""
    content = "".join(f"{line}\n" for line in write_observations(observations)).encode()
    return gzip.compress(content, mtime=0) if compressed else content


def write_observations(observations: Iterable[Observation], written: set[str] | None = None) -> Iterator[str]:
    """Yield the lines of an observation file, without line ends; the same observations give the same lines.

    Args:
        observations: What to write.
        written: Identities of the stacks and machines that the file has already; new ones are added to it.
    """
    written = set() if written is None else written
    for observation in observations:
        for kind, value in (("stack", observation.stack), ("hardware", observation.hardware)):
            if value.identity not in written:
                written.add(value.identity)
                yield canonical_json({"kind": kind, "id": value.identity, "record": value.record()})
        # As the canonical JSON of kind, identity and record would be, without writing the record again.
        yield f'{{"id":"{observation.identity}","kind":"observation","record":{observation.document}}}'


def read_observations(
    lines: Iterable[str], *, where: str, damaged: list[DamagedLine] | None = None
) -> Iterator[Observation]:
    """Yield the observations of a file.

    Args:
        lines: Its lines.
        where: Its name, for messages.
        damaged: Gathers the lines that are no valid records, which are passed over; by default the first one is an
            error.

    Raises:
        InputError: At the first line that is not a valid record; the message names the line. What was yielded before
            is valid.
    """
    stacks: dict[str, Stack] = {}
    machines: dict[str, HardwareProfile] = {}
    sound = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            kind, identity, record = entry["kind"], entry["id"], entry["record"]
            if kind == "stack":
                stacks[identity] = _known_by(stack_from(record), identity)
            elif kind == "hardware":
                machines[identity] = _known_by(hardware_from(record), identity)
            elif kind == "observation":
                observation = _observation(identity, record, stacks, machines)
                sound += 1
                yield observation
            else:
                raise ValueError(f"kind `{kind}` is not `stack`, `hardware` or `observation`")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = first_line(error)
            if damaged is None:
                raise InputError(
                    f"{where}:{number}: not a record of an observation file: {reason}",
                    hint=f"the file is damaged or was written by another version; nothing of it was stored, though "
                    f"{sound} observations before this line are sound: `--keep-valid` stores what is",
                ) from None
            damaged.append(DamagedLine(number=number, reason=reason))


_Described = TypeVar("_Described", Stack, HardwareProfile)


def _known_by(value: _Described, identity: str) -> _Described:
    if value.identity != identity:
        raise ValueError("its content does not match its hash")
    return value


def _observation(
    identity: str, record: dict[str, Any], stacks: dict[str, Stack], machines: dict[str, HardwareProfile]
) -> Observation:
    if record.get("schema") not in _SCHEMAS:
        raise ValueError(f"schema {record.get('schema')} is not 1 or 2")
    if record["stack"] not in stacks or record["hardware"] not in machines:
        raise ValueError("its stack or hardware is not in the file before it")
    observation = observation_from(record, stack=stacks[record["stack"]], hardware=machines[record["hardware"]])
    check_observation(observation)
    if observation.identity != identity:
        raise ValueError("its content does not match its hash")
    return observation


def check_observation(observation: Observation) -> None:
    """Refuse what no run can have given.

    Raises:
        ValueError: If a time is no positive number, or samples and status disagree.
    """
    if any(not math.isfinite(s) or s <= 0 for s in observation.samples):
        raise ValueError("a sample is not a positive number of seconds")
    if (observation.status == "ok") != bool(observation.samples):
        raise ValueError(f"status `{observation.status}` with {len(observation.samples)} samples")
    told = {"warmup_seconds": observation.warmup_seconds, "flops": observation.flops, "bytes": observation.bytes}
    for name, value in told.items():
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"`{name}` is {value}, which is no amount")
    if observation.loops < 0 or observation.round < 0 or observation.slot < 0:
        raise ValueError("`loops`, `round` or `slot` is negative")
    if max(observation.round, observation.slot) > _LARGEST_NUMBER:
        raise ValueError(f"`round` or `slot` is larger than {_LARGEST_NUMBER}")
    sizes = (observation.loops, observation.indicator.version, *observation.indicator.parameters.values())
    if any(isinstance(size, int) and abs(size) > _LARGEST_COUNT for size in sizes):
        raise ValueError(f"`loops`, or a number of the indicator, is larger than {_LARGEST_COUNT}")


def first_line(error: Exception) -> str:
    """Return in one line what is wrong with a record; what UTF-8 cannot write, such as a lone surrogate, is escaped."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors()[0]
        reason = f"field `{'.'.join(map(str, first['loc']))}`: {first['msg'].lower()}"
    else:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return reason.encode("utf-8", "backslashreplace").decode()

"""Observation files: JSON Lines, each stack and machine once, then the observations that name them."""

from __future__ import annotations

import gzip
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
from knowledge.exchange.records import hardware_from, observation_from, stack_from

_SCHEMAS = (1, 2)
LARGEST_RATIO = 100
"""Times its own size that a compressed file may hold: the observations that ship compress to a tenth."""
SMALLEST_LIMIT = 16 * 2**20
"""Bytes that any compressed file may hold, however small it is."""
LONGEST_LINE = 16 * 2**20
"""Bytes of one line: a service takes no larger delivery."""
MOST_DAMAGED = 10_000
"""Damaged lines after which a file is given up."""
_GZIP = b"\x1f\x8b"
_SLICE_BYTES = 2**20
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


def read_lines(content: bytes, *, where: str, damaged: list[DamagedLine] | None = None) -> Iterator[str]:
    """Return the lines of a file that may be compressed by gzip, without holding all of them in memory.

    Args:
        content: The file.
        where: Its name, for messages.
        damaged: Gathers what is wrong; by default that is an error.

    Returns:
        The lines. Iterating them raises InputError at one that is no UTF-8 or longer than :data:`LONGEST_LINE` bytes.

    Raises:
        InputError: If the compressed file is damaged, or holds more than :data:`LARGEST_RATIO` times its own size.
    """
    if content[:2] != _GZIP:
        return _lines(_slices(content), where, damaged)
    size, reason = 0, ""
    try:
        for part in _decompress(content):
            size += len(part)
            if size > max(SMALLEST_LIMIT, LARGEST_RATIO * len(content)):
                raise InputError(
                    f"`{where}` cannot be read: it holds more than {LARGEST_RATIO} times its own compressed size",
                    hint="no observations compress that well; if you trust the file, decompress it with `gunzip` first",
                )
    except (EOFError, zlib.error) as error:
        reason = f"the compressed file is damaged or cut off: {error}"
    if reason and damaged is None:
        raise InputError(
            f"`{where}` cannot be read: {reason}", hint="nothing was stored; `--keep-valid` stores what can be read"
        )
    return _lines(_sound_part(content), where, damaged, reason=reason)


def _lines(parts: Iterable[bytes], where: str, damaged: list[DamagedLine] | None, *, reason: str = "") -> Iterator[str]:
    number = 0
    for number, line in enumerate(_split(parts), start=1):
        if len(line) > LONGEST_LINE:
            raise InputError(f"{where}:{number}: the line is longer than {LONGEST_LINE // 2**20} MiB")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            if damaged is None:
                raise InputError(f"{where}:{number}: no UTF-8: {error}") from None
            yield line.decode("utf-8", "replace")
    if reason and damaged is not None:
        damaged.append(DamagedLine(number=number, reason=reason))


def _split(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines as :func:`knowledge.domain.lines.lines_of` does; of one that is too long, its first part."""
    rest = bytearray()
    for part in parts:
        first, *others = part.split(b"\n")
        rest += first
        if len(rest) > LONGEST_LINE:
            break
        if others:
            yield bytes(rest).removesuffix(b"\r")
            yield from (line.removesuffix(b"\r") for line in others[:-1])
            rest = bytearray(others[-1])
    if rest:
        yield bytes(rest).removesuffix(b"\r")


def _slices(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), _SLICE_BYTES):
        yield content[start : start + _SLICE_BYTES]


def _decompress(content: bytes) -> Iterator[bytes]:
    """Yield what a gzip file holds, a few MiB at most at a time.

    Raises:
        zlib.error: At the first damage.
        EOFError: If it is cut off.
    """
    stream = zlib.decompressobj(wbits=31)
    # Deflate makes at most 1032 bytes of one (zlib's technical notes).
    for start in range(0, len(content), 4096):
        part = content[start : start + 4096]
        while part:
            if stream.eof:
                # Compressed files may stand one behind the other (RFC 1952), and zeros behind the last.
                part = part.lstrip(b"\0")
                if not part:
                    break
                stream = zlib.decompressobj(wbits=31)
            yield stream.decompress(part)
            part = stream.unused_data
    if not stream.eof:
        raise EOFError("its end is missing")


def _sound_part(content: bytes) -> Iterator[bytes]:
    """Yield what can be decompressed of a file."""
    with suppress(EOFError, zlib.error):
        yield from _decompress(content)


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
            error. More than :data:`MOST_DAMAGED` are one, too.

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
            if len(damaged) > MOST_DAMAGED:
                raise InputError(
                    f"`{where}` cannot be read: more than {MOST_DAMAGED} lines of it are no records",
                    hint="is it an observation file? Nothing of it was stored",
                ) from None


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
    if observation.loops < 0 or observation.round < 0 or observation.arm < 0:
        raise ValueError("`loops`, `round` or `slot` is negative")
    if max(observation.round, observation.arm) > _LARGEST_NUMBER:
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

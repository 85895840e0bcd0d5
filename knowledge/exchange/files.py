"""Observation files: JSON Lines, each stack and machine once, then the observations that name them."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import canonical_json
from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack
from knowledge.exchange.records import hardware_from, observation_from, stack_from

_SCHEMAS = (1, 2)


def read_lines(content: bytes, *, where: str) -> list[str]:
    """Return the lines of a file that may be compressed by gzip.

    Raises:
        InputError: If it is no text, or damaged.
    """
    try:
        plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        return plain.decode("utf-8").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"`{where}` cannot be read: {error}") from None


def write_observations(observations: Iterable[Observation]) -> Iterator[str]:
    """Yield the lines of an observation file, without line ends; the same observations give the same lines."""
    written: set[str] = set()
    for observation in observations:
        for kind, value in (("stack", observation.stack), ("hardware", observation.hardware)):
            if value.identity not in written:
                written.add(value.identity)
                yield canonical_json({"kind": kind, "id": value.identity, "record": value.record()})
        # As the canonical JSON of kind, identity and record would be, without writing the record again.
        yield f'{{"id":"{observation.identity}","kind":"observation","record":{observation.document}}}'


def read_observations(lines: Iterable[str], *, where: str) -> Iterator[Observation]:
    """Yield the observations of a file.

    Args:
        lines: Its lines.
        where: Its name, for messages.

    Raises:
        InputError: At the first line that is not a valid record; the message names the line. What was yielded before
            is valid.
    """
    stacks: dict[str, Stack] = {}
    machines: dict[str, HardwareProfile] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            kind, identity, record = entry["kind"], entry["id"], entry["record"]
            if kind == "stack":
                stacks[identity] = stack_from(record)
            elif kind == "hardware":
                machines[identity] = hardware_from(record)
            elif kind == "observation":
                yield _observation(identity, record, stacks, machines)
            else:
                raise ValueError(f"kind `{kind}` is not `stack`, `hardware` or `observation`")
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{where}:{number}: not a record of an observation file: {_first_line(error)}",
                hint="the file is damaged or was written by another version; nothing of it was stored",
            ) from None


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


def _first_line(error: Exception) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"field `{'.'.join(map(str, first['loc']))}`: {first['msg'].lower()}"
    return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)

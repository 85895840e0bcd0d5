"""Conversion of records to observations; records refer to stacks and hardware by content hash."""

from __future__ import annotations

from functools import cache
from typing import Any

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack


def stack_from(record: Any) -> Stack:
    """Build a stack from its record.

    Raises:
        ValueError: If a field is missing, unknown or of the wrong type.
    """
    stack: Stack = _adapter(Stack).validate_python(record)
    return stack


def hardware_from(record: Any) -> HardwareProfile:
    """Build a hardware profile from its record.

    Raises:
        ValueError: If a field is missing, unknown or of the wrong type.
    """
    profile: HardwareProfile = _adapter(HardwareProfile).validate_python(record)
    return profile


def observation_from(record: dict[str, Any], *, stack: Stack, hardware: HardwareProfile) -> Observation:
    """Build an observation from its record and its stack and hardware, which many observations share.

    Raises:
        ValueError: If a field is missing, unknown or of the wrong type.
    """
    observation: Observation = _adapter(Observation).validate_python({**record, "stack": stack, "hardware": hardware})
    return observation.with_document_of(record)


@cache
def _adapter(kind: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)

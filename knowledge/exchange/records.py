"""Observations as plain records: stack and hardware are written once and named by their content hash."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

from knowledge.domain.observation import Observation


def plain_observation(observation: Observation) -> dict[str, Any]:
    """Return an observation with its stack and hardware replaced by their identities."""
    plain = asdict(observation)
    plain["stack"] = observation.stack.identity
    plain["hardware"] = observation.hardware.identity
    return plain


def observation_from(record: dict[str, Any], *, stack: Any, hardware: Any) -> Observation:
    """Build an observation from its record and the records of its stack and hardware.

    Raises:
        ValueError: If a field is absent, superfluous or of the wrong type.
    """
    built: Observation = _adapter(Observation).validate_python({**record, "stack": stack, "hardware": hardware})
    return built


@cache
def _adapter(kind: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)

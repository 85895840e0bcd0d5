"""The codes of findings: meaning, default level and remedy of each."""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A kind of finding.

    Attributes:
        code: Stable code, such as ``ADV001``.
        name: Short name.
        level: Default level, which a policy can change; an error fails the gate.
        summary: The meaning in a few words.
        why: The meaning in full, and why it matters.
        remedy: What to do.
        update: Whether other versions, or writing the lock again, can resolve it.
    """

    code: str
    name: str
    level: Level
    summary: str
    why: str
    remedy: str
    update: bool = False


@lru_cache(maxsize=1)
def all_codes() -> dict[str, Code]:
    """Return every kind of finding, by code, in order."""
    import yaml

    text = (importlib.resources.files("advisor.gate") / "codes.yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {entry["code"]: Code(**entry) for entry in entries}


def gate_codes() -> dict[str, Code]:
    """Return the kinds of findings that `advisor check` reports."""
    return {code: kind for code, kind in all_codes().items() if code < "ADV100"}

"""A run-time setting that a file of a project makes, and an environment variable that one sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Origin = Literal["table", "code", "environment", "lock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSetting:
    """A run-time setting of a project.

    Attributes:
        name: Name of the setting, such as ``onednn``.
        value: Value of the setting; empty if it is known only when the program runs.
        backends: The frameworks that it applies to, sorted; empty for all that have the setting.
        file: File that sets it, relative to the project, with forward slashes; empty if not known yet.
        path: The same file, as it was opened.
        line: Line in the file, from 1; 0 if unknown.
        origin: Where it is set: in ``[tool.advisor.settings]``, in code, by an environment variable of a file, or in a
            lock, which recommends it.
        is_conditional: Whether it is set under a condition.
        is_default: Whether a value of the environment takes precedence over it.
        device: Device of the operations that it is set for, ``cpu`` or ``cuda``; empty for all.
    """

    name: str
    value: str
    backends: tuple[str, ...]
    file: str = ""
    path: Path = Path()
    line: int = 0
    origin: Origin = "code"
    is_conditional: bool = False
    is_default: bool = False
    device: str = ""

    def applies_to(self, backend: str) -> bool:
        """Whether it applies to a framework."""
        return not self.backends or backend in self.backends

    @property
    def text(self) -> str:
        """The setting with its place, for people: ``amp=float16 (train.py:12)``."""
        return (
            f"{self.name}{f'={self.value}' if self.value else ''} ({self.file}{f':{self.line}' if self.line else ''})"
        )

    @property
    def overrides_environment(self) -> bool:
        """Whether it is set in code, so that the environment has no effect."""
        return self.origin == "code" and not self.is_default


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """An environment variable that a file sets.

    Attributes:
        name: Its name.
        text: Its value; `None` if it is known only when the file is run.
        line: Line in the file, from 1; 0 if unknown.
        is_conditional: Whether it is set under a condition.
        is_default: Whether a value of the environment takes precedence.
    """

    name: str
    text: str | None
    line: int = 0
    is_conditional: bool = False
    is_default: bool = False

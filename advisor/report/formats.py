"""Formats of reports: each is one module of a package, and the list of formats is the list of its modules."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from advisor.report.layout import Layout

if TYPE_CHECKING:
    from advisor.resolve.explanation.prices import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """How a report is presented; a format may ignore what has no place in it.

    Attributes:
        layout: Width and colour of plain text; by default those of a file.
        details: Whether to add what the report rests on.
        show_code: Whether to add the lines of code that run-time settings need.
        prices: Returns the prices of the project's constraints; ``None`` if they are not computed.
        program: Returns what `advisor advise --measure` would run, in words; empty if there is nothing.
    """

    layout: Layout = field(default_factory=Layout)
    details: bool = False
    show_code: bool = False
    prices: Callable[[], Sequence[Price]] | None = None
    program: Callable[[], str] = str


class ReportFormat(Protocol):
    """A module of a format; `SUFFIX` is that of its files, such as ``.json``, or empty if their names do not say it."""

    SUFFIX: str

    def render(self, report: Any, presentation: Presentation, /) -> str:
        """Return the report as text, without a line break at its end."""


class ReportFormats:
    """The formats of one report."""

    def __init__(self, package: str, paths: Sequence[str], *, first: Sequence[str]) -> None:
        """List the modules of a package, in its folders; none is imported. Some names come first in their order."""
        self._package, self._paths, self._first = package, paths, first

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the formats."""
        modules = sorted(module.name for module in pkgutil.iter_modules(self._paths))
        return (*self._first, *(name for name in modules if name not in self._first))

    def of_file(self, path: Path) -> str | None:
        """Return the format that the name of a file stands for, or `None` if it stands for none."""
        if not path.suffix:
            return None
        return next((name for name in self.names if path.suffix == self._module(name).SUFFIX), None)

    def render(self, name: str, report: Any, presentation: Presentation | None = None) -> str:
        """Return a report in a format, one of :attr:`names`; by default presented as in a file."""
        return self._module(name).render(report, presentation or Presentation())

    def _module(self, name: str) -> ReportFormat:
        # Only the module of the requested format is imported, for a fast start.
        return cast(ReportFormat, importlib.import_module(f"{self._package}.{name}"))

"""The formats of the report of `advisor check`, for people and for platforms.

A format is one module here, which defines `SUFFIX` and `render` (:class:`advisor.report.formats.ReportFormat`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.report.formats import ReportFormats

if TYPE_CHECKING:
    from advisor.gate.check import GateResult

CHECK_FORMATS: ReportFormats[GateResult] = ReportFormats(
    __name__, __path__, first=("text", "json", "html", "markdown", "github", "gitlab", "sarif", "junit")
)

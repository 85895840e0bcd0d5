"""The formats of the report of `advisor check`, for people and for platforms.

A format is one module here, which defines `SUFFIX` and `render` (:class:`advisor.report.formats.ReportFormat`).
"""

from __future__ import annotations

from advisor.report.formats import ReportFormats

CHECK_FORMATS = ReportFormats(
    __name__, __path__, first=("text", "json", "html", "markdown", "github", "gitlab", "sarif", "junit")
)

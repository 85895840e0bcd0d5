"""The formats of the report of `advisor advise`.

A format is one module here, which defines `SUFFIX` and `render` (:class:`advisor.report.formats.ReportFormat`).
"""

from __future__ import annotations

from advisor.report.formats import ReportFormats

ADVICE_FORMATS = ReportFormats(__name__, __path__, first=("text", "json", "html"))

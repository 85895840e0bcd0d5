"""The formats of the report of `advisor advise`.

A format is one module here, which defines `SUFFIX` and `render` (:class:`advisor.report.formats.ReportFormat`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.report.formats import ReportFormats

if TYPE_CHECKING:
    from advisor.api.session import AdviceResult

ADVICE_FORMATS: ReportFormats[AdviceResult] = ReportFormats(__name__, __path__, first=("text", "json", "html"))

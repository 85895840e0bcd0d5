"""The gate's findings as GitHub Actions annotations.

Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.gate.check import GateResult
from advisor.gate.findings import gate_codes
from advisor.report.check.summary import count_findings, message_with_targets
from advisor.report.formats import Presentation

SUFFIX = ""
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(result: GateResult, _: Presentation) -> str:
    """Return a workflow command for each finding, and a line for the log."""
    return "\n".join(_lines(result))


def _lines(result: GateResult) -> Iterator[str]:
    for finding in result.findings:
        place, source = finding.place, f" ({finding.source})" if finding.source else ""
        properties = {"file": place.path, "line": str(place.line or 1)} if place.path else {}
        properties["title"] = f"{finding.code} {gate_codes()[finding.code].name}"
        texts = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
        yield f"::{_COMMANDS[finding.level]} {texts}::{_text(f'{message_with_targets(finding, result)}{source}')}"
    for name, error in result.failures:
        title = f"advisor{f', target {name}' if name else ''}: not complete"
        yield f"::error title={_property(title)}::{_text(f'{error.message}. {error.hint}')}"
    yield f"advisor: {count_findings(result)}"


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")

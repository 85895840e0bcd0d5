"""The gate's findings as SARIF 2.1.0.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from advisor.gate.check import GateResult
from advisor.gate.findings import Code, Finding, gate_codes, unique_fingerprints
from advisor.report.check.formats.json import verdict_document
from advisor.report.check.summary import message_with_targets
from advisor.report.formats import Presentation
from advisor.report.phrases import rounded_record
from knowledge.domain.errors import AdvisorError

SUFFIX = ".sarif"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(gate_result: GateResult, _presentation: Presentation) -> str:
    """Return the findings as a log of one run; ignored findings are included and marked as suppressed."""
    codes = gate_codes()
    places = {code: place for place, code in enumerate(codes)}
    every = [*gate_result.findings, *(finding for finding, _ in gate_result.ignored)]
    results = [
        {**_result(finding, gate_result), "ruleIndex": places[finding.code], "partialFingerprints": {"advisor/v1": own}}
        for finding, own in zip(every, unique_fingerprints(every), strict=True)
    ]
    for entry, (_, ignore) in zip(results[len(gate_result.findings) :], gate_result.ignored, strict=True):
        entry["suppressions"] = [{"kind": "external", "justification": ignore.reason}]
    document = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "advisor",
                        "semanticVersion": version("seshat-advisor"),
                        "rules": [_rule(code) for code in codes.values()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": gate_result.exit_code in (0, 1),
                        "exitCode": gate_result.exit_code,
                        "toolExecutionNotifications": [_notification(*failure) for failure in gate_result.failures],
                    }
                ],
                "results": results,
                "properties": {"verdicts": [*_verdicts(gate_result)]},
            }
        ],
    }
    return json.dumps(document, indent=2)


def _verdicts(gate_result: GateResult) -> Iterator[dict[str, Any]]:
    """Yield the verdict on the change for each target, as in the JSON report."""
    for target in gate_result.targets:
        if target.verdict is not None:
            yield rounded_record({"target": target.case.name or None, **verdict_document(target.verdict)})


def _rule(code: Code) -> dict[str, Any]:
    return {
        "id": code.code,
        "name": code.name,
        "shortDescription": {"text": code.summary},
        "fullDescription": {"text": code.why},
        "help": {"text": code.remedy},
        "defaultConfiguration": {"level": code.level},
    }


def _result(finding: Finding, gate_result: GateResult) -> dict[str, Any]:
    source = f" ({finding.source})" if finding.source else ""
    entry: dict[str, Any] = {
        "ruleId": finding.code,
        "level": finding.level,
        "message": {"text": f"{message_with_targets(finding, gate_result)}{source}"},
    }
    location: dict[str, Any] = {
        "artifactLocation": {"uri": quote(finding.place.path or gate_result.policy.path), "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": finding.place.line or 1},
    }
    # GitHub refuses a file with a result without a location: https://github.com/github/codeql-action/issues/2459.
    return {**entry, "locations": [{"physicalLocation": location}]}


def _notification(target: str, error: AdvisorError) -> dict[str, Any]:
    where = f"target {target}: " if target else ""
    return {
        "level": "error",
        "descriptor": {"id": error.code},
        "message": {"text": f"{where}{error.message}{f' ({error.hint})' if error.hint else ''}"},
    }

"""The gate's findings as SARIF 2.1.0.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from advisor.gate.check import GateResult
from advisor.gate.codes import Code, gate_codes
from advisor.gate.findings import Finding, fingerprints
from advisor.report.check.summary import targets_of
from knowledge.domain.errors import AdvisorError

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def check_sarif(judgement: GateResult) -> str:
    """Return the findings as a log of one run; what exceptions cover is in it, marked as suppressed."""
    codes = gate_codes()
    places = {code: place for place, code in enumerate(codes)}
    every = [*judgement.findings, *(finding for finding, _ in judgement.covered)]
    results = [
        {**_result(finding, judgement), "ruleIndex": places[finding.code], "partialFingerprints": {"advisor/v1": own}}
        for finding, own in zip(every, fingerprints(every), strict=True)
    ]
    for result, (_, ignore) in zip(results[len(judgement.findings) :], judgement.covered, strict=True):
        result["suppressions"] = [{"kind": "external", "justification": ignore.reason}]
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
                        "executionSuccessful": judgement.exit_code in (0, 1),
                        "exitCode": judgement.exit_code,
                        "toolExecutionNotifications": [_notification(*failure) for failure in judgement.failures],
                    }
                ],
                "results": results,
            }
        ],
    }
    return json.dumps(document, indent=2)


def _rule(code: Code) -> dict[str, Any]:
    return {
        "id": code.code,
        "name": code.name,
        "shortDescription": {"text": code.summary},
        "fullDescription": {"text": code.why},
        "help": {"text": code.remedy},
        "defaultConfiguration": {"level": code.level},
    }


def _result(finding: Finding, judgement: GateResult) -> dict[str, Any]:
    only = f" (target {targets})" if (targets := targets_of(finding, judgement)) else ""
    source = f" ({finding.source})" if finding.source else ""
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": finding.level,
        "message": {"text": f"{finding.message}{only}{source}"},
    }
    if finding.place.path:
        location: dict[str, Any] = {
            "artifactLocation": {"uri": quote(finding.place.path), "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": finding.place.line or 1},
        }
        result["locations"] = [{"physicalLocation": location}]
    return result


def _notification(target: str, error: AdvisorError) -> dict[str, Any]:
    where = f"target {target}: " if target else ""
    return {
        "level": "error",
        "descriptor": {"id": error.code},
        "message": {"text": f"{where}{error.message}{f' ({error.hint})' if error.hint else ''}"},
    }

"""The gate's findings as a GitLab code quality report.

Source: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import json

from advisor.gate.check import GateResult
from advisor.gate.findings import Finding, fingerprints
from advisor.report.check.summary import targets_of

_SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}


def check_gitlab(judgement: GateResult) -> str:
    """Return the findings as a list of issues; what points nowhere is laid to the policy's file."""
    document = [
        {
            "description": _described(finding, targets_of(finding, judgement)),
            "check_name": finding.code,
            "fingerprint": fingerprint,
            "severity": _SEVERITIES[finding.level],
            "location": {
                "path": finding.place.path or judgement.policy.path,
                "lines": {"begin": finding.place.line or 1},
            },
        }
        for finding, fingerprint in zip(judgement.findings, fingerprints(judgement.findings), strict=True)
    ]
    return json.dumps(document, indent=2)


def _described(finding: Finding, only: str) -> str:
    return f"{finding.message} (target {only})" if only else finding.message

"""The gate's findings as a GitLab code quality report.

Source: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import json

from advisor.gate.check import GateResult
from advisor.gate.findings import unique_fingerprints
from advisor.report.check.summary import message_with_targets
from advisor.report.formats import Presentation

SUFFIX = ""
_SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}


def render(result: GateResult, _: Presentation) -> str:
    """Return the findings as a list of issues; a finding without a place points to the policy's file."""
    document = [
        {
            "description": message_with_targets(finding, result),
            "check_name": finding.code,
            "fingerprint": fingerprint,
            "severity": _SEVERITIES[finding.level],
            "location": {"path": finding.place.path or result.policy.path, "lines": {"begin": finding.place.line or 1}},
        }
        for finding, fingerprint in zip(result.findings, unique_fingerprints(result.findings), strict=True)
    ]
    return json.dumps(document, indent=2)

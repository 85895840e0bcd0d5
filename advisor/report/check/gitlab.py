"""The gate's findings as a GitLab code quality report.

Source: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import json

from advisor.gate.check import Verdict
from advisor.gate.findings import fingerprints
from advisor.report.check.summary import targets_of

_SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}


def check_gitlab(verdict: Verdict) -> str:
    """Return the findings as a list of issues; what points nowhere is laid to the policy's file."""
    document = [
        {
            "description": f"{finding.message}{f' (target {only})' if (only := targets_of(finding, verdict)) else ''}",
            "check_name": finding.code,
            "fingerprint": fingerprint,
            "severity": _SEVERITIES[finding.level],
            "location": {
                "path": finding.place.path or verdict.policy.path,
                "lines": {"begin": finding.place.line or 1},
            },
        }
        for finding, fingerprint in zip(verdict.findings, fingerprints(verdict.findings), strict=True)
    ]
    return json.dumps(document, indent=2)

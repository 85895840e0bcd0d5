"""The tables of `pyproject.toml` with which uv takes further builds from the same indexes."""

from __future__ import annotations

import json

from advisor.api.session import AdviceResult
from advisor.index.configuration import without_credentials


def uv_sources(report: AdviceResult) -> str:
    """Return the tables for uv; empty if the stack has no further builds."""
    indexes: dict[str, str] = {}
    sources: dict[str, str] = {}
    for candidate in report.advice.optimum.stack:
        if report.request.source.is_further_build(candidate):
            name = report.request.builds.index_name(candidate)
            indexes[name] = without_credentials(candidate.file.index)
            sources[candidate.name] = name
    if not sources:
        return ""
    # With `explicit`, uv takes nothing else from these indexes. Strings of JSON are strings of TOML.
    lines: list[str] = []
    for name, url in sorted(indexes.items()):
        lines += ["[[tool.uv.index]]", f"name = {json.dumps(name)}", f"url = {json.dumps(url)}", "explicit = true", ""]
    lines += ["[tool.uv.sources]", *(f"{name} = {{ index = {json.dumps(index)} }}" for name, index in sources.items())]
    return "\n".join(lines) + "\n"

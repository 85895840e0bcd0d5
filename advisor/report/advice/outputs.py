"""The written locks in the reports of `advisor advise`, and what their tools need before they are installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from advisor.api.locked_stack import no_deps_reasons
from advisor.api.session import AdviceResult
from advisor.index.configuration import without_credentials
from advisor.locks.registry import format_to_read


def output_lines(report: AdviceResult) -> Iterator[str]:
    """Yield the path of each written lock, with the command that installs it if the usual one does not."""
    request, stack = report.request, report.advice.optimum.stack
    reasons = no_deps_reasons(request.problem, request.source, stack) if report.outputs else ()
    for path in report.outputs:
        yield f"`{path}`"
        if reasons and (commands := format_to_read(Path(path)).install_commands(path)):
            yield f"install it with {' or '.join(f'`{command}`' for command in commands)}: {'; '.join(reasons)}"


def uv_sources(report: AdviceResult) -> str:
    """Return the tables for uv; empty if the stack has no further builds."""
    indexes: dict[str, str] = {}
    sources: dict[str, str] = {}
    for candidate in report.advice.optimum.stack:
        if report.request.source.is_further_build(candidate):
            name = report.request.score.builds.index_name(candidate)
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

"""The written locks in the reports of `advisor advise`, and what to know before they are installed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from advisor.api.session import AdviceResult
from advisor.lock.no_deps import no_deps_reasons


def output_lines(report: AdviceResult) -> Iterator[str]:
    """Yield the path of each written lock, with the command that installs it if the usual one does not."""
    request, stack = report.request, report.advice.optimum.stack
    reasons = no_deps_reasons(request.problem, request.source, stack) if report.outputs else ()
    for path in report.outputs:
        yield f"wrote `{path}`"
        if reasons and path.endswith(".txt"):
            commands = f"`pip install --no-deps -r {shlex.quote(path)}` or `uv pip sync {shlex.quote(path)}`"
            yield f"  install it with {commands}: {'; '.join(reasons)}"

"""The reports of `advisor advise` for several targets: a summary of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from advisor.api.session import AdviceResult
from advisor.domain.words import count
from advisor.report.interface import SCHEMA_VERSION
from advisor.report.json import advice_document
from advisor.report.text import summary_lines


def targets_text(results: Mapping[str, AdviceResult]) -> str:
    """Return a summary of the advice for each target as plain text.

    Args:
        results: The advice by the name of the target.
    """
    return "\n".join(_lines(results))


def _lines(results: Mapping[str, AdviceResult]) -> Iterator[str]:
    for name, result in results.items():
        yield from summary_lines(result, name=name)
        yield ""
    written = {output for result in results.values() for output in result.outputs}
    what = f"wrote {count(len(written), 'lock')}" if written else "nothing was written (--dry-run)"
    yield f"{count(len(results), 'target')}: {what}; `--target NAME` prints the whole report of one"


def targets_json(results: Mapping[str, AdviceResult]) -> str:
    """Return the advice for each target as JSON.

    Args:
        results: The advice by the name of the target.
    """
    targets = [{"name": name, **advice_document(result)} for name, result in results.items()]
    return json.dumps({"schema_version": SCHEMA_VERSION, "targets": targets}, indent=2)

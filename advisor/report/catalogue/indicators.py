"""Reports of the indicators: lists, and a reference page for each indicator."""

from __future__ import annotations

from typing import Any

from advisor.report.tables import table_lines
from knowledge.domain.frameworks import FRAMEWORKS, frameworks
from pi_runners.indicators import INDICATORS, Indicator


def indicator_records() -> list[dict[str, Any]]:
    """Return every indicator as JSON-ready values."""
    return [
        {
            "name": i.name,
            "version": i.version,
            "summary": i.summary,
            "corresponds": i.corresponds,
            "flops": i.flops_formula,
            "bytes": i.bytes_formula,
            "source": i.source,
            "sample": i.sample,
            "backends": i.backends(frameworks().values()),
            "devices": list(i.devices),
            "dtypes": list(i.dtypes),
            "parameters": {name: _meaning(i, name) for name in i.parameters},
            "sets": {name: list(cases) for name, cases in i.sets.items()},
        }
        for i in INDICATORS.values()
    ]


def indicator_text(*, long: bool) -> str:
    """Return the list of indicators, with all details if it is long."""
    lines: list[str] = []
    for i in INDICATORS.values():
        lines.append(f"{i.name} (version {i.version}): {i.summary}")
        backends = ", ".join(i.backends(frameworks().values()))
        lines.append(f"  backends: {backends}; on: {', '.join(i.devices)}; {', '.join(i.dtypes)}")
        if not long:
            continue
        lines.append(f"  flops: {i.flops_formula}")
        lines.append(f"  bytes: {i.bytes_formula}")
        lines.append(f"  source: {i.source}")
        lines.append(f"  corresponds to: {i.corresponds}")
        lines.append(f"  a sample is: {i.sample}")
        lines += [f"  parameter {name}: {_meaning(i, name)}" for name in i.parameters]
        lines += [f"  {size}: {_text_of(case)}" for size, cases in i.sets.items() for case in cases]
    return "\n".join(lines)


def indicator_page(indicator: Indicator) -> str:
    """Return the reference page of one indicator, as Markdown."""
    i = indicator
    lines = [
        f"# {i.name}",
        "",
        f"{i.summary[0].upper()}{i.summary[1:]}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| version | {i.version} |",
        f"| corresponds to | {i.corresponds} |",
        f"| FLOP | {i.flops_formula} |",
        f"| bytes | {i.bytes_formula} |",
        f"| source of the formulae | {i.source} |",
        f"| a sample is | {i.sample} |",
        f"| backends | {', '.join(i.backends(frameworks().values()))} |",
        f"| devices | {', '.join(i.devices)} |",
        f"| element types | {', '.join(i.dtypes)} |",
        "",
        *([*(f"- {note}" for note in i.notes), ""] if i.notes else []),
        "## Parameters",
        "",
        *table_lines(("parameter", "meaning"), ((f"`{name}`", _meaning(i, name)) for name in i.parameters)),
        "",
        "## Parameter sets",
        "",
        *table_lines(
            ("set", "parameters", "FLOP", "bytes (float32)"),
            (
                (size, _text_of(case), f"{i.flops(full):.4g}", f"{i.bytes_moved(full, 'float32'):.4g}")
                for size, cases in i.sets.items()
                for case in cases
                for full in [i.complete(case)]
            ),
        ),
    ]
    backends = i.backends(frameworks().values())
    missing = sorted(set(FRAMEWORKS.values()) - set(backends))
    if missing:
        lines += ["", f"Backends without it: {', '.join(missing)}."]
    for backend in backends:
        if refused := [_text_of(c) for c in i.sets["small"] if not i.supports(c, frameworks()[backend])]:
            lines += ["", f"{backend} does not run: {'; '.join(refused)}."]
    return "\n".join(lines) + "\n"


def _meaning(i: Indicator, name: str) -> str:
    p = i.parameters[name]
    values = " or ".join(p.choices) if p.choices else f"{max(p.least, 0)} to {p.most}"
    default = "" if p.default in (None, -1, 0) else f"; default: {p.default}"
    return f"{p.meaning} ({values}{default})"


def _text_of(case: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in case.items())

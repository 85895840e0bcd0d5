"""Reference page of an indicator."""

from __future__ import annotations

from advisor.report.catalogue import meaning_of, text_of_case
from advisor.report.tables import table_lines
from knowledge.domain.frameworks import FRAMEWORKS, frameworks
from pi_runners.indicators import Indicator


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
        *table_lines(("parameter", "meaning"), ((f"`{name}`", meaning_of(i, name)) for name in i.parameters)),
        "",
        "## Parameter sets",
        "",
        *table_lines(
            ("set", "parameters", "FLOP", "bytes (float32)"),
            (
                (size, text_of_case(case), f"{i.flops(full):.4g}", f"{i.bytes_moved(full, 'float32'):.4g}")
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
        if refused := [text_of_case(c) for c in i.sets["small"] if not i.supports(c, frameworks()[backend])]:
            lines += ["", f"{backend} does not run: {'; '.join(refused)}."]
    return "\n".join(lines) + "\n"

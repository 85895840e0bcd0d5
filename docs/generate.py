"""Writes the reference pages of indicators, settings and findings: `python docs/generate.py`. A test keeps them."""

from __future__ import annotations

from pathlib import Path

from advisor.gate.codes import all_codes
from advisor.report.indicators import indicator_page, settings_page
from pi_runners.indicators import INDICATORS

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[Path, str]:
    """Return every generated page by its path."""
    folder = REFERENCE / "indicators"
    found = {folder / f"{name}.md": indicator_page(indicator) for name, indicator in INDICATORS.items()}
    listed = [f"- [{name}]({name}.md): {indicator.summary}" for name, indicator in INDICATORS.items()]
    found[folder / "README.md"] = "\n".join(["# Performance indicators", "", *listed, ""])
    found[REFERENCE / "settings.md"] = settings_page()
    found[REFERENCE / "findings.md"] = findings_page()
    return found


def findings_page() -> str:
    """Return the page of all findings; `advisor rule CODE` prints one."""
    codes = all_codes().values()
    lines = [
        "# Findings",
        "",
        "Codes below 100 are of [the gate](gate.md), the others of `advisor advise`. `advisor rule CODE` prints one.",
        "",
        "| code | name | level | what it says |",
        "| --- | --- | --- | --- |",
        *(f"| [{c.code}](#{c.code.lower()}-{c.name}) | {c.name} | {c.level} | {c.summary} |" for c in codes),
        "",
    ]
    for c in codes:
        lines += [f"## {c.code} {c.name}", "", f"{c.summary[0].upper()}{c.summary[1:]}. {c.why}", ""]
        lines += [f"What to do: {c.remedy}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

"""Writes the reference pages of indicators, settings and findings: `python docs/generate.py`. A test keeps them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

from advisor.gate.codes import all_codes
from advisor.report.indicators import indicator_page, settings_page
from pi_runners.executors.manifests import KubernetesOptions
from pi_runners.executors.slurm import SlurmOptions
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
    found[REFERENCE / "executors.md"] = executors_page()
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


def executors_page() -> str:
    """Return the page of executors and their options, as the classes tell them."""
    lines = [
        "# Executors",
        "",
        "What runs the tasks of a campaign: `advisor pi campaign MATRIX --executor NAME --engine OPTION=VALUE ...`.",
        "",
        "## local",
        "",
        "This machine, one task at a time, under a supervisor that goes on when the command ends. The default.",
        "",
    ]
    for name, options, about in (
        ("slurm", SlurmOptions, "Job arrays through `sbatch`. [How to](../how-to/slurm.md)."),
        ("kubernetes", KubernetesOptions, "Indexed Jobs. [How to](../how-to/kubernetes/README.md)."),
    ):
        meanings = dict(re.findall(r"^    (\w+): (.*(?:\n        .*)*)", inspect.getdoc(options) or "", re.MULTILINE))
        lines += [f"## {name}", "", about, "", "| option | meaning | default |", "| --- | --- | --- |"]
        for field in dataclasses.fields(options):
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default or "")
            meaning = " ".join(meanings[field.name].replace("``", "`").split())
            lines.append(f"| `{field.name.replace('_', '-')}` | {meaning} | {f'`{default}`' if default else ''} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

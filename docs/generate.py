"""Writes the reference pages that come from the program: `python docs/generate.py`. A test keeps them current.

They are the pages of commands, findings, rules, indicators, settings and executors.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from advisor.cli.app import app
from advisor.cli.rules import summary_of_rule
from advisor.gate.codes import all_codes
from advisor.report.indicators import indicator_page, settings_page
from knowledge.rules.catalogue import shipped_rules
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
    found[REFERENCE / "commands.md"] = commands_page()
    found[REFERENCE / "rules.md"] = rules_page()
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


def commands_page() -> str:
    """Return the page of all commands, with what `--help` tells of each."""
    lines = [
        "# Commands and options",
        "",
        "`advisor COMMAND --help` prints the same. [The command line](cli.md) explains settings, exit codes and files.",
        "",
    ]
    root = typer.main.get_command(app)
    with root.make_context("advisor", [], resilient_parsing=True) as context:
        for command, usage in _commands(context):
            lines += [f"## {usage}", "", command.help or "", ""]
            if shown := [parameter for parameter in command.params if not parameter.hidden]:
                lines += ["| argument or option | meaning | default |", "| --- | --- | --- |"]
                lines += [*map(_parameter_row, shown), ""]
    return "\n".join(lines)


def _commands(context: Any) -> Iterator[tuple[Any, str]]:
    """Yield a command with its full name, and those below it in the order of the help."""
    yield context.command, context.command_path
    group = context.command
    for name in group.list_commands(context) if isinstance(group, typer.core.TyperGroup) else ():
        command = group.get_command(context, name)
        if command is not None:
            with command.make_context(name, [], parent=context, resilient_parsing=True) as below:
                yield from _commands(below)


def _parameter_row(parameter: Any) -> str:
    """Return the row of an argument or option: its names and value, its meaning with its variable, its default."""
    value = parameter.metavar or "VALUE"
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        names += "" if parameter.is_flag else f" `{value}`"
    meaning = parameter.help or ""
    if parameter.envvar:
        meaning += f" Variable: `{parameter.envvar}`."
    default = parameter.default
    if isinstance(parameter.show_default, str):
        shown = parameter.show_default
    elif default is True:
        shown = f"`{parameter.opts[0]}`"
    else:
        shown = f"`{default}`" if isinstance(default, str | int | float | Path) and default is not False else ""
    return f"| {_cell(names)} | {_cell(meaning)} | {shown} |"


def rules_page() -> str:
    """Return the page of the curated facts; `advisor rules show RULE` prints one."""
    lines = [
        "# Rules",
        "",
        "Facts about what runs together and on which hardware, each with its source. They come from",
        "`knowledge/rules/catalogue`. `advisor rules list` lists them and `advisor rules show RULE` prints one.",
        "A `forbidden` choice is never recommended. A `discouraged` one is only taken where nothing else is left.",
        "A `note` is only reported.",
        "",
        "| rule | severity | what it says | source |",
        "| --- | --- | --- | --- |",
    ]
    for rule in shipped_rules():
        source = re.sub(r"https://([^/\s]+)\S*", r"[\1](\g<0>)", rule.source)
        lines.append(f"| `{rule.id}` | {rule.severity} | {_cell(summary_of_rule(rule))} | {source} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """Return a text for a cell of a table, which nothing in it ends."""
    return re.sub(r"([|*])", r"\\\1", text)


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

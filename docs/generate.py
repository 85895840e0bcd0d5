"""Generate the reference pages from the program: `python docs/generate.py`. A test checks that they are current.

These are the pages of commands, keys of the configuration, findings, rules, documented slow-downs, builds, indicators,
settings, executors, lock files, and the catalogues of workloads and of hardware.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from advisor.api.configuration import keys, target_keys
from advisor.api.measurements.options import WorkerOptions
from advisor.api.option import option_fields
from advisor.api.options import GROUPS
from advisor.cli.app import make_app
from advisor.cli.rules import summary_of_rule
from advisor.gate.findings import all_codes
from advisor.locks.registry import SETTINGS_FILE, lock_formats
from advisor.resolve.score.slowdowns import reproduction_text
from docs.builds_page import attribute_meanings, builds_page
from docs.hardware_page import hardware_page
from docs.indicators_page import indicator_page
from docs.metrics_page import metrics_page
from docs.monitoring_dashboard import DASHBOARD, dashboard_file
from docs.monitoring_rules import RULES, rules_file
from docs.settings_page import settings_page
from docs.workloads_page import workload_catalogue_page
from knowledge.catalogue.rules import shipped_rules
from knowledge.catalogue.slower import SlowerRule
from pi_runners.executors.manifests import KubernetesOptions
from pi_runners.executors.slurm import SlurmOptions
from pi_runners.indicators import INDICATORS

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[Path, str]:
    """Return every generated page, and the files for Prometheus and Grafana, by path."""
    folder = REFERENCE / "indicators"
    texts = {folder / f"{name}.md": indicator_page(indicator) for name, indicator in INDICATORS.items()}
    entries = [f"- [{name}]({name}.md): {indicator.summary}" for name, indicator in INDICATORS.items()]
    texts[folder / "README.md"] = "\n".join(["# Performance indicators", "", *entries, ""])
    texts[REFERENCE / "commands.md"] = commands_page()
    texts[REFERENCE / "configuration.md"] = configuration_page()
    texts[REFERENCE / "rules.md"] = rules_page()
    texts[REFERENCE / "documented-slowdowns.md"] = slowdowns_page()
    texts[REFERENCE / "builds.md"] = builds_page()
    texts[REFERENCE / "hardware.md"] = hardware_page()
    texts[REFERENCE / "settings.md"] = settings_page()
    texts[REFERENCE / "findings.md"] = findings_page()
    texts[REFERENCE / "executors.md"] = executors_page()
    texts[REFERENCE / "lock-files.md"] = lock_files_page()
    texts[REFERENCE / "workload-catalogue.md"] = workload_catalogue_page()
    texts[REFERENCE / "metrics.md"] = metrics_page()
    texts[RULES], texts[DASHBOARD] = rules_file(), dashboard_file()
    return texts


def findings_page() -> str:
    """Return the page of all findings."""
    codes = all_codes().values()
    lines = [
        "# Findings",
        "",
        "Codes below 100 are findings of [the gate](gate.md), the others of `advisor advise`.",
        "`advisor rule CODE` prints one of them.",
        "",
        "| code | name | level | meaning |",
        "| --- | --- | --- | --- |",
        *(f"| [{c.code}](#{c.code.lower()}-{c.name}) | {c.name} | {c.level} | {c.summary} |" for c in codes),
        "",
    ]
    for c in codes:
        lines += [f"## {c.code} {c.name}", "", f"{c.summary[0].upper()}{c.summary[1:]}. {c.why}", ""]
        lines += [f"What to do: {c.remedy}", ""]
    return "\n".join(lines)


def commands_page() -> str:
    """Return the page of all commands, with the help text of each."""
    lines = [
        "# Commands and options",
        "",
        "`advisor COMMAND --help` prints the first sentence of each text.",
        "[The command line](cli.md) explains settings, exit codes and files.",
        "",
    ]
    root = typer.main.get_command(make_app())
    with root.make_context("advisor", [], resilient_parsing=True) as context:
        for command, usage in _commands(context):
            lines += [f"## {usage}", "", command.help or "", ""]
            if parameters := [parameter for parameter in command.params if not parameter.hidden]:
                lines += ["| argument or option | meaning | default |", "| --- | --- | --- |"]
                lines += [*map(_parameter_row, parameters), ""]
    return "\n".join(lines)


def configuration_page() -> str:
    """Return the page of the keys of `[tool.advisor]`, with the variable and the option of each."""
    lines = [
        "# Keys and variables",
        "",
        "Every key of `[tool.advisor]` in `pyproject.toml`, with the variable and the option that set the same.",
        "[The command line](cli.md#settings) explains which of them is used.",
        "",
        "| key | variable | option | meaning | default |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, key in keys().items():
        option = key.option
        flag = f"`{option.names[0].partition('/')[0]}`" if option.names else ""
        variable = f"`{option.variable}`" if option.variable else ""
        unset = option.unset or (f"`{option.otherwise}`" if option.otherwise else "")
        meaning = f"{_cell(key.meaning)} [More]({option.page})" if option.page else _cell(key.meaning)
        lines.append(f"| `{name}` | {variable} | {flag} | {meaning} | {unset} |")
    lines += [
        "",
        f"A table `[tool.advisor.targets.NAME]` has the keys {', '.join(f'`{name}`' for name in target_keys())}.",
        "",
        "These variables set an option that has no key:",
        "",
    ]
    variables = {
        field.option.variable: field.option
        for group in (*GROUPS, WorkerOptions)
        for field in option_fields(group)
        if field.option.variable and not field.option.key
    }
    lines += [f"- `{variable}`: `{option.names[0]}`" for variable, option in variables.items()]
    return "\n".join([*lines, ""])


def _commands(context: Any) -> Iterator[tuple[Any, str]]:
    """Yield a command and its subcommands with their full names, in the order of the help."""
    yield context.command, context.command_path
    group = context.command
    for name in group.list_commands(context) if isinstance(group, typer.core.TyperGroup) else ():
        command = group.get_command(context, name)
        if command is not None:
            with command.make_context(name, [], parent=context, resilient_parsing=True) as below:
                yield from _commands(below)


def _parameter_row(parameter: Any) -> str:
    """Return the table row of an argument or option: names and value, meaning and variable, default."""
    value = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        names += "" if parameter.is_flag else f" `{value}`"
    meaning = " ".join((parameter.help or "").split())
    if parameter.envvar:
        meaning += f" Variable: `{parameter.envvar}`."
    default = parameter.default
    if isinstance(parameter.show_default, str):
        default_text = parameter.show_default
    elif default is True:
        default_text = f"`{parameter.opts[0]}`"
    else:
        text = f"{default:g}" if isinstance(default, float) else str(default)
        default_text = f"`{text}`" if isinstance(default, str | int | float | Path) and default is not False else ""
    return f"| {_cell(names)} | {_cell(meaning)} | {default_text} |"


def rules_page() -> str:
    """Return the page of all rules."""
    lines = [
        "# Rules",
        "",
        "Facts about versions that work together and on which hardware, each with its source, from",
        "`knowledge/catalogue/data/rules`. `advisor rules list` lists them and `advisor rules show RULE` prints one.",
        "",
        "| severity | effect |",
        "| --- | --- |",
        "| `forbidden` | a version or combination that violates the rule is never recommended |",
        "| `discouraged` | it is recommended only if there is no other choice |",
        "| `slower` | it is reported, and weak evidence in the score ([all](documented-slowdowns.md)) |",
        "| `note` | it is only reported |",
        "",
        "| rule | severity | rule text | source |",
        "| --- | --- | --- | --- |",
    ]
    for rule in shipped_rules():
        if not isinstance(rule, SlowerRule):
            text = _cell(summary_of_rule(rule))
            lines.append(f"| `{rule.id}` | {rule.severity} | {text} | {_links(rule.source)} |")
    return "\n".join([*lines, ""])


def slowdowns_page() -> str:
    """Return the page of the documented slow-downs."""
    columns = (
        *("rule", "slow versions", "faster", "ratio", "reports", "what is slow", "hardware", "remedy"),
        *("measured by this program", "source"),
    )
    lines = [
        "# Documented slow-downs",
        "",
        "Versions that users measured to be at least 10 % slower than another version, each read in a public thread,",
        "from `knowledge/catalogue/data/rules/slower-*.yaml`.",
        "[When speed decides](../explanation/speed-rule.md#documented-slow-downs) describes what they count for.",
        "A ratio is the time of the slow version divided by the time of the other one; with several reports",
        "it is their geometric mean. `python -m benchmarks.regressions` measures those that need no GPU and install on",
        "Python 3.11.",
        "",
        f"| {' | '.join(columns)} |",
        f"|{' --- |' * len(columns)}",
    ]
    for rule in shipped_rules():
        if isinstance(rule, SlowerRule):
            other = f" with {rule.other} {rule.other_versions}" if rule.other else ""
            remedies = (f"fixed in {rule.fixed}" if rule.fixed else "", rule.workaround)
            cells = (
                f"`{rule.id}`",
                f"{', '.join(rule.packages)} {rule.versions}{other}",
                rule.than,
                f"{rule.reported_ratio:.3g}",
                str(len(rule.ratios)),
                rule.workload,
                rule.hardware.text,
                "; ".join(filter(None, remedies)),
                reproduction_text(rule) if rule.reproduction else "",
                _links(rule.source),
            )
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join([*lines, ""])


def _links(source: str) -> str:
    """Return the addresses of a source as links with the name of their host."""
    return re.sub(r"https://([^/\s]+)\S*", r"[\1](\g<0>)", source)


def _cell(text: str) -> str:
    """Return a text for a table cell, with special characters escaped."""
    return re.sub(r"([|*])", r"\\\1", text)


def lock_files_page() -> str:
    """Return the page of the formats of lock files."""
    lines = [
        "# Lock files",
        "",
        "The first of these files in the directory of a project is its [lock](../glossary.md#lock). `advisor check`",
        "reads another one with `--current FILE`, and `advisor advise` writes one with `--output FILE`.",
        f"Run-time [settings](settings-files.md) are in the lock itself, or next to it in `{SETTINGS_FILE}`.",
        "",
        "| lock | names that are read | names that are written | the only tool that writes it | settings |",
        "| --- | --- | --- | --- | --- |",
    ]
    for lock_format in lock_formats():
        read = ", ".join(f"`{pattern}`" for pattern in lock_format.patterns or (lock_format.name,))
        written = ", ".join(f"`{name}`" for name in lock_format.written_names)
        place = "in the lock" if lock_format.holds_settings else "next to it"
        lines.append(f"| `{lock_format.name}` | {read} | {written} | {lock_format.tool} | {place} |")
    lines += ["", "A `requirements.txt` is a lock if every line has an exact version. A `bom.json` must be named.", ""]
    return "\n".join(lines)


def executors_page() -> str:
    """Return the page of executors and their options, from the docstrings of the option classes."""
    lines = [
        "# Executors",
        "",
        "An executor runs the tasks of a campaign:",
        "`advisor pi campaign MATRIX --executor NAME --engine OPTION=VALUE ...`.",
        "",
        "## local",
        "",
        "The default: this machine, one task at a time, under a supervisor that continues when the command ends.",
        "",
    ]
    for name, options, about in (
        ("slurm", SlurmOptions, "Job arrays through `sbatch`. [How to](../how-to/slurm.md)."),
        ("kubernetes", KubernetesOptions, "Indexed Jobs. [How to](../how-to/kubernetes/README.md)."),
    ):
        meanings = attribute_meanings(options)
        lines += [f"## {name}", "", about, "", "| option | meaning | default |", "| --- | --- | --- |"]
        for field in dataclasses.fields(options):
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default or "")
            name = field.name.replace("_", "-")
            lines.append(f"| `{name}` | {meanings[field.name]} | {f'`{default}`' if default else ''} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

"""`advisor rules`: the curated facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from advisor.cli.command_help import CommandGroup
from advisor.cli.console import report_layout
from advisor.cli.options import FormatOption, print_either, print_json
from advisor.domain.words import ratio_text
from advisor.gate.findings import all_codes
from advisor.report.layout import wrapped
from knowledge.catalogue.rules import Rule, shipped_rules
from knowledge.domain.errors import InputError, suggest

app = CommandGroup(help="Show the rules and their sources.")


@app.command("list")
def list_rules(format: FormatOption = "text") -> None:
    """List the rules."""
    rules = shipped_rules()
    width = max(len(rule.id) for rule in rules)
    lines = (f"{rule.id:{width}}  {rule.severity:11}  {summary_of_rule(rule)}" for rule in rules)
    print_either(format, [asdict(rule) for rule in rules], "\n".join(lines))


@app.command("show")
def show(rule: Annotated[str, typer.Argument(help="Identity of a rule.")], format: FormatOption = "text") -> None:
    """Print one rule with its source."""
    match = next((r for r in shipped_rules() if r.id == rule), None)
    if match is None:
        hint = suggest(rule, [r.id for r in shipped_rules()], otherwise="`advisor rules list` lists the rules")
        raise InputError(f"there is no rule `{rule}`", hint=hint)
    fields = asdict(match)
    contents = {key: _content(value) for key, value in fields.items()}
    lines = (f"  {key:15} {content}" for key, content in contents.items() if content)
    print_either(format, fields, "\n".join([summary_of_rule(match), *lines]))


def _content(value: object) -> str:
    """Return the value of a field in words; empty if it has none."""
    if isinstance(value, Mapping):
        fields = ((name, _content(content)) for name, content in value.items())
        return ", ".join(f"{name} {content}" for name, content in fields if content)
    if isinstance(value, list | tuple):
        return ", ".join(map(_content, value))
    return "" if value is None else str(value)


def rule(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="Code or name of a finding (default: all).")
    ] = None,
    format: FormatOption = "text",
) -> None:
    """Explain a finding of `check` or `advise`: what it means, why it matters, what to do."""
    findings = all_codes()
    matches = [about for about in findings.values() if code is None or code.upper() == about.code or code == about.name]
    if not matches:
        raise InputError(f"there is no finding `{code}`", hint=suggest(str(code).upper(), findings))
    if format == "json":
        print_json([asdict(about) for about in matches])
    elif code is None:
        typer.echo("\n".join(f"{about.code}  {about.level:7}  {about.name}: {about.summary}" for about in matches))
    else:
        about, width = matches[0], report_layout().width
        paragraphs = (
            f"{about.code} {about.name} ({about.level}): {about.summary}",
            about.why,
            f"What to do: {about.remedy}",
        )
        typer.echo("\n\n".join("\n".join(wrapped(paragraph, width)) for paragraph in paragraphs))


def summary_of_rule(rule: Rule) -> str:
    """Return what a rule says in one line."""
    if rule.kind == "conflict":
        return f"{rule.package} {rule.versions} with {rule.other} {rule.other_versions}"
    if rule.kind == "capabilities":
        built = f" with CUDA {rule.cuda}" if rule.cuda else ""
        served = rule.at_least and f"compute capability {rule.at_least} and newer"
        served = served or ", ".join([*rule.machine_code, *(f"{p}+PTX" for p in rule.ptx)])
        return f"{rule.package} {rule.versions or 'any'}{built} is built for {served}"
    if rule.kind == "runtime":
        floor = f" and compute capability {rule.capability}" if rule.capability else ""
        return f"CUDA {rule.cuda} needs driver {rule.driver}{floor} or newer"
    if rule.kind == "tested":
        return f"{rule.package} {rule.versions} was tested with CUDA {rule.cuda} and cuDNN {rule.cudnn}"
    if rule.kind == "undeclared":
        return f"{rule.package} {rule.versions} requires {rule.requires}, which its metadata does not state"
    if rule.kind == "slower":
        other = f" with {rule.other} {rule.other_versions}" if rule.other else ""
        builds = f" ({', '.join(f'+{local}' if local else 'no local version' for local in rule.local_versions)})"
        return (
            f"{', '.join(rule.packages)} {rule.versions}{builds if rule.local_versions else ''}{other} takes "
            f"{ratio_text(rule.ratio, 'time')}x the time of {rule.than}: {rule.workload}"
        )
    if rule.kind == "vendor":
        build = {None: "", "": " without a local version"}.get(rule.local, f" +{rule.local}...")
        return f"{', '.join(rule.packages)}{build} is built for {rule.runtime}"
    if rule.kind == "embedded":
        return f"{', '.join(rule.packages)} without +{rule.own}... may not use the GPU of an embedded module"
    return f"{rule.package}{f'+{rule.local}' if rule.local else ''} is a CPU-only build"

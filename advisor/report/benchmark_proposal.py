"""Proposed benchmarks as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.api.measurements.benchmark_proposal import CommandTrial
from advisor.domain.words import count, duration_text, listed, quoted
from advisor.project.benchmark_proposal.command import OptionChoice
from advisor.project.benchmark_proposal.proposal import BenchmarkProposal
from advisor.project.benchmark_proposal.table import benchmark_text
from advisor.report.layout import Layout, labelled, rendered

SCHEMA_VERSION = 1
_LISTED = 5


def proposal_text(proposal: BenchmarkProposal, trial: CommandTrial | None, layout: Layout) -> str:
    """Return a proposal, with what a trial of it showed, and the table to write."""
    rows = [row for label, texts in _parts(proposal, trial) for row in labelled(label, texts)]
    return f"{rendered([rows], layout)}\n\n{benchmark_text(proposal.table).rstrip()}"


def _parts(
    proposal: BenchmarkProposal, trial: CommandTrial | None
) -> Iterator[tuple[str, list[str | tuple[str, ...]]]]:
    command = proposal.command
    if proposal.program is not None:
        yield "program", [f"`{proposal.program.name}`: {', '.join(proposal.program.reasons) or 'as you named it'}"]
    documented = [f"its arguments are those of {command.documented}"] if command.documented else []
    yield "command", [f"`{command.text}`", *documented]
    if command.choices:
        yield "options", [_option_text(choice) for choice in command.choices]
    if command.open_values:
        yield "open", [f"only you know {', '.join(command.open_values)}"]
    if command.steps is not None and proposal.metric is None:
        fewer = " ".join(command.steps.option.words(command.startup_steps))
        yield "start-up", [f"the same with `{fewer}`; its duration is subtracted, so that only the further steps count"]
    yield "metric", _metric_texts(proposal, trial)
    if trial is not None:
        yield "trial", [_trial_text(trial)]
    if proposal.others:
        yield "others", [f"{quoted(proposal.others, _LISTED)}; `--script FILE` selects one"]
    if proposal.skipped:
        more = len(proposal.skipped) - _LISTED
        yield "skipped", [*proposal.skipped[:_LISTED], *([f"and {count(more, 'more file')}"] if more > 0 else [])]


def _option_text(choice: OptionChoice) -> tuple[str, ...]:
    option = choice.option
    default = f"default {option.default}, " if option.default not in (None, "") and not option.required else ""
    return " ".join(option.words(choice.value)), f"{choice.purpose} ({default}{option.place})"


def _metric_texts(proposal: BenchmarkProposal, trial: CommandTrial | None) -> list[str | tuple[str, ...]]:
    is_subtracted = proposal.command.steps is not None
    seconds = f"seconds of the command{' without its start-up' if is_subtracted else ', start-up included'}"
    if trial is None:
        return [f"what its output contains, such as a throughput: a trial shows it; otherwise {seconds}"]
    metric = proposal.metric
    if metric is None:
        return [f"{seconds}: the output contains no rate and no time of a step"]
    several = {"": "", "median": f", the median of {metric.count}", "last": f", the last of {metric.count}"}
    value = f"{metric.value:.4g} {metric.metric.unit}, {metric.metric.better} is better"
    return [f"{value}{several[metric.metric.statistic]}, of the line `{metric.line}`"]


def _trial_text(trial: CommandTrial) -> str:
    parts = f", of which the start-up {duration_text(trial.startup_seconds)}" if trial.startup_seconds else ""
    stack = listed([f"Python {trial.python}", *trial.packages], _LISTED)
    return f"{duration_text(trial.command_seconds)}{parts}, with {stack}"


def proposal_json(proposal: BenchmarkProposal, trial: CommandTrial | None, written: Path | None) -> dict[str, Any]:
    """Return a proposal, its trial and the file that it was written to as JSON-ready values."""
    command, program = proposal.command, proposal.program
    return {
        "schema_version": SCHEMA_VERSION,
        "benchmark": proposal.table,
        "program": program.name if program else None,
        "reasons": list(program.reasons) if program else [],
        "options": [
            {"option": c.option.flag, "value": c.value, "purpose": c.purpose, "declared": c.option.place}
            for c in command.choices
        ],
        "documented": command.documented or None,
        "open_values": list(command.open_values),
        "others": list(proposal.others),
        "skipped": list(proposal.skipped),
        "trial": {
            "value": proposal.metric.value if proposal.metric is not None else trial.work_seconds,
            "command_seconds": trial.command_seconds,
            "startup_seconds": trial.startup_seconds,
            "python": trial.python,
            "packages": list(trial.packages),
            "more_steps": trial.more_steps or None,
        }
        if trial is not None
        else None,
        "written": str(written) if written is not None else None,
    }

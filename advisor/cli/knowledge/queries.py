"""`advisor knowledge compare|estimate|import-mlperf|mlperf-table`: what the observations say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from packaging.version import Version

from advisor import api
from advisor.cli.console import warn
from advisor.cli.options import FormatOption, KnowledgeOption, check_format, print_either
from advisor.cli.workload import write_plot
from advisor.report.evidence import (
    estimate_text,
    gains_record,
    gains_text,
    ratios_plot,
    scores_record,
    scores_text,
    software,
    stack_comparisons_record,
    stack_comparisons_text,
)
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation
from knowledge.domain.shared_files import write_atomically
from knowledge.evidence import mlperf
from knowledge.evidence.mlperf import Gain, Score, score_submissions
from knowledge.evidence.stacks import stack_name
from knowledge.exchange.files import observation_file
from knowledge.exchange.mlperf.power import read_power_table
from knowledge.exchange.mlperf.results import INDICATORS, TRAINING, ContentCounter, ImportResult
from knowledge.exchange.mlperf.tree import read_results

_MachineOption = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="NAME",
        help="Only this machine.\nA profile, a microarchitecture, an accelerator model, or an identity.",
    ),
]
ObservationFileOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write an observation file instead.\n*.gz is compressed."),
]
_PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw it, too.")]


def compare(
    indicator: Annotated[
        str, typer.Option("--indicator", metavar="NAME", help="Indicator, such as `conv2d` or `mlperf_training`.")
    ],
    hardware: _MachineOption = None,
    framework: Annotated[str | None, typer.Option("--framework", help="Only this distribution.")] = None,
    stack: Annotated[
        list[str] | None,
        typer.Option(
            "--stack",
            metavar="NAME==VERSION",
            help="Compare this stack with the others (repeatable).\n"
            "By default each stack with the reference of its block.",
        ),
    ] = None,
    scaling: Annotated[
        bool,
        typer.Option("--scaling", help="MLPerf: what more accelerators gain.\nInstead of what other software gains."),
    ] = False,
    plot: _PlotOption = None,
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Compare stacks for an indicator: paired ratios, intervals, significance."""
    if indicator == TRAINING:
        observations = api.queries.select_observations(
            indicator, hardware=hardware, framework=framework, knowledge=knowledge
        )
        _compare_mlperf(observations, scaling=scaling, plot=plot, format=format)
        return
    standings = api.compare(indicator, stack or (), hardware=hardware, framework=framework, knowledge=knowledge)
    print_either(format, stack_comparisons_record(standings), stack_comparisons_text(standings))
    if plot is not None:
        rows = [
            (f"{stack_name(c.observation)}: {c.indicator}", c.speedup, c.low, c.high) for c in standings.comparisons
        ]
        references = {stack_name(c.reference) for c in standings.comparisons}
        reference = f"`{min(references)}`" if len(references) == 1 else "the reference of the block"
        write_plot(plot, ratios_plot(rows, title=f"{indicator}: times as fast as {reference}"), len(rows))


def _compare_mlperf(observations: Sequence[Observation], *, scaling: bool, plot: Path | None, format: str) -> None:
    scores = mlperf.score_submissions(observations)
    gains = mlperf.scaling(scores) if scaling else mlperf.software_gains(scores)
    kind = "scaling" if scaling else "software"
    best = [] if scaling else ["", *_best(scores)]
    text = "\n".join([gains_text(gains, of=kind), *best])
    print_either(format, {"schema_version": 1, kind: gains_record(gains)}, text)
    if plot is not None:
        rows = [(_gain_name(g, kind, software(g.later)), g.speedup, g.low, g.high) for g in gains]
        title = "MLPerf Training: what more accelerators gained" if scaling else "MLPerf Training: what software gained"
        write_plot(plot, ratios_plot(rows, title=title), len(rows))


def _gain_name(gain: Gain, kind: str, software_name: str) -> str:
    machine = gain.later.hardware.name
    if kind == "scaling":
        counts = f"{gain.earlier.accelerators} to {gain.later.accelerators}"
        return f"{gain.later.benchmark} {gain.later.round_} {software_name}: {counts}"
    rounds = f"{gain.earlier.round_} to {gain.later.round_}"
    return f"{gain.later.benchmark}, {machine} ({gain.later.accelerators}): {rounds}"


def _best(scores: Sequence[Score]) -> list[str]:
    """Return the fastest software of each benchmark on each machine that ran several, one line each."""
    groups: dict[tuple[str, int, str, str], list[Score]] = {}
    for s in scores:
        if s.minutes is not None and s.accelerators and s.division == "closed":
            # Only what was trained to the same quality.
            task = f"{s.observation.indicator.version} {s.target}"
            groups.setdefault((s.hardware.name, s.accelerators, s.benchmark, task), []).append(s)
    lines = []
    for (machine, count, benchmark, _), members in sorted(groups.items()):
        if len({(m.round_, software(m)) for m in members}) > 1:
            best = min(members, key=lambda s: s.minutes or 0.0)
            won = f"{software(best)}, {best.round_}, {best.minutes:.2f} minutes"
            lines.append(f"fastest {benchmark} on {machine} ({count}): {won}")
    return lines


def estimate(
    stack: Annotated[
        str, typer.Option("--stack", metavar="NAME==VERSION...", help="Stack: a framework and other packages.")
    ],
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="NAME==VERSION...", help="Compared with this; else the usual reference."),
    ] = None,
    hardware: Annotated[
        str, typer.Option("--hardware", metavar="NAME", envvar="ADVISOR_HARDWARE", help="Target hardware.")
    ] = "detect",
    indicator: Annotated[
        str | None, typer.Option("--indicator", metavar="NAME", help="One indicator instead of a workload.")
    ] = None,
    workload: Annotated[str | None, typer.Option("--workload", metavar="NAME", help="Workload to predict for.")] = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Predict how fast a stack is against another, with an interval and the observations that carry it."""
    result = api.estimate(
        stack, against=against, hardware=hardware, indicator=indicator, workload=workload, knowledge=knowledge
    )
    typer.echo(
        estimate_text(
            result.estimate,
            stack=_stack_text(result.stack),
            against=_stack_text(result.against),
            where=result.device,
            indicators=result.sizes,
        )
    )


def _stack_text(stack: Mapping[str, Version]) -> str:
    return " ".join(f"{name}=={version}" for name, version in stack.items())


def import_mlperf(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Trees of MLPerf results.\nOf Training or Inference: checkouts or tar files. Or tables with power: "
            "`summary_results.json` of a round.",
        ),
    ],
    round_: Annotated[
        str | None, typer.Option("--round", metavar="ROUND", help="The round, if no directory is named after it.")
    ] = None,
    output: ObservationFileOption = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Store published results of MLPerf Training and Inference; files without a result are listed with the reason."""
    trees = [(path, _imported(path, round_)) for path in paths]
    for _, imported in trees:
        for skipped in imported.skipped:
            warn(f"`{skipped.path}` was left out: {skipped.reason}")
    for warning in sorted({warning for _, imported in trees for warning in imported.warnings}):
        warn(warning)
    if output is not None:
        every = {o.identity: o for _, imported in trees for o in imported.observations}
        write_atomically(output, observation_file(every.values(), compressed=output.suffix == ".gz"))
        typer.echo(f"wrote {len(every)} observations to `{output}`")
        return
    with api.stores.open_writable_store(knowledge) as store:
        counter = ContentCounter(o for name in INDICATORS for o in store.observations(indicator=name))
        for path, imported in trees:
            copies = imported.repeated + counter.add(imported.observations)
            ingest = store.add(imported.observations)
            counts = f"{ingest.added} added, {ingest.known} already stored, {len(imported.skipped)} left out"
            copied = f"; {copies} {'is a copy' if copies == 1 else 'are copies'} of another result and count once"
            typer.echo(f"{path}: {counts}{copied if copies else ''}")


def _imported(path: Path, round_: str | None) -> ImportResult:
    return read_power_table(path) if path.suffix == ".json" else read_results(path, round_=round_)


def mlperf_table(
    round_: Annotated[str, typer.Option("--round", metavar="ROUND", help="MLPerf round, such as v0.6.")],
    division: Annotated[str, typer.Option("--division", metavar="closed|open|all", help="Division.")] = "closed",
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Print a round's scores as the published table does: minutes to train, by system and benchmark."""
    check_format(division, among=("closed", "open", "all"), what="division")
    with api.stores.open_readable_store(knowledge) as store:
        scores = score_submissions(store.observations(indicator=TRAINING))
    name = round_ if round_.startswith("v") else f"v{round_}"
    matching = [s for s in scores if s.round_ == name and division in ("all", s.division)]
    if not matching:
        rounds = ", ".join(f"`{r}`" for r in sorted({s.round_ for s in scores}))
        raise InputError(
            f"there is no score of round `{name}` in division `{division}`",
            hint=f"there is {rounds}" if rounds else "import results with `advisor knowledge import-mlperf PATH`",
        )
    for listed in sorted({s.rules for s in matching} - {name}):
        warn(f"the rules of round `{name}` are not known: its scores are computed by those of `{listed}`")
    print_either(format, {"schema_version": 1, "scores": scores_record(matching)}, scores_text(matching))

"""`advisor knowledge compare|estimate|import-mlperf|mlperf-table`: what the observations say."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.console import say, warn
from advisor.cli.options import FormatOption, KnowledgeOption, check_format, open_store, open_to_read

if TYPE_CHECKING:
    from packaging.version import Version

    from knowledge.domain.observation import Observation
    from knowledge.estimate.mlperf import Gain, Score

_MachineOption = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="NAME|detect",
        help="Only this machine: a profile, a microarchitecture, an accelerator model, or an identity.",
    ),
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
        typer.Option("--stack", metavar="NAME==VERSION", help="Only these stacks, with each other (repeatable)."),
    ] = None,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="MLPerf: what more accelerators gain, instead of other software.")
    ] = False,
    plot: _PlotOption = None,
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Compare stacks for an indicator: paired ratios, intervals, significance."""
    from advisor.report.evidence import ratios_plot, standings_record, standings_text
    from knowledge.domain.errors import InputError
    from knowledge.estimate.stacks import compare_stacks, is_machine
    from knowledge.exchange.mlperf.tree import INDICATOR

    check_format(format)
    with open_to_read(knowledge) as store:
        wanted = None if hardware is None else _named(hardware)
        every = list(store.observations(indicator=indicator, frameworks=[framework] if framework else None))
        found = [o for o in every if wanted is None or is_machine(o.hardware, wanted)]
        names = {entry[0].split()[0] for entry in store.content().indicators} if not every else set()
    if not found:
        names |= {o.hardware.gpu.model if o.hardware.gpu else o.hardware.cpu.microarchitecture for o in every} - {""}
        where = f" on `{hardware}`" if hardware else ""
        raise InputError(
            f"there is no observation of indicator `{indicator}`{where}",
            hint=f"there is {', '.join(f'`{name}`' for name in sorted(names))}" if names else "",
        )
    if indicator == INDICATOR:
        _compare_mlperf(found, scaling=scaling, plot=plot, format=format)
        return
    standings = compare_stacks(found, stacks=stack or ())
    typer.echo(json.dumps(standings_record(standings), indent=2) if format == "json" else standings_text(standings))
    if plot is not None:
        from knowledge.estimate.stacks import stack_name

        rows = [
            (f"{stack_name(c.observation)}: {c.indicator}", math.exp(c.mean), math.exp(c.low), math.exp(c.high))
            for c in standings.comparisons
        ]
        _draw(plot, ratios_plot(rows, title=f"{indicator}: times as fast as the reference of its block"), len(rows))


def _compare_mlperf(observations: Sequence[Observation], *, scaling: bool, plot: Path | None, format: str) -> None:
    from advisor.report.evidence import gains_record, gains_text, ratios_plot, software
    from knowledge.estimate import mlperf

    scores = mlperf.score_submissions(observations)
    gains = mlperf.scaling(scores) if scaling else mlperf.software_gains(scores)
    kind = "scaling" if scaling else "software"
    if format == "json":
        typer.echo(json.dumps({"schema_version": 1, kind: gains_record(gains)}, indent=2))
    else:
        typer.echo(gains_text(gains, of=kind))
        if not scaling:
            typer.echo("\n".join(["", *_best(scores)]))
    if plot is not None:
        rows = [(_gain_name(g, kind, software(g.later)), g.speedup, g.low, g.high) for g in gains]
        title = "MLPerf Training: what more accelerators gained" if scaling else "MLPerf Training: what software gained"
        _draw(plot, ratios_plot(rows, title=title), len(rows))


def _gain_name(gain: Gain, kind: str, software: str) -> str:
    machine = gain.later.hardware.name
    if kind == "scaling":
        counts = f"{gain.earlier.accelerators} to {gain.later.accelerators}"
        return f"{gain.later.benchmark} {gain.later.round_} {software}: {counts}"
    rounds = f"{gain.earlier.round_} to {gain.later.round_}"
    return f"{gain.later.benchmark}, {machine} ({gain.later.accelerators}): {rounds}"


def _best(scores: Sequence[Score]) -> list[str]:
    """Tell which software was fastest on each machine that several ran on, by benchmark."""
    from advisor.report.evidence import software

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


def _draw(path: Path, draw: object, rows: int) -> None:
    from advisor.report.evidence import draw_svg
    from knowledge.domain.atomic_file import write_atomically
    from knowledge.domain.errors import InputError

    if path.suffix != ".svg":
        raise InputError(f"`{path}` is not drawn: plots are SVG", hint="name it `--plot FILE.svg`")
    write_atomically(path, draw_svg(draw, rows=rows))  # type: ignore[arg-type]
    say(f"wrote `{path}`")


def _named(hardware: str) -> str:
    """Return what a machine of the knowledge base is named by.

    This one's identity for ``detect``; of a shipped profile its accelerator or its microarchitecture.
    """
    from knowledge.hardware.profiles import find_profile, shipped_names

    if hardware == "detect":
        return find_profile(hardware).identity
    if hardware.lower() in shipped_names():
        profile = find_profile(hardware)
        return profile.gpu.model if profile.gpu else profile.cpu.microarchitecture
    return hardware


def estimate(
    stack: Annotated[
        str, typer.Option("--stack", metavar="NAME==VERSION...", help="Stack: a framework and what is beside it.")
    ],
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="NAME==VERSION...", help="Compared with this; else the usual reference."),
    ] = None,
    hardware: Annotated[
        str, typer.Option("--hardware", metavar="NAME|FILE|detect", envvar="ADVISOR_HARDWARE", help="Target hardware.")
    ] = "detect",
    indicator: Annotated[
        str | None, typer.Option("--indicator", metavar="NAME", help="One indicator instead of a workload.")
    ] = None,
    workload: Annotated[str, typer.Option("--workload", metavar="NAME", help="What the project does.")] = "equal",
    knowledge: KnowledgeOption = None,
) -> None:
    """Predict how fast a stack is against another, with an interval and the observations that carry it."""
    from advisor.report.evidence import estimate_text
    from knowledge.domain.errors import InputError
    from knowledge.estimate.model_cache import Fits
    from knowledge.estimate.posterior import PosteriorEstimator
    from knowledge.estimate.workloads import Workload, find_workload
    from knowledge.hardware.profiles import find_profile
    from pi_runners.vocabulary import FRAMEWORKS

    asked = _requirements(stack)
    framework = next((name for name in asked if name in FRAMEWORKS and name != "numpy"), None) or next(iter(asked))
    chosen = find_workload(workload)
    if indicator is not None:
        chosen = Workload(
            name=indicator, summary=indicator, weights={indicator: 1.0}, backends=(), source="asked for", only={}
        )
    profile = find_profile(hardware)
    with open_to_read(knowledge) as store:
        estimator = PosteriorEstimator(Fits(store), hardware=profile, workload=chosen, frameworks=frozenset(FRAMEWORKS))
        model = estimator.model(framework)
        if model is None:
            raise InputError(
                f"versions of `{framework}` were not compared at "
                f"{f'indicator `{indicator}`' if indicator else f'workload `{workload}`'} on such a device",
                hint="`advisor knowledge status` lists what was measured; `advisor pi run` measures more",
            )
        other = _requirements(against) if against else {**asked, framework: model.usual_reference}
        if framework not in other:
            raise InputError(f"`--against {against}` does not name a version of `{framework}`")
        result = model.estimate(asked, other, confidence=0.9)
    typer.echo(
        estimate_text(
            result,
            stack=_written(asked),
            against=_written(other),
            where=profile.gpu.model if profile.gpu and framework != "numpy" else profile.cpu.microarchitecture,
            indicators=model.sizes,
        )
    )


def _requirements(text: str) -> dict[str, Version]:
    """Read `NAME==VERSION` words, parted by spaces or commas."""
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version

    from knowledge.domain.errors import InputError

    found: dict[str, Version] = {}
    for word in text.replace(",", " ").split():
        name, separator, version = word.partition("==")
        try:
            if not (separator and name):
                raise InvalidVersion(word)
            found[canonicalize_name(name)] = Version(version)
        except InvalidVersion:
            raise InputError(
                f"`{word}` does not name a version", hint="write it as `--stack 'torch==2.13.0 numpy==2.4.6'`"
            ) from None
    if not found:
        raise InputError("the stack is empty", hint="write it as `--stack torch==2.13.0`")
    return found


def _written(stack: dict[str, Version]) -> str:
    return " ".join(f"{name}=={version}" for name, version in stack.items())


def import_mlperf(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Trees of MLPerf Training results: checkouts or tar files.")
    ],
    round_: Annotated[
        str | None, typer.Option("--round", metavar="ROUND", help="The round, where no directory's name tells it.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write an observation file instead (*.gz is compressed)."),
    ] = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Store MLPerf Training's published runs; logs that tell no time to train are listed with the reason."""
    from knowledge.exchange.mlperf.tree import read_results

    found = [(path, read_results(path, round_=round_)) for path in paths]
    for _, imported in found:
        for skipped in imported.skipped:
            warn(f"`{skipped.path}` was left out: {skipped.reason}")
    if output is not None:
        from knowledge.domain.atomic_file import write_atomically
        from knowledge.exchange.files import observation_file

        every = [o for _, imported in found for o in imported.observations]
        write_atomically(output, observation_file(every, compressed=output.suffix == ".gz"))
        typer.echo(f"wrote {len(every)} observations to `{output}`")
        return
    with open_store(knowledge) as store:
        for path, imported in found:
            ingest = store.add(imported.observations)
            typer.echo(f"{path}: {ingest.added} added, {ingest.known} known already, {len(imported.skipped)} left out")


def mlperf_table(
    round_: Annotated[str, typer.Option("--round", metavar="ROUND", help="MLPerf round, such as v0.6.")],
    division: Annotated[str, typer.Option("--division", metavar="closed|open|all", help="Division.")] = "closed",
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Print a round's scores as the published table does: minutes to train, by system and benchmark."""
    from advisor.report.evidence import scores_record, scores_text
    from knowledge.domain.errors import InputError
    from knowledge.estimate.mlperf import score_submissions
    from knowledge.exchange.mlperf.tree import INDICATOR

    check_format(format)
    check_format(division, among=("closed", "open", "all"), what="division")
    with open_to_read(knowledge) as store:
        scores = score_submissions(store.observations(indicator=INDICATOR))
    wanted = round_ if round_.startswith("v") else f"v{round_}"
    chosen = [s for s in scores if s.round_ == wanted and division in ("all", s.division)]
    if not chosen:
        rounds = ", ".join(f"`{r}`" for r in sorted({s.round_ for s in scores}))
        raise InputError(
            f"there is no score of round `{wanted}` in division `{division}`",
            hint=f"there is {rounds}" if rounds else "import results with `advisor knowledge import-mlperf PATH`",
        )
    typer.echo(json.dumps(scores_record(chosen), indent=2) if format == "json" else scores_text(chosen))

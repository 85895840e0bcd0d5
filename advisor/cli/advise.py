"""`advisor advise`: from a project to a verified lock, anew or as a change of the one that there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.context import opened
from advisor.cli.options import check_format
from advisor.cli.project_options import ProjectOptions, asks

if TYPE_CHECKING:
    from advisor.index.client import IndexClient
    from advisor.project.locks import Lock
    from advisor.report.interface import AdviceReport
    from advisor.report.update import LockChange
    from advisor.resolve.problem import Candidate
    from advisor.resolve.recommend import ResolutionRequest

_TOOLS = {"uv.lock": "uv", "poetry.lock": "Poetry", "pdm.lock": "PDM"}
"""Locks that only their own tool writes."""


@asks
def advise(
    asked: ProjectOptions,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="pylock.toml (default), pylock.NAME.toml, *.txt, Pipfile.lock or *.cdx.json (repeatable).",
        ),
    ] = None,
    format: Annotated[
        str, typer.Option("--format", metavar="text|json|html", help="What to print on standard output.")
    ] = "text",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write no lock.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Change the lock only as far as `advisor check` asks, provably least.")
    ] = False,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Take the best stack, whatever the lock has.")] = False,
    pr_body: Annotated[
        Path | None, typer.Option("--pr-body", metavar="FILE", help="Write what changes and why, as Markdown.")
    ] = None,
) -> None:
    """Recommend, verify and lock the best-scored stack of a project for a target machine."""
    from advisor.lock.formats import check_lock_path
    from knowledge.domain.errors import InputError

    check_format(format, among=("text", "json", "html"))
    for path in output or ():
        check_lock_path(path)
    if pr_body is not None and not pr_body.parent.is_dir():
        raise InputError(f"`{pr_body.parent}` is not a directory")
    if update and upgrade:
        raise InputError("`--update` and `--upgrade` contradict each other", hint="name one of them")
    if update and format == "html":
        raise InputError(
            "`--update` has no HTML report", hint="take `--pr-body FILE`, or `advisor check --format html`"
        )
    if update:
        _update(asked, output, format, dry_run=dry_run, pr_body=pr_body)
    else:
        _advise(asked, output, format, dry_run=dry_run, pr_body=pr_body)


def _advise(
    asked: ProjectOptions, output: list[Path] | None, format: str, *, dry_run: bool, pr_body: Path | None
) -> None:
    from advisor.lock.formats import check_lock_path
    from advisor.report.interface import AdviceReport
    from advisor.resolve.recommend import recommend
    from knowledge.domain.atomic_file import write_atomically

    with opened(asked) as project:
        own = project.prepared.lock
        paths = [] if dry_run else output or [own or asked.directory / "pylock.toml"]
        for path in paths:
            check_lock_path(path)
        inquiry = project.ask(None)
        current = project.current.versions if project.current else None
        advice = recommend(inquiry, current=current)
        _write(paths, advice.optimum.stack, inquiry, project.client)
        written = tuple(map(str, paths))
        if pr_body is not None:
            from advisor.gate.compare import effect_order
            from advisor.report.update import LockChange, pull_request_body

            stack, before = {str(c.name): c.version for c in advice.optimum.stack}, current or {}
            change = LockChange(
                target=project.prepared.target,
                before=before,
                optimum=advice.optimum,
                prediction=project.estimator.predict(stack, before),
                effects=sorted(project.estimator.effects(stack, before), key=effect_order),
                reasons=advice.reasons,
                lock_paths=written,
            )
            write_atomically(pr_body, pull_request_body(change))
        report = AdviceReport(
            advice=advice,
            target=project.prepared.target,
            lock_paths=written,
            direct=frozenset(inquiry.direct),
            workload_proposal=project.prepared.proposal,
        )
        typer.echo(_told(report, format, inquiry))


def _told(report: AdviceReport, format: str, inquiry: ResolutionRequest) -> str:
    if format == "json":
        from advisor.report.json import advice_json

        return advice_json(report)
    if format == "html":
        from advisor.report.html import advice_html
        from advisor.resolve.prices import constraint_prices

        return advice_html(report, inquiry, constraint_prices(inquiry, report.advice.optimum))
    from advisor.report.text import advice_text

    return advice_text(report)


def _update(
    asked: ProjectOptions, output: list[Path] | None, format: str, *, dry_run: bool, pr_body: Path | None
) -> None:
    from datetime import UTC, datetime

    from advisor.cli.gate_session import judged
    from advisor.gate.compare import effect_order
    from advisor.gate.recommendation import without_pins
    from advisor.gate.update import find_smallest_update
    from advisor.report.update import LockChange, pull_request_body, update_json, update_text
    from knowledge.domain.atomic_file import write_atomically
    from knowledge.domain.errors import InputError

    with judged(asked, None) as (judgement, prepared):
        if len(prepared) > 1:
            raise InputError("a lock is updated for one target at a time", hint="name one `--target`")
        case, one = judgement.targets[0].case, prepared[0]
        lock = case.head.lock
        problem = without_pins(one.problem, lock)
        # What is locked stays a candidate, even where it was withdrawn: whether it may stay is the gate's to say.
        kept = replace(problem.policy, retained=frozenset(lock.versions.items()))
        inquiry = replace(one, problem=replace(problem, policy=kept)).inquiry(case.client, case.predictor.estimator)
        found = find_smallest_update(judgement.targets[0], inquiry, judgement.policy, today=datetime.now(UTC).date())
        stack = {str(c.name): c.version for c in found.optimum.stack}
        change = LockChange(
            target=one.target,
            before=lock.versions,
            optimum=found.optimum,
            prediction=case.predictor.predict(stack, lock.versions),
            effects=sorted(case.predictor.effects(stack, lock.versions), key=effect_order),
            cleared=found.cleared,
            remaining=found.remaining,
            smallest=True,
            reasons={},
            leaves_open=lock.is_project,
        )
        if change.changes:
            change = _apply(change, lock, output, inquiry, case.client, dry_run=dry_run)
        if pr_body is not None:
            write_atomically(pr_body, pull_request_body(change))
    typer.echo(update_json(change) if format == "json" else update_text(change))
    if change.remaining:
        raise typer.Exit(1)


def _apply(
    change: LockChange,
    lock: Lock,
    output: list[Path] | None,
    inquiry: ResolutionRequest,
    client: IndexClient,
    *,
    dry_run: bool,
) -> LockChange:
    """Write a change into the lock, or tell how its own tool does; return it with what was done."""
    from advisor.lock.pins import with_pins
    from knowledge.domain.atomic_file import write_atomically

    path = lock.path
    if output or path is None:
        paths = [] if dry_run else output or []
        _write(paths, change.optimum.stack, inquiry, client)
        return replace(change, lock_paths=tuple(map(str, paths)))
    if path.name in _TOOLS:
        return replace(change, commands=(_command(path.name, change),))
    if not dry_run and lock.is_project and not lock.records_hashes:
        versions = {c.package: c.after for c in change.changes if c.after is not None}
        # A requirements file may include others.
        pinned = sorted({Path(root.path) for root in inquiry.problem.roots if root.name in versions})
        for file in pinned:
            write_atomically(file, with_pins(file.read_text(encoding="utf-8"), versions))
        return replace(change, lock_paths=tuple(map(str, pinned)))
    if not dry_run:
        _write([path], change.optimum.stack, inquiry, client)
    return change if dry_run else replace(change, lock_paths=(str(path),))


def _command(lock: str, change: LockChange) -> str:
    wanted = [f"{c.package}=={c.after}" for c in change.changes if c.after is not None]
    if lock == "uv.lock":
        return f"uv lock {' '.join(f'--upgrade-package {word}' for word in wanted)}"
    return f"lock {', '.join(wanted)} with {_TOOLS[lock]}, which alone writes `{lock}`"


def _write(paths: Sequence[Path], stack: Sequence[Candidate], inquiry: ResolutionRequest, client: IndexClient) -> None:
    """Write the locks, each whole or not at all; none before all of them are made."""
    if not paths:
        return
    from advisor.lock.formats import lock_text
    from knowledge.domain.atomic_file import write_atomically

    client.prefetch_sizes(c.file for c in stack)
    files = {c.name: client.pinned(c.file) for c in stack}
    texts = [
        lock_text(
            path,
            stack,
            files,
            problem=inquiry.problem,
            source=inquiry.source,
            configuration=client.configuration,
        )
        for path in paths
    ]
    for path, text in zip(paths, texts, strict=True):
        write_atomically(path, text)

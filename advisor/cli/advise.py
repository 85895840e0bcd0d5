"""`advisor advise`: from a project to a verified lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.asking import Asked, asks
from advisor.cli.opening import Opened, opened
from advisor.cli.options import FormatOption, check_format

if TYPE_CHECKING:
    from advisor.resolve.recommend import Advice, Inquiry


@asks
def advise(
    asked: Asked,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="pylock.toml (default), pylock.NAME.toml, *.txt, Pipfile.lock or *.cdx.json (repeatable).",
        ),
    ] = None,
    format: FormatOption = "text",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
) -> None:
    """Recommend, verify and lock the best-scored stack of a project for a target machine."""
    from advisor.lock.formats import check_lock_path
    from advisor.report.interface import Report
    from advisor.report.json import advice_json
    from advisor.report.text import advice_text
    from advisor.resolve.recommend import recommend

    check_format(format)
    paths = [] if dry_run else output or [asked.directory / "pylock.toml"]
    for path in paths:
        check_lock_path(path)
    with opened(asked) as project:
        inquiry = project.ask(None)
        advice = recommend(inquiry, current=project.current.versions if project.current else None)
        _write(paths, advice, inquiry, project)
    report = Report(
        advice=advice,
        target=project.prepared.target,
        written=tuple(map(str, paths)),
        direct=frozenset(inquiry.direct),
        proposal=project.prepared.proposal,
    )
    typer.echo(advice_json(report) if format == "json" else advice_text(report))


def _write(paths: list[Path], advice: Advice, inquiry: Inquiry, project: Opened) -> None:
    """Write the locks, each whole or not at all; none before all of them are made."""
    if not paths:
        return
    from advisor.lock.formats import lock_text
    from advisor.lock.write import write_atomically

    stack, client = advice.optimum.stack, project.client
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

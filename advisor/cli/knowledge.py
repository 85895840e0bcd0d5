"""`advisor knowledge`: the knowledge base."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import FormatOption, KnowledgeOption, check_format

if TYPE_CHECKING:
    from knowledge.store.base import KnowledgeBase

app = typer.Typer(help="Look into, fill and copy the knowledge base.", no_args_is_help=True, rich_markup_mode=None)


@app.command("status")
def status(knowledge: KnowledgeOption = None, format: FormatOption = "text") -> None:
    """Print where the knowledge base is and what it holds."""
    check_format(format)
    with _open(knowledge) as store:
        content = store.content()
    if format == "json":
        typer.echo(json.dumps(asdict(content), indent=2))
        return
    total = sum(number for _, number in content.observations)
    by_status = ", ".join(f"{number} {name}" for name, number in content.observations)
    typer.echo(f"knowledge base  {content.address} (revision {content.revision})")
    typer.echo(f"observations    {total}{f' ({by_status})' if by_status else ''}")
    typer.echo(f"stacks          {content.stacks}")
    typer.echo(f"hardware        {content.hardware}")
    typer.echo(f"blocks          {content.blocks}")
    for name, number in content.indicators:
        typer.echo(f"  {name:30} {number}")


@app.command("import")
def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Observation files (JSON Lines, also gzipped).")
    ],
    knowledge: KnowledgeOption = None,
) -> None:
    """Store the observations of files; what is known already is not counted twice."""
    from knowledge.domain.errors import InputError
    from knowledge.exchange.files import read_lines, read_observations

    with _open(knowledge) as store:
        for path in files:
            try:
                content = path.read_bytes()
            except OSError as error:
                raise InputError(f"`{path}` cannot be read: {error.strerror}") from None
            ingest = store.add(read_observations(read_lines(content, where=str(path)), where=str(path)))
            typer.echo(f"{path}: {ingest.added} added, {ingest.known} known already")


@app.command("export")
def export(
    output: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to; by default standard output.")
    ] = None,
    block: Annotated[str | None, typer.Option("--block", help="Only the observations of one block.")] = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Write the observations as JSON Lines, in an order that does not depend on how they came in."""
    from advisor.lock.write import write_atomically
    from knowledge.exchange.files import write_observations

    with _open(knowledge) as store:
        lines = write_observations(store.observations(block=block))
        if output is None:
            for line in lines:
                typer.echo(line)
        else:
            write_atomically(output, "".join(f"{line}\n" for line in lines))


def _open(address: str | None) -> KnowledgeBase:
    from knowledge.store.engine import default_address, open_knowledge_base

    return open_knowledge_base(address or default_address())

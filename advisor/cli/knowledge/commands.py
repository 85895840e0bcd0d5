"""`advisor knowledge`: the knowledge base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.option import read_moment
from advisor.cli.command_help import CommandGroup
from advisor.cli.console import say, warn
from advisor.cli.knowledge import deliveries, queries, tables
from advisor.cli.options import FormatOption, KnowledgeOption, print_either
from advisor.index.vulnerabilities.database import AdvisoryDatabase, read_records
from advisor.user_directories import advisory_database_path
from knowledge.domain.errors import InputError, suggest
from knowledge.domain.observation import BENCHMARK
from knowledge.domain.shared_files import read_bytes, write_atomically
from knowledge.exchange.admission import AdmissionResult
from knowledge.exchange.files import SkippedLine, observation_file, read_lines, read_observations, write_observations
from knowledge.exchange.parquet import parquet_table
from knowledge.store.base import KnowledgeBase, StoredBlock

app = CommandGroup(
    help="Query, import, export and verify the knowledge base.", no_args_is_help=True, rich_markup_mode=None
)
_MANY = 20


@app.command("status")
def status(knowledge: KnowledgeOption = None, format: FormatOption = "text") -> None:
    """Print where the knowledge base is and what it holds."""
    with api.stores.open_readable_store(knowledge) as store:
        content = store.content()
    total = sum(number for _, number in content.observations)
    by_status = ", ".join(f"{number} {name}" for name, number in content.observations)
    lines = (
        f"knowledge base  {content.address} (revision {content.revision})",
        f"content         {content.digest[:16]}",
        f"observations    {total}{f' ({by_status})' if by_status else ''}",
        f"stacks          {content.stacks}",
        f"hardware        {content.hardware}",
        f"blocks          {content.blocks}",
        *(f"  {name:30} {number}" for name, number in content.indicators),
    )
    print_either(format, {"schema_version": 1, **asdict(content)}, "\n".join(lines))


@app.command("import")
def import_(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|URL...", help="Observation files or knowledge bases.\nFiles are JSON Lines, also gzipped."
        ),
    ],
    keep_valid: Annotated[
        bool, typer.Option("--keep-valid", help="Store what is sound in a damaged file.\nThe rest is listed.")
    ] = False,
    source: deliveries.SourceOption = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Store the observations of files and of other knowledge bases; observations that are already stored are skipped.

    Implausible observations are quarantined: see `advisor knowledge quarantine`.
    """
    from knowledge.store.engine import open_import_source

    with api.stores.open_writable_store(knowledge) as store:
        sink = api.stores.AdmittingSink(store, source=source or "", warn=warn)
        for place in sources:
            if _is_knowledge_base(place):
                with open_import_source(place) as other:
                    ingest, lines = sink.add(other.observations(), shipped=other.shipped_identities()), 0
            else:
                ingest, lines = _import_file(sink, Path(place), keep_valid=keep_valid)
            left_out = f", {lines} lines left out" if lines else ""
            if ingest.omitted:
                left_out += f", {ingest.omitted} left out that only shipped files brought there"
            quarantined = f", {len(ingest.quarantined)} quarantined" if ingest.quarantined else ""
            typer.echo(f"{place}: {ingest.added} added, {ingest.known} already stored{quarantined}{left_out}")


@app.command("import-advisories")
def import_advisories(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR...", help="Records in the OSV format.\nA JSON file, a zip archive or a directory of them."
        ),
    ],
) -> None:
    """Store a copy of an advisory database, so that known vulnerabilities need no network."""
    path = advisory_database_path()
    if path is None:
        raise InputError("there is no home directory to store advisories in", hint="set `XDG_DATA_HOME`")
    database = AdvisoryDatabase(path)
    result = database.add(record for source in sources for record in read_records(source))
    typer.echo(
        f"{result.stored} advisories stored, {result.removed} retracted ones removed, {result.skipped} of other "
        f"ecosystems skipped; {database.count()} in `{path}`"
    )


def _is_knowledge_base(source: str) -> bool:
    if "://" in source:
        return True
    try:
        with Path(source).open("rb") as file:
            return file.read(16) == b"SQLite format 3\x00"
    except OSError:
        return False


def _import_file(sink: api.stores.AdmittingSink, path: Path, *, keep_valid: bool) -> tuple[AdmissionResult, int]:
    content = read_bytes(path)
    damaged: list[SkippedLine] | None = [] if keep_valid else None
    lines = read_lines(content, where=str(path), damaged=damaged)
    ingest = sink.add(read_observations(lines, where=str(path), damaged=damaged))
    for line in (damaged or [])[:_MANY]:
        warn(f"{path}:{line.number}: left out: {line.reason}")
    if damaged and len(damaged) > _MANY:
        warn(f"and {len(damaged) - _MANY} more lines")
    return ingest, len(damaged or [])


@app.command("export")
def export(
    output: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to; by default standard output.")
    ] = None,
    block: Annotated[str | None, typer.Option("--block", help="Only the observations of one block.")] = None,
    indicator: Annotated[str | None, typer.Option("--indicator", help="Only observations of one indicator.")] = None,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="One flat table in Apache Parquet.\nFor analysis; it is not read back.")
    ] = False,
    knowledge: KnowledgeOption = None,
) -> None:
    """Write the observations as JSON Lines, in an order that does not depend on how they came in.

    Those of benchmarks are private to their project: `--block` or `--indicator benchmark` exports them.
    """
    if parquet and output is None:
        raise InputError("a Parquet table is not text", hint="name a file: `advisor knowledge export --parquet FILE`")
    with api.stores.open_readable_store(knowledge) as store:
        observations = store.observations(block=block, indicator=indicator)
        if block is None and indicator is None:
            private = sum(1 for _ in store.observations(indicator=BENCHMARK))
            observations = (o for o in observations if o.indicator.name != BENCHMARK)
            if private:
                say(f"{private} observations of benchmarks are private and were left out; export them with `--block`")
        if output is None:
            for line in write_observations(observations):
                typer.echo(line)
        elif parquet:
            write_atomically(output, parquet_table(observations))
        else:
            write_atomically(output, observation_file(observations, compressed=output.suffix == ".gz"))


@app.command("verify")
def verify(knowledge: KnowledgeOption = None) -> None:
    """Read everything and check it against its hashes; exit code 1 where something is damaged."""
    with api.stores.open_readable_store(knowledge) as store:
        damaged = 0
        for description in store.find_damage():
            damaged += 1
            typer.echo(f"damaged: {description}")
        total = sum(block.observations for block in store.blocks())
    if damaged:
        say(
            f"{damaged} damaged records; export the others with `advisor knowledge export` and import them into a new "
            "knowledge base"
        )
        raise typer.Exit(1)
    typer.echo(f"{total} observations: every one is as it was stored")


@app.command("prune")
def prune(
    block: Annotated[
        list[str] | None, typer.Option("--block", metavar="NAME", help="Remove this block (repeatable).")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="DATE", help="Remove blocks that ended before this date.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    knowledge: KnowledgeOption = None,
) -> None:
    """Remove whole blocks permanently; blocks that ship with the program return only if you import them again."""
    if not block and before is None:
        raise InputError("nothing says what to remove", hint="name `--block NAME` or `--before 2025-01-01`")
    with api.stores.open_writable_store(knowledge) as store:
        blocks = {b.name: b for b in store.blocks()}
        for name in block or ():
            if name not in blocks:
                raise InputError(f"there is no block `{name}`", hint=suggest(name, blocks, otherwise=""))
        names = sorted({*(block or ()), *(_ended_before(store, blocks.values(), before) if before else ())})
        for name in names:
            typer.echo(f"{'would remove' if dry_run else 'removed'} `{name}`: {blocks[name].observations} observations")
        if not dry_run:
            store.remove(names)
    if not names:
        typer.echo("no block is that old")


def _ended_before(store: KnowledgeBase, blocks: Iterable[StoredBlock], before: str) -> Iterator[str]:
    """Yield the blocks whose last observation began before a date."""
    limit = read_moment(before, "--before")
    for block in blocks:
        if max(read_moment(o.started_at, "--before") for o in store.observations(block=block.name)) < limit:
            yield block.name


app.command("push")(deliveries.push)
app.command("pull")(deliveries.pull)
app.add_typer(deliveries.tokens, name="token")
app.add_typer(deliveries.quarantine, name="quarantine")
app.add_typer(deliveries.sources, name="source")
app.command("compare")(queries.compare)
app.command("estimate")(queries.estimate)
app.command("import-mlperf")(queries.import_mlperf)
app.command("import-published")(tables.import_published)
app.command("import-dawnbench")(tables.import_dawnbench)
app.command("mlperf-table")(queries.mlperf_table)

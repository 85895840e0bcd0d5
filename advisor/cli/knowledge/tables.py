"""`advisor knowledge import-published|import-dawnbench`: published measurements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.cli.console import warn
from advisor.cli.knowledge.queries import ObservationFileOption
from advisor.cli.options import FormatOption, KnowledgeOption, print_either
from advisor.domain.progress import activity, hide_progress
from advisor.domain.words import count
from knowledge.domain.observation import Observation
from knowledge.domain.shared_files import write_atomically
from knowledge.exchange.admission import AdmissionResult
from knowledge.exchange.dawnbench.tree import read_entries
from knowledge.exchange.files import SkippedLine, observation_file
from knowledge.exchange.published.observations import PublishedTable, read_published

_MANY = 20
"""Number of lines that are listed for one reason."""
_MANY_REASONS = 3
"""Number of reasons that are listed where they differ in their values only."""
_VALUE = re.compile(r"`[^`]*`|[-+]?\d[\d.,e+]*")
"""What differs between reasons of one kind: quoted text and numbers."""


def import_published(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Tables of published measurements.\nCSV or JSON Lines, also gzipped."),
    ],
    output: ObservationFileOption = None,
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Store measurements that others published; rows that cannot be used are listed with the reason.

    Nothing is stored if a file is not such a table. `--format json` lists all rows that were skipped.
    """
    tables = []
    for path in files:
        with activity("reading %s", path.name):
            tables.append((path, read_published(path)))
    hide_progress()
    for path, table in tables:
        for warning in table.warnings:
            warn(f"{path}: {warning.message}", warning.hint)
        if format == "text":
            _list_skipped(path, table.skipped)
    if output is not None:
        _write(output, tables, format)
        return
    with api.stores.open_writable_store(knowledge) as store, activity("storing the measurements"):
        # One delivery, so that either the rows of all files are stored or none.
        result = api.stores.AdmittingSink(store, warn=warn).add(o for _, table in tables for o in table.observations)
    hide_progress()
    _print_result(tables, result, format)


def _list_skipped(path: Path, skipped: Sequence[SkippedLine]) -> None:
    """Print why rows were skipped: rows with the same reason together, and reasons that differ in their values only."""
    kinds: dict[str, dict[str, list[int]]] = {}
    for row in skipped:
        kinds.setdefault(_VALUE.sub("", row.reason), {}).setdefault(row.reason, []).append(row.number)
    for reasons in kinds.values():
        listed = list(reasons.items())[:_MANY_REASONS]
        for reason, numbers in listed:
            warn(f"{path}: {_lines(numbers)}: skipped: {reason}")
        if rest := [number for numbers in list(reasons.values())[_MANY_REASONS:] for number in numbers]:
            warn(f"{path}: {_lines(sorted(rest))}: skipped for the same reason, with other values")


def _lines(numbers: Sequence[int]) -> str:
    places = ", ".join(map(str, numbers[:_MANY])) + (f" and {len(numbers) - _MANY} more" * (len(numbers) > _MANY))
    return f"{'line' if len(numbers) == 1 else 'lines'} {places}"


def _write(output: Path, tables: Sequence[tuple[Path, PublishedTable]], format: str) -> None:
    observations = [o for _, table in tables for o in table.observations]
    _write_observations(output, observations)
    text = f"wrote {len(observations)} observations to `{output}`"
    print_either(format, {**_record(tables), "output": str(output)}, text)


def _write_observations(output: Path, observations: Sequence[Observation]) -> None:
    content = observation_file(observations, compressed=output.suffix == ".gz", with_identities=False)
    write_atomically(output, content)


def _print_result(tables: Sequence[tuple[Path, PublishedTable]], result: AdmissionResult, format: str) -> None:
    stored = {"added": result.added, "known": result.known, "quarantined": len(result.quarantined)}
    quarantined = f", {len(result.quarantined)} quarantined" if result.quarantined else ""
    lines = (
        *(f"{path}: {', '.join(_counts(table))}" for path, table in tables),
        f"{result.added} observations added, {result.known} already stored{quarantined}",
    )
    print_either(format, {**_record(tables), **stored}, "\n".join(lines))


def _counts(table: PublishedTable) -> list[str]:
    parts = [count(table.rows, "row"), count(len(table.observations), "observation")]
    if table.repetitions:
        parts.append(f"{count(table.repetitions, 'row')} joined with others of the same configuration")
    if table.duplicates:
        parts.append(f"{count(len(table.duplicates), 'duplicate')} counted once")
    return [*parts, f"{len(table.skipped)} skipped"]


def _record(tables: Sequence[tuple[Path, PublishedTable]]) -> dict[str, object]:
    return {
        "schema_version": 1,
        "files": [
            {
                "file": str(path),
                "rows": table.rows,
                "observations": len(table.observations),
                "repetitions": table.repetitions,
                "duplicates": list(table.duplicates),
                "skipped": [{"line": row.number, "reason": row.reason} for row in table.skipped],
                "warnings": [{"message": w.message, "hint": w.hint} for w in table.warnings],
            }
            for path, table in tables
        ],
    }


def import_dawnbench(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Checkouts of DAWNBench's entries.\nDirectories that have `ImageNet`."),
    ],
    output: ObservationFileOption = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Store DAWNBench's published entries with their prices; entries without a result are listed with the reason.

    They are records: no estimate uses them.
    """
    imported = read_entries(paths)
    for skipped in imported.skipped:
        warn(f"`{skipped.path}` was left out: {skipped.reason}")
    for warning in imported.warnings:
        warn(warning)
    if output is not None:
        _write_observations(output, imported.observations)
        typer.echo(f"wrote {len(imported.observations)} observations to `{output}`")
        return
    with api.stores.open_writable_store(knowledge) as store:
        result = api.stores.AdmittingSink(store, warn=warn).add(imported.observations)
    repeated = f", {imported.repeated} repeat another entry" if imported.repeated else ""
    typer.echo(
        f"{count(len(imported.observations), 'observation')}: {result.added} added, {result.known} already stored, "
        f"{len(result.quarantined)} quarantined, {len(imported.skipped)} left out{repeated}"
    )

"""Published measurements as observations: the border to the knowledge base."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path

from knowledge.domain.errors import InputError, suggest
from knowledge.domain.observation import PUBLISHED, IndicatorRun, Observation, Scalar
from knowledge.domain.shared_files import read_bytes
from knowledge.domain.stack import PackageVersion, Stack
from knowledge.exchange.files import SkippedLine
from knowledge.exchange.ngc import CONTAINER_INDEX
from knowledge.exchange.published.checks import Group, check_table
from knowledge.exchange.published.columns import RowError, TableRow, read_table
from knowledge.exchange.published.machine import accelerators_in, is_cpu, make_hardware, unknown_gpu
from knowledge.exchange.published.measurement import Measurement, read_measurement
from knowledge.exchange.published.names import read_word, task_names
from knowledge.hardware.accelerators import closest_models

PUBLISHED_INDEX = "published"
"""Index of packages whose origin a table does not state."""
_COMPANIONS = ("cublas", "nccl", "tensorrt")
_LARGEST_FILE = 256 * 2**20
_LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWarning:
    """Something that was imported although it is not fully known: one sentence, and what it may mean."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """Result of reading a table.

    Attributes:
        observations: One for each configuration of each publication, in order of the rows.
        rows: Number of rows of the table.
        skipped: Rows without an observation, in order.
        duplicates: Numbers of rows that repeat another row, in order; each is counted once.
        repetitions: Number of rows that were joined with another measurement of the same configuration.
        warnings: What is not fully known.
    """

    observations: tuple[Observation, ...]
    rows: int
    skipped: tuple[SkippedLine, ...]
    duplicates: tuple[int, ...]
    repetitions: int
    warnings: tuple[TableWarning, ...]


def read_published(path: Path) -> PublishedTable:
    """Read a file of published measurements: CSV or JSON Lines, also compressed with gzip.

    Raises:
        InputError: If the file cannot be read or is not such a table.
    """
    if path.is_file() and path.stat().st_size > _LARGEST_FILE:
        raise InputError(f"`{path}` is larger than {_LARGEST_FILE // 2**20} MiB", hint="divide it")
    return read_published_content(read_bytes(path), where=str(path))


def read_published_content(content: bytes, *, where: str, today: date | None = None) -> PublishedTable:
    """Read the content of a file of published measurements; ``today`` is the current day in UTC.

    Raises:
        InputError: If the content is not such a table.
    """
    table = read_table(content, where=where)
    measurements, skipped = _measurements(table.rows, today)
    groups, unbelieved, duplicates = check_table(measurements)
    skipped = sorted((*table.skipped, *skipped, *unbelieved), key=lambda row: row.number)
    if not groups:
        raise InputError(
            f"`{where}` contains no measurement that can be used",
            hint=f"line {skipped[0].number}: {skipped[0].reason}" if skipped else "it has no rows",
        )
    return PublishedTable(
        observations=tuple(_observation(group) for group in groups),
        rows=len(table.rows) + len(table.skipped),
        skipped=tuple(skipped),
        duplicates=duplicates,
        repetitions=sum(len(group.values) - 1 for group in groups),
        warnings=tuple(_warnings(table.unknown, measurements)),
    )


def _measurements(rows: tuple[TableRow, ...], today: date | None) -> tuple[list[Measurement], list[SkippedLine]]:
    measurements, skipped = [], []
    for row in rows:
        try:
            m = read_measurement(row, today=today)
            if not m.gpu:
                raise RowError("`gpu` is empty; write `cpu` for a measurement without a GPU")
            if several := accelerators_in(m.gpu):
                raise RowError(
                    f"`gpu` is `{m.gpu}`, which names {' and '.join(f'`{name}`' for name in several)}; a row has one "
                    "kind of GPU, and `gpus` says how many"
                )
            measurements.append(m)
        except RowError as error:
            skipped.append(SkippedLine(number=row.number, reason=str(error)))
    return measurements, skipped


def _warnings(unknown: Sequence[str], measurements: Sequence[Measurement]) -> Iterator[TableWarning]:
    """Yield what is not fully known of a table: its unknown columns, precisions, GPUs and tasks."""
    if unknown:
        names = ", ".join(f"`{name}`" for name in unknown)
        hint = "write settings as `settings` (`name=value;...`)"
        yield TableWarning(message=f"columns that are not read: {names}", hint=hint)
    if other := [m for m in measurements if m.precision != read_word("precision", m.row.text("precision"))]:
        message = f"the unit of {len(other)} rows names another precision than their column; the unit counts"
        yield TableWarning(message=message, hint=f"line {other[0].row.number} is the first")
    for gpu in sorted({gpu for m in measurements if (gpu := unknown_gpu(m)) is not None}):
        nearest = ", ".join(f"`{name}`" for name in closest_models(gpu))
        hint = f"the nearest known ones are {nearest}" if nearest else ""
        yield TableWarning(message=f"the GPU `{gpu}` is unknown and keeps its name", hint=hint)
    for task in sorted({m.task.name for m in measurements if not m.task.listed}):
        hint = suggest(task, task_names(), otherwise="")
        yield TableWarning(message=f"the task `{task}` is unknown and keeps its name", hint=hint)


def _observation(group: Group) -> Observation:
    m = group.first
    parameters: dict[str, int | float | str] = {
        "task": m.task.name,
        "mode": m.mode,
        "gpus": m.gpus,
        "unit": m.unit.name,
        **m.configuration.parameters,
    }
    if m.task.variant:
        parameters["variant"] = m.task.variant
    if m.batch is not None:
        parameters["batch"] = m.batch
    gpu = not is_cpu(m.gpu)
    return Observation(
        indicator=IndicatorRun(
            name=PUBLISHED,
            version=1,
            backend=m.framework,
            device="cuda" if gpu else "cpu",
            dtype="as-published",
            parameters=parameters,
        ),
        framework=m.framework,
        stack=_stack(m),
        hardware=make_hardware(m),
        block=f"published/{m.row.text('repository')}",
        round=0,
        arm=0,
        reference=False,
        started_at=datetime.combine(m.day, time(), UTC).isoformat(timespec="seconds"),
        status="ok",
        # Published values have no more digits; the value itself is in the metrics.
        samples=(float(f"{group.seconds:.6g}"),),
        loops=1,
        steady=True,
        flops=m.task.flops,
        bytes=m.task.bytes,
        settings={"precision": m.precision, **m.configuration.speed},
        environment=_environment(m),
        metrics={"value": group.value, "runs": float(m.runs * len(group.values))},
        schema=2,
    )


def _stack(m: Measurement) -> Stack:
    index = CONTAINER_INDEX if m.container or "a0+" in m.versions.get("version", "") else PUBLISHED_INDEX
    names = {m.framework: "version", **{name: name for name in _COMPANIONS}}
    packages = [
        PackageVersion(name=name, version=m.versions[key], index=index)
        for name, key in names.items()
        if key in m.versions
    ]
    return Stack(
        packages=tuple(sorted(packages)),
        python=m.versions.get("python", ""),
        platform="linux_x86_64",
        implementation="",
        cuda=m.versions.get("cuda"),
        cudnn=m.versions.get("cudnn"),
    )


def _environment(m: Measurement) -> dict[str, Scalar]:
    row = m.row
    described = {f"described:{name}": value for name, value in m.configuration.described.items() if name != "host"}
    texts = {
        "repository": row.text("repository"),
        "commit": row.text("commit"),
        "path": row.text("path"),
        "source": source_address(row),
        "licence": m.repository.licence,
        "date": row.text("date"),
        "container": m.container,
        "host": str(m.configuration.described.get("host", "")),
        "better": "lower" if m.unit.lower else "higher",
        "task": row.text("task"),
        "unit": row.text("unit"),
        "precision": row.text("precision"),
        **described,
    }
    return {name: str(text)[: _LONGEST_TEXT * 2] for name, text in texts.items() if text}


def source_address(row: TableRow) -> str:
    """Return the address where a row stands: its file at its commit, or the nearest directory of it."""
    repository, commit, path = row.text("repository"), row.text("commit"), row.text("path")
    if "://" in repository:
        return repository
    address = f"https://github.com/{repository}"
    if not commit:
        return address
    if path and re.fullmatch(r"[\w./@+ -]+", path) and re.search(r"\.\w+$", path):
        return f"{address}/blob/{commit}/{path.replace(' ', '%20')}"
    # Paths of logs may contain `*`: only the directories before it have an address.
    directory = path.partition("*")[0].rpartition("/")[0] if "*" in path else path
    return f"{address}/tree/{commit}/{directory}".rstrip("/")

"""One row of a table as a measurement in the program's own terms: the border where text becomes values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from packaging.version import InvalidVersion, Version

from knowledge.exchange import ngc
from knowledge.exchange.published import names
from knowledge.exchange.published.columns import RowError, TableRow
from knowledge.exchange.published.configuration import Configuration, read_batch, read_settings, whole_number
from knowledge.exchange.published.units import Unit, read_unit

_EARLIEST = date(2015, 1, 1)
_NVIDIA_BUILD = re.compile(r"\.nv(?P<year>\d\d)\.?(?P<month>\d\d)")
_USERS = ("users", "concurrent_users", "concurrency")
_LARGEST = 1e13
"""Largest rate that is believed, in items per second; the fastest rows of recommenders have less than 1e11."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A row whose texts were understood.

    Attributes:
        row: The row.
        repository: What its repository and path say.
        task: The model.
        mode: ``training`` or ``inference``.
        framework: Distribution name.
        versions: Versions of the stack: ``version`` of the framework, ``cuda``, ``cudnn`` and others; those that the
            row does not state come from its container.
        container: Release of NVIDIA's container, such as ``22.10-tf1``; empty if it is another or unknown.
        precision: Such as ``amp``.
        batch: Batch size; ``None`` if it is not stated.
        gpus: Number of GPUs.
        counts: Stated numbers of what a rate can be of: ``device`` and ``user``; none for what the row does not state.
        configuration: Other settings.
        unit: What the value counts.
        value: The published value.
        runs: Number of runs behind the value.
        day: Day of the publication.
    """

    row: TableRow
    repository: names.Repository
    task: names.Task
    mode: str
    framework: str
    versions: Mapping[str, str]
    container: str
    precision: str
    batch: int | str | None
    gpus: int
    counts: Mapping[str, int]
    configuration: Configuration
    unit: Unit
    value: float
    runs: int
    day: date

    @property
    def gpu(self) -> str:
        """Published name of the GPU; empty if there is none."""
        return self.row.text("gpu") or self.repository.facts.get("gpu", "")

    @property
    def work(self) -> tuple[str, ...]:
        """Whose measurement it is, and of what: task, mode and framework."""
        return self.row.text("repository"), self.task.name, self.task.variant, self.mode, self.framework

    @property
    def seconds(self) -> float:
        """Seconds for an item."""
        batch = self.batch if isinstance(self.batch, int) else None
        return self.unit.seconds_per_item(self.value * self.repository.factor, batch)

    @property
    def seconds_of_all(self) -> float:
        """Seconds for an item by all GPUs together, also if the value is that of each of them."""
        return self.seconds / (self.gpus if self.unit.per == "device" else 1)


def read_measurement(row: TableRow, *, today: date | None = None) -> Measurement:
    """Read the cells of a row; ``today`` is the current day in UTC.

    Raises:
        RowError: If a cell is not what its column says.
    """
    repository = names.read_repository(row)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+|https?://\S+", row.text("repository")):
        raise RowError(f"`repository` is `{row.text('repository')}`; write `USER/NAME` of GitHub, or an address")
    columns = {"gpus", "gpu", "phase"}
    configuration = read_settings(
        row.text("settings"), {name: text for name, text in repository.facts.items() if name not in columns}
    )
    framework = names.read_word("framework", row.text("framework"))
    precision = _precision(row)
    unit = read_unit(repository.unit)
    _check_direction(row, unit)
    container = _container(row, framework)
    gpus = repository.facts.get("gpus") or row.text("gpus")
    return Measurement(
        row=row,
        repository=repository,
        task=_task(row),
        mode=names.read_word("phase", repository.facts.get("phase") or row.text("phase")),
        framework=framework,
        versions=_versions(row, framework, container),
        container=container,
        precision=precision,
        batch=read_batch(row.text("batch"), precision),
        gpus=whole_number(gpus, "gpus") if gpus else _stated_gpus(configuration),
        counts=_counts(configuration, gpus),
        configuration=_with_unit_words(configuration, row.text("unit")),
        unit=unit,
        value=_value(row, unit),
        runs=whole_number(row.text("runs"), "runs") if row.text("runs") else 1,
        day=_day(row.text("date"), today or datetime.now(UTC).date()),
    )


def _task(row: TableRow) -> names.Task:
    """Return the task of a row, with the operations and bytes of an item that the row states."""
    task = names.read_task(row.text("task"))
    flops, moved = (_number(row, name, "an amount") if row.text(name) else 0.0 for name in ("flops", "bytes"))
    return replace(task, flops=flops or task.flops, bytes=moved)


def _precision(row: TableRow) -> str:
    """Return the precision of a row; what its unit quotes from the table's head counts more than the column."""
    stated = names.read_word("precision", row.text("precision"))
    quoted = re.search(r"(?P<tf32>\bTF32)|(?P<fp32>\bFP32)|(?P<amp>mixed[ -]precision|AMP\b)", row.text("unit"), re.I)
    if quoted is None or (quoted.lastgroup == "amp" and stated not in ("fp32", "tf32", "fp64")):
        return stated
    return quoted.lastgroup or stated


def _check_direction(row: TableRow, unit: Unit) -> None:
    better = row.text("better").lower()
    if better not in ("", "higher", "lower"):
        raise RowError(f"`better` is `{better}`; write `higher` or `lower`")
    if better and (better == "lower") != unit.lower:
        raise RowError(f"`better` is `{better}`, which contradicts the unit `{row.text('unit')}`")


def _value(row: TableRow, unit: Unit) -> float:
    value = _number(row, "value", "a rate or a latency")
    if not unit.lower and value * unit.factor > _LARGEST:
        raise RowError(f"`value` is {row.text('value')}: nothing processes {value * unit.factor:.3g} items in a second")
    return value


def _number(row: TableRow, column: str, what: str) -> float:
    text = row.text(column)
    try:
        value = float(text)
    except ValueError:
        raise RowError(f"`{column}` is `{text}`, which is not a number; the decimal mark is a point") from None
    if not math.isfinite(value) or value <= 0:
        raise RowError(f"`{column}` is {text}; {what} is more than 0")
    return value


def _day(text: str, today: date) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise RowError(f"`date` is `{text}`, which is not a day such as `2023-01-31`") from None
    if not _EARLIEST <= day <= today + timedelta(days=1):
        raise RowError(f"`date` is {text}; published measurements are from {_EARLIEST} to today")
    return day


def _container(row: TableRow, framework: str) -> str:
    """Return the release of the container, if the row states one or the build of the framework belongs to only one."""
    text = row.text("container")
    if text:
        if not ngc.is_release(text):
            raise RowError(f"`container` is `{text}`, which is not a release of NVIDIA's containers such as `22.10`")
        if framework == "tensorflow" and "tf" not in text and re.match(r"TensorFlow2?/", row.text("path")):
            return f"{text}-tf{2 if row.text('path').startswith('TensorFlow2/') else 1}"
        return text
    version = row.text("framework_version")
    if match := _NVIDIA_BUILD.search(version):
        return f"{match['year']}.{match['month']}"
    releases = ngc.releases_with_version(framework, version) if "a0+" in version else ()
    return releases[-1] if len(releases) == 1 else ""


def _versions(row: TableRow, framework: str, container: str) -> dict[str, str]:
    versions = dict(ngc.container_versions(framework, container)) if container else {}
    versions.pop("driver", None)
    own = {"version": "framework_version", "cuda": "cuda", "cudnn": "cudnn"}
    for name, column in own.items():
        if text := row.text(column):
            if not re.search(r"\d", text):
                # Logs of builds without a version file contain `..`.
                continue
            try:
                versions[name] = str(Version(text))
            except InvalidVersion:
                raise RowError(f"`{column}` is `{text}`, which is not one version") from None
    if (driver := row.text("driver")) and not re.fullmatch(r"\d+(?:\.\d+)*", driver):
        raise RowError(f"`driver` is `{driver}`, which is not one version")
    return versions


def _stated_gpus(configuration: Configuration) -> int:
    """Return the number of GPUs of a row that has no number: of all nodes of its table, or one."""
    if configuration.nodes is None:
        return 1
    per_node = re.search(r"\b(\d+) ?x", str(configuration.described.get("table", "")))
    return configuration.nodes * (int(per_node[1]) if per_node else 1)


def _counts(configuration: Configuration, gpus: str) -> dict[str, int]:
    counts = {"device": _stated_gpus(configuration)} if configuration.nodes is not None else {}
    if gpus:
        counts["device"] = whole_number(gpus, "gpus")
    users = next((configuration.parameters[name] for name in _USERS if name in configuration.parameters), None)
    return {**counts, "user": users} if isinstance(users, int) and users > 0 else counts


def _with_unit_words(configuration: Configuration, unit: str) -> Configuration:
    """Add what the unit says about the configuration, as in `Throughput mixed precision XLA`."""
    speed, parameters = dict(configuration.speed), dict(configuration.parameters)
    if re.search(r"\bXLA\b|(?<=[a-z])XLA\b", unit):
        speed["xla"] = "on"
    if match := re.search(r"\b(TensorRT|PyTorch|TensorFlow)\b", unit, re.IGNORECASE):
        speed["tensorrt"] = "on" if match[1].lower() == "tensorrt" else "off"
    if re.search(r"(?:\b|(?<=[a-z]))ASP\b", unit):
        parameters["sparsity"] = "asp"
    return replace(configuration, speed=speed, parameters=parameters)

"""An entry of DAWNBench: its description in JSON and, of a training, its progress in a table (TSV).

The repository's README describes both files: https://github.com/stanford-futuredata/dawn-bench-entries
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

_REQUIRED = ("version", "author", "framework", "model", "hardware", "timestamp")
_NO_PRICE = (None, "", "NA")
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_MS = 1e-3
_HOUR = 3600.0
_MANY = 10_000
"""Number of inputs that DAWNBench states the cost of inference for."""
_HIGHEST_PRICE = 1000.0
"""USD an hour for one machine above which the cost of one input must be that of 10,000. A judgement: the largest price
of a stated machine is 24.48."""


class UnreadableEntryError(ValueError):
    """Raised when a file is not an entry with a result; its text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DawnTask:
    """A task of DAWNBench.

    Attributes:
        name: The program's name of it.
        target: Quality to reach. SQuAD's is that of DAWNBench's results (https://dawn.cs.stanford.edu/benchmark/, "time
            to 0.75 F1"); the README says 0.73.
        columns: Names of the quality in tables, in lower case.
        qualities: Names of the quality in descriptions; the first one is the README's.
        is_fraction: Whether the quality is a fraction and not a percentage.
    """

    name: str
    target: float
    columns: tuple[str, ...]
    qualities: tuple[str, ...]
    is_fraction: bool = False


TASKS: Mapping[str, DawnTask] = {
    "CIFAR10": DawnTask(
        name="cifar10",
        target=94.0,
        columns=("top1accuracy", "top1"),
        qualities=("top1Accuracy", "top5Accuracy"),
    ),
    "ImageNet": DawnTask(name="imagenet", target=93.0, columns=("top5accuracy", "top5"), qualities=("top5Accuracy",)),
    "SQuAD": DawnTask(name="squad", target=0.75, columns=("f1score", "f1"), qualities=("f1Score",), is_fraction=True),
}
"""Tasks by the names of their folders. An entry of CIFAR10 inference states its accuracy as ``top5Accuracy``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DawnResult:
    """The result of an entry.

    Attributes:
        seconds: Time to the target, or latency of one input.
        quality: Quality at the target, or of the model, in the unit of the task.
        epochs: Label of the epoch at the target; ``None`` for inference.
        cost_of_many: USD for 10,000 inputs; ``None`` for training, and if it is not stated.
        note: What of it was understood in another way than it is written; or empty.
    """

    seconds: float
    quality: float
    epochs: float | None = None
    cost_of_many: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DawnEntry:
    """An entry.

    Attributes:
        path: Path of its description in the repository.
        commit: Commit of the repository, or ``master`` if it is not known.
        task: The task.
        mode: ``training`` or ``inference``.
        author: Who submitted it.
        framework: Framework, as written.
        model: Model, as written.
        hardware: Machine, as written.
        date: Day of the submission.
        hourly: Stated price of an hour in USD; ``None`` if there is none.
        code: Address of the code, or empty.
        versions: Versions of CUDA and cuDNN, by ``cuda`` and ``cudnn``, as far as they are stated.
        result: The result.
    """

    path: str
    commit: str
    task: DawnTask
    mode: str
    author: str
    framework: str
    model: str
    hardware: str
    date: datetime.date
    hourly: float | None
    code: str
    versions: Mapping[str, str]
    result: DawnResult


def read_entry(description: str, progress: str | None, *, path: str, commit: str) -> DawnEntry:
    """Read an entry.

    Args:
        description: Content of the JSON file.
        progress: Content of the table of a training; ``None`` if there is none.
        path: Path of the JSON file in the repository, such as ``ImageNet/train/NAME.json``.
        commit: Commit of the repository, or ``master``.

    Raises:
        UnreadableEntryError: If the entry is malformed, or has no result.
    """
    fields = _fields(description)
    folder, mode, _ = path.split("/")
    task, is_training = TASKS[folder], mode == "train"
    date = _date(fields["timestamp"])
    hourly = None if fields.get("costPerHour") in _NO_PRICE else _positive(fields, "costPerHour")
    return DawnEntry(
        path=path,
        commit=commit,
        task=task,
        mode="training" if is_training else "inference",
        author=fields["author"].strip(),
        framework=fields["framework"].strip(),
        model=fields["model"].strip(),
        hardware=fields["hardware"].strip(),
        date=date,
        hourly=hourly,
        code=str(fields.get("codeURL") or ""),
        versions=_versions(fields.get("misc")),
        result=read_progress(progress, task) if is_training else _latency(fields, task),
    )


def _fields(description: str) -> dict[str, Any]:
    try:
        fields = json.loads(description, parse_constant=_refuse_constant)
    except RecursionError:
        raise UnreadableEntryError("it is too deeply nested") from None
    except ValueError as error:
        raise UnreadableEntryError(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UnreadableEntryError("it is not a JSON object")
    for name in _REQUIRED:
        if not isinstance(fields.get(name), str) or not fields[name].strip():
            raise UnreadableEntryError(f"its `{name}` is missing or no text")
    return fields


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"`{text}` is not a number")


def _date(text: str) -> datetime.date:
    match = _DATE.fullmatch(text.strip())
    try:
        return datetime.date(*map(int, match.groups())) if match else datetime.date.fromisoformat(text)
    except ValueError:
        raise UnreadableEntryError(f"its `timestamp` is `{text}`, not a day such as `2018-04-20`") from None


def _positive(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UnreadableEntryError(f"its `{name}` is `{value}`, not a positive number")
    return float(value)


def _versions(notes: Any) -> dict[str, str]:
    """Return the versions of CUDA and cuDNN in the notes of an entry, which may be a text, too."""
    versions = {}
    for key, value in notes.items() if isinstance(notes, dict) else ():
        name = key.lower().removesuffix(" version")
        if name in ("cuda", "cudnn") and re.fullmatch(r"\d+(\.\d+)+", str(value)):
            versions[name] = str(value)
    return versions


def _latency(fields: Mapping[str, Any], task: DawnTask) -> DawnResult:
    name = next((name for name in task.qualities if fields.get(name) is not None), None)
    if name is None:
        raise UnreadableEntryError(f"its `{task.qualities[0]}` is missing")
    milliseconds, quality, note = _positive(fields, "latency"), _positive(fields, name), ""
    if task.is_fraction and quality > 1:
        quality /= 100
    if quality < task.target:
        raise UnreadableEntryError(f"its `{name}` is {quality:g}, less than the required {task.target:g}")
    cost = None
    if fields.get("cost") is not None:
        cost = _positive(fields, "cost") * _MANY
        if cost / _MANY > _HIGHEST_PRICE / _HOUR * milliseconds * _MS:
            cost /= _MANY
            note = f"its `cost` is understood as that of {_MANY:,} inputs: one would cost more than the machine"
    return DawnResult(seconds=milliseconds * _MS, quality=quality, cost_of_many=cost, note=note)


def read_progress(progress: str | None, task: DawnTask) -> DawnResult:
    """Return the time of the first row of a table of progress that reaches the target.

    Raises:
        UnreadableEntryError: If there is no table, it is malformed, or no row reaches the target.
    """
    if progress is None:
        raise UnreadableEntryError("it has no table of its progress (`.tsv`), so its time is not known")
    lines = [(number, line.split()) for number, line in enumerate(_LINE_ENDS.split(progress), start=1) if line.strip()]
    header = [name.lower() for name in lines[0][1]] if lines else []
    columns = [next((n for n, head in enumerate(header) if head in names), None) for names in _names(task)]
    if None in columns:
        missing = _names(task)[columns.index(None)][0]
        raise UnreadableEntryError(f"its table has no column `{missing}`")
    rows = list(_rows(lines[1:], len(header)))
    epochs, hours, qualities = ([row[n] for row in rows] for n in columns if n is not None)
    note = ""
    if _are_epochs(hours) and not _are_epochs(epochs):
        epochs, hours, note = hours, epochs, "the heads of `epoch` and `hours` in its table are exchanged"
    if any(later < earlier for earlier, later in pairwise(hours)):
        raise UnreadableEntryError("the hours in its table decrease: they are not counted from the start")
    reached = next((n for n, quality in enumerate(qualities) if quality >= task.target), None)
    if reached is None:
        raise UnreadableEntryError(f"its table never reaches the required {task.target:g}")
    if not hours[reached] > 0:
        raise UnreadableEntryError("its table reaches the target after 0 hours")
    return DawnResult(seconds=hours[reached] * _HOUR, quality=qualities[reached], epochs=epochs[reached], note=note)


def _names(task: DawnTask) -> tuple[tuple[str, ...], ...]:
    return ("epoch",), ("hours",), task.columns


def _are_epochs(values: Sequence[float]) -> bool:
    return all(value == int(value) and value > 0 for value in values)


def _rows(lines: Sequence[tuple[int, list[str]]], width: int) -> Iterator[list[float]]:
    for number, cells in lines:
        if len(cells) != width:
            raise UnreadableEntryError(f"line {number} of its table has {len(cells)} cells, and the first line {width}")
        try:
            values = [float(cell) for cell in cells]
        except ValueError as error:
            raise UnreadableEntryError(f"line {number} of its table: {error}") from None
        if not all(map(math.isfinite, values)):
            raise UnreadableEntryError(f"line {number} of its table contains a value that is not a number")
        yield values

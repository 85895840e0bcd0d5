"""Names in published tables: tasks, precisions, frameworks, and what the paths of a repository say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from knowledge.domain.frameworks import frameworks
from knowledge.exchange.published.columns import RowError, TableRow, words
from knowledge.exchange.published.timm import TIMM
from knowledge.records import shipped_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A whole model.

    Attributes:
        name: The program's name of it; the table's own, in lower case, if no other is known.
        variant: What a source distinguishes, such as ``v1.5``; or empty.
        flops: Least floating-point operations for an item; 0 if unknown.
        bytes: Least bytes that an item moves; 0 if unknown.
        listed: Whether the list of tasks names it, or it is a model of timm.
    """

    name: str
    variant: str = ""
    flops: float = 0.0
    bytes: float = 0.0
    listed: bool = True


@cache
def read_task(text: str) -> Task:
    """Return the task that a text names.

    Raises:
        RowError: If the text contains no letter and no digit.
    """
    if not re.search(r"[a-z0-9]", text.lower()):
        raise RowError(f"`task` is `{text}`, which names no model" if text else "`task` is empty")
    if re.fullmatch(rf"{TIMM}\w+", text):
        return Task(name=text)
    plain = _plain(text)
    for entry in shipped_yaml(__package__, "tasks.yaml")["tasks"]:
        if re.fullmatch(entry["match"], plain):
            return Task(name=entry["task"], variant=entry.get("variant", ""), flops=float(entry.get("flops", 0)))
    return Task(name=re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-"), listed=False)


def task_names() -> tuple[str, ...]:
    """Return the names of all listed tasks, sorted."""
    return tuple(sorted({entry["task"] for entry in shipped_yaml(__package__, "tasks.yaml")["tasks"]}))


def read_word(column: str, text: str) -> str:
    """Return the program's word for a cell of the column ``precision``, ``phase`` or ``framework``.

    Of the precisions, ``fp8`` has one scale for each tensor (``FP8-CS`` in Megatron-Bridge), and ``mxfp8`` one for each
    block of 32 values.

    Raises:
        RowError: If the cell is empty or unknown.
    """
    patterns = words()[f"{column}s"]
    if column == "framework":
        patterns = {f.distributions[0]: f.published["names"] for f in frameworks().values() if f.published} | patterns
    plain = _plain(text)
    for name, pattern in patterns.items():
        if re.fullmatch(pattern, plain):
            return str(name)
    choices = ", ".join(f"`{name}`" for name in patterns)
    raise RowError(f"`{column}` is `{text}`; known are {choices}" if text else f"`{column}` is empty")


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[_\-\s]+", " ", text.lower()).split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What is known about a repository of measurements.

    Attributes:
        licence: Its licence; empty if unknown.
        facts: Cells that the path of a row contains, by column or setting.
        factor: By what its values are multiplied.
        unit: The unit of the row, as the repository means it.
    """

    licence: str
    facts: Mapping[str, str]
    factor: float
    unit: str


def read_repository(row: TableRow) -> Repository:
    """Return what the repository and the path of a row say in addition to its columns.

    Raises:
        RowError: If the path contradicts the columns.
    """
    entry = shipped_yaml(__package__, "repositories.yaml")["repositories"].get(row.text("repository"), {})
    path = row.text("path")
    facts: dict[str, str] = {}
    for pattern in entry.get("path", ()):
        for match in re.finditer(pattern, path):
            facts.update({name: text for name, text in match.groupdict().items() if text})
    host = facts.get("host", "")
    if host in entry.get("contradictory", ()):
        raise RowError(f"its path names `{host}`, but its GPU is `{row.text('gpu')}`: which of them ran is unknown")
    if "medians" in entry and row.text("runs") not in ("", "1") and host not in entry["medians"]["one_count"]:
        whose = f"`{host}`" if host else "a host that its path does not name"
        raise RowError(
            f"its value may be a median of {whose} and of hosts with other numbers of GPUs: how many ran is unknown"
        )
    if host and "gpus" not in facts and entry.get("one_gpu"):
        facts["gpus"] = str(entry.get("aliases", {}).get(host, 1))
    unit = row.text("unit")
    meanings = (r["means"] for r in entry.get("units", ()) if r["unit"] == unit and re.search(r["path"], path))
    licence = row.text("licence") or entry.get("licence", "")
    factor = 1.0 if unit == "latency" else _factor(entry, path, row)
    per_gpu = any(all(row.text(column) == text for column, text in rule.items()) for rule in entry.get("per_gpu", ()))
    if per_gpu and "gpus" in facts:
        factor *= int(facts["gpus"])
    return Repository(licence=licence, facts=facts, factor=factor, unit=next(meanings, unit))


def _factor(entry: Mapping[str, Any], path: str, row: TableRow) -> float:
    for rule in entry.get("values", ()):
        try:
            small = float(row.text("value")) < rule["below"]
        except ValueError:
            continue
        if small and re.search(rule["path"], path):
            return float(rule["factor"])
    return 1.0

"""Catalogue of published benchmark suites: which indicators represent their models and operations.

The files of `knowledge/estimate/catalogue` contain one suite each:

- `names` are spelled as in the suite; the entries of a group of names differ only in their name.
- `versions` are the rounds of the suite that contain them (`A to B`); all rounds if absent.
- `represented-by` lists whole models (the indicator `model`) and single operations (with example parameters). It is
  measured in the modes of the group unless it has `modes` of its own.
- `note` says what differs, or why nothing represents the model.
- `source` of the suite lists its models; `source` of a group describes the model.
- `metrics` are what the suite measures, `evidence` is what this program has of it, and `limits` is what it cannot say.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Literal

from knowledge.domain.errors import InputError
from knowledge.records import RecordError, parse_yaml, value_from, yaml_files

Closeness = Literal["same", "similar", "none"]
"""``same`` is the same architecture, ``similar`` has the same kinds of layers, ``none`` is not represented."""

EntryMode = Literal["training", "inference", "operation"]
"""What the suite times; ``operation`` is a part of a program that is neither training nor inference."""

_CONFIG = {"extra": "forbid", "alias_generator": lambda name: name.replace("_", "-")}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSize:
    """What a source states about the size of a model.

    Attributes:
        parameters: Number of trainable parameters.
        operations: Operations of one sample; some sources count a multiply-add as one operation, others as two.
    """

    __pydantic_config__: ClassVar = _CONFIG

    parameters: float | None = None
    operations: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Representation:
    """A whole model or a single operation that represents an entry.

    Attributes:
        model: Name of the whole model; ``None`` if it is a single operation.
        indicator: Name of the indicator of the operation; ``None`` if it is a whole model.
        parameters: Example parameters of the indicator.
        modes: Modes of the whole model, or modes of the entry that the operation represents; the modes of the entry if
            empty.
    """

    __pydantic_config__: ClassVar = _CONFIG

    model: str | None = None
    indicator: str | None = None
    parameters: Mapping[str, int | str] = field(default_factory=dict)
    modes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.model is None) == (self.indicator is None):
            raise ValueError("a representation has either a `model` or an `indicator`")
        if self.model is not None and self.parameters:
            raise ValueError("the parameters of a whole model depend on the size: remove `parameters`")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """A model or an operation of a benchmark suite.

    Attributes:
        key: Unique identifier: the suite and the name in lower case.
        name: Name, as in the suite.
        suite: Name of the suite.
        versions: Rounds or versions of the suite that contain it.
        task: What it computes.
        modes: What the suite times.
        published: Published size.
        published_task: Name of the model in published times; empty if there are none.
        represented_by: Whole models and operations that represent it; empty if there are none.
        closeness: How close they are.
        note: What differs, or why nothing represents it.
        sources: Pages that list it in the suite and describe it.
    """

    key: str
    name: str
    suite: str
    versions: tuple[str, ...]
    task: str
    modes: tuple[EntryMode, ...]
    published: PublishedSize
    published_task: str
    represented_by: tuple[Representation, ...]
    closeness: Closeness
    note: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Entries of a file that differ only in their name."""

    __pydantic_config__: ClassVar = _CONFIG

    names: tuple[str, ...]
    task: str
    modes: tuple[EntryMode, ...]
    closeness: Closeness
    versions: str = ""
    published: PublishedSize = PublishedSize()
    published_task: str = ""
    represented_by: tuple[Representation, ...] = ()
    note: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not self.names or not self.modes:
            raise ValueError("`names` and `modes` must not be empty")
        if (self.closeness == "none") != (not self.represented_by):
            raise ValueError("`represented-by` must be empty if and only if `closeness` is `none`")
        if self.closeness != "same" and not self.note:
            raise ValueError(f"`note` is missing: `closeness` is `{self.closeness}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteMetric:
    """What a suite measures.

    Attributes:
        name: Name of the metric.
        unit: Its unit, and what it is of.
        source: Address of the page that defines it.
    """

    __pydantic_config__: ClassVar = _CONFIG

    name: str
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSuite:
    """A file of the catalogue.

    Attributes:
        id: Unique identifier, such as ``mlperf-tiny``.
        name: Its own name.
        versions: Its rounds or versions, in order.
        source: Address of the page that lists its models.
        models: Its models and operations.
        metrics: What it measures; empty if the catalogue does not say it.
        evidence: What this program has of it: a clause, or empty.
        limits: Why this program cannot predict it: a clause, or empty.
    """

    __pydantic_config__: ClassVar = _CONFIG

    id: str
    name: str
    versions: tuple[str, ...]
    source: str
    models: tuple[_Group, ...]
    metrics: tuple[SuiteMetric, ...] = ()
    evidence: str = ""
    limits: str = ""

    def __post_init__(self) -> None:
        if not self.source.startswith(("https://", "http://")):
            raise ValueError(f"`source` must be an address, not `{self.source}`")

    def entries(self) -> tuple[CatalogueEntry, ...]:
        """Return the entries in the order of the file."""
        return tuple(
            CatalogueEntry(
                key=f"{self.id}/{name.lower().replace(' ', '-')}",
                name=name,
                suite=self.name,
                versions=self._versions_of(group),
                task=group.task,
                modes=group.modes,
                published=group.published,
                published_task=group.published_task,
                represented_by=group.represented_by,
                closeness=group.closeness,
                note=group.note,
                sources=tuple(dict.fromkeys(source for source in (self.source, group.source) if source)),
            )
            for group in self.models
            for name in group.names
        )

    def _versions_of(self, group: _Group) -> tuple[str, ...]:
        if not group.versions:
            return self.versions
        first, _, last = group.versions.partition(" to ")
        if first not in self.versions or last not in self.versions:
            raise InputError(f"`{group.names[0]}` of `{self.name}`: `{group.versions}` are not versions of the suite")
        return self.versions[self.versions.index(first) : self.versions.index(last) + 1]


@lru_cache(maxsize=1)
def benchmark_suites() -> tuple[BenchmarkSuite, ...]:
    """Return every suite, sorted by the name of its file.

    Raises:
        InputError: If a file is malformed.
    """
    folder = importlib.resources.files("knowledge.estimate") / "catalogue"
    return tuple(read_suite(file.read_text(encoding="utf-8"), where=file.name) for file in yaml_files(folder))


@lru_cache(maxsize=1)
def benchmark_catalogue() -> tuple[CatalogueEntry, ...]:
    """Return every entry, sorted by suite.

    Raises:
        InputError: If a file is malformed or two entries have the same key.
    """
    entries = [entry for suite in benchmark_suites() for entry in suite.entries()]
    keys = [entry.key for entry in entries]
    if duplicates := {key for key in keys if keys.count(key) > 1}:
        raise InputError(f"the catalogue contains `{min(duplicates)}` twice")
    return tuple(entries)


def parameters_of_task(task: str) -> float | None:
    """Return the number of parameters of a model in published times; ``None`` if the catalogue does not state it."""
    listed = (e.published.parameters for e in benchmark_catalogue() if task and e.published_task == task)
    return next(listed, None)


def find_suite(name: str) -> BenchmarkSuite | None:
    """Return the suite of a name, or of a key of an entry: ``mlperf-tiny``, ``MLPerf Tiny``, ``mlperf-tiny/dscnn``."""
    key = re.sub(r"[ _]+", "-", name.strip().lower()).partition("/")[0]
    return next((suite for suite in benchmark_suites() if suite.id == key), None)


def read_suite(text: str, *, where: str) -> BenchmarkSuite:
    """Read one YAML file.

    Args:
        text: Content of the file.
        where: Name of the file, for messages.

    Raises:
        InputError: If it does not describe a suite; the message names the field.
    """
    try:
        document = parse_yaml(text)
    except ValueError as error:
        raise InputError(f"the catalogue file `{where}` is not YAML: {error}") from None
    try:
        return value_from(BenchmarkSuite, document)
    except RecordError as error:
        raise InputError(f"the catalogue file `{where}`: {error}") from None

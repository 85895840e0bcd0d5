"""Workloads: the parts that a program spends its time on."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from knowledge.domain.errors import InputError
from knowledge.domain.identity import hash_of_text
from knowledge.domain.observation import BENCHMARK, PUBLISHED, words_of
from knowledge.domain.workload import ProfiledWorkload

OWN, MODELS, BLOCKS, STEPS, OPERATIONS, TASKS = "benchmark", "models", "blocks", "steps", "operations", "tasks"
"""Names of the lists of parts, in their order of preference; the first is a project's own benchmark, the last is of
published measurements, which are used where nothing was measured with this program."""
SIZES = "sizes"
"""Name of the discrepancy between sizes of one model."""
PROFILE = "profile"
"""Name of the list of parts of a profiled workload."""
INDICATOR = "indicator"
"""Name of the list of parts of a workload that is one indicator."""
UNATTRIBUTED = "unattributed"
"""Indicator of the time of a profiled workload that no part stands for: nothing measures it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePart:
    """A part of a workload.

    Attributes:
        indicator: Name of the indicator that stands for it.
        parameters: Parameters that a size of the indicator must have, such as the model; empty for all sizes.
        share: Share of the workload's time.
        dtype: Element type that it must have; empty for all.
    """

    indicator: str
    parameters: Mapping[str, str]
    share: float
    dtype: str = ""

    def matches(self, label: str, family: str) -> bool:
        """Whether a size of an indicator stands for this part.

        Args:
            label: Label of the indicator run, which contains its parameters.
            family: Name of the indicator.
        """
        if family != self.indicator:
            return False
        parameters = words_of(label)
        return all(parameters.get(k, v) == v for k, v in self.parameters.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a program spends its time on.

    Attributes:
        name: Name, such as ``cnn-training``.
        summary: One line for people.
        parts: Parts by list (:data:`MODELS`, ...): the first list with measurements of a framework is used for it. The
            shares of a list sum to 1. The list of operations is empty if measured models have those of the workload:
            :func:`knowledge.estimate.time_shares.parts_of` returns them.
        backends: Backends whose measurements count; all if empty.
        source: Where the choice of its parts comes from.
        is_kind: Whether it is one of the general kinds, which are reported together if nobody selected a workload.
        is_similar: Whether its models are not its own, but resemble it.
        profiled_version: Version of the framework at which the shares of a profile hold; empty if unknown.
        otherwise: With a project's own benchmark, name of the workload of the frameworks that it did not compare.
    """

    name: str
    summary: str
    parts: Mapping[str, tuple[TimePart, ...]]
    backends: tuple[str, ...]
    source: str
    is_kind: bool = False
    is_similar: bool = False
    profiled_version: str = ""
    otherwise: str = ""

    def name_of(self, basis: str) -> str:
        """Return the name of the workload that predictions from a list of its parts are for.

        Args:
            basis: The list of the parts.
        """
        return self.name if basis == OWN else self.otherwise or self.name

    def discrepancy(self, basis: str) -> str:
        """Return which discrepancy a prediction has; empty if the workload itself was measured.

        Args:
            basis: List of the parts that the prediction comes from.
        """
        if basis in (OWN, INDICATOR):
            return ""
        if basis in (MODELS, TASKS):
            return MODELS if self.is_kind or self.is_similar else SIZES
        return {BLOCKS: BLOCKS, STEPS: MODELS}.get(basis, OPERATIONS)


@lru_cache(maxsize=1)
def workload_catalogue() -> Mapping[str, Workload]:
    """Return the shipped workloads by name."""
    import yaml

    entries = yaml.load(_catalogue_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    workloads = {name: _workload(name, entry) for name, entry in sorted(entries.items())}
    return MappingProxyType(workloads)


def _workload(name: str, entry: Mapping[str, Any]) -> Workload:
    parts = {
        MODELS: _parts(entry.get(MODELS, ()), "model"),
        BLOCKS: _parts(entry.get(BLOCKS, ()), "block"),
        STEPS: _parts(entry.get(STEPS, ())),
        OPERATIONS: operation_parts(entry.get(OPERATIONS, {})),
        TASKS: _parts(entry.get(TASKS, ()), PUBLISHED),
    }
    return Workload(
        name=name,
        summary=entry["summary"],
        parts={name: listed for name, listed in parts.items() if listed or name == OPERATIONS},
        backends=tuple(entry.get("backends", ())),
        source=entry["source"],
        is_kind=entry.get("kind", False),
        is_similar=entry.get("similar", False),
    )


def _parts(entries: Sequence[Mapping[str, Any]], indicator: str = "") -> tuple[TimePart, ...]:
    """Return parts with equal shares."""
    return tuple(
        TimePart(
            indicator=entry.get("indicator", indicator),
            parameters={k: str(v) for k, v in entry.items() if k != "indicator"},
            share=1 / len(entries),
        )
        for entry in entries
    )


def operation_parts(shares: Mapping[str, float]) -> tuple[TimePart, ...]:
    """Return single operations of any size as parts, from their shares of the time, which need not sum to 1."""
    total = sum(shares.values())
    return tuple(TimePart(indicator=name, parameters={}, share=share / total) for name, share in sorted(shares.items()))


def workload_of_profile(profile: ProfiledWorkload, *, backend: str) -> Workload:
    """Return a profiled workload as a workload; time that no part stands for belongs to no indicator.

    Args:
        profile: The profiled workload.
        backend: Backend of its framework.
    """
    parts = [
        TimePart(
            indicator=part.indicator,
            # Indicators without a parameter for it measure the forward pass.
            parameters={k: str(v) for k, v in part.parameters.items()}
            | ({"direction": "backward"} if part.direction == "backward" else {}),
            share=part.share,
            dtype=part.dtype,
        )
        for part in profile.parts
    ]
    parts.append(TimePart(indicator=UNATTRIBUTED, parameters={}, share=profile.unattributed))
    return Workload(
        name=profile.name,
        summary=f"profile of {' '.join(profile.command) or profile.source}",
        parts={PROFILE: tuple(part for part in parts if part.share > 0)},
        backends=(backend,),
        source="profile",
        profiled_version=profile.framework_version,
    )


def workload_of_benchmark(other: Workload | None) -> Workload:
    """Return the workload of a project whose own benchmark was measured.

    Args:
        other: Workload of the frameworks that the benchmark was not measured with.
    """
    parts = {OWN: (TimePart(indicator=BENCHMARK, parameters={}, share=1.0),)}
    return Workload(
        name=BENCHMARK,
        summary="the project's own benchmark",
        parts={**parts, **(other.parts if other else {})},
        backends=other.backends if other else (),
        source="measured",
        profiled_version=other.profiled_version if other else "",
        otherwise=other.name if other else "",
    )


def one_indicator(name: str) -> Workload:
    """Return a workload of one indicator, at all its sizes."""
    return Workload(
        name=name, summary=name, parts={INDICATOR: operation_parts({name: 1.0})}, backends=(), source="request"
    )


def kinds_of(backend: str) -> tuple[Workload, ...]:
    """Return the general kinds of workloads that a backend runs, sorted by name."""
    return tuple(w for w in workload_catalogue().values() if w.is_kind and backend in w.backends)


def catalogue_digest() -> str:
    """Return a hash of the shipped workloads."""
    return hash_of_text(_catalogue_text())


def _catalogue_text() -> str:
    return (importlib.resources.files("knowledge.estimate") / "workloads.yaml").read_text(encoding="utf-8")


def find_workload(name: str) -> Workload:
    """Return a shipped workload.

    Raises:
        InputError: If there is no workload with this name.
    """
    catalogue = workload_catalogue()
    if name not in catalogue:
        raise InputError(
            f"there is no workload `{name}`", hint=f"the workloads are {', '.join(f'`{other}`' for other in catalogue)}"
        )
    return catalogue[name]

"""Workloads: weights over performance indicators that stand for what a project does."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from knowledge.domain.errors import InputError
from knowledge.domain.identity import hash_of_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a project spends its time on.

    Attributes:
        name: Name, such as ``cnn-training``.
        summary: One line for people.
        weights: Weight of each indicator; they sum to 1.
        backends: Backends that count; empty counts all.
        source: Where the weights come from.
        only: Of some indicators, what a parameter must be where a size has it, such as the model.
    """

    name: str
    summary: str
    weights: Mapping[str, float]
    backends: tuple[str, ...]
    source: str
    only: Mapping[str, Mapping[str, str]]

    def weight_of(self, label: str, family: str) -> float:
        """Return the weight of one size and type of an indicator, before a family's weight is shared out.

        Args:
            label: Label of the indicator run, which spells its parameters.
            family: Name of the indicator.
        """
        spelled = label.partition("[")[2].partition("]")[0].split(",")
        told = dict(word.partition("=")[::2] for word in spelled)
        wanted = self.only.get(family, {}).items()
        return self.weights.get(family, 0.0) * all(told.get(key, value) == value for key, value in wanted)


@lru_cache(maxsize=1)
def workload_catalogue() -> Mapping[str, Workload]:
    """Return the shipped workloads by name."""
    import yaml

    entries = yaml.load(_catalogue_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found = {}
    for name, entry in sorted(entries.items()):
        total = sum(entry["weights"].values())
        found[name] = Workload(
            name=name,
            summary=entry["summary"],
            weights={indicator: weight / total for indicator, weight in sorted(entry["weights"].items())},
            backends=tuple(entry.get("backends", ())),
            source=entry["source"],
            only=entry.get("only", {}),
        )
    return MappingProxyType(found)


def catalogue_digest() -> str:
    """Return a hash of the workloads that ship: equal where they say the same."""
    return hash_of_text(_catalogue_text())


def _catalogue_text() -> str:
    return (importlib.resources.files("knowledge.estimate") / "workloads.yaml").read_text(encoding="utf-8")


def find_workload(name: str) -> Workload:
    """Return a shipped workload.

    Raises:
        InputError: If there is none of that name.
    """
    catalogue = workload_catalogue()
    if name not in catalogue:
        raise InputError(f"there is no workload `{name}`", hint=f"take one of {', '.join(catalogue)}")
    return catalogue[name]

"""Workloads: weights of performance indicators that represent the work of a project."""

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
    """Weights of performance indicators that represent the work of a project.

    Attributes:
        name: Name, such as ``cnn-training``.
        summary: One line for people.
        weights: Weight of each indicator; they sum to 1.
        backends: Backends whose measurements count; all if empty.
        source: Source of the weights.
        only: Required parameters by indicator, such as the model; sizes without the parameter count too.
    """

    name: str
    summary: str
    weights: Mapping[str, float]
    backends: tuple[str, ...]
    source: str
    only: Mapping[str, Mapping[str, str]]

    def weight_of(self, label: str, family: str) -> float:
        """Return the weight of one size and type of an indicator, before its family's weight is divided among them.

        Args:
            label: Label of the indicator run, which contains its parameters.
            family: Name of the indicator.
        """
        words = label.partition("[")[2].partition("]")[0].split(",")
        parameters = dict(word.partition("=")[::2] for word in words)
        required = self.only.get(family, {}).items()
        return self.weights.get(family, 0.0) * all(parameters.get(key, value) == value for key, value in required)


@lru_cache(maxsize=1)
def workload_catalogue() -> Mapping[str, Workload]:
    """Return the shipped workloads by name."""
    import yaml

    entries = yaml.load(_catalogue_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    workloads = {}
    for name, entry in sorted(entries.items()):
        total = sum(entry["weights"].values())
        workloads[name] = Workload(
            name=name,
            summary=entry["summary"],
            weights={indicator: weight / total for indicator, weight in sorted(entry["weights"].items())},
            backends=tuple(entry.get("backends", ())),
            source=entry["source"],
            only=entry.get("only", {}),
        )
    return MappingProxyType(workloads)


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

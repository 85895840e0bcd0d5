"""Workloads: the parts that a program spends its time on."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import able_frameworks
from knowledge.domain.observation import PUBLISHED, words_of
from knowledge.domain.workload import ProfiledWorkload
from knowledge.estimate.catalogue import find_suite
from knowledge.estimate.programs import DEPTHWISE, composition_of
from knowledge.evidence.timm import closest_models, timm_tables
from knowledge.exchange.published.timm import TIMM
from knowledge.records import parse_yaml

OWN, MODELS, BLOCKS, STEPS, OPERATIONS, TASKS = "benchmark", "models", "blocks", "steps", "operations", "tasks"
"""Names of the lists of parts, in their order of preference; the first is a project's own benchmark, the last is of
published measurements, which are used where nothing was measured with this program."""
PROFILE = "profile"
"""Name of the list of parts of a profiled workload."""
INDICATOR = "indicator"
"""Name of the list of parts of a workload that is one indicator."""
USUAL_TYPE = "float32"
"""Element type of operations of which a trace does not name it."""
_NO_PARAMETERS = ("indicator", "dtype")
_TRAINING = "-training"
"""End of the name of a workload that trains a model of timm."""
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
            shares of a list sum to 1. The list of operations is empty if models have the workload's operations.
        backends: Backends whose measurements count; all if empty.
        source: Where the choice of its parts comes from.
        is_kind: Whether it is one of the general kinds, which are reported together if nobody selected a workload.
        is_similar: Whether its models are not its own, but resemble it.
        flops: Floating-point operations of a step of a profiled program; 0 if unknown.
        bytes: Least bytes that such a step moves; 0 if unknown.
        launches: Number of operations of such a step; 0 if unknown.
    """

    name: str
    summary: str
    parts: Mapping[str, tuple[TimePart, ...]]
    backends: tuple[str, ...]
    source: str
    is_kind: bool = False
    is_similar: bool = False
    flops: float = 0.0
    bytes: float = 0.0
    launches: float = 0.0

    @property
    def timm_model(self) -> str:
        """The model of timm that it is; empty for others."""
        tasks = (part.parameters["task"] for part in self.parts.get(TASKS, ()))
        return next((task.removeprefix(TIMM) for task in tasks if task.startswith(TIMM)), "")


@lru_cache(maxsize=1)
def workload_catalogue() -> Mapping[str, Workload]:
    """Return the shipped workloads by name."""
    entries = parse_yaml(_catalogue_text())
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
        backends=able_frameworks(entry["needs"]),
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


def workload_of_profile(profile: ProfiledWorkload, *, backend: str, flops: float = 0.0, bytes: float = 0.0) -> Workload:
    """Return a profiled workload as a workload; time that no part stands for belongs to no indicator.

    Args:
        profile: The profiled workload.
        backend: Backend of its framework.
        flops: Floating-point operations of a step; 0 if unknown.
        bytes: Least bytes that a step moves; 0 if unknown.
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
        flops=flops,
        bytes=bytes,
        launches=sum(part.calls for part in profile.parts),
    )


def share_of_parts(workload: Workload, parts: Sequence[Mapping[str, str]]) -> float:
    """Return the share of a workload's time of some parts of it; the largest one, if several lists contain them.

    Args:
        workload: The workload.
        parts: Indicators with their parameters and their ``dtype``. What a part does not name is not compared, except
            that the time of a workload without an element type is of :data:`USUAL_TYPE`.
    """
    lists = {**workload.parts}
    if models := [composition_of(p.parameters["model"], p.parameters["mode"]) for p in lists.get(MODELS, ())]:
        shares: dict[str, float] = {}
        for composition in models:
            for name, share in (composition.shares if composition else {}).items():
                name = name.removeprefix(DEPTHWISE)
                shares[name] = shares.get(name, 0.0) + share / len(models)
        lists[OPERATIONS] = lists.get(OPERATIONS, ()) or operation_parts(shares)
    own = (sum(p.share for p in listed if any(_stands_for(p, other) for other in parts)) for listed in lists.values())
    return min(1.0, max(own, default=0.0))


def _stands_for(part: TimePart, other: Mapping[str, str]) -> bool:
    dtype = part.dtype or USUAL_TYPE
    if part.indicator != other["indicator"] or other.get("dtype", dtype) != dtype:
        return False
    return all(part.parameters.get(name) == value for name, value in other.items() if name not in _NO_PARAMETERS)


def one_indicator(name: str) -> Workload:
    """Return a workload of one indicator, at all its sizes."""
    return Workload(
        name=name, summary=name, parts={INDICATOR: operation_parts({name: 1.0})}, backends=(), source="request"
    )


def kinds_of(backend: str) -> tuple[Workload, ...]:
    """Return the general kinds of workloads that a backend runs, sorted by name."""
    return tuple(w for w in workload_catalogue().values() if w.is_kind and backend in w.backends)


def _catalogue_text() -> str:
    return (importlib.resources.files("knowledge.estimate") / "workloads.yaml").read_text(encoding="utf-8")


def find_workload(name: str) -> Workload:
    """Return a shipped workload, or one of a model of timm: ``timm/NAME`` for inference, or ``timm/NAME-training``.

    Raises:
        InputError: If there is no workload with this name.
    """
    if name.startswith(TIMM):
        return _timm_workload(name)
    catalogue = workload_catalogue()
    if name not in catalogue:
        hint = f"the workloads are {', '.join(f'`{other}`' for other in catalogue)}"
        if (suite := find_suite(name)) is not None:
            reason = f": {suite.limits}" if suite.limits else ""
            raise InputError(f"`{name}` is the benchmark suite {suite.name}, not a workload{reason}", hint=hint)
        raise InputError(f"there is no workload `{name}`", hint=hint)
    return catalogue[name]


def timm_workload_name(model: str, *, trains: bool) -> str:
    """Return the name of the workload of a model of timm."""
    return f"{TIMM}{model}{_TRAINING if trains else ''}"


def _timm_workload(name: str) -> Workload:
    model = name.removeprefix(TIMM).removesuffix(_TRAINING)
    shipped = timm_tables()
    if model not in shipped.models:
        nearest = ", ".join(f"`{TIMM}{other}`" for other in closest_models(model))
        raise InputError(
            f"there is no workload `{name}`: timm's benchmark tables do not contain the model `{model}`",
            hint=f"the closest models are {nearest}" if nearest else "write `timm/` and the name of a model of timm",
        )
    mode = "training" if name.endswith(_TRAINING) else "inference"
    task = TimePart(indicator=PUBLISHED, parameters={"task": f"{TIMM}{model}", "mode": mode}, share=1.0)
    composition = composition_of(task.parameters["task"], mode)
    return Workload(
        name=name,
        summary=f"{mode} of timm's `{model}`",
        parts={TASKS: (task,), OPERATIONS: operation_parts(composition.shares if composition else {})},
        backends=able_frameworks("backward"),
        source=shipped.origin["address"],
    )

"""One performance indicator measured on one stack, hardware profile and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import StrictRecord, canonical_json, hash_of_text
from knowledge.domain.stack import Stack

Status = Literal[
    "ok",
    "unsupported",
    "import-error",
    "error",
    "wrong-result",
    "out-of-memory",
    "timed-out",
    "crashed",
    "not-installed",
    "not-converged",
    "harness-error",
]
"""How a run ended."""

NO_FAILURE: frozenset[Status] = frozenset({"ok", "unsupported", "not-installed", "not-converged", "harness-error"})
"""Statuses that do not prove that a stack fails: it ran, it lacks an operation, its files could not be installed, it
did not train to the required quality, or the harness failed. Every other status means that the stack does not run."""

Scalar = str | int | float | bool | None

BENCHMARK = "benchmark"
"""Name of the indicator of a project's own benchmark. Its observations are about one project, so they neither enter
general predictions nor leave the knowledge base unless the user names their block."""

PUBLISHED = "published"
"""Name of the indicator of measurements that others published in tables: seconds per item of a whole model."""
PUBLISHED_BLOCKS = (f"{PUBLISHED}/", "mlperf-")
"""Beginnings of the names of the blocks that hold published results."""

DAWNBENCH = "dawnbench"
"""Name of the indicator of DAWNBench's published entries: seconds to the required quality, or of one input. Models and
tricks differ from entry to entry, so that they are evidence for nothing else."""
JOULES_PER_CALL = "_joules_per_call"
"""End of the names of the telemetry's energies of one call, after ``gpu``, ``cpu`` or ``dram``."""
ENERGY_WINDOW = "energy_window_seconds"
"""Name of the telemetry's length of the period over which energy was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndicatorRun(StrictRecord):
    """A performance indicator with everything that must be equal for two timings to be comparable.

    Attributes:
        name: Indicator name, such as ``matmul``.
        version: Version of its definition; timings of different versions are not comparable.
        backend: Framework that ran it, such as ``torch``.
        device: ``cpu`` or ``cuda``.
        dtype: Element type, such as ``float32``.
        parameters: Sizes and algorithm.
    """

    name: str
    version: int
    backend: str
    device: str
    dtype: str
    parameters: Mapping[str, int | float | str]

    @property
    def label(self) -> str:
        """Readable key; equal if and only if two runs are comparable."""
        sizes = ",".join(f"{k}={v}" for k, v in sorted(self.parameters.items()))
        return f"{self.name}@{self.version}[{sizes}] {self.dtype} {self.backend}/{self.device}"


@lru_cache(maxsize=4096)
def words_of(label: str) -> Mapping[str, str]:
    """Return the parameters in the label of an indicator run, as text."""
    words = label.partition("[")[2].partition("]")[0].split(",")
    return MappingProxyType(dict(word.partition("=")[::2] for word in words))


_STORED_KEYS = {"arm": "slot"}
_AMOUNTS = ("warmup_seconds", "flops", "bytes", "error", "tolerance")


def _float_amounts(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the amounts of a record as floats: a number that is 0 here and 0.0 where it was read has another hash."""
    amounts: dict[str, Any] = {n: record[n] if record[n] is None else float(record[n]) for n in _AMOUNTS if n in record}
    if "samples" in record:
        amounts["samples"] = tuple(map(float, record["samples"]))
    for name in ("metrics", "telemetry"):
        if name in record:
            amounts[name] = {key: float(value) for key, value in record[name].items()}
    return amounts


def stored_key(name: str) -> str:
    """Return the key that records and databases use for an attribute of an observation.

    Keys in records never change: the identity of an observation is the hash of its record, and files that earlier
    versions wrote must stay readable.
    """
    return _STORED_KEYS.get(name, name)


@dataclass(frozen=True, kw_only=True)
class Observation:  # Not slotted: its document is cached, because both the hash check and the database use it.
    """Result of one run of an indicator. Immutable.

    Attributes:
        indicator: What was run.
        framework: Distribution that provides the backend, such as ``tensorflow-cpu``.
        stack: All installed packages.
        hardware: The machine.
        settings: Run-time settings that change the speed.
        block: Name of the block: observations that were measured together, interleaved, on one machine.
        round: Number of the pass over the block's arms, from 0.
        arm: The stack's place in the block; two arms with one stack are an A/A comparison.
        reference: Whether the block's other stacks are compared with this arm.
        started_at: ISO 8601, UTC.
        status: How the run ended.
        samples: Seconds per call, warm-up removed; empty unless ``status`` is ``ok``.
        loops: Calls per sample.
        warmup_seconds: Time spent before the first sample.
        steady: Whether the warm-up reached a steady state.
        flops: Floating-point operations per call, by the indicator's formula.
        bytes: Least bytes moved per call, by the indicator's formula.
        error: Largest relative error of the result.
        tolerance: Largest accepted relative error.
        environment: Interpreter build, clock governor, load, framework build: text by name.
        failure: Class and end of the error output, if the run failed.
        metrics: Other results of the indicator, such as a rate, a percentile or bytes of memory.
        telemetry: State of the machine during the run: utilisation, memory, power, temperature, clocks; 1 in
            ``throttled`` if the accelerator reduced its clocks, and in ``throttled_by_power`` or ``throttled_by_heat``
            for the reason; 1 in ``on_battery`` if the machine ran on its battery. The energy of the timed calls in
            joules, from which nothing is subtracted, if it was measured.
        schema: Version of this record; 2 if it has metrics or telemetry.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "alias_generator": stored_key}

    indicator: IndicatorRun
    framework: str
    stack: Stack
    hardware: HardwareProfile
    block: str
    round: int
    arm: int
    reference: bool
    started_at: str
    status: Status
    samples: tuple[float, ...] = ()
    loops: int = 0
    warmup_seconds: float = 0.0
    steady: bool = False
    flops: float = 0.0
    bytes: float = 0.0
    error: float | None = None
    tolerance: float | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    environment: Mapping[str, Scalar] = field(default_factory=dict)
    failure: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    telemetry: Mapping[str, float] = field(default_factory=dict)
    schema: int = 1

    def record(self) -> dict[str, Any]:
        """Return the observation as JSON-serialisable values; stack and hardware are replaced by their identities."""
        values = dict(zip(_KEYS, _values(self), strict=True))
        for later in ("metrics", "telemetry"):
            # Schema 1 does not have these fields, and the identity of its records must not change.
            if not values[later]:
                del values[later]
        values |= _float_amounts(values)
        values["indicator"] = dict(zip(_RUN_FIELDS, _run_values(self.indicator), strict=True))
        values["stack"] = self.stack.identity
        values["hardware"] = self.hardware.identity
        return values

    @cached_property
    def document(self) -> str:
        """The record as canonical JSON, which is hashed and stored."""
        return canonical_json(self.record())

    def with_document_of(self, record: Mapping[str, Any]) -> Observation:
        """Return the observation with the document, and so the identity, of the record that it was read from.

        Earlier versions wrote amounts that are whole numbers, such as 0 seconds of warm-up, without a decimal point.
        """
        amounts = [record.get(name) for name in _AMOUNTS]
        for values in (record.get("samples", ()), *(record.get(n, {}).values() for n in ("metrics", "telemetry"))):
            amounts += values
        has_whole = any(type(amount) is int for amount in amounts)
        if has_whole and canonical_json({**record, **_float_amounts(record)}) == self.document:
            # A cached property: this is the value that it has from now on.
            self.__dict__["document"] = canonical_json(record)
        return self

    @cached_property
    def identity(self) -> str:
        """Content hash of the record."""
        return hash_of_text(self.document)

    @property
    def joules_per_call(self) -> dict[str, float]:
        """Joules of one call, by kind (``gpu``, ``cpu``, ``dram``), with idle power and other programs."""
        energies = self.telemetry.items()
        return {n.removesuffix(JOULES_PER_CALL): value for n, value in energies if n.endswith(JOULES_PER_CALL)}

    @property
    def median(self) -> float | None:
        """Median seconds per call, or ``None`` if the run failed."""
        # The mean follows interrupts and clock boosts; the median does not.
        import statistics

        return statistics.median(self.samples) if self.samples else None


# Looked up once: every observation that is stored or written is hashed.
_FIELDS = tuple(sorted(entry.name for entry in fields(Observation)))
_KEYS = tuple(map(stored_key, _FIELDS))
_RUN_FIELDS = tuple(sorted(entry.name for entry in fields(IndicatorRun)))
_values: Callable[[Observation], tuple[Any, ...]] = attrgetter(*_FIELDS)
_run_values: Callable[[IndicatorRun], tuple[Any, ...]] = attrgetter(*_RUN_FIELDS)

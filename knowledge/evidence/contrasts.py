"""Contrasts: the speed of two stacks relative to each other, in a compact form.

A contrast is the log speed-up of one arm of a block over the block's reference, for one indicator. The part that the
block and the indicator add to both equally cancels. It contains only the data that the model uses.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import PUBLISHED, Observation
from knowledge.domain.ratio import NORMAL_QUANTILE, Ratio
from knowledge.evidence.compare import WIDEST_FACTOR, Comparison
from knowledge.hardware.accelerators import AcceleratorModel, accelerator_models, find_accelerator, model_of
from knowledge.hardware.matrix_features import matrix_units

COMPANIONS = ("numpy", "triton", "mkl", "intel-openmp", "openblas")
"""Packages that may change the speed of a framework; versions of CUDA and its libraries count as well."""
_CUDA_LIBRARIES = ("nvidia-nccl", "nvidia-cublas", "nccl", "cublas")
FORMAT = 13
"""Version of the contrasts; raise it when the same observations give other contrasts, so that the cache is renewed, and
run ``python docs/contrasts.py``."""
_PROCESSOR = "cpu "
_MATRIX_UNITS, _WITH_MATRIX_UNITS = 3, 4
"""Generation that counts for matrix units of other makers than NVIDIA, which have no such number; they have them if
float16 is at least this many times as fast as float32. The number is a judgement."""
LARGEST_ERROR = math.log(WIDEST_FACTOR) / (2 * NORMAL_QUANTILE)
"""Largest standard error of a contrast: with a larger one, its 95 % interval would be wider than that of any result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine of a contrast, with the properties by which machines are similar.

    Attributes:
        identity: Identity of the hardware profile.
        name: Microarchitecture or accelerator model, for people.
        kind: Microarchitecture, or compute capability.
        features: Properties of the accelerator by which accelerators are similar (:func:`features_of`); empty for a
            processor, or if they are unknown.
        precision_features: Features of a processor that multiply matrices of a reduced precision, one for each of
            :func:`knowledge.hardware.matrix_features.element_types`; empty for an accelerator, or if they are unknown.
        cores: Physical cores of a processor; 0 for an accelerator, or if they are unknown.
    """

    identity: str
    name: str
    kind: str
    features: tuple[float, ...] = ()
    precision_features: tuple[str, ...] = ()
    cores: int = 0

    @property
    def is_processor(self) -> bool:
        """Whether the machine is a processor, and not an accelerator."""
        return self.kind.startswith(_PROCESSOR)

    def is_like(self, other: Machine) -> bool:
        """Whether it is the same model of accelerator or processor, or a processor with the same matrix units."""
        if any(self.precision_features) or any(other.precision_features):
            return self.precision_features == other.precision_features
        return self.name == other.name

    @property
    def has_matrix_units(self) -> bool:
        """Whether the accelerator has tensor cores or other matrix units; false if its properties are unknown."""
        return bool(self.features) and self.features[0] > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two stacks of a contrast.

    Attributes:
        version: Version of the framework.
        companions: Versions of the companions, by name.
        settings: Run-time settings by name, as text.
    """

    version: str
    companions: Mapping[str, str]
    settings: Mapping[str, str]

    @property
    def key(self) -> tuple[object, ...]:
        """What distinguishes the stack from others."""
        return self.version, tuple(sorted(self.companions.items())), tuple(sorted(self.settings.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Measured log speed-up of one arm over the reference.

    Attributes:
        block: The block.
        arm: The arm.
        label: Label of the indicator run.
        family: Name of the indicator.
        backend: Backend that ran it.
        framework: Distribution that provides the backend.
        machine: The machine.
        side: The arm's stack.
        reference: The reference's stack.
        mean: Log speed-up of the arm over the reference: a trimmed mean over rounds.
        rounds: Number of rounds that both ran in.
        error: Standard error of the mean, such that a normal interval is as wide as Student's; 0 if it was published.
        common: Part of the error that all indicators of the arm have in common, as a standard error.
        is_control: Whether both are the same stack with the same settings.
        reference_arm: Number of the reference, if other contrasts of the block have another reference; -1 if all have
            the same.
        year: Year of a published measurement; 0 for others.
        flops: Floating-point operations of a call; 0 if unknown.
        bytes: Least bytes that a call moves; 0 if unknown.
        blocks: Number of blocks of which it is the mean.
    """

    block: str
    arm: int
    label: str
    family: str
    backend: str
    framework: str
    machine: Machine
    side: Side
    reference: Side
    mean: float
    rounds: int
    error: float = 0.0
    common: float = 0.0
    is_control: bool = False
    reference_arm: int = -1
    year: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    blocks: int = 1

    @property
    def ratio(self) -> Ratio:
        """The contrast alone, with its 95 % interval; a published number has none of its own."""
        return Ratio(mean=self.mean, variance=0.0 if self.source else self.error**2)

    @property
    def source(self) -> str:
        """Who published it, such as ``NVIDIA/DeepLearningExamples``; empty if this program measured it."""
        return self.block.removeprefix(f"{PUBLISHED}/") if self.family == PUBLISHED else ""


def contrast_of(c: Comparison, common_share: float) -> Contrast | None:
    """Return the contrast of a comparison.

    ``common_share`` is the share of the error's variance that all indicators of the arm have in common. The result is
    ``None`` if a version is unknown, the frameworks differ, the rounds are too few or too noisy, or the ratio
    contradicts the medians.
    """
    o = c.observation
    versions = o.stack.version_of(o.framework), c.reference.stack.version_of(o.framework)
    error = c.normal_error
    if not c.agrees_with_medians or error > LARGEST_ERROR:
        return None
    if o.framework != c.reference.framework or None in versions:
        return None
    return Contrast(
        block=c.block,
        arm=c.arm,
        label=c.indicator,
        family=o.indicator.name,
        backend=o.indicator.backend,
        framework=o.framework,
        machine=machine_of(o.hardware, o.indicator.device),
        side=side_of(o),
        reference=side_of(c.reference),
        mean=c.ratio.mean,
        error=error,
        common=error * math.sqrt(common_share),
        rounds=c.rounds,
        is_control=c.is_control,
        flops=o.flops,
        bytes=o.bytes,
    )


def side_of(o: Observation) -> Side:
    """Return the stack and the settings of an observation, as far as they may change the speed."""
    companions = {name: v for name in COMPANIONS if name != o.framework and (v := o.stack.version_of(name)) is not None}
    for library in ("cuda", "cudnn"):
        if version := getattr(o.stack, library):
            companions[library] = version
    for package in o.stack.packages:
        if package.name.startswith(_CUDA_LIBRARIES):
            companions[package.name.removeprefix("nvidia-").split("-")[0]] = package.version
    return Side(
        version=str(o.stack.version_of(o.framework)),
        companions=companions,
        settings={name: str(value) for name, value in sorted(o.settings.items())},
    )


def machine_of(hardware: HardwareProfile, device: str) -> Machine:
    """Return the properties of a machine that the model uses, for one of its devices."""
    gpu = hardware.gpu
    if device == "cuda" and gpu is not None:
        capability = gpu.compute_capability or gpu.model
        model = model_of(gpu)
        return Machine(
            identity=hardware.identity,
            name=model.model if model is not None else gpu.model,
            kind=f"sm {capability}",
            features=features_of(model) if model is not None else (),
        )
    cpu = hardware.cpu
    return Machine(
        identity=hardware.identity,
        name=cpu.microarchitecture,
        kind=f"{_PROCESSOR}{cpu.microarchitecture}",
        precision_features=matrix_units(cpu),
        cores=cpu.cores or 0,
    )


def features_of(model: AcceleratorModel) -> tuple[float, ...]:
    """Return the properties by which accelerators are similar, in units of a standard deviation of similarity.

    They are the generation of the tensor cores, the operations per byte of memory bandwidth with and without them, and
    the bandwidth, the last three as logarithms to the base 2: together they decide whether a reduced precision or a
    fused kernel is faster (Williams, Waterman and Patterson, "Roofline", Communications of the ACM 52, 2009).

    Returns:
        The properties; empty if the catalogue does not state one of them.
    """
    bandwidth, plain = model.memory_bytes_per_second, model.flops.get("float32")
    if not bandwidth or not plain:
        # A published name may stand for several variants.
        variants = [
            features
            for name in model.variants
            if (variant := find_accelerator(name)) is not None and (features := features_of(variant))
        ]
        return tuple(statistics.fmean(column) for column in zip(*variants, strict=True))
    short = model.flops.get("float16") or plain * _usual_speed_of_float16(model.architecture, model.kind)
    short = max(short, plain)
    generation = float(model.tensor_core_generation or (_MATRIX_UNITS if short >= _WITH_MATRIX_UNITS * plain else 0))
    logs = (math.log2(short / bandwidth), math.log2(plain / bandwidth), math.log2(bandwidth))
    return (generation, *(value / 2 for value in logs))


@cache
def _usual_speed_of_float16(architecture: str, kind: str) -> float:
    """Return the median ratio of the peak rates of float16 and float32 of an architecture; 1 if none is stated.

    The sources do not state the rate of float16 of every model, and models of one architecture have the same units.
    """
    listed = [
        m for m in accelerator_models() if m.architecture == architecture and {"float16", "float32"} <= set(m.flops)
    ]
    same = [m for m in listed if m.kind == kind] or listed
    return statistics.median([m.flops["float16"] / m.flops["float32"] for m in same] or [1.0])


def machine_from(record: Mapping[str, Any]) -> Machine:
    """Return the machine of a JSON record."""
    lists = {name: tuple(record[name]) for name in ("features", "precision_features")}
    return Machine(**{**record, **lists})


_PACKED = (
    "block", "arm", "label", "family", "backend", "framework", "machine", "side", "reference", "mean", "error",
    "common", "rounds", "is_control", "reference_arm", "year", "flops", "bytes",
)  # fmt: skip
"""Attributes of a packed contrast, in order."""
_TABLES = {"machine": "machines", "side": "sides", "reference": "sides"} | dict.fromkeys(
    ("block", "label", "family", "backend", "framework"), "texts"
)
"""Tables with the values of attributes that many contrasts share."""
_ROUNDED = frozenset({"mean", "error", "common"})


def pack_contrasts(contrasts: Sequence[Contrast]) -> dict[str, Any]:
    """Return contrasts as rows and tables; real numbers are rounded to nine decimals."""
    tables: dict[str, dict[str, int]] = {"texts": {}, "machines": {}, "sides": {}}
    # Many contrasts share one object.
    texts: dict[int, str] = {}

    def cell(c: Contrast, name: str) -> Any:
        value = getattr(c, name)
        if name not in _TABLES:
            return round(value, 9) if name in _ROUNDED else value
        if id(value) not in texts:
            texts[id(value)] = json.dumps(value if isinstance(value, str) else asdict(value), sort_keys=True)
        table = tables[_TABLES[name]]
        return table.setdefault(texts[id(value)], len(table))

    rows = [[cell(c, name) for name in _PACKED] for c in contrasts]
    return {"rows": rows, **{name: [json.loads(text) for text in table] for name, table in tables.items()}}


def unpack_contrasts(record: dict[str, Any]) -> tuple[Contrast, ...]:
    """Return the contrasts of a packed record."""
    tables = {
        "texts": record["texts"],
        "machines": [machine_from(entry) for entry in record["machines"]],
        "sides": [Side(**entry) for entry in record["sides"]],
    }
    columns = [
        map(tables[_TABLES[name]].__getitem__, column) if name in _TABLES else column
        for name, column in zip(_PACKED, zip(*record["rows"], strict=True), strict=False)
    ]
    return tuple(Contrast(**dict(zip(_PACKED, row, strict=True))) for row in zip(*columns, strict=True))

"""Contrasts: what blocks say of two stacks, small enough to keep and quick to read again.

A contrast is the log speed-up of one arm of a block over the block's reference, for one indicator. What the block and
the indicator add to both alike is gone from it. It carries what the model looks at, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.estimate.compare import WIDEST_FACTOR, Comparison, common_shares, compare_block
from knowledge.store.base import KnowledgeBase

COMPANIONS = ("numpy", "triton", "mkl", "intel-openmp", "openblas")
"""Packages beside the framework that may change its speed; versions of CUDA and its libraries count as well."""
_CUDA_LIBRARIES = ("nvidia-nccl", "nvidia-cublas", "nccl", "cublas")
WITNESS = 0.5
"""From this trust on, a source is believed that a version does not run."""
_KIND = "evidence"
FORMAT = 7
"""Raised whenever contrasts of the same observations become others: what was kept of them is then made anew."""
_QUANTILE = 1.959964
LARGEST_ERROR = math.log(WIDEST_FACTOR) / (2 * _QUANTILE)
"""A contrast with a larger standard error is none: its own 95 % interval is wider than that of any result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where it was measured, as far as two machines can be alike.

    Attributes:
        identity: Identity of the hardware profile.
        name: Microarchitecture or accelerator model, for people.
        kind: What machines of one kind share: the microarchitecture, or the compute capability.
        family: What kinds of one family share: the processor's vendor, or the capability's major number.
    """

    identity: str
    name: str
    kind: str
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two stacks of a contrast.

    Attributes:
        version: Version of the framework.
        companions: Versions of what else may matter, by name.
        settings: Run-time switches, by name, as text.
    """

    version: str
    companions: Mapping[str, str]
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """How much faster one arm is than the reference.

    Attributes:
        block: The block.
        arm: The arm.
        label: Label of the indicator run.
        family: Name of the indicator.
        backend: Backend that ran it.
        framework: Distribution that provides the backend.
        machine: Where.
        side: The arm's stack.
        reference: The reference's stack.
        mean: Log speed-up of the arm over the reference: a trimmed mean over rounds.
        error: Standard error of the mean, such that a normal interval is as wide as Student's.
        common: The part of it that all indicators of the arm have in common, as a standard error.
        low: Lower end of its own 95 % interval.
        high: Upper end of it.
        rounds: How many rounds both ran in.
        is_control: Whether both are the same stack with the same settings.
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
    error: float
    common: float
    low: float
    high: float
    rounds: int
    is_control: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Whether a version ran, on one kind of machine.

    Attributes:
        framework: Distribution that provides the backend.
        version: Its version.
        numpy: Version of the NumPy beside it, or empty.
        device: ``cpu`` or ``cuda``.
        machine: Where.
        status: How it ended.
        block: Where it was seen.
    """

    framework: str
    version: str
    numpy: str
    device: str
    machine: Machine
    status: str
    block: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEvidence:
    """What the blocks of a knowledge base say.

    Attributes:
        contrasts: In order of block, label and arm.
        runs: Distinct ones.
    """

    contrasts: tuple[Contrast, ...]
    runs: tuple[RunOutcome, ...]


def load_evidence(store: KnowledgeBase) -> BlockEvidence:
    """Return the evidence of a knowledge base, as far as its sources are trusted.

    Only blocks that changed since it was last asked are read.
    """
    held = store.blocks()
    blocks = [(block.name, f"{FORMAT}{block.digest[1:]}") for block in held]
    kept = store.load_derived(_KIND, blocks)
    fresh = []
    for name, digest in blocks:
        if name not in kept:
            found = _of_block(store.observations(block=name))
            kept[name] = {"contrasts": [asdict(c) for c in found.contrasts], "runs": [asdict(r) for r in found.runs]}
            fresh.append((name, digest, kept[name]))
    store.store_derived(_KIND, fresh)
    trusted = [(kept[block.name], block.trust) for block in held if block.trust > 0]
    return BlockEvidence(
        contrasts=tuple(_weighed(_contrast_from(r), trust) for part, trust in trusted for r in part["contrasts"]),
        runs=tuple(_run_from(r) for part, trust in trusted if trust >= WITNESS for r in part["runs"]),
    )


def _weighed(c: Contrast, trust: float) -> Contrast:
    """Return a contrast as far as its source is trusted: half the trust is twice the variance."""
    if trust == 1:
        return c
    widening = trust**-0.5
    return replace(
        c,
        error=c.error * widening,
        common=c.common * widening,
        low=c.mean + (c.low - c.mean) * widening,
        high=c.mean + (c.high - c.mean) * widening,
    )


def evidence_of(observations: Iterable[Observation]) -> BlockEvidence:
    """Return what observations say, without a knowledge base."""
    return _of_block(observations)


def _of_block(observations: Iterable[Observation]) -> BlockEvidence:
    observations = tuple(observations)
    shares = common_shares(observations)
    contrasts = (_contrast(c, shares.get(c.block, 0.0)) for c in compare_block(observations))
    runs = {_run(o): None for o in observations if o.stack.version_of(o.framework) is not None}
    return BlockEvidence(contrasts=tuple(c for c in contrasts if c is not None), runs=tuple(runs))


def _contrast(c: Comparison, common_share: float) -> Contrast | None:
    """Turn a comparison into a contrast.

    There is none where a version is not known, the frameworks differ, the rounds are too few or too noisy, or their
    ratio contradicts their medians.
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
        side=_side(o),
        reference=_side(c.reference),
        mean=c.mean,
        error=error,
        common=error * math.sqrt(common_share),
        low=c.mean - _QUANTILE * error,
        high=c.mean + _QUANTILE * error,
        rounds=c.rounds,
        is_control=c.is_control,
    )


def _side(o: Observation) -> Side:
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
    """Return what the model looks at of a machine, for one of its devices."""
    gpu = hardware.gpu
    if device == "cuda" and gpu is not None:
        capability = gpu.compute_capability or gpu.model
        return Machine(
            identity=hardware.identity, name=gpu.model, kind=f"sm {capability}", family=f"sm {capability.split('.')[0]}"
        )
    cpu = hardware.cpu
    return Machine(
        identity=hardware.identity,
        name=cpu.microarchitecture,
        kind=f"cpu {cpu.microarchitecture}",
        family=f"cpu {cpu.vendor}",
    )


def _run(o: Observation) -> RunOutcome:
    numpy = o.stack.version_of("numpy") or ""
    return RunOutcome(
        framework=o.framework,
        version=str(o.stack.version_of(o.framework)),
        numpy="" if o.framework == "numpy" else numpy,
        device=o.indicator.device,
        machine=machine_of(o.hardware, o.indicator.device),
        status=o.status,
        block=o.block,
    )


def _contrast_from(record: dict[str, Any]) -> Contrast:
    values = dict(record)
    values["machine"] = Machine(**record["machine"])
    values["side"], values["reference"] = Side(**record["side"]), Side(**record["reference"])
    return Contrast(**values)


def _run_from(record: dict[str, Any]) -> RunOutcome:
    return RunOutcome(**{**record, "machine": Machine(**record["machine"])})

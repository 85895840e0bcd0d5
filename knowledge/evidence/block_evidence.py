"""What blocks of observations show: contrasts, and which versions ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from knowledge.domain.observation import BENCHMARK, PUBLISHED, Observation
from knowledge.evidence.compare import common_shares, compare_block
from knowledge.evidence.contrasts import Contrast, Machine, contrast_of, machine_of
from knowledge.evidence.mlperf_rows import ADVISED, training_rows
from knowledge.evidence.published_rows import published_contrasts

FAILURE_TRUST = 0.5
"""Minimum trust in a source whose reports of versions that do not run are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Whether a version ran, on one machine.

    Attributes:
        framework: Distribution that provides the backend.
        version: Its version.
        numpy: Version of NumPy in the same stack, or empty.
        device: ``cpu`` or ``cuda``.
        machine: The machine.
        status: How the run ended.
        block: Name of the block.
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
    """Contrasts and run outcomes of blocks.

    Attributes:
        contrasts: Contrasts in order of block, label and arm.
        runs: Distinct run outcomes.
    """

    contrasts: tuple[Contrast, ...]
    runs: tuple[RunOutcome, ...]


def evidence_of_rounds(observations: Iterable[Observation]) -> BlockEvidence:
    """Return the contrasts of versions between rounds of MLPerf Training."""
    rows = (r for r in training_rows(observations) if r.framework in ADVISED and r.indicator.device == "cuda")
    return BlockEvidence(contrasts=tuple(published_contrasts(rows)), runs=())


def evidence_of(
    observations: Iterable[Observation], is_copy: Callable[[Observation], bool] = lambda _: False
) -> BlockEvidence:
    """Return the evidence of observations; a project's own benchmark says nothing about other projects.

    Args:
        observations: The observations.
        is_copy: Returns whether another source published a row before.
    """
    observations = tuple(o for o in observations if o.indicator.name != BENCHMARK)
    measured = tuple(o for o in observations if o.indicator.name != PUBLISHED)
    shares = common_shares(measured)
    contrasts = [contrast_of(c, shares.get(c.block, 0.0)) for c in compare_block(measured)]
    contrasts += published_contrasts((o for o in observations if o.indicator.name == PUBLISHED), is_copy)
    # A published number proves that the version ran somewhere, not that its public files do on such a machine.
    runs = {_run(o): None for o in measured if o.stack.version_of(o.framework) is not None}
    return BlockEvidence(contrasts=tuple(c for c in contrasts if c is not None), runs=tuple(runs))


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

"""Evidence of blocks of observations: contrasts, and which versions ran; shipped, cached, or computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from typing import Any

from knowledge.domain.frameworks import able_frameworks
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import BENCHMARK, DAWNBENCH, PUBLISHED, Observation
from knowledge.evidence.compare import common_shares, compare_block
from knowledge.evidence.contrasts import (
    FORMAT,
    Contrast,
    Machine,
    contrast_of,
    machine_from,
    machine_of,
    pack_contrasts,
    unpack_contrasts,
)
from knowledge.evidence.mlperf import TRAINING_BLOCK, training_rows
from knowledge.evidence.published_rows import first_publications, published_contrasts
from knowledge.evidence.timm import BLOCK, is_shipped, timm_contrasts
from knowledge.records import shipped_text, value_from
from knowledge.store.base import KnowledgeBase, StoredBlock

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
    """Contrasts of blocks in order of block, label and arm, and distinct run outcomes."""

    contrasts: tuple[Contrast, ...]
    runs: tuple[RunOutcome, ...]


def evidence_of(
    observations: Iterable[Observation], is_copy: Callable[[Observation], bool] = lambda _: False
) -> BlockEvidence:
    """Return the evidence of observations; ``is_copy`` says whether another source published a row before.

    The benchmark of a project says nothing about other projects, and an entry of DAWNBench nothing about others.
    """
    observations = tuple(o for o in observations if o.indicator.name not in (BENCHMARK, DAWNBENCH))
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


SHIPPED = "contrasts.json.gz"
"""File of the program with the evidence of the shipped blocks: to compute it takes longer than the first use may."""
USUAL_ERROR = 0.1
"""Error of a published contrast, as a standard deviation of its logarithm, if its source is not fully trusted."""
_KIND = "evidence"


def load_evidence(store: KnowledgeBase) -> BlockEvidence:
    """Return the evidence of a knowledge base, weighted by the trust in its sources.

    Observations are read only of blocks that are not as shipped and that changed since the last call; the evidence of
    the others is shipped or cached. What ships of timm's tables belongs to the shipped blocks.
    """
    stored = with_rounds(store.blocks())
    digests, blocks = _digests(stored), _Blocks(store, stored)
    evidence = shipped_evidence(digests)
    of_timm = tuple(timm_contrasts()) if evidence else ()
    own = [(name, digest) for name, digest in digests.items() if name not in evidence]
    cached = store.load_derived(_KIND, own) if own else {}
    new = []
    for name, digest in own:
        if name in cached:
            evidence[name] = value_from(BlockEvidence, cached[name])
        else:
            evidence[name] = blocks.evidence(name)
            new.append((name, digest, asdict(evidence[name])))
    store.store_derived(_KIND, new)
    trusted = [(evidence[block.name], block.trust) for block in stored if block.trust > 0]
    return BlockEvidence(
        contrasts=(
            *(
                _weighted(c, trust)
                for part, trust in trusted
                for c in part.contrasts
                if not (of_timm and c.block == BLOCK and is_shipped(c))
            ),
            *of_timm,
        ),
        runs=tuple(r for part, trust in trusted if trust >= FAILURE_TRUST for r in part.runs),
    )


def shipped_evidence(digests: Mapping[str, str]) -> dict[str, BlockEvidence]:
    """Return the evidence of the blocks that are as shipped, by name; ``digests`` are those of blocks by name."""
    record = _shipped()
    names = {name for name, digest in record["digests"].items() if digests.get(name) == digest}
    if not names:
        return {}
    contrasts: dict[str, list[Contrast]] = {name: [] for name in names}
    for contrast in unpack_contrasts(record["contrasts"]):
        if contrast.block in names:
            contrasts[contrast.block].append(contrast)
    runs: dict[str, list[RunOutcome]] = {name: [] for name in names}
    for run in (RunOutcome(**{**own, "machine": machine_from(own["machine"])}) for own in record["runs"]):
        if run.block in names:
            runs[run.block].append(run)
    return {name: BlockEvidence(contrasts=tuple(contrasts[name]), runs=tuple(runs[name])) for name in names}


def shipped_blocks() -> frozenset[str]:
    """Return the names of the blocks that ship with the program."""
    return frozenset(_shipped()["digests"])


def compute_evidence(store: KnowledgeBase) -> dict[str, Any]:
    """Return the evidence of all blocks, computed from the observations, as the content of :data:`SHIPPED`."""
    stored = with_rounds(store.blocks())
    blocks = _Blocks(store, stored)
    parts = [blocks.evidence(block.name) for block in stored]
    return {
        "digests": {block.name: _digest(block) for block in stored},
        "contrasts": pack_contrasts([contrast for part in parts for contrast in part.contrasts]),
        "runs": [asdict(run) for part in parts for run in part.runs],
    }


def with_rounds(stored: Sequence[StoredBlock]) -> tuple[StoredBlock, ...]:
    """Return blocks with one more for all rounds of MLPerf Training together, if there are any.

    Versions are compared between rounds, and each system of a round is a block of its own.
    """
    rounds = [block for block in stored if _is_round(block.name)]
    if not rounds:
        return tuple(stored)
    together = replace(
        rounds[0],
        name=TRAINING_BLOCK,
        digest=content_hash(sorted(block.digest for block in rounds)),
        trust=min(block.trust for block in rounds),
    )
    return (*stored, together)


def _is_round(block: str) -> bool:
    return block.startswith("mlperf-training-")


class _Blocks:
    """Observations of blocks, and which rows of tables are copies."""

    def __init__(self, store: KnowledgeBase, stored: Sequence[StoredBlock]) -> None:
        self._store = store
        self._tables = [block.name for block in stored if _is_table(block)]
        self._rounds = [block.name for block in stored if _is_round(block.name)]

    @cached_property
    def _rows(self) -> Mapping[str, Sequence[Observation]]:
        return {name: tuple(self._store.observations(block=name)) for name in self._tables}

    @cached_property
    def _first(self) -> frozenset[int]:
        return frozenset(map(id, first_publications(o for rows in self._rows.values() for o in rows)))

    def evidence(self, name: str) -> BlockEvidence:
        """Return the evidence of a block."""
        if name == TRAINING_BLOCK:
            # Versions are compared between rounds. Other frameworks, such as TensorRT, are no choice of a lock.
            observations = (o for block in self._rounds for o in self._store.observations(block=block))
            advised = able_frameworks("backward")
            rows = (r for r in training_rows(observations) if r.framework in advised and r.indicator.device == "cuda")
            return BlockEvidence(contrasts=tuple(published_contrasts(rows)), runs=())
        if name in self._tables:
            return evidence_of(self._rows[name], is_copy=lambda o: id(o) not in self._first)
        return evidence_of(self._store.observations(block=name))


def _is_table(block: StoredBlock) -> bool:
    return block.name.startswith(f"{PUBLISHED}/") and block.name != TRAINING_BLOCK and block.trust > 0


def _digests(stored: Sequence[StoredBlock]) -> dict[str, str]:
    """Return a digest of what the evidence of each block is computed from.

    Tables are no copies of each other if all are as shipped; else the evidence of each depends on the others.
    """
    digests = {block.name: _digest(block) for block in stored}
    tables = {block.name: digests[block.name] for block in stored if _is_table(block)}
    if tables.items() <= _shipped()["digests"].items():
        return digests
    return digests | {name: content_hash([digest, tables]) for name, digest in tables.items()}


def _digest(block: StoredBlock) -> str:
    """Return a digest of a block and of the format of its evidence, as long as the block's digest."""
    return f"{FORMAT:02}{block.digest[2:]}"


@cache
def _shipped() -> dict[str, Any]:
    return dict(json.loads(shipped_text("knowledge.data", SHIPPED)))


def _weighted(c: Contrast, trust: float) -> Contrast:
    """Return a contrast weighted by the trust in its source: half the trust doubles the variance."""
    if trust == 1:
        return c
    widening = trust**-0.5
    # A published number has no error of its own.
    own = c.error or USUAL_ERROR * (1 - trust) ** 0.5
    return replace(c, error=own * widening, common=c.common * widening)

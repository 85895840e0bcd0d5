"""Models of frameworks by device: amplitudes that ship with the program, conditioned on a knowledge base.

Amplitudes describe how much versions, machines and indicators differ in general. They are fitted to the shipped
observations (`python docs/fits.py`), and not to other observations of a knowledge base: a block of a busy machine would
change the weight of all others. So a new block moves predictions towards it according to its errors only.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache, cached_property
from typing import Any

from knowledge.domain.identity import content_hash, hash_of_text
from knowledge.estimate.amplitudes import Amplitudes, with_own_scales
from knowledge.estimate.benchmark import benchmark_contrasts
from knowledge.estimate.evidence import FORMAT as EVIDENCE_FORMAT
from knowledge.estimate.evidence import BlockEvidence, Contrast, RunOutcome, machine_from
from knowledge.estimate.gaussian_process import MOST_CONTRASTS, GaussianProcess
from knowledge.estimate.packed_contrasts import pack_contrasts, unpack_contrasts
from knowledge.estimate.stored_evidence import load_evidence
from knowledge.store.base import KnowledgeBase

_KIND = "fit"
_FORMAT = 4
_SHIPPED = "fits.json"
USUAL = "usual"
USUAL_ON_ACCELERATORS = "usual on accelerators"
"""Keys of the amplitudes of frameworks with too few measurements, on processors and on accelerators."""
SAME_ON_PROCESSORS = {"tensorflow": "tensorflow-cpu"}
"""Distributions with another one that is the same release without support for accelerators: on processors, what one
measures is that of both. https://www.tensorflow.org/install/pip; docs/explanation/estimator.md has a measurement."""
ACCELERATORS = "accelerators"
"""Key of the variances of the model of accelerators."""


class ModelCache:
    """Models of a knowledge base, by framework and device; contrasts are cached in the knowledge base."""

    def __init__(self, store: KnowledgeBase) -> None:
        """Create the cache; the knowledge base is read on first use."""
        self._store = store
        self._read: dict[str, dict[str, Any]] = {}
        self._processes: dict[tuple[str, str], GaussianProcess | None] = {}

    def process(self, framework: str, device: str, own: Sequence[Contrast] = ()) -> GaussianProcess | None:
        """Return the Gaussian process of a framework; none if its versions were not compared.

        Args:
            framework: The framework.
            device: ``cpu`` or ``cuda``.
            own: Contrasts of a project's own benchmark, which are not in the cache.
        """
        if own:
            return self._make(framework, device, own)
        key = framework, device
        if key not in self._processes:
            self._processes[key] = self._make(framework, device, ())
        return self._processes[key]

    def _make(self, framework: str, device: str, own: Sequence[Contrast]) -> GaussianProcess | None:
        contrasts = (*unpack_contrasts(self._record(framework, device)["contrasts"]), *own)
        if not any(c.side.version != c.reference.version for c in contrasts):
            return None
        return GaussianProcess(contrasts, with_own_scales(shipped_amplitudes(framework, device), own))

    def benchmark(self, identity: str) -> tuple[Contrast, ...]:
        """Return the measured ratios of a project's own benchmark, which are not cached."""
        return benchmark_contrasts(self._store, identity)

    def runs(self, framework: str, device: str) -> tuple[RunOutcome, ...]:
        """Return which versions ran, and which failed."""
        rows = self._record(framework, device)["runs"]
        return tuple(RunOutcome(**{**row, "machine": machine_from(row["machine"])}) for row in rows)

    @cached_property
    def _state(self) -> str:
        """Hash of the content of the knowledge base."""
        return content_hash([_FORMAT, EVIDENCE_FORMAT, *(block.state for block in self._store.blocks())])

    @cached_property
    def _evidence(self) -> BlockEvidence:
        return load_evidence(self._store)

    def _record(self, framework: str, device: str) -> dict[str, Any]:
        key = f"{framework}/{device}"
        if key not in self._read:
            cached = self._store.load_derived(_KIND, [(key, self._state)])
            self._read[key] = cached.get(key) or self._pack(key, framework, device)
        return self._read[key]

    def _pack(self, key: str, framework: str, device: str) -> dict[str, Any]:
        """Pack contrasts and runs, and cache them."""
        contrasts = framework_contrasts(self._evidence, framework, device)
        runs = [asdict(r) for r in self._evidence.runs if (r.framework, r.device) == (framework, device)]
        record = {"contrasts": pack_contrasts(contrasts), "runs": runs}
        self._store.store_derived(_KIND, [(key, self._state, record)])
        return record


def shipped_amplitudes(framework: str, device: str) -> Amplitudes:
    """Return the amplitudes of a framework on a device, or the usual ones if it has none of its own."""
    records = _shipped()
    names = (framework, *_same_on(framework, device))
    own = [records[key] for name in names if (key := f"{name}/{device}") in records]
    record = own[0] if own else records[USUAL if device == "cpu" else USUAL_ON_ACCELERATORS]
    spans = {name: {int(major): count for major, count in majors.items()} for name, majors in record["spans"].items()}
    return Amplitudes(
        **{
            **record,
            "parts": tuple(record["parts"]),
            "refused": tuple(record["refused"]),
            "spans": spans,
            "sources": {name: tuple(pair) for name, pair in record["sources"].items()},
        }
    )


def shipped_ratio_variances() -> dict[str, float]:
    """Return the variances of the model of accelerators (:mod:`knowledge.estimate.accelerator_ratio`)."""
    return dict(_shipped()[ACCELERATORS])


def shipped_digest() -> str:
    """Return a hash of the shipped amplitudes and discrepancies."""
    return hash_of_text(_shipped_text())


@cache
def _shipped() -> dict[str, Any]:
    return dict(json.loads(_shipped_text()))


def _shipped_text() -> str:
    return (importlib.resources.files("knowledge.data") / _SHIPPED).read_text(encoding="utf-8")


def framework_contrasts(evidence: BlockEvidence, framework: str, device: str) -> tuple[Contrast, ...]:
    """Return the contrasts of a framework on a device; at most :data:`MOST_CONTRASTS`, of the last blocks."""
    names = {framework, *_same_on(framework, device)}
    contrasts = [c for c in evidence.contrasts if c.framework in names and c.label.endswith(f"/{device}")]
    return tuple(contrasts[-MOST_CONTRASTS:])


def _same_on(framework: str, device: str) -> tuple[str, ...]:
    """Return the other distributions with the same code for a device."""
    pairs = SAME_ON_PROCESSORS.items() if device == "cpu" else ()
    return tuple(pair[1 - index] for pair in pairs for index in (0, 1) if pair[index] == framework)


def frameworks_of(evidence: BlockEvidence) -> tuple[tuple[str, str], ...]:
    """Return the frameworks and devices with contrasts, sorted."""
    return tuple(sorted({(c.framework, c.label.rpartition("/")[2]) for c in evidence.contrasts}))

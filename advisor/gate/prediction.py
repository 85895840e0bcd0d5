"""Cached predictions: the gate runs on every push, and predictions rarely change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version as version_of_distribution
from typing import TYPE_CHECKING, Any, Self

from packaging.version import Version

from advisor.index.cache import DiskCache
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import canonical_json, content_hash
from knowledge.estimate.interface import (
    Effect,
    Evidence,
    KindPrediction,
    PredictedChange,
    Prediction,
    ProfileCoverage,
)

if TYPE_CHECKING:
    from knowledge.estimate.kinds import KindsEstimator
    from knowledge.estimate.posterior import PosteriorEstimator
    from knowledge.estimate.workloads import Workload

_BUCKET = "predictions"
_FORMAT = 6
"""Version of the cached values; raise it when their meaning changes."""

Versions = Mapping[str, Version]


class Predictor:
    """Predictions from the observations, for one machine and one workload.

    Every result is cached under a hash of everything that it depends on: the observations, the machine, the workloads,
    the program's version and the arguments. The knowledge base is opened only if a result is not cached.
    """

    def __init__(
        self,
        cache: DiskCache,
        *,
        address: str,
        hardware: HardwareProfile,
        workload: Workload | None = None,
        benchmark: str = "",
    ) -> None:
        """Create a predictor; this reads nothing.

        Args:
            cache: Cache for results.
            address: Address of the knowledge base.
            hardware: The machine.
            workload: The workload; none for all kinds.
            benchmark: Identity of the project's own benchmark; empty if it has none.
        """
        self._cache = cache
        self._address = address
        self._hardware = hardware
        self._workload = workload
        self._benchmark = benchmark
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that failed to run on comparable hardware, each with the reason."""
        failures: Mapping[str, str] = self.cached(["failures", name], lambda: dict(self.estimator.failures(name)))
        return failures

    def predict(self, stack: Versions, baseline: Versions) -> Prediction:
        """Predict the speed-up of a stack over the baseline."""
        query = ["predict", self._texts(stack), self._texts(baseline)]
        return _prediction(self.cached(query, lambda: asdict(self.estimator.predict(stack, baseline))))

    def effects(self, stack: Versions, baseline: Versions) -> tuple[Effect, ...]:
        """Predict the speed-up of a stack over the baseline at each indicator of the workload."""
        query = ["effects", self._texts(stack), self._texts(baseline)]
        effects = self.cached(query, lambda: [asdict(e) for e in self.estimator.effects(stack, baseline)])
        return tuple(Effect(**effect) for effect in effects)

    def setting_effects(self, stack: Versions, settings: Mapping[str, Mapping[str, str]]) -> tuple[Effect, ...]:
        """Predict the effect of settings, by framework, on the speed of a stack, each compared with its default."""
        query = ["settings", self._texts(stack), settings]
        effects = self.cached(query, lambda: [asdict(e) for e in self.estimator.setting_effects(stack, settings)])
        return tuple(Effect(**effect) for effect in effects)

    def _texts(self, versions: Versions) -> dict[str, str]:
        """Return the versions that predictions depend on; with an own benchmark, this may be any package."""
        relevant = versions if self._benchmark else performance_versions(versions)
        return {name: str(version) for name, version in sorted(relevant.items())}

    @cached_property
    def state(self) -> str:
        """Hash of everything that results depend on, except the arguments."""
        from knowledge.estimate.workloads import catalogue_digest
        from knowledge.store.state_hash import state_hash

        store_state = state_hash(self._address)
        if store_state is None:
            # A server, or the tables of an older program; opening it adds the observations that ship.
            store_state = content_hash([block.state for block in self._store.blocks()])
        program = [version_of_distribution("seshat-advisor"), catalogue_digest()]
        workload = asdict(self._workload) if self._workload else None
        return content_hash([_FORMAT, program, store_state, self._hardware.identity, workload, self._benchmark])

    def cached(self, query: Any, compute: Callable[[], Any]) -> Any:
        """Return the cached result of a query as JSON-ready values; compute and cache it if it is new."""
        key = canonical_json([self.state, query])
        stored = self._cache.read(_BUCKET, key)
        if stored is not None:
            return json.loads(stored)
        text = json.dumps(compute())
        self._cache.write(_BUCKET, key, text.encode())
        return json.loads(text)

    @cached_property
    def _store(self) -> Any:
        from knowledge.store.engine import open_knowledge_base

        return self._resources.enter_context(open_knowledge_base(self._address))

    @cached_property
    def estimator(self) -> PosteriorEstimator | KindsEstimator:
        """The estimator that computes results which are not cached."""
        from knowledge.estimate.kinds import make_estimator
        from knowledge.estimate.model_cache import ModelCache
        from pi_runners.vocabulary import FRAMEWORKS

        return make_estimator(
            ModelCache(self._store),
            hardware=self._hardware,
            workload=self._workload,
            frameworks=frozenset(FRAMEWORKS),
            benchmark=self._benchmark,
        )


def performance_versions(versions: Versions) -> dict[str, Version]:
    """Return the versions that predictions depend on, sorted by name: frameworks and their companions."""
    from knowledge.estimate.evidence import COMPANIONS
    from pi_runners.vocabulary import FRAMEWORKS

    return {name: v for name, v in sorted(versions.items()) if name in FRAMEWORKS or name in COMPANIONS}


def _prediction(document: dict[str, Any]) -> Prediction:
    changes = tuple(
        PredictedChange(**{**change, "evidence": tuple(Evidence(**e) for e in change["evidence"])})
        for change in document["changes"]
    )
    return Prediction(
        **{
            **document,
            "changes": changes,
            "unmeasured": tuple(document["unmeasured"]),
            "refused": tuple(document["refused"]),
            "operations_only": tuple(document["operations_only"]),
            "coverage": tuple(ProfileCoverage(**coverage) for coverage in document["coverage"]),
            "kinds": tuple(KindPrediction(**kind) for kind in document["kinds"]),
        }
    )

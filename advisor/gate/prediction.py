"""What the observations imply, remembered: the gate asks on every push, and the answers seldom change."""

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
from knowledge.estimate.interface import Effect, Evidence, PredictedChange, Prediction

if TYPE_CHECKING:
    from knowledge.estimate.posterior import PosteriorEstimator

_BUCKET = "outlook"
_FORMAT = 2
"""To be raised when what is remembered changes its meaning."""

Versions = Mapping[str, Version]


class Outlook:
    """What the observations imply on one machine, for one workload.

    Every answer is kept under a hash of all that it depends on: the observations, the machine, the workloads, the
    program's version, the question. The knowledge base is opened where an answer is new.
    """

    def __init__(self, cache: DiskCache, *, address: str, hardware: HardwareProfile, workload: str) -> None:
        """Remember what to ask.

        Args:
            cache: Where answers are kept.
            address: Address of the knowledge base.
            hardware: The machine.
            workload: Name of the workload.
        """
        self._cache = cache
        self._address = address
        self._hardware = hardware
        self._workload = workload
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that were seen not to run on like hardware, each with its reason."""
        found: Mapping[str, str] = self.remembered(["failures", name], lambda: dict(self.estimator.failures(name)))
        return found

    def predict(self, stack: Versions, baseline: Versions) -> Prediction:
        """Predict the speed-up of a stack over the baseline."""
        question = ["predict", _spelled(stack), _spelled(baseline)]
        return _prediction(self.remembered(question, lambda: asdict(self.estimator.predict(stack, baseline))))

    def effects(self, stack: Versions, baseline: Versions) -> tuple[Effect, ...]:
        """Predict the speed-up of a stack over the baseline at each indicator of the workload."""
        question = ["effects", _spelled(stack), _spelled(baseline)]
        told = self.remembered(question, lambda: [asdict(e) for e in self.estimator.effects(stack, baseline)])
        return tuple(Effect(**effect) for effect in told)

    def setting_effects(self, stack: Versions, settings: Mapping[str, Mapping[str, str]]) -> tuple[Effect, ...]:
        """Predict what settings do to the speed of a stack, by framework, each against its default."""
        question = ["settings", _spelled(stack), settings]
        told = self.remembered(question, lambda: [asdict(e) for e in self.estimator.setting_effects(stack, settings)])
        return tuple(Effect(**effect) for effect in told)

    @cached_property
    def state(self) -> str:
        """Hash of what the answers depend on, beside the question."""
        from knowledge.estimate.workloads import catalogue_digest
        from knowledge.store.state_hash import glance

        seen = glance(self._address)
        if seen is None:
            # The tables are those of an older program, or a server's; opening fills in what ships.
            seen = content_hash([block.state for block in self._store.blocks()])
        program = [version_of_distribution("seshat-advisor"), catalogue_digest()]
        return content_hash([_FORMAT, program, seen, self._hardware.identity, self._workload])

    def remembered(self, question: Any, answer: Callable[[], Any]) -> Any:
        """Return the answer to a question, JSON-ready; worked out where it was not before."""
        key = canonical_json([self.state, question])
        kept = self._cache.read(_BUCKET, key)
        if kept is not None:
            return json.loads(kept)
        made = answer()
        self._cache.write(_BUCKET, key, json.dumps(made).encode())
        return json.loads(json.dumps(made))

    @cached_property
    def _store(self) -> Any:
        from knowledge.store.engine import open_knowledge_base

        return self._opened.enter_context(open_knowledge_base(self._address))

    @cached_property
    def estimator(self) -> PosteriorEstimator:
        """What gives the answers that are not remembered."""
        from knowledge.estimate.model_cache import Fits
        from knowledge.estimate.posterior import PosteriorEstimator
        from knowledge.estimate.workloads import find_workload
        from pi_runners.vocabulary import FRAMEWORKS

        workload = find_workload(self._workload)
        fits = Fits(self._store)
        return PosteriorEstimator(fits, hardware=self._hardware, workload=workload, frameworks=frozenset(FRAMEWORKS))


def telling(versions: Versions) -> dict[str, Version]:
    """Return the versions that predictions depend on, by name."""
    from knowledge.estimate.evidence import COMPANIONS
    from pi_runners.vocabulary import FRAMEWORKS

    return {name: v for name, v in sorted(versions.items()) if name in FRAMEWORKS or name in COMPANIONS}


def _spelled(versions: Versions) -> dict[str, str]:
    return {name: str(version) for name, version in telling(versions).items()}


def _prediction(document: dict[str, Any]) -> Prediction:
    changes = tuple(
        PredictedChange(**{**change, "evidence": tuple(Evidence(**e) for e in change["evidence"])})
        for change in document["changes"]
    )
    return Prediction(**{**document, "changes": changes, "unmeasured": tuple(document["unmeasured"])})

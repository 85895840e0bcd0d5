"""Cached predictions: the program runs often, and predictions rarely change."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

from packaging.version import Version

from advisor.index.cache import DiskCache
from advisor.index.memo import Memo
from knowledge.domain.codec import decoded, encoded
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import content_hash
from knowledge.estimate.gains import FrameworkGains, SettingGains
from knowledge.estimate.interface import Effect, Prediction, StartupTime
from knowledge.estimate.setting_effect import SettingEffect

if TYPE_CHECKING:
    from knowledge.estimate.estimator import WorkloadEstimator
    from knowledge.estimate.workloads import Workload

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"

Versions = Mapping[str, Version]
_T = TypeVar("_T")


class Predictor:
    """Predictions from the observations, for one machine and one workload.

    It satisfies :class:`knowledge.estimate.interface.Estimator`.

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

        Without a workload, predictions are for all kinds. The benchmark is the identity of the project's own one.
        """
        self._memo = Memo(cache, "predictions")
        self._address = address
        self._hardware = hardware
        self._workload = workload
        self._benchmark = benchmark
        self._resources = ExitStack()
        self._preparation: Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._finish_preparation()
        self._resources.close()

    def prepare(self, packages: Iterable[str]) -> None:
        """Start to load the measurements of the frameworks among some packages, while the program waits for an index.

        Nothing is loaded if the predictions for these packages were computed before.
        """
        frameworks = sorted(FRAMEWORKS.keys() & set(packages))
        if not self._memo.knows(self._question(["prepared", frameworks])):
            # Not in the thread: a build that starts meanwhile would inherit the environment.
            _load_numpy()
            self._preparation = Thread(target=self._prepare, args=[frameworks], name="predictions", daemon=True)
            self._preparation.start()

    def _prepare(self, frameworks: Sequence[str]) -> None:
        # The question whose answer needs it raises the same error.
        with contextlib.suppress(Exception):
            self.estimator.prepare(frameworks)
            self._memo.write(self._question(["prepared", frameworks]), True)

    def _finish_preparation(self) -> None:
        if self._preparation is not None:
            self._preparation.join()
            self._preparation = None

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that failed to run on comparable hardware, each with the reason."""
        failures: Mapping[str, str] = self.cached(["failures", name], lambda: dict(self.estimator.failures(name)))
        return failures

    def terms(self, candidates: Mapping[str, Sequence[Version]], baseline: Versions) -> tuple[FrameworkGains, ...]:
        """Return the gains of every candidate version of the given packages, newest first."""
        offered = candidates if self._benchmark else performance_versions(candidates)
        query = ["terms", {name: list(map(str, offered[name])) for name in sorted(offered)}, self._texts(baseline)]
        return self._value(tuple[FrameworkGains, ...], query, lambda: self.estimator.terms(candidates, baseline))

    def is_measured(self, name: str, version: Version) -> bool:
        """Whether a version was measured on comparable hardware; true for packages that are not frameworks."""
        # The project's own benchmark may have compared versions of any package.
        if name not in FRAMEWORKS and not self._benchmark:
            return True
        query = ["measured", name, str(version)]
        return bool(self.cached(query, lambda: self.estimator.is_measured(name, version)))

    def has_compared(self, name: str, version: Version, other: Version) -> bool:
        """Whether two versions of a package were compared on comparable hardware; false for unmeasured packages."""
        # The project's own benchmark may have compared versions of any package.
        if name not in FRAMEWORKS and not self._benchmark:
            return False
        query = ["compared", name, str(version), str(other)]
        return bool(self.cached(query, lambda: self.estimator.has_compared(name, version, other)))

    def time_share(self, name: str, parts: Sequence[Mapping[str, str]]) -> float | None:
        """Return the share of the workload's time of some parts of it; `None` if no workload is selected."""
        if self._workload is None and not self._benchmark:
            return None
        query = ["share", name, [dict(part) for part in parts]]
        share: float | None = self.cached(query, lambda: self.estimator.time_share(name, parts))
        return share

    def predict(self, stack: Versions, baseline: Versions) -> Prediction:
        """Predict the speed-up of a stack over the baseline."""
        query = ["predict", self._texts(stack), self._texts(baseline)]
        prediction = self._value(Prediction, query, lambda: self.estimator.predict(stack, baseline))
        # Cached for the measured packages alone; the others decide whether the stacks are the same.
        return replace(prediction, is_same=dict(stack) == dict(baseline))

    def effects(self, stack: Versions, baseline: Versions) -> tuple[Effect, ...]:
        """Predict the speed-up of a stack over the baseline at each indicator of the workload."""
        query = ["effects", self._texts(stack), self._texts(baseline)]
        return self._value(tuple[Effect, ...], query, lambda: self.estimator.effects(stack, baseline))

    def setting_effects(
        self,
        stack: Versions,
        settings: Mapping[str, Mapping[str, str]],
        over: Mapping[str, Mapping[str, str]] | None = None,
    ) -> tuple[Effect, ...]:
        """Predict the effect of settings, by framework, over others or their absence; an empty value is an absence."""
        query = ["settings", self._texts(stack), settings, *([over] if over else [])]
        return self._value(tuple[Effect, ...], query, lambda: self.estimator.setting_effects(stack, settings, over))

    def compared_settings(self, stack: Versions) -> tuple[SettingEffect, ...]:
        """Return the measured effects of settings of the frameworks of a stack."""
        query = ["compared settings", self._texts(stack)]
        return self._value(tuple[SettingEffect, ...], query, lambda: self.estimator.compared_settings(stack))

    def setting_gains(self, candidates: Mapping[str, Sequence[Version]], stack: Versions) -> tuple[SettingGains, ...]:
        """Return the gains of the settings of each framework, for its candidates."""
        offered = {name: list(versions) for name, versions in sorted(candidates.items()) if name in FRAMEWORKS}
        texts = {name: list(map(str, versions)) for name, versions in offered.items()}
        query = ["gains of settings", texts, self._texts(stack)]
        return self._value(tuple[SettingGains, ...], query, lambda: self.estimator.setting_gains(offered, stack))

    def startup(self, stack: Versions) -> tuple[StartupTime, ...]:
        """Return the measured import time and memory of the frameworks of a stack; nothing is predicted."""
        frameworks = {name: version for name, version in sorted(stack.items()) if name in FRAMEWORKS}
        if not frameworks:
            return ()

        def compute() -> Sequence[StartupTime]:
            from knowledge.estimate.startup import startup_times

            return startup_times(self._store, frameworks, hardware=self._hardware)

        query = ["startup", {name: str(version) for name, version in frameworks.items()}]
        return self._value(tuple[StartupTime, ...], query, compute)

    def _texts(self, versions: Versions) -> dict[str, str]:
        """Return the versions that predictions depend on; with an own benchmark, this may be any package."""
        relevant = versions if self._benchmark else performance_versions(versions)
        return {name: str(version) for name, version in sorted(relevant.items())}

    @cached_property
    def evidence_state(self) -> str:
        """Hash of everything that results depend on, except the arguments and the program."""
        from knowledge.store.state_hash import state_hash

        store_state = state_hash(self._address)
        if store_state is None:
            # It does not exist yet, is of an older program, or a server; opening it adds the observations that ship.
            blocks = self._store.blocks()
            store_state = state_hash(self._address) or content_hash([block.state for block in blocks])
        workload = asdict(self._workload) if self._workload else None
        return content_hash([store_state, self._hardware.identity, workload, self._benchmark])

    def cached(self, query: Any, compute: Callable[[], Any]) -> Any:
        """Return the cached result of a query as JSON-ready values; compute and cache it if it is new."""

        def compute_alone() -> Any:
            self._finish_preparation()
            return compute()

        return self._memo.answer(self._question(query), compute_alone)

    def _value(self, kind: type[_T], query: Any, compute: Callable[[], object]) -> _T:
        return decoded(kind, self.cached(query, lambda: encoded(compute())))

    def _question(self, query: Any) -> list[Any]:
        return [self.evidence_state, query]

    @cached_property
    def _store(self) -> Any:
        from knowledge.store.engine import open_knowledge_base

        return self._resources.enter_context(open_knowledge_base(self._address))

    @cached_property
    def estimator(self) -> WorkloadEstimator:
        """The estimator that computes results which are not cached."""
        # Before the estimator loads it.
        _load_numpy()
        from knowledge.estimate.estimator import WorkloadEstimator
        from knowledge.estimate.model_cache import ModelCache

        return WorkloadEstimator(
            ModelCache(self._store),
            hardware=self._hardware,
            workload=self._workload,
            frameworks=frozenset(FRAMEWORKS),
            benchmark=self._benchmark,
        )


def _load_numpy() -> None:
    """Load NumPy with one thread of OpenBLAS, unless the user chose their number.

    The matrices of predictions are small: threads that wait for work took three times as long as the work itself. The
    environment stays as it was, because other programs inherit it.
    """
    if _BLAS_THREADS in os.environ or "numpy" in sys.modules:
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        del os.environ[_BLAS_THREADS]


def performance_versions(versions: Mapping[str, _T]) -> dict[str, _T]:
    """Return the versions that predictions depend on, sorted by name: frameworks and their companions."""
    from knowledge.evidence.contrasts import COMPANIONS

    return {name: v for name, v in sorted(versions.items()) if name in FRAMEWORKS or name in COMPANIONS}

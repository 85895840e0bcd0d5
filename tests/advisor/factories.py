"""Factories of index clients, resolution problems, requests and estimators with fixed values, for tests."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from packaging.requirements import Requirement
from packaging.version import Version

from advisor.api.locked_stack import SolvedStack
from advisor.domain.requirement import RootRequirement
from advisor.domain.target import make_target
from advisor.gate.policy import GatePolicy, read_policy
from advisor.gate.scope import GateCase, ProjectState, Scope
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.locks.interface import StackToLock
from advisor.locks.lock import Lock
from advisor.locks.setting_value import AppliedSetting
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, CandidatePolicy, CandidateSource, ResolutionProblem
from advisor.resolve.explanation.advice import Advice
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.recommendation.recommend import make_request, recommend
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.criteria import ObjectiveName, StackScore
from advisor.resolve.score.predictor import Predictor
from knowledge.catalogue.builds import CatalogueEntry
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import Rule
from knowledge.domain.hardware import Cpu, HardwareProfile
from knowledge.domain.ratio import MIN_GAIN, NORMAL_QUANTILE, Ratio
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.gains import CompanionGain, CompanionGains, FrameworkGains, SettingGains
from knowledge.estimate.interface import Estimator, Prediction
from knowledge.estimate.model_cache import ModelCache
from knowledge.estimate.setting_effect import SettingEffect
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.package_index import PackageIndex

MACHINE = HardwareProfile(name="made-up", cpu=Cpu(architecture="x86_64", microarchitecture="zen4"))


def build_scope(
    lock: Lock,
    problem: ResolutionProblem,
    *,
    policy: GatePolicy | None = None,
    allowed_indexes: Collection[str] = (),
    client: IndexClient | None = None,
    predictor: Predictor | None = None,
) -> Scope:
    """Create what a check of the gate looks at: a lock of a project without a base."""
    state = ProjectState(lock=lock, problem=problem, allowed_indexes=allowed_indexes)
    case = GateCase(name="", head=state, client=cast(IndexClient, client), predictor=cast(Predictor, predictor))
    return Scope(case=case, state=state, policy=policy or read_policy({}))


def build_client(
    index: PackageIndex, cache: Path, *, offline: bool = False, refresh: bool = False, timeout: float = 5.0
) -> IndexClient:
    """Create a client of one index."""
    configuration = IndexConfiguration(default=index.url, timeout_seconds=timeout)
    return IndexClient(configuration, cache=DiskCache(cache), offline=offline, refresh=refresh)


def build_problem(
    *requirements: str, constraints: tuple[str, ...] = (), python: str = "3.12", policy: CandidatePolicy | None = None
) -> ResolutionProblem:
    """Create a resolution problem for an x86-64 Linux machine."""
    roots = [RootRequirement(requirement=Requirement(r), origin=f"line {i}") for i, r in enumerate(requirements, 1)]
    roots += [RootRequirement(requirement=Requirement(c), origin="-c", constraint=True) for c in constraints]
    target = make_target(python=python, platform="manylinux_2_28_x86_64", hardware=MACHINE)
    return ResolutionProblem(roots=tuple(roots), target=target, policy=policy or CandidatePolicy())


def empty_estimator() -> WorkloadEstimator:
    """Create an estimator over an empty knowledge base."""
    empty = open_knowledge_base("sqlite://", shipped=False)
    return WorkloadEstimator(ModelCache(empty), hardware=MACHINE, workload=EVERY_OPERATION, frameworks=())


def recommend_stack(
    index: PackageIndex,
    cache: Path,
    problem: ResolutionProblem,
    *,
    rules: tuple[Rule, ...] = (),
    estimator: Estimator | None = None,
    objective: ObjectiveName = "performance",
    min_gain: float = MIN_GAIN,
) -> tuple[Advice, IndexCandidates]:
    """Recommend a stack; return it with the candidates that it was chosen from."""
    request = build_request(index, cache, problem, rules=rules, estimator=estimator, objective=objective)
    return recommend(Selection(request=request.with_score(min_gain=min_gain))), request.source


def build_stack(index: PackageIndex, cache: Path, problem: ResolutionProblem) -> StackToLock:
    """Recommend a stack; return it as locks record it."""
    advice, source = recommend_stack(index, cache, problem)
    stack, client = advice.optimum.stack, build_client(index, cache)
    return SolvedStack(problem=problem, source=source, stack=stack, client=client).to_lock()


def empty_stack(
    cache: Path, problem: ResolutionProblem, *, settings: Sequence[AppliedSetting] | None = None
) -> StackToLock:
    """Create a stack without packages, as locks record it."""
    client = IndexClient(IndexConfiguration(), cache=DiskCache(cache), offline=True)
    source = IndexCandidates(client, problem)
    return SolvedStack(problem=problem, source=source, stack=(), client=client).to_lock(settings)


def build_request(
    index: PackageIndex,
    cache: Path,
    problem: ResolutionProblem,
    *,
    rules: tuple[Rule, ...] = (),
    estimator: Estimator | None = None,
    objective: ObjectiveName = "performance",
    young_after: str = "",
    builds: tuple[CatalogueEntry, ...] = (),
) -> ResolutionRequest:
    """Create a resolution request for a problem."""
    source = IndexCandidates(build_client(index, cache), problem, advisories=objective == "security")
    catalogue = TargetBuilds(builds, RuleBook(rules, MACHINE), MACHINE)
    score = score_of(problem, source, objective, builds=catalogue, estimator=estimator)
    return make_request(problem, replace(score, young_after=young_after), Effort())


def score_of(
    problem: ResolutionProblem,
    source: CandidateSource,
    objective: ObjectiveName = "performance",
    *,
    builds: TargetBuilds | None = None,
    estimator: Estimator | None = None,
) -> StackScore:
    """Create the score of an objective, by default on a machine without rules and measurements."""
    return StackScore(
        objective=objective,
        builds=builds or builds_of(),
        estimator=estimator or empty_estimator(),
        source=cast(IndexCandidates, source),
        direct=problem.direct_names,
        policy=problem.policy,
    )


def with_max_size(request: ResolutionRequest, max_size: int) -> ResolutionRequest:
    """Return a request with a limit of the download, in bytes."""
    return request.with_score(max_size=max_size)


def builds_of(entries: tuple[CatalogueEntry, ...] = (), hardware: HardwareProfile = MACHINE) -> TargetBuilds:
    """Create the builds of a catalogue on a machine, without rules."""
    return TargetBuilds(entries, RuleBook((), hardware), hardware)


def versions_of(stack: tuple[Candidate, ...]) -> dict[str, str]:
    """Return the version of each package of a stack, as text."""
    return {c.name: str(c.version) for c in stack}


def companion_gains(gains: Mapping[tuple[Version, str, Version | None], CompanionGain]) -> CompanionGains:
    """Return the gains of a framework with companions, stated for each version with each version of a companion."""
    companions: dict[str, dict[Version | None, str]] = {}
    for _, companion, other in gains:
        companions.setdefault(companion, {})[other] = str(other or "")
    return CompanionGains(
        own={version: str(version) for version, _, _ in gains},
        companions=companions,
        cells={(str(version), companion, str(w or "")): gain for (version, companion, w), gain in gains.items()},
    )


class FixedScores:
    """An estimator that predicts fixed scores without uncertainty."""

    def __init__(
        self,
        scores: dict[tuple[str, str], float],
        failing: dict[str, dict[str, str]] | None = None,
        with_companion: dict[tuple[str, str], float] | None = None,
    ) -> None:
        """Create the estimator.

        Args:
            scores: Log speed-up by package and version.
            failing: Versions that fail, with the reason, by package.
            with_companion: Log speed-up of package `a` together with package `b`, by both versions.
        """
        self._scores = {(name, Version(version)): score for (name, version), score in scores.items()}
        self._failing = failing or {}
        self._with_companion = {(Version(v), Version(w)): score for (v, w), score in (with_companion or {}).items()}

    def terms(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]
    ) -> tuple[FrameworkGains, ...]:
        return tuple(
            self._gains(name, candidates[name], baseline)
            for name in sorted({name for name, _ in self._scores} & set(candidates))
        )

    def _gains(self, name: str, offered: Sequence[Version], baseline: Mapping[str, Version]) -> FrameworkGains:
        mine = baseline[name]

        def score(version: Version, other: Version | None = None) -> float:
            if other in {w for _, w in self._with_companion}:
                return self._with_companion[version, other]
            return self._scores.get((name, version), 0.0)

        other = baseline.get("b") if name == "a" else None
        own = score(mine, other)
        return FrameworkGains(
            framework=name,
            alone={v: exact_gain(score(v, other) - own) for v in offered},
            with_companion=companion_gains(
                {
                    (v, "b", w): CompanionGain(
                        joint=exact_gain(joint - own),
                        own=exact_gain(joint - score(v, other)),
                        framework=exact_gain(joint - score(mine, w)),
                    )
                    for (v, w), joint in self._with_companion.items()
                    if name == "a"
                }
            ),
        )

    def predict(self, stack: object, baseline: object) -> Prediction:
        return empty_estimator().predict({}, {})

    def setting_gains(self, candidates: object, stack: object) -> tuple[SettingGains, ...]:
        return ()

    def compared_settings(self, stack: object) -> tuple[SettingEffect, ...]:
        return ()

    def failures(self, name: str) -> dict[str, str]:
        return self._failing.get(name, {})

    def is_measured(self, name: str, version: Version) -> bool:
        return any(name == package for package, _ in self._scores) <= ((name, version) in self._scores)

    def has_compared(self, name: str, version: Version, other: Version) -> bool:
        return {(name, version), (name, other)} <= set(self._scores)

    def time_share(self, name: str, parts: Sequence[Mapping[str, str]]) -> float | None:
        return None


def ratio_of(speedup: float, low: float, high: float) -> Ratio:
    """Return a ratio whose interval is as wide as that from ``low`` to ``high``."""
    return Ratio(mean=math.log(speedup), variance=(math.log(high / low) / 2 / NORMAL_QUANTILE) ** 2)


def exact_gain(score: float) -> Ratio:
    return Ratio(mean=score, variance=0.0)

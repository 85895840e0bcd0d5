"""A project made ready for one target: requirements, target, settings, predictions."""

from __future__ import annotations

import logging
import platform as this_machine
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.api.options import (
    ProjectFiles,
    ResolutionOptions,
    TargetOptions,
    allows_reduced_precision,
    candidate_policy,
    read_allowed_replacements,
    read_days,
    read_max_size,
    read_min_gain,
    recommends_settings,
)
from advisor.api.project import TargetTable
from advisor.domain.time_limit import TimeLimit

if TYPE_CHECKING:
    from advisor.domain.target import Target
    from advisor.index.client import IndexClient
    from advisor.locks.lock import Lock
    from advisor.project.interface import ProjectRequirements
    from advisor.project.workload.proposal import Proposal
    from advisor.resolve.candidates.problem import AllowedReplacements, ResolutionProblem
    from advisor.resolve.optimum.request import ResolutionRequest
    from advisor.resolve.recommendation.problem_variants import Selection
    from advisor.resolve.score.builds import TargetBuilds
    from advisor.resolve.score.predictor import Predictor
    from advisor.resolve.score.setting_choice import TargetSettings
    from knowledge.catalogue.rule_book import RuleBook
    from knowledge.catalogue.rules import UndeclaredRequirementRule
    from knowledge.domain.workload import ProfiledWorkload
    from knowledge.estimate.interface import Estimator
    from knowledge.estimate.workloads import Workload

logger = logging.getLogger(__name__)

BEST_PYTHON = "best"
"""Value of the setting `python` that selects the interpreter with the best-scored stack."""


@dataclass(frozen=True, kw_only=True)
class TargetContext:
    """A project that was read, for one target.

    Attributes:
        name: Name of the target; empty if it has none.
        files: The project's files.
        project: What they require.
        target: Interpreter, platform and hardware.
        problem: The resolution problem.
        objective: Name of the objective.
        min_age_days: Age below which objective ``stable`` avoids a release, in days.
        min_gain: Smallest gain of speed that counts, as a fraction.
        address: Address of the knowledge base, or none for the user's own.
        workload: Name of the workload; none if nobody selected one, the project has no single profiled workload, and
            the sources suggest none.
        profile: The profiled workload of this name, if the project has one.
        proposal: The workload that the project's sources suggest, if nobody chose one.
        lock: Lock file of the target: the one in the project's settings, else ``pylock.NAME.toml`` if it exists and the
            project has several targets; else none.
        allowed: Which packages may replace others.
        reduced_precision: Whether run-time settings with a lower precision may be chosen.
        recommends_settings: Whether run-time settings are recommended, and count when versions are compared.
        max_size: Largest admissible download of the stack, in bytes; none for no limit.
        workers: Threads of the solver.
        time_limit: Time limit of the search, in seconds.
        other_pythons: Interpreters that the project supports, newest first, if nobody chose one and it does not support
            that of this program; else empty.
        compared_pythons: Interpreters of which the one with the best-scored stack is taken, newest first, if that was
            chosen; else empty.
        names_workload: Whether somebody named the workload; a benchmark of the project then does not count.
    """

    name: str
    files: ProjectFiles
    project: ProjectRequirements
    target: Target
    problem: ResolutionProblem
    objective: str
    min_age_days: int
    min_gain: float
    address: str | None
    workload: str | None
    profile: ProfiledWorkload | None
    proposal: Proposal | None
    lock: Path | None
    allowed: AllowedReplacements
    reduced_precision: bool
    recommends_settings: bool
    max_size: int | None
    workers: int
    time_limit: float
    other_pythons: tuple[str, ...] = ()
    compared_pythons: tuple[str, ...] = ()
    names_workload: bool = False

    @property
    def target_settings(self) -> TargetSettings | None:
        """The run-time settings that may be chosen; none if none may."""
        from advisor.resolve.score.setting_choice import TargetSettings

        if not self.recommends_settings:
            return None
        return TargetSettings(hardware=self.target.hardware, allows_reduced=self.reduced_precision)

    def with_python(self, python: str) -> TargetContext:
        """Return the same target with another interpreter.

        Args:
            python: Its version.
        """
        from advisor.domain.target import make_target

        target = make_target(python=python, platform=self.target.platform, hardware=self.target.hardware)
        return replace(self, target=target, problem=replace(self.problem, target=target))

    @property
    def uses_uv(self) -> bool:
        """Whether the project is managed with uv: it has a lock of uv, or settings for it."""
        from advisor.project.formats.pyproject import has_uv_settings

        directory = self.files.directory
        return (directory / "uv.lock").is_file() or has_uv_settings(directory / "pyproject.toml")

    @property
    def rules(self) -> RuleBook:
        """The rules that apply to the target."""
        from knowledge.catalogue.rule_book import RuleBook
        from knowledge.catalogue.rules import shipped_rules

        return RuleBook(shipped_rules(), self.target.hardware)

    @property
    def builds(self) -> TargetBuilds:
        """The builds on the target."""
        from advisor.resolve.score.builds import TargetBuilds
        from knowledge.catalogue.builds import shipped_builds

        return TargetBuilds(shipped_builds(), self.rules, self.target.build_machine)

    def find_workload(self) -> Workload | None:
        """Return the workload that predictions are for: the project's profiled one of the name, or a shipped one.

        Raises:
            InputError: If there is no workload of the name.
        """
        from knowledge.domain.frameworks import MEASURED
        from knowledge.estimate.workloads import find_workload, workload_of_profile
        from pi_runners.model_parts import amounts_of_profile

        if self.profile is not None:
            flops, moved = amounts_of_profile(self.profile)
            backend = MEASURED.get(self.profile.framework, "")
            return workload_of_profile(self.profile, backend=backend, flops=flops, bytes=moved)
        return find_workload(self.workload) if self.workload else None

    @property
    def default_lock(self) -> Path:
        """The lock that is written if none is named: several targets have a lock each."""
        own = _lock_of_target(self.files.directory, self.name, self.project)
        return self.lock or own or self.files.directory / "pylock.toml"

    @property
    def benchmark_identity(self) -> str:
        """Identity of the project's own benchmark; empty if it has none, or somebody named another workload.

        Raises:
            InputError: If the definition of the benchmark is wrong.
        """
        if "benchmark" not in self.project.settings or self.names_workload:
            return ""
        from advisor.project.benchmark import read_benchmark

        return read_benchmark(self.files.directory).identity

    def select(self, client: IndexClient, estimator: Estimator, *, limit: TimeLimit | None = None) -> Selection:
        """Return the request with the extras and replacements whose best stack has the best score."""
        from advisor.resolve.recommendation.package_choices import with_best_packages

        return with_best_packages(self.request(client, estimator, limit=limit), self.allowed)

    def request(
        self, client: IndexClient, estimator: Estimator, *, limit: TimeLimit | None = None
    ) -> ResolutionRequest:
        """Resolve the baseline and prepare the search for the best stack.

        Args:
            client: The package indexes.
            estimator: Predictions for the target.
            limit: Time limit of the search; by default that of the options, from now.

        Raises:
            InputError: If there is no objective of the name.
            NoStackError: If no stack satisfies the requirements.
            UnavailableError: If an index cannot be read.
        """
        from datetime import datetime, timedelta

        from advisor.resolve.candidates.direct import with_direct_packages
        from advisor.resolve.candidates.index import IndexCandidates
        from advisor.resolve.candidates.problem import prefetch_roots
        from advisor.resolve.optimum.solver import Effort
        from advisor.resolve.recommendation.recommend import make_request
        from advisor.resolve.score.criteria import OBJECTIVES, StackScore
        from knowledge.domain.errors import InputError

        if self.objective not in OBJECTIVES:
            raise InputError(f"there is no objective `{self.objective}`", hint=f"take one of {', '.join(OBJECTIVES)}")
        problem = with_direct_packages(self.problem, client)
        needs_sizes = self.objective == "size" or self.max_size is not None
        candidates = IndexCandidates(client, problem, advisories=self.objective == "security", sizes=needs_sizes)
        prefetch_roots(problem, candidates)
        until = problem.policy.exclude_newer
        now = datetime.fromisoformat(until) if until else datetime.now(UTC)
        score = StackScore(
            objective=self.objective,
            builds=self.builds,
            estimator=estimator,
            source=candidates,
            direct=problem.direct_names,
            policy=problem.policy,
            young_after=(now - timedelta(days=self.min_age_days)).isoformat(),
            settings=self.target_settings,
            min_gain=self.min_gain,
            max_size=self.max_size,
        )
        effort = Effort(workers=self.workers, limit=limit or TimeLimit(self.time_limit))
        return make_request(problem, score, candidates, effort)


def prepare_target(
    files: ProjectFiles,
    project: ProjectRequirements,
    options: TargetOptions,
    resolution: ResolutionOptions,
    table: TargetTable = ("", {}),
    *,
    cache: Path | None = None,
) -> TargetContext:
    """Make a project ready for one target: options come before the target's table, the project's settings, defaults.

    Args:
        files: The project's files.
        project: What they contain.
        options: The target.
        resolution: What the best stack is.
        table: Name and table of one of the project's targets.
        cache: Cache directory, in which the contents of source files are remembered; by default the user's.

    Raises:
        InputError: If the target or a setting is wrong.
    """
    from advisor.api.configuration import choose
    from advisor.api.workload import find_profile, warn_of_another_machine
    from advisor.index.cache import DiskCache
    from advisor.project.supported_pythons import pythons_to_compare, pythons_to_try, supports_own_python
    from advisor.project.workload.proposal import propose_workload
    from advisor.user_directories import cache_directory

    name, own = table
    settings = {**project.settings, **own}
    hardware = choose("hardware", options.hardware, settings)
    if options.hardware is None and hardware and (files.directory / hardware).is_file():
        hardware = str(files.directory / hardware)
    python = choose("python", options.python, settings)
    compared_pythons = pythons_to_compare(project) if python == BEST_PYTHON else ()
    if compared_pythons:
        python = this_machine.python_version() if supports_own_python(project) else compared_pythons[0]
    other_pythons = () if python else pythons_to_try(project)
    target = _target(
        project,
        hardware=hardware,
        python=python or (other_pythons[0] if other_pythons else None),
        platform=choose("platform", options.platform, settings),
    )
    project = project.on_target(target)
    workload, proposal = choose("workload", resolution.workload, settings), None
    names_workload = workload is not None
    profile = find_profile(files.directory, workload)
    if profile is not None:
        workload = profile.name
        warn_of_another_machine(profile, target)
    elif workload is None:
        proposal = propose_workload(files.directory, DiskCache(cache_directory(cache)))
        workload = proposal.workload if proposal else None
    min_age = resolution.min_age_days
    return TargetContext(
        name=name,
        files=files,
        project=project,
        target=target,
        problem=make_problem(project, target, resolution),
        objective=choose("objective", resolution.objective, settings) or "",
        min_age_days=read_days(choose("min-age", None if min_age is None else str(min_age), settings) or ""),
        min_gain=read_min_gain(choose("min-gain", resolution.min_gain, settings) or ""),
        address=choose("knowledge", resolution.knowledge, settings),
        workload=workload,
        profile=profile,
        proposal=proposal,
        lock=_present_lock(files.directory, table, project),
        max_size=read_max_size(choose("max-size", resolution.max_size, settings)),
        allowed=read_allowed_replacements(resolution, project.settings),
        reduced_precision=allows_reduced_precision(resolution, project.settings),
        recommends_settings=recommends_settings(resolution, project.settings),
        workers=resolution.workers,
        time_limit=resolution.time_limit,
        other_pythons=other_pythons,
        compared_pythons=compared_pythons,
        names_workload=names_workload,
    )


def _present_lock(directory: Path, table: TargetTable, project: ProjectRequirements) -> Path | None:
    """Return the lock in a target's table, else that of its name if it exists."""
    name, own = table
    if "lock" in own:
        return directory / str(own["lock"])
    path = _lock_of_target(directory, name, project)
    return path if path is not None and path.is_file() else None


def _lock_of_target(directory: Path, name: str, project: ProjectRequirements) -> Path | None:
    """Return the lock that is named after a target, if the project has several targets; else none."""
    is_one_of_several = name and len(project.settings.get("targets", {})) > 1
    return directory / f"pylock.{name}.toml" if is_one_of_several else None


def make_problem(project: ProjectRequirements, target: Target, resolution: ResolutionOptions) -> ResolutionProblem:
    """Return what a project requires on a target.

    Raises:
        InputError: If a requirement in the settings is malformed.
    """
    from advisor.project.interface import settings_requirements
    from advisor.project.metadata.stated_metadata import read_stated_metadata
    from advisor.resolve.candidates.problem import ResolutionProblem

    overrides = (*project.overrides, *settings_requirements(project.settings, "overrides"))
    roots = (*project.roots, *settings_requirements(project.settings, "constraints", constraint=True))
    overridden = {override.name for override in overrides}
    problem = ResolutionProblem(
        roots=tuple(root for root in roots if not (root.constraint and root.name in overridden)),
        target=target,
        policy=candidate_policy(resolution, project),
        overrides=overrides,
        undeclared=_undeclared_requirements,
        stated=read_stated_metadata(project.settings.get("metadata", ())),
    )
    return problem.with_overridden_roots()


def _undeclared_requirements() -> tuple[UndeclaredRequirementRule, ...]:
    # A remembered answer does not need the rules.
    from knowledge.catalogue.rules import undeclared_requirements

    return undeclared_requirements()


def open_predictor(context: TargetContext, client: IndexClient) -> Predictor:
    """Return the predictions for a target; they are a context manager, and cached with the pages of the indexes.

    Raises:
        InputError: If there is no workload of the name.
    """
    from advisor.resolve.score.predictor import Predictor
    from advisor.user_directories import readable_address

    return Predictor(
        client.cache,
        address=readable_address(context.address),
        hardware=context.target.hardware,
        workload=context.find_workload(),
        benchmark=context.benchmark_identity,
    )


def _target(project: ProjectRequirements, *, hardware: str | None, python: str | None, platform: str | None) -> Target:
    from packaging.specifiers import SpecifierSet

    from advisor.domain.target import make_target
    from knowledge.domain.errors import InputError
    from knowledge.hardware.profiles import find_profile

    target = make_target(
        python=python or this_machine.python_version(), platform=platform, hardware=find_profile(hardware or "detect")
    )
    required = project.requires_python
    if required and not SpecifierSet(required).contains(target.python, prereleases=True):
        message = f"the project requires Python `{required}`, and the target has {target.python}"
        if python is None:
            raise InputError(message, hint="choose another interpreter with `--python`")
        # The user's choice decides, as in uv.
        logger.warning(message)
    return target


def read_current_lock(context: TargetContext) -> Lock | None:
    """Return the present lock; none if there is none, or if one that nobody named is damaged.

    Raises:
        InputError: If a named lock cannot be read.
    """
    from advisor.locks.current import read_current
    from knowledge.domain.errors import InputError

    files = context.files
    lock_path = files.current or (str(context.lock) if context.lock and context.lock.exists() else None)
    try:
        return read_current(lock_path, files.directory, context.target)
    except InputError as error:
        if lock_path is not None:
            raise
        logger.warning("the stack is not compared with the current one: %s", error.message)
        return None

"""A project made ready for one target: requirements, target, settings, predictions."""

from __future__ import annotations

import logging
import platform as this_machine
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.api.options import ProjectFiles, ResolutionOptions, TargetOptions, candidate_policy
from advisor.domain.time_limit import TimeLimit

if TYPE_CHECKING:
    from advisor.domain.target import Target
    from advisor.index.client import IndexClient
    from advisor.project.built_metadata import ProjectBuilder
    from advisor.project.interface import ProjectRequirements
    from advisor.project.sources import Proposal
    from advisor.resolve.builds import TargetBuilds
    from advisor.resolve.package_choices import AllowedReplacements
    from advisor.resolve.predictor import Predictor
    from advisor.resolve.problem import ResolutionProblem
    from advisor.resolve.recommend import ResolutionRequest
    from knowledge.domain.workload import ProfiledWorkload
    from knowledge.estimate.interface import Estimator
    from knowledge.estimate.workloads import Workload
    from knowledge.rules.engine import RuleBook

logger = logging.getLogger(__name__)

BEST_PYTHON = "best"
"""Value of the setting `python` that selects the interpreter with the best-scored stack."""

TargetTable = tuple[str, Mapping[str, Any]]
"""Name and keys of a target; an empty name for the target that the other settings describe."""


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
        address: Address of the knowledge base, or none for the user's own.
        workload: Name of the workload; none if nobody selected one, the project has no single profiled workload, and
            the sources suggest none.
        profile: The profiled workload of this name, if the project has one.
        proposal: The workload that the project's sources suggest, if nobody chose one.
        lock: Lock file of the target: the one in the project's settings, else ``pylock.NAME.toml`` if it exists and the
            project has several targets; else none.
        allowed: Which packages may replace others.
        max_size: Largest admissible download of the stack, in bytes; none for no limit.
        workers: Threads of the solver.
        time_limit: Time limit of the search, in seconds.
        other_pythons: Interpreters that the project supports, newest first, if nobody chose one and it does not support
            that of this program; else empty.
        compared_pythons: Interpreters of which the one with the best-scored stack is taken, newest first, if that was
            chosen; else empty.
    """

    name: str
    files: ProjectFiles
    project: ProjectRequirements
    target: Target
    problem: ResolutionProblem
    objective: str
    min_age_days: int
    address: str | None
    workload: str | None
    profile: ProfiledWorkload | None
    proposal: Proposal | None
    lock: Path | None
    allowed: AllowedReplacements
    max_size: int | None
    workers: int
    time_limit: float
    other_pythons: tuple[str, ...] = ()
    compared_pythons: tuple[str, ...] = ()

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
        from advisor.project.pyproject import has_uv_settings

        directory = self.files.directory
        return (directory / "uv.lock").is_file() or has_uv_settings(directory / "pyproject.toml")

    @property
    def rules(self) -> RuleBook:
        """The rules that apply to the target."""
        from knowledge.rules.catalogue import shipped_rules
        from knowledge.rules.engine import RuleBook

        return RuleBook(shipped_rules(), self.target.hardware)

    @property
    def builds(self) -> TargetBuilds:
        """The builds on the target."""
        from advisor.resolve.builds import TargetBuilds
        from knowledge.builds.catalogue import shipped_builds

        return TargetBuilds(shipped_builds(), self.rules, self.target.build_machine)

    def find_workload(self) -> Workload | None:
        """Return the workload that predictions are for: the project's profiled one of the name, or a shipped one.

        Raises:
            InputError: If there is no workload of the name.
        """
        from knowledge.estimate.workloads import find_workload, workload_of_profile
        from pi_runners.vocabulary import MEASURED

        if self.profile is not None:
            return workload_of_profile(self.profile, backend=MEASURED.get(self.profile.framework, ""))
        return find_workload(self.workload) if self.workload else None

    @property
    def default_lock(self) -> Path:
        """The lock that is written if none is named: several targets have a lock each."""
        own = _lock_of_target(self.files.directory, self.name, self.project)
        return self.lock or own or self.files.directory / "pylock.toml"

    @property
    def benchmark_identity(self) -> str:
        """Identity of the project's own benchmark; empty if it has none.

        Raises:
            InputError: If the definition of the benchmark is wrong.
        """
        from advisor.project.benchmark import read_benchmark

        return read_benchmark(self.files.directory).identity if "benchmark" in self.project.settings else ""

    def request(
        self,
        client: IndexClient,
        estimator: Estimator,
        *,
        python: str | None = None,
        limit: TimeLimit | None = None,
        choose_packages: bool = True,
    ) -> ResolutionRequest:
        """Resolve the baseline and prepare the search for the best stack.

        Args:
            client: The package indexes.
            estimator: Predictions for the target.
            python: Another version of the interpreter.
            limit: Time limit of the search; by default that of the options, from now.
            choose_packages: Whether to choose extras and replacements for the hardware.

        Raises:
            InputError: If there is no objective of the name.
            NoStackError: If no stack satisfies the requirements.
            UnavailableError: If an index cannot be read.
        """
        from datetime import datetime, timedelta

        from advisor.resolve.candidates import IndexCandidates
        from advisor.resolve.direct import with_direct_packages
        from advisor.resolve.objectives import OBJECTIVES
        from advisor.resolve.package_choices import with_best_packages
        from advisor.resolve.recommend import make_request
        from advisor.resolve.solver import Effort
        from knowledge.domain.errors import InputError

        if self.objective not in OBJECTIVES:
            raise InputError(f"there is no objective `{self.objective}`", hint=f"take one of {', '.join(OBJECTIVES)}")
        context = self if python is None else self.with_python(python)
        problem = with_direct_packages(context.problem, client)
        needs_sizes = self.objective == "size" or self.max_size is not None
        until = problem.policy.exclude_newer
        now = datetime.fromisoformat(until) if until else datetime.now(UTC)
        request = make_request(
            problem,
            IndexCandidates(client, problem, advisories=self.objective == "security", sizes=needs_sizes),
            rules=self.rules,
            builds=self.builds,
            estimator=estimator,
            objective=self.objective,
            young_after=(now - timedelta(days=self.min_age_days)).isoformat(),
            effort=Effort(workers=self.workers, limit=limit or TimeLimit(self.time_limit)),
        )
        request = request.with_max_size(self.max_size)
        return with_best_packages(request, self.allowed) if choose_packages else request


def load_project(
    files: ProjectFiles, *, report: bool = True, build: ProjectBuilder | None = None
) -> ProjectRequirements:
    """Read a project and check its settings.

    Args:
        files: The project's files.
        report: Whether to log what is not read, and why.
        build: Builds the metadata of the project if its requirements are only known after a build; none to refuse this.

    Raises:
        InputError: If a file cannot be read, or the settings are wrong.
        UnbuiltProjectError: If the project must be built, and may not.
        BuildError: If a build fails.
    """
    from advisor.config import check_table
    from advisor.project.benchmark import check_benchmark
    from advisor.project.read import read_project

    project = read_project(
        files.directory,
        requirements=files.requirements,
        constraints=files.constraints,
        overrides=files.overrides,
        extras=files.extras,
        groups=files.groups,
        build=build,
    )
    if report:
        for reason in project.skipped:
            logger.warning(reason)
        if not any(not root.constraint for root in project.roots):
            has_parts = not all(Path(name).suffix in (".txt", ".in") for name in project.files)
            further = "; `--extra` and `--group` select further ones of it" if has_parts else ""
            logger.warning("the project requires no packages%s", further)
    check_table(project.settings, "pyproject.toml")
    if "benchmark" in project.settings:
        check_benchmark(project.settings["benchmark"], "pyproject.toml")
    return project


def project_builder(resolution: ResolutionOptions, cache: Path | None) -> ProjectBuilder | None:
    """Return what builds the metadata of a project, which runs its code; none if the options do not allow it.

    Args:
        resolution: The options.
        cache: Cache directory, in which built metadata is remembered; by default the user's.
    """
    if not (resolution.build_project or resolution.build_sdists):
        return None
    from advisor.index.cache import DiskCache
    from advisor.project.built_metadata import cached_builder
    from advisor.user_directories import cache_directory

    return cached_builder(DiskCache(cache_directory(cache)))


def select_targets(options: TargetOptions, project: ProjectRequirements) -> Sequence[TargetTable]:
    """Return the targets that the options name; without names the project's targets, unless options describe one.

    Raises:
        InputError: If the project has no target of a name.
    """
    from knowledge.domain.errors import InputError
    from knowledge.domain.suggestions import suggest

    tables: Mapping[str, Mapping[str, Any]] = project.settings.get("targets", {})
    for name in options.names:
        if name not in tables:
            raise InputError(
                f"the project has no target `{name}`",
                hint=suggest(name, tables) or "define it with `[tool.advisor.targets.NAME]` in `pyproject.toml`",
            )
    if options.names:
        return [(name, tables[name]) for name in dict.fromkeys(options.names)]
    if not tables or options.hardware or options.python or options.platform:
        return [("", {})]
    return list(tables.items())


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
    from advisor.api.workload import find_profile, warn_of_another_machine
    from advisor.config import choose
    from advisor.index.cache import DiskCache
    from advisor.project.sources import propose_workload
    from advisor.user_directories import cache_directory

    name, own = table
    settings = {**project.settings, **own}
    hardware = choose("hardware", options.hardware, settings)
    if options.hardware is None and hardware and (files.directory / hardware).is_file():
        hardware = str(files.directory / hardware)
    python = choose("python", options.python, settings)
    compared_pythons = _compared_pythons(project) if python == BEST_PYTHON else ()
    if compared_pythons:
        python = this_machine.python_version() if _is_supported(project) else compared_pythons[0]
    other_pythons = () if python else _other_pythons(project)
    target = _target(
        project,
        hardware=hardware,
        python=python or (other_pythons[0] if other_pythons else None),
        platform=choose("platform", options.platform, settings),
    )
    project = project.on_target(target)
    workload, proposal = choose("workload", resolution.workload, settings), None
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
        address=choose("knowledge", resolution.knowledge, settings),
        workload=workload,
        profile=profile,
        proposal=proposal,
        lock=_present_lock(files.directory, table, project),
        max_size=_read_max_size(choose("max-size", resolution.max_size, settings)),
        allowed=_allowed_replacements(resolution, project.settings),
        workers=resolution.workers,
        time_limit=resolution.time_limit,
        other_pythons=other_pythons,
        compared_pythons=compared_pythons,
    )


def _other_pythons(project: ProjectRequirements) -> tuple[str, ...]:
    """Return the interpreters that a project supports if it does not support that of this program; else none."""
    from advisor.api.interpreters import supported_pythons

    return () if _is_supported(project) else supported_pythons(project.requires_python)


def _is_supported(project: ProjectRequirements) -> bool:
    """Whether a project supports the interpreter of this program."""
    from packaging.specifiers import SpecifierSet

    required = project.requires_python
    return not required or SpecifierSet(required).contains(this_machine.python_version(), prereleases=True)


def _compared_pythons(project: ProjectRequirements) -> tuple[str, ...]:
    """Return the interpreters that a project supports, newest first.

    Raises:
        InputError: If it supports none.
    """
    from advisor.api.interpreters import supported_pythons
    from knowledge.domain.errors import InputError

    pythons = supported_pythons(project.requires_python)
    if not pythons:
        raise InputError(
            f"no released Python satisfies `{project.requires_python}`, which the project requires",
            hint="correct `requires-python`, or choose an interpreter with `--python`",
        )
    return pythons


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


def _allowed_replacements(resolution: ResolutionOptions, settings: Mapping[str, Any]) -> AllowedReplacements:
    """Return which packages may replace others.

    Raises:
        InputError: If the options or the settings allow something that does not exist.
    """
    from packaging.utils import canonicalize_name

    from advisor.config import check_allowed
    from advisor.resolve.package_choices import AllowedReplacements, check_replacement

    allow = (*resolution.allow, *settings.get("allow", ()))
    check_allowed(allow)
    replacements = settings.get("replace-packages", {})
    for name, other in replacements.items():
        check_replacement(name, other)
    return AllowedReplacements(
        by_hardware="replace-packages" in allow,
        by_name={canonicalize_name(name): canonicalize_name(other) for name, other in replacements.items()},
    )


def _read_max_size(text: str | None) -> int | None:
    """Read the largest admissible download, in bytes; none if there is no limit.

    Raises:
        InputError: If it is not a size.
    """
    from advisor.domain.byte_size import parse_size
    from knowledge.domain.errors import InputError

    if text is None:
        return None
    size = parse_size(text)
    if size is None:
        raise InputError(f"`{text}` is not a size", hint="write it as `--max-size 2GB` or `500MB`")
    return size


def read_days(text: str) -> int:
    """Read a number of days.

    Raises:
        InputError: If it is not a whole number of days.
    """
    from knowledge.domain.errors import InputError

    if not (text.isascii() and text.isdigit()):
        raise InputError(f"`{text}` is not a number of days", hint="write it as `--min-age 14`")
    return int(text)


def make_problem(project: ProjectRequirements, target: Target, resolution: ResolutionOptions) -> ResolutionProblem:
    """Return what a project requires on a target.

    Raises:
        InputError: If a requirement in the settings is malformed.
    """
    from advisor.project.interface import settings_requirements
    from advisor.resolve.problem import ResolutionProblem
    from knowledge.rules.catalogue import undeclared_requirements

    overrides = (*project.overrides, *settings_requirements(project.settings, "overrides"))
    roots = (*project.roots, *settings_requirements(project.settings, "constraints", constraint=True))
    overridden = {override.name for override in overrides}
    problem = ResolutionProblem(
        roots=tuple(root for root in roots if not (root.constraint and root.name in overridden)),
        target=target,
        policy=candidate_policy(resolution, project),
        overrides=overrides,
        undeclared=undeclared_requirements(),
    )
    return problem.with_overridden_roots()


def open_predictor(context: TargetContext, client: IndexClient) -> Predictor:
    """Return the predictions for a target; they are a context manager, and cached with the pages of the indexes.

    Raises:
        InputError: If there is no workload of the name.
    """
    from advisor.resolve.predictor import Predictor
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

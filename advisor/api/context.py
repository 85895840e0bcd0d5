"""A project as it is read, and made ready for one target: requirements, settings, targets, predictions."""

from __future__ import annotations

import logging
import platform as this_machine
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from advisor.api.configuration import check_table
from advisor.api.option import with_settings
from advisor.api.options import (
    REPLACE_PACKAGES,
    VARIANTS,
    ProjectFiles,
    ProjectOptions,
    ResolutionOptions,
    TargetOptions,
)
from advisor.domain.target import Target, make_target
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.locks.current import read_current
from advisor.locks.lock import Lock
from advisor.locks.registry import default_format, lock_formats
from advisor.project.benchmark import check_benchmark, read_benchmark
from advisor.project.formats.pyproject import has_uv_settings
from advisor.project.interface import (
    ProjectBuilder,
    ProjectRequirements,
    SelectedParts,
    pythons_to_compare,
    settings_requirements,
    supported_pythons,
    supports_own_python,
)
from advisor.project.metadata.built_metadata import cached_builder
from advisor.project.metadata.stated_metadata import read_stated_metadata
from advisor.project.read import read_project
from advisor.project.workload.file import WORKLOAD_FILE, read_workloads
from advisor.project.workload.proposal import Proposal, propose_workload
from advisor.resolve.candidates.problem import AllowedReplacements, CandidatePolicy, ResolutionProblem
from advisor.resolve.score.predictor import Predictor
from advisor.user_directories import cache_directory, readable_address
from knowledge.domain.errors import InputError, suggest
from knowledge.domain.frameworks import MEASURED
from knowledge.domain.workload import ProfiledWorkload
from knowledge.estimate.workloads import Workload, find_workload, workload_of_profile
from knowledge.hardware import profiles

if TYPE_CHECKING:
    from knowledge.catalogue.rules import UndeclaredRequirementRule

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
        options: What the best stack is: the options, completed by the settings of the project and the target.
        profile: The profiled workload of the project that was chosen, or its only one; ``None`` if it has none.
        proposal: The workload that the project's sources suggest, if nobody chose one.
        lock: Lock file of the target: the one in the project's settings, else the one with the target's name if it
            exists and the project has several targets; else ``None``.
        allowed: Which packages may replace others.
        other_pythons: Interpreters that the project supports, newest first. Empty if somebody chose one, or the project
            supports the interpreter of this program.
        compared_pythons: Interpreters to compare, newest first: the best-scored stack decides. Empty if nobody asked
            for a comparison.
    """

    name: str
    files: ProjectFiles
    project: ProjectRequirements
    target: Target
    problem: ResolutionProblem
    options: ResolutionOptions
    profile: ProfiledWorkload | None
    proposal: Proposal | None
    lock: Path | None
    allowed: AllowedReplacements
    other_pythons: tuple[str, ...] = ()
    compared_pythons: tuple[str, ...] = ()

    @property
    def workload(self) -> str | None:
        """Name of the workload; ``None`` if nobody chose one, and neither profiles nor sources suggest one."""
        if self.profile is not None:
            return self.profile.name
        return self.proposal.workload if self.proposal is not None else self.options.workload

    def with_python(self, python: str) -> TargetContext:
        """Return the same target with another version of the interpreter."""
        target = make_target(python=python, platform=self.target.platform, hardware=self.target.hardware)
        return replace(self, target=target, problem=replace(self.problem, target=target))

    @property
    def criteria(self) -> list[Any]:
        """What the best stack depends on besides the problem, the observations, the indexes and the program."""
        options = replace(self.options, time_limit=0.0, workers=1, knowledge=None)
        day = str(datetime.now(UTC).date()) if options.objective == "stable" else None
        return [options, self.allowed, day]

    @property
    def depends_on_pages(self) -> bool:
        """Whether index pages say all that the best stack depends on; not vulnerabilities, and variants of wheels."""
        return self.options.objective != "security" and not self.problem.policy.variants

    @property
    def uses_uv(self) -> bool:
        """Whether the project is managed with uv: it has a lock of uv, or settings for it."""
        directory = self.files.directory
        locks = (lock_format for lock_format in lock_formats() if lock_format.tool == "uv")
        return any(lock.current(directory) for lock in locks) or has_uv_settings(directory / "pyproject.toml")

    def find_workload(self) -> Workload | None:
        """Return the workload that predictions are for: the project's profiled one of the name, or a shipped one.

        Raises:
            InputError: If there is no workload of the name.
        """
        if self.profile is not None:
            # The indicators take long to import, and few projects have a profiled workload.
            from pi_runners.catalogue import amounts_of_profile

            flops, moved = amounts_of_profile(self.profile)
            backend = MEASURED.get(self.profile.framework, "")
            return workload_of_profile(self.profile, backend=backend, flops=flops, bytes=moved)
        return find_workload(self.workload) if self.workload else None

    @property
    def default_lock(self) -> Path:
        """The lock that is written if none is named: several targets have a lock each."""
        own = _lock_of_target(self.files.directory, self.name, self.project)
        return self.lock or own or self.files.directory / default_format().name

    def check_only_target(self, paths: Sequence[Path]) -> None:
        """Check that no other target has one of the locks that are written for this one.

        Raises:
            InputError: If writing one would remove another target from it.
        """
        tables = self.project.settings.get("targets", {})
        for name, table in tables.items():
            lock = self.files.directory / str(table["lock"]) if "lock" in table else None
            if name != self.name and lock is not None and lock in paths:
                raise InputError(
                    f"`{lock}` is the lock of target `{name}`, too, and would lose it",
                    hint="run `advisor advise` without `--target`, or name another file with `--output`",
                )

    @property
    def benchmark_identity(self) -> str:
        """Identity of the project's own benchmark; empty if it has none, or somebody named another workload.

        Raises:
            InputError: If the definition of the benchmark is wrong.
        """
        if "benchmark" not in self.project.settings or self.options.workload is not None:
            return ""
        return read_benchmark(self.files.directory).identity


@dataclass(frozen=True, kw_only=True)
class AdviceInputs:
    """A project for one target, with its open indexes and predictions.

    Attributes:
        context: The project, prepared for the target.
        client: The package indexes.
        estimator: Predictions for the target.
        current: The project's present lock; ``None`` if it has none.
    """

    context: TargetContext
    client: IndexClient
    estimator: Predictor
    current: Lock | None = None

    def with_python(self, python: str) -> AdviceInputs:
        """Return the same target with another interpreter."""
        return replace(self, context=self.context.with_python(python))


def load_project(
    files: ProjectFiles, *, report: bool = True, build: ProjectBuilder | None = None
) -> ProjectRequirements:
    """Read a project, check its settings, and log what is not read, and why.

    Raises:
        InputError: If a file cannot be read, or the settings are wrong.
        UnbuiltProjectError: If the project must be built, and may not.
        BuildError: If a build fails.
    """
    project = read_project(
        files.directory,
        requirements=files.requirements,
        constraints=files.constraints,
        overrides=files.overrides,
        selection=SelectedParts(extras=tuple(files.extras), groups=tuple(files.groups), build=build),
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
        check_benchmark(project.settings["benchmark"])
    return project


def project_builder(options: ProjectOptions) -> ProjectBuilder | None:
    """Return what builds the metadata of a project, which runs its code; ``None`` if the options do not allow it."""
    if not (options.resolution.build_project or options.resolution.build_sdists):
        return None
    return cached_builder(DiskCache(cache_directory(options.indexes.cache_directory)))


def select_targets(options: TargetOptions, project: ProjectRequirements) -> Sequence[TargetTable]:
    """Return the targets that the options name; without names the project's targets, unless options describe one.

    Raises:
        InputError: If the project has no target of a name.
    """
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
    options: ProjectOptions, project: ProjectRequirements, table: TargetTable = ("", {})
) -> TargetContext:
    """Make a project ready for one target: options come before the target's table, the project's settings, defaults.

    Raises:
        InputError: If the target or a setting is wrong.
    """
    directory, settings = options.files.directory, {**project.settings, **table[1]}
    machine_options = with_settings(options.target, settings)
    hardware, python = machine_options.hardware, machine_options.python
    if options.target.hardware is None and hardware and (directory / hardware).is_file():
        hardware = str(directory / hardware)
    compared_pythons = pythons_to_compare(project) if python == BEST_PYTHON else ()
    if compared_pythons:
        python = this_machine.python_version() if supports_own_python(project) else compared_pythons[0]
    other_pythons = () if python or supports_own_python(project) else supported_pythons(project.requires_python)
    python = python or (other_pythons[0] if other_pythons else None)
    target = _target(project, hardware=hardware, python=python, platform=machine_options.platform)
    project = project.on_target(target)
    resolution = with_settings(options.resolution, settings)
    profile, proposal = _find_profile(directory, resolution.workload), None
    if profile is not None:
        _warn_of_another_machine(profile, target)
    elif resolution.workload is None:
        proposal = propose_workload(directory, DiskCache(cache_directory(options.indexes.cache_directory)))
    return TargetContext(
        name=table[0],
        files=options.files,
        project=project,
        target=target,
        problem=make_problem(project, target, resolution),
        options=resolution,
        profile=profile,
        proposal=proposal,
        lock=_present_lock(directory, table, project),
        allowed=_allowed_replacements(resolution, project.settings),
        other_pythons=other_pythons,
        compared_pythons=compared_pythons,
    )


def _find_profile(directory: Path, name: str | None) -> ProfiledWorkload | None:
    """Return the profiled workload of a name, or the only one if no name is given; ``None`` if there is none."""
    profiles = read_workloads(directory)
    if name is None and len(profiles) > 1:
        logger.warning(
            "`%s` has %d workloads; select one with `--workload`: %s",
            WORKLOAD_FILE,
            len(profiles),
            ", ".join(f"`{profile.name}`" for profile in profiles),
        )
    if name is None:
        return profiles[0] if len(profiles) == 1 else None
    return next((profile for profile in profiles if profile.name == name), None)


def _warn_of_another_machine(profile: ProfiledWorkload, target: Target) -> None:
    """Warn if a profile is of another processor or accelerator than the target has: its shares may not hold there."""
    gpu = target.hardware.gpu
    own = gpu.model if gpu else target.hardware.cpu.model
    names = {own, target.hardware.cpu.microarchitecture}
    if profile.device != target.hardware.device or (profile.hardware and own and profile.hardware not in names):
        logger.warning(
            "the workload `%s` was profiled on %s, and the target has %s: its shares of the time may differ there",
            profile.name,
            profile.hardware or profile.device,
            own or target.hardware.device,
        )


def _allowed_replacements(resolution: ResolutionOptions, settings: Mapping[str, Any]) -> AllowedReplacements:
    """Return which packages may replace others."""
    replacements = settings.get("replace-packages", {})
    if replacements:
        from advisor.resolve.recommendation.package_choices import check_replacement

        for name, other in replacements.items():
            check_replacement(name, other)
    return AllowedReplacements(
        by_hardware=REPLACE_PACKAGES in resolution.allow,
        by_name={canonicalize_name(name): canonicalize_name(other) for name, other in replacements.items()},
    )


def _present_lock(directory: Path, table: TargetTable, project: ProjectRequirements) -> Path | None:
    """Return the lock in a target's table, else the lock of the target's name if it exists."""
    name, own = table
    if "lock" in own:
        return directory / str(own["lock"])
    path = _lock_of_target(directory, name, project)
    return path if path is not None and path.is_file() else None


def _lock_of_target(directory: Path, name: str, project: ProjectRequirements) -> Path | None:
    """Return the lock that is named after a target, if the project has several targets; else ``None``."""
    is_one_of_several = name and len(project.settings.get("targets", {})) > 1
    return directory / default_format().target_name.format(name) if is_one_of_several else None


def make_problem(project: ProjectRequirements, target: Target, resolution: ResolutionOptions) -> ResolutionProblem:
    """Return what a project requires on a target.

    Raises:
        InputError: If a requirement in the settings is malformed.
    """
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
    return Predictor(
        client.cache,
        address=readable_address(context.options.knowledge),
        hardware=context.target.hardware,
        workload=context.find_workload(),
        benchmark=context.benchmark_identity,
    )


def _target(project: ProjectRequirements, *, hardware: str | None, python: str | None, platform: str | None) -> Target:
    target = make_target(
        python=python or this_machine.python_version(),
        platform=platform,
        hardware=profiles.find_profile(hardware or "detect"),
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
    """Return the present lock; ``None`` if there is none, or if one that nobody named is damaged.

    Raises:
        InputError: If a named lock cannot be read.
    """
    files = context.files
    lock_path = files.current or (str(context.lock) if context.lock and context.lock.exists() else None)
    try:
        return read_current(lock_path, files.directory, context.target)
    except InputError as error:
        if lock_path is not None:
            raise
        logger.warning("the stack is not compared with the current one: %s", error.message)
        return None


def candidate_policy(resolution: ResolutionOptions, project: ProjectRequirements) -> CandidatePolicy:
    """Return which files may become candidates, by the completed options and the files of a project."""

    def names(words: Sequence[str]) -> frozenset[str]:
        return frozenset(word if word == ":all:" else canonicalize_name(word) for word in words)

    until = resolution.exclude_newer
    if until is not None:
        # Upload times are compared as texts, which all are in UTC.
        until = (until if until.tzinfo else until.replace(tzinfo=UTC)).astimezone(UTC)
    return CandidatePolicy(
        prereleases=resolution.prereleases or project.prereleases,
        only_binary=names([*resolution.only_binary, *project.only_binary]),
        no_binary=names([*resolution.no_binary, *project.no_binary]),
        build_sdists=resolution.build_sdists,
        exclude_newer=until.isoformat() if until else None,
        variants=VARIANTS in (resolution.preview or ()),
    )

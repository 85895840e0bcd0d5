"""The gate for a project: its present lock, its base, its policy and its targets."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.api.context import (
    AdviceInputs,
    TargetContext,
    load_project,
    make_problem,
    open_predictor,
    prepare_target,
    project_builder,
    select_targets,
)
from advisor.api.gate.base import Base, lock_of_base, policy_of_base, policy_source, read_base
from advisor.api.gate.changed_lock import read_upgrades, with_upgrades
from advisor.api.indexes import open_indexes
from advisor.api.option import with_settings
from advisor.api.options import ProjectFiles, ProjectOptions, ResolutionOptions, TargetOptions
from advisor.api.search import prepare_request, select, target_builds, target_settings
from advisor.gate.base.change_files import base_knowledge, refuse_changed_configuration, refuse_tracked_cache
from advisor.gate.base.policy import BasePolicy
from advisor.gate.check import GateResult, TargetResult, check_target, gate_result
from advisor.gate.findings import Finding, Place
from advisor.gate.policy import GatePolicy, read_policy
from advisor.gate.problem import (
    find_unchecked_locks,
    references_of,
    with_readable_packages,
    without_pins,
    without_pins_of,
)
from advisor.gate.recommendation import RecommendedStack, find_recommended_stack
from advisor.gate.scope import GateCase, ProjectState
from advisor.gate.update import lock_from_stack
from advisor.index.client import IndexClient
from advisor.index.configuration import read_configuration
from advisor.locks.current import locked_python, read_current, within
from advisor.locks.lock import Lock
from advisor.locks.registry import own_lock, read_lock
from advisor.locks.settings_table import AppliedSettings, read_settings
from advisor.project.formats.requirements import PINNED
from advisor.project.interface import ProjectRequirements
from advisor.project.settings.project_settings import ProjectSettings, read_project_settings
from advisor.project.text_file import UnreadableFileError, read_text
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import ResolutionProblem
from advisor.resolve.explanation.recommended_settings import combined_gain, recommended_settings
from advisor.resolve.optimum.request import solve
from advisor.resolve.recommendation.package_choices import locked_extras, locked_replacements
from advisor.resolve.recommendation.recommend import recommend
from advisor.resolve.score.predictor import Predictor
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError

logger = logging.getLogger(__name__)


@contextmanager
def open_gate(
    options: ProjectOptions,
    *,
    base: str | None = None,
    policy_from_base: bool = False,
) -> Iterator[tuple[GateResult, OpenCases]]:
    """Judge a project for its targets; indexes and predictions stay open.

    Args:
        options: The options of the project.
        base: A commit or a lock to compare with; ``None`` to judge the whole lock.
        policy_from_base: Whether to take policy and targets from the base; without a base, from the last commit.

    Yields:
        The result, and what was judged, in the order of its targets.

    Raises:
        InputError: If the project, its policy or an option is wrong.
        UnreadableFileError: If a lock cannot be read.
    """
    with open_cases(options, base=base, policy_from_base=policy_from_base) as opened:
        yield opened.check(), opened


@dataclass(frozen=True, kw_only=True)
class OpenCases:
    """A project prepared to be judged.

    Attributes:
        cases: The project for each target.
        contexts: The same with its options, in the same order.
        policy: The policy.
        earlier: The policy of the base; ``None`` without one.
        changes: Findings about the project's own policy.
    """

    cases: tuple[GateCase, ...]
    contexts: tuple[TargetContext, ...]
    policy: GatePolicy
    earlier: GatePolicy | None = None
    changes: tuple[Finding, ...] = ()

    def check(self) -> GateResult:
        """Judge it."""
        today = datetime.now(UTC).date()
        return self.result(check_target(case, self.policy, today=today) for case in self.cases)

    def result(self, targets: Iterable[TargetResult]) -> GateResult:
        """Return the result for all targets by the policy."""
        today = datetime.now(UTC).date()
        return gate_result(targets, self.policy, today=today, before=self.earlier, policy_changes=self.changes)


@contextmanager
def open_cases(
    options: ProjectOptions,
    *,
    base: str | None = None,
    policy_from_base: bool = False,
    needs_lock: bool = True,
    recommends: bool = True,
) -> Iterator[OpenCases]:
    """Prepare a project to be judged for its targets; indexes and predictions stay open.

    Args:
        options: The options of the project.
        base: A commit or a lock to compare with; ``None`` to judge the whole lock.
        policy_from_base: Whether to take policy and targets from the base; without a base, from the last commit.
        needs_lock: Whether it is an error if there is no lock; else its newest stack takes the place of one.
        recommends: Whether to compare the lock with the recommended stack.

    Raises:
        InputError: If the project, its policy or an option is wrong.
        UnreadableFileError: If a lock cannot be read.
    """
    with ExitStack() as stack:
        files = replace(options.files, directory=_relative(options.files.directory))
        options = replace(options, files=files)
        project = load_project(files, build=project_builder(options))
        policy = read_project_policy(project, files.directory)
        project_settings = read_project_settings(files.directory, project.settings.get("settings", {}))
        compared = None if base is None else read_base(files, base, project_settings, stack)
        trusted = (compared.files, compared.project) if compared and compared.files and compared.project else None
        earlier = read_project_policy(trusted[1], trusted[0].directory) if trusted else None
        if earlier is not None:
            # A change cannot add indexes to those that the gate trusts.
            policy = replace(policy, indexes=earlier.indexes)
        changes: tuple[Finding, ...] = ()
        source = policy_source(files, compared, project_settings, stack) if policy_from_base else None
        base_policy = None
        if (commit := source or compared) is not None and commit.files is not None:
            refuse_changed_configuration(commit.name, commit.reference, files.directory)
        if source is not None and source.files is not None:
            base_policy = policy_of_base(source, source.files.directory, files.directory)
            policy = earlier = base_policy.policy
            changes = _policy_changes(base_policy, project, files.directory, source)
            options = replace(options, target=_trusted_target(options.target, base_policy, files.directory))
            overrides = source.project.overrides if source.project is not None else ()
            project = replace(project, settings=base_policy.settings_for(project.settings), overrides=overrides)
            refuse_tracked_cache(files.directory, cache_directory(options.indexes.cache_directory))
            trusted = (source.files, source.project or ProjectRequirements(roots=(), settings=base_policy.settings))
        index_files, index_project = trusted or (files, _without_lock_indexes(files, project))
        contexts = tuple(
            _with_base_lock(prepare_target(options, project, table), base_policy)
            for table in select_targets(options.target, project)
        )
        contexts = tuple(map(_with_certain_python, contexts))
        machines = [context.target.build_machine for context in contexts]
        client = stack.enter_context(open_indexes(options.indexes, index_files.directory, index_project, machines))
        if base_policy is not None and source is not None:
            contexts, further = _with_base_knowledge(contexts, base_policy, source.reference)
            changes += further
        head = _Head(
            client=client,
            base=compared,
            project_settings=project_settings,
            policy=policy,
            resolution=options.resolution,
            needs_lock=needs_lock,
            recommends=recommends,
        )
        cases = [_case(context, head, stack.enter_context(open_predictor(context, client))) for context in contexts]
        if files.current is None:
            checked_locks = {*(case.head.lock.path for case in cases if case.head.lock.path), *map(Path, project.files)}
            exported_to = compared.files.directory if compared is not None and compared.files is not None else None
            changes += tuple(find_unchecked_locks(files.directory, policy, checked=checked_locks, base=exported_to))
        yield OpenCases(cases=tuple(cases), contexts=contexts, policy=policy, earlier=earlier, changes=changes)


@contextmanager
def open_verdict(
    options: ProjectOptions, upgrades: Sequence[str] = (), *, base: str | None = None
) -> Iterator[tuple[GateResult, OpenCases]]:
    """Judge a change of a project's lock for its targets, without the comparison with the recommended stack.

    Args:
        options: The options of the project.
        upgrades: Requirements such as ``torch==2.15.0``: the change is the smallest one of the lock that has them.
        base: Without upgrades, the commit or the lock before the change.

    Yields:
        As :func:`open_gate`.

    Raises:
        InputError: If it is not certain what changes, or the project, its policy or an option is wrong.
        NoStackError: If no stack has the upgrades.
    """
    requirements = read_upgrades(upgrades)
    if requirements and base is not None:
        raise InputError("the versions to change to and `--base` contradict each other", hint="leave out one of them")
    if not requirements and base is None:
        raise InputError(
            "nothing says what changes", hint="name a version such as `torch==2.13.0`, or the lock before as `--base`"
        )
    with open_cases(options, base=base, needs_lock=not requirements, recommends=False) as opened:
        if requirements:
            pairs = zip(opened.contexts, opened.cases, strict=True)
            opened = replace(opened, cases=tuple(with_upgrades(*pair, requirements) for pair in pairs))
        elif (own := own_lock(options.files.directory)) is not None and options.files.current is not None:
            # Pins of the project are what it has locked now.
            opened = replace(opened, cases=tuple(_without_pins(case, own) for case in opened.cases))
        yield opened.check(), opened


def _without_pins(case: GateCase, path: Path) -> GateCase:
    return replace(case, head=replace(case.head, problem=without_pins_of(case.head.problem, path)))


def _policy_changes(
    base_policy: BasePolicy, project: ProjectRequirements, directory: Path, source: Base
) -> tuple[Finding, ...]:
    """Return findings about a change of the policy, or of the package indexes."""
    changes = tuple(base_policy.changes(project.settings, directory))
    if source.files is None or _indexes(project, directory) == _indexes(source.project, source.files.directory):
        return changes
    place = Place(path=str(directory / "pyproject.toml"), line=1)
    what = f"the change has other package indexes than {source.name}"
    return (*changes, base_policy.finding(what, place, "indexes"))


def _with_base_knowledge(
    contexts: Sequence[TargetContext], base_policy: BasePolicy, reference: str
) -> tuple[tuple[TargetContext, ...], tuple[Finding, ...]]:
    """Return contexts with the knowledge base that the base trusts, and findings about a change of it."""
    places = [base_knowledge(base_policy, reference, c.files.directory, c.options.knowledge) for c in contexts]
    trusted = tuple(
        replace(context, options=replace(context.options, knowledge=address))
        for context, (address, _) in zip(contexts, places, strict=True)
    )
    return trusted, tuple(change for _, changes in places for change in changes)


@dataclass(frozen=True, kw_only=True)
class _Head:
    """What the cases of all targets share."""

    client: IndexClient
    base: Base | None
    project_settings: ProjectSettings
    policy: GatePolicy
    resolution: ResolutionOptions
    needs_lock: bool = True
    recommends: bool = True


def _with_certain_python(context: TargetContext) -> TargetContext:
    """Return a context with one interpreter: the lock's if that was to be the one with the best stack.

    A gate does not try several.
    """
    if context.other_pythons:
        raise InputError(
            f"the project requires Python `{context.project.requires_python}`, and this program runs on another",
            hint="choose the interpreter of the target with `--python` or in `[tool.advisor]`",
        )
    if not context.compared_pythons:
        return context
    current = Path(context.files.current) if context.files.current else None
    python = locked_python(current or context.lock or context.default_lock)
    if python is None:
        raise InputError(
            '`python = "best"` does not say which interpreter the lock is for, and the lock does not name one',
            hint="choose the interpreter with `--python`",
        )
    return replace(context.with_python(python), compared_pythons=())


def _trusted_target(target: TargetOptions, base_policy: BasePolicy, directory: Path) -> TargetOptions:
    """Return the target options with the hardware profile of the base, if they name a file that it has."""
    if target.hardware is None or not Path(target.hardware).is_file():
        return target
    profile = Path(target.hardware)
    if profile.is_relative_to(directory):
        profile = base_policy.directory / profile.relative_to(directory)
    return replace(target, hardware=str(profile)) if profile.is_file() else target


def _indexes(project: ProjectRequirements | None, directory: Path) -> tuple[object, ...]:
    """Return where a project's own files say that its packages come from."""
    configured = read_configuration(directory)
    project = project or ProjectRequirements(roots=())
    further = (*project.extra_index_urls, *project.supplemental_index_urls)
    return configured, project.index_url, further, project.find_links, dict(project.bindings)


def _with_base_lock(context: TargetContext, base_policy: BasePolicy | None) -> TargetContext:
    """Return a context with the lock of the base, unless the options or the target name one."""
    if base_policy is None or context.lock is not None or context.files.current is not None:
        return context
    return replace(context, lock=base_policy.lock_in(context.files.directory))


def _relative(directory: Path) -> Path:
    """Return a directory as platforms want paths: relative to where the command runs, where that is above it."""
    relative = os.path.relpath(directory)
    return directory if relative.startswith("..") else Path(relative)


def read_project_policy(project: ProjectRequirements, directory: Path) -> GatePolicy:
    """Return the gate's policy of a project.

    Raises:
        InputError: If `[tool.advisor.gate]` is wrong.
    """
    path = directory / "pyproject.toml"
    text = read_text(path) if path.is_file() else ""
    return read_policy(project.settings.get("gate", {}), path=str(path), text=text)


def _without_lock_indexes(files: ProjectFiles, project: ProjectRequirements) -> ProjectRequirements:
    """Return the project without the indexes that its own lock names."""
    pinned = files.directory / PINNED
    if files.current is not None or str(pinned) not in project.files or own_lock(files.directory) != pinned:
        return project
    return replace(project, index_url=None, extra_index_urls=(), find_links=())


def _case(context: TargetContext, shared: _Head, predictor: Predictor) -> GateCase:
    lock = _lock(context, shared, predictor)
    configuration = shared.client.configuration
    configured = (
        configuration.default,
        *configuration.extra,
        *configuration.supplemental,
        *configuration.find_links,
        *configuration.bindings.values(),
    )
    indexes = shared.policy.indexes
    allowed_indexes = indexes if indexes is not None else tuple(filter(None, configured))
    problem = with_readable_packages(context.problem, shared.client)
    recommended = replace(context, problem=problem)
    problem = _as_locked(problem, context, lock, shared.client)
    head = ProjectState(
        lock=lock,
        problem=problem,
        allowed_indexes=allowed_indexes,
        project_settings=shared.project_settings,
        recommended_settings=_settings_of(lock).values,
        certificate=_settings_of(lock).certificate,
        trusted_references=references_of(problem),
    )
    base = None if shared.base is None else _base_state(shared.base, context, head, shared)
    if base is not None and shared.base is not None and shared.base.lock is None:
        # A change cannot add places that its own packages come from.
        base_references = base[1].trusted_references
        trusted = tuple(r for r in head.trusted_references if any(r.is_same_source(other) for other in base_references))
        head = replace(head, trusted_references=trusted)
    has_certificate = any(state.certificate for state in (head, *(base[1:] if base is not None else ())))
    return GateCase(
        name=context.name,
        head=head,
        client=shared.client,
        predictor=predictor,
        recommend=_recommend(recommended, lock, shared.client, predictor) if shared.recommends else None,
        base=base,
        max_size=context.options.max_size_bytes,
        settings=target_settings(context),
        program=_program_identity(context) if has_certificate else "",
    )


def _program_identity(context: TargetContext) -> str:
    """Return the identity of the program that would be measured for a project; empty if there is none."""
    # The indicators take long to import, and few locks have a certificate.
    from advisor.api.measurements.measured_program import program_of

    try:
        return program_of(context).identity
    except InputError as error:
        logger.warning("the program of the lock's certificate cannot be found: %s", error.message)
        return ""


def _settings_of(lock: Lock) -> AppliedSettings:
    """Return the settings that a lock records."""
    settings = read_settings(lock.path) if lock.path is not None and lock.path.is_file() else None
    return settings or AppliedSettings()


def _settings_of_base(lock: Lock) -> AppliedSettings:
    """Return the settings that the lock of a base records; none if they cannot be read."""
    try:
        return _settings_of(lock)
    except InputError as error:
        # The change may repair them.
        logger.warning("the run-time settings of the base cannot be read: %s", error.message)
        return AppliedSettings()


def _as_locked(
    problem: ResolutionProblem, context: TargetContext, lock: Lock, client: IndexClient
) -> ResolutionProblem:
    """Return a problem with the allowed replacements and the extras for the target's accelerator that a lock has."""
    builds = target_builds(context.target)
    replacements = locked_replacements(builds, context.allowed, lock.packages)
    problem = problem.with_substitutions(replacements) if replacements else problem
    extras = locked_extras(problem, IndexCandidates(client, problem), builds, lock.versions)
    return problem.with_substitutions(extras) if extras else problem


def _lock(context: TargetContext, shared: _Head, predictor: Predictor) -> Lock:
    """Return the project's present lock; without one, the newest stack that resolves, unless a lock is needed."""
    files = context.files
    if files.current is None and context.lock is not None and not context.lock.is_file():
        raise InputError(
            f"target `{context.name}` has the lock `{context.lock}`, which does not exist",
            hint=f"create it with `advisor advise --target {context.name}`",
        )
    lock_path = files.current or (str(context.lock) if context.lock else None)
    lock = read_current(lock_path, files.directory, context.target, names_unpinned=shared.needs_lock)
    if lock is None and not shared.needs_lock:
        request = prepare_request(AdviceInputs(context=context, client=shared.client, estimator=predictor))
        return lock_from_stack(request.baseline or solve(request).stack)
    if lock is None:
        raise InputError(
            f"`{files.directory}` has no lock to check",
            hint="create one with `advisor advise`, or name a lock or an interpreter with `--current`",
        )
    return within(lock, context.project.roots)


def _base_state(
    base: Base, context: TargetContext, head: ProjectState, shared: _Head
) -> tuple[str, ProjectState] | None:
    """Return the base for a target; ``None`` if it has no lock."""
    target = context.target
    if base.lock is not None:
        own = read_lock(base.lock, target)
        recorded = _settings_of_base(own)
        return base.name, replace(
            head,
            lock=own,
            recommended_settings=recorded.values,
            certificate=recorded.certificate,
            requirements_known=False,
        )
    if base.files is None or base.project is None:
        return None
    try:
        lock = lock_of_base(base.files.directory, base.project, context, head.lock)
    except UnreadableFileError as error:
        # A change that repairs the lock must be able to pass.
        logger.warning(
            "the lock of the base %s cannot be read, and everything counts as changed: %s", base.name, error.message
        )
        return None
    if lock is None:
        logger.warning("the base %s has no lock: everything counts as changed", base.name)
        return None
    settings: Mapping[str, Any] = base.project.settings.get("settings", {})
    resolution = with_settings(shared.resolution, base.project.settings)
    problem = make_problem(base.project.on_target(target), target, resolution)
    problem = _as_locked(problem, context, lock, shared.client)
    recorded = _settings_of_base(lock)
    return base.name, replace(
        head,
        lock=lock,
        problem=problem,
        trusted_references=references_of(problem),
        project_settings=read_project_settings(base.files.directory, settings),
        recommended_settings=recorded.values,
        certificate=recorded.certificate,
        requirements_known=base.requirements_known,
    )


def _recommend(
    context: TargetContext, lock: Lock, client: IndexClient, predictor: Predictor
) -> Callable[[], RecommendedStack]:
    problem = without_pins(context.problem, lock)

    def solve() -> Any:
        inputs = AdviceInputs(context=replace(context, problem=problem), client=client, estimator=predictor)
        selection = select(inputs)
        return selection, recommend(selection)

    def stack() -> RecommendedStack:
        criteria = context.criteria if context.depends_on_pages else None
        best = find_recommended_stack(problem, client, predictor, criteria=criteria, solve=solve)
        if (choices := target_settings(context)) is None:
            return best
        allowed = choices.in_one_process(best.versions, predictor)
        settings = recommended_settings(best.versions, predictor, allowed)
        return replace(best, settings_gain=combined_gain(settings, best.versions, predictor))

    return stack

"""From what the user asked to the gate's judgement: the project, its base, its targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.cli.console import warn
from advisor.cli.context import TargetContext, chosen_targets, connected, prepare, problem_of, read_asked
from advisor.cli.project_options import ProjectOptions
from advisor.cli.user_directories import cache_directory, readable_address
from advisor.config import choose
from advisor.gate.base import export_commit, has_commit, read_file_at
from advisor.gate.base_policy import BasePolicy, profiles, read_base_policy
from advisor.gate.change_files import base_knowledge, refuse_tracked_cache
from advisor.gate.check import GateCase, GateResult, ProjectState, check
from advisor.gate.findings import Finding, Place
from advisor.gate.git_objects import commit_of
from advisor.gate.policy import GatePolicy, read_policy
from advisor.gate.prediction import Predictor
from advisor.gate.recommendation import RecommendedStack, find_recommended_stack, without_pins
from advisor.gate.unchecked_locks import find_unchecked_locks
from advisor.index.client import IndexClient
from advisor.index.configuration import read_configuration
from advisor.project.current import LOCKS, PINNED, is_pinned, read_current, within
from advisor.project.interface import ProjectRequirements
from advisor.project.locks import Lock, read_lock
from advisor.project.read_errors import UnreadableFileError
from advisor.project.switches import Switch, read_switches
from knowledge.domain.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Base:
    """What a project is compared with.

    Attributes:
        name: Its name, for people.
        reference: What names it for git, or the path of the lock.
        asked: The options, for a commit: its directory is where the commit is laid out.
        project: What was read of it, for a commit that has a project.
        lock: The lock, for a file.
    """

    name: str
    reference: str
    asked: ProjectOptions | None = None
    project: ProjectRequirements | None = None
    lock: Path | None = None


@contextmanager
def judged(
    asked: ProjectOptions, base: str | None, *, policy_from_base: bool = False
) -> Iterator[tuple[GateResult, tuple[TargetContext, ...]]]:
    """Examine a project for its targets, against a base where one is named.

    Args:
        asked: The options.
        base: A commit or a lock to compare with; none where the whole lock is judged.
        policy_from_base: Whether the policy is that of the base, and of the last commit where the base is none.

    Raises:
        AdvisorError: If the project, its policy, its lock or the base cannot be read.
    """
    with ExitStack() as stack:
        asked = replace(asked, directory=_relative(asked.directory))
        project = read_asked(asked)
        policy = _policy(project, asked.directory)
        switches = read_switches(asked.directory, project.settings.get("settings", {}))
        before = None if base is None else _base(asked, base, switches, stack)
        trusted = (before.asked, before.project) if before and before.asked and before.project else None
        earlier = _policy(trusted[1], trusted[0].directory) if trusted else None
        if earlier is not None:
            # Whom to trust is not the change's to say.
            policy = replace(policy, indexes=earlier.indexes)
        changes: tuple[Finding, ...] = ()
        source = _policy_source(asked, before, switches, stack) if policy_from_base else None
        base_policy = None
        if source is not None and source.asked is not None:
            base_policy = _ruling(source, source.asked.directory, asked.directory)
            policy = earlier = base_policy.policy
            changes = tuple(base_policy.changes(project.settings, asked.directory))
            if _indexes(project, asked.directory) != _indexes(source.project, source.asked.directory):
                place = Place(path=str(asked.directory / "pyproject.toml"), line=1)
                what = f"the change has other package indexes than {source.name}"
                changes += (base_policy.finding(what, place, "indexes"),)
            asked, project = _under(base_policy, source, asked, project)
            refuse_tracked_cache(asked.directory, cache_directory(asked.cache_dir))
            trusted = (source.asked, source.project or ProjectRequirements(roots=(), settings=base_policy.settings))
        client = stack.enter_context(connected(*(trusted or (asked, _trusted(asked, project)))))
        prepared = tuple(
            _with_lock(prepare(asked, project, table), base_policy) for table in chosen_targets(asked, project)
        )
        if base_policy is not None and source is not None:
            places = [base_knowledge(base_policy, source.reference, asked.directory, one.address) for one in prepared]
            prepared = tuple(replace(one, address=p.address) for one, p in zip(prepared, places, strict=True))
            changes += tuple(change for place in places for change in place.changes)
        cases = [
            _case(one, client, stack.enter_context(_outlook(one, client)), before, switches, policy) for one in prepared
        ]
        if asked.current is None:
            there = before.asked.directory if before is not None and before.asked is not None else None
            known = {*(case.head.lock.path for case in cases if case.head.lock.path), *map(Path, project.files)}
            changes += tuple(find_unchecked_locks(asked.directory, policy, known=known, base=there))
        today = datetime.now(UTC).date()
        yield check(cases, policy, today=today, before=earlier, policy_changes=changes), prepared


def _policy_source(
    asked: ProjectOptions, before: Base | None, switches: tuple[Switch, ...], stack: ExitStack
) -> Base | None:
    """Return the commit whose policy is in force; none in a repository that has no commit."""
    if before is not None and before.asked is not None:
        return before
    if not has_commit(asked.directory):
        warn("the repository has no commit yet: the policy is the project's own")
        return None
    return _commit(asked, "HEAD", switches, stack)


def _ruling(source: Base, directory: Path, own: Path) -> BasePolicy:
    """Read the policy of a commit, and lay out the hardware profiles that it names."""
    base_policy = read_base_policy(source.name, directory)
    for name in profiles(base_policy.settings):
        content = None if (directory / name).exists() else read_file_at(source.reference, own, Path(name))
        if content is not None and (directory / name).resolve().is_relative_to(directory.resolve()):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
    return base_policy


def _under(
    base_policy: BasePolicy, source: Base, asked: ProjectOptions, project: ProjectRequirements
) -> tuple[ProjectOptions, ProjectRequirements]:
    """Return options and project as a policy judges them: with its settings, its overrides and its profiles."""
    hardware = asked.hardware
    if hardware is not None and Path(hardware).is_file():
        [moved] = _moved([Path(hardware)], asked.directory, base_policy.directory) or [Path(hardware)]
        hardware = str(moved) if moved.is_file() else hardware
    overrides = source.project.overrides if source.project is not None else ()
    return (
        replace(asked, hardware=hardware),
        replace(project, settings=base_policy.settings_for(project.settings), overrides=overrides),
    )


def _indexes(project: ProjectRequirements | None, directory: Path) -> tuple[object, ...]:
    """Return where a project's own files say that its packages come from."""
    configured = read_configuration(directory)
    if project is None:
        return (configured,)
    return configured, project.index_url, project.extra_index_urls, project.find_links, dict(project.bindings)


def _with_lock(prepared: TargetContext, base_policy: BasePolicy | None) -> TargetContext:
    """Return a target with the lock that the base has, where nothing names another one."""
    if base_policy is None or prepared.lock is not None or prepared.asked.current is not None:
        return prepared
    return replace(prepared, lock=base_policy.lock_in(prepared.asked.directory))


def _relative(directory: Path) -> Path:
    """Return a directory as platforms want paths: relative to where the command runs, where that is above it."""
    relative = os.path.relpath(directory)
    return directory if relative.startswith("..") else Path(relative)


def _policy(project: ProjectRequirements, directory: Path) -> GatePolicy:
    path = directory / "pyproject.toml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return read_policy(project.settings.get("gate", {}), path=str(path), text=text)


def _base(asked: ProjectOptions, base: str, switches: tuple[Switch, ...], stack: ExitStack) -> Base:
    # A file that a change brings must not pass for the commit of the same name.
    if commit_of(base, asked.directory) is None and Path(base).is_file():
        return Base(name=f"`{base}`", reference=base, lock=Path(base))
    return _commit(asked, base, switches, stack)


def _commit(asked: ProjectOptions, base: str, switches: tuple[Switch, ...], stack: ExitStack) -> Base:
    sources = {switch.path.relative_to(asked.directory) for switch in switches}
    directory = stack.enter_context(export_commit(base, asked.directory, extra_files=sources, warn=warn))
    then = replace(
        asked,
        directory=directory,
        requirements=_moved(asked.requirements, asked.directory, directory),
        constraints=_moved(asked.constraints, asked.directory, directory),
        overrides=_moved(asked.overrides, asked.directory, directory),
    )
    try:
        # What is left out of it is left out of the project, too, and was told there.
        return Base(name=f"`{base}`", reference=base, asked=then, project=read_asked(then, tell=lambda _: None))
    except InputError as error:
        warn(f"the base `{base}` has no project that can be read: {error.message}")
        return Base(name=f"`{base}`", reference=base, asked=then)


def _moved(paths: list[Path] | None, old: Path, new: Path) -> list[Path] | None:
    """Return files of one folder as those of another; files from elsewhere stay."""
    if paths is None:
        return None
    return [new / path.relative_to(old) if path.is_relative_to(old) else path for path in paths]


def _trusted(asked: ProjectOptions, project: ProjectRequirements) -> ProjectRequirements:
    """Return the project without the indexes that its own lock brings in."""
    pinned = asked.directory / PINNED
    locked = asked.current is not None or any((asked.directory / name).is_file() for name in LOCKS)
    if locked or str(pinned) not in project.files or not is_pinned(pinned):
        return project
    return replace(project, index_url=None, extra_index_urls=(), find_links=())


def _outlook(prepared: TargetContext, client: IndexClient) -> Predictor:
    return Predictor(
        client.cache,
        address=readable_address(prepared.address),
        hardware=prepared.target.hardware,
        workload=prepared.workload,
    )


def _case(
    prepared: TargetContext,
    client: IndexClient,
    predictor: Predictor,
    before: Base | None,
    switches: tuple[Switch, ...],
    policy: GatePolicy,
) -> GateCase:
    lock = _lock(prepared)
    configuration = client.configuration
    configured = (
        configuration.default,
        *configuration.extra,
        *configuration.find_links,
        *configuration.bindings.values(),
    )
    allowed_indexes = policy.indexes if policy.indexes is not None else tuple(filter(None, configured))
    head = ProjectState(lock=lock, problem=prepared.problem, allowed_indexes=allowed_indexes, switches=switches)
    return GateCase(
        name=prepared.name,
        head=head,
        client=client,
        predictor=predictor,
        recommend=_recommend(prepared, lock, client, predictor),
        base=None if before is None else _state_before(before, prepared, head),
    )


def _lock(prepared: TargetContext) -> Lock:
    """Return what the project has now.

    Raises:
        InputError: If it has no lock.
    """
    asked = prepared.asked
    if asked.current is None and prepared.lock is not None and not prepared.lock.is_file():
        raise InputError(
            f"target `{prepared.name}` has the lock `{prepared.lock}`, which does not exist",
            hint=f"make it with `advisor advise --target {prepared.name}`",
        )
    lock = read_current(
        asked.current or (str(prepared.lock) if prepared.lock else None), asked.directory, prepared.target
    )
    if lock is None:
        raise InputError(
            f"`{asked.directory}` has no lock to check",
            hint="make one with `advisor advise`, or name a lock or an interpreter with `--current`",
        )
    return within(lock, prepared.project.roots)


def _state_before(before: Base, prepared: TargetContext, head: ProjectState) -> tuple[str, ProjectState] | None:
    """Return the base as it bears on a target; none where it has no lock."""
    target = prepared.target
    if before.lock is not None:
        return before.name, replace(head, lock=read_lock(before.lock, target), requirements_known=False)
    if before.asked is None or before.project is None:
        return None
    try:
        lock = _lock_before(before.asked.directory, before.project, prepared, head.lock)
    except UnreadableFileError as error:
        # A change that mends the lock must be able to pass.
        warn(f"the lock of the base {before.name} cannot be read: {error.message}")
        lock = None
    if lock is None:
        warn(f"the base {before.name} has no lock: everything counts as changed")
        return None
    settings: Mapping[str, Any] = before.project.settings.get("settings", {})
    return before.name, replace(
        head,
        lock=lock,
        problem=problem_of(before.asked, before.project, target),
        switches=read_switches(before.asked.directory, settings),
    )


def _lock_before(directory: Path, project: ProjectRequirements, prepared: TargetContext, lock: Lock) -> Lock | None:
    """Return the lock of the same name as the project's, else whatever lock the base has."""
    found = None
    if lock.path is not None and lock.path.is_relative_to(prepared.asked.directory):
        same = directory / lock.path.relative_to(prepared.asked.directory)
        found = read_lock(same, prepared.target) if same.is_file() else None
    found = found or read_current(None, directory, prepared.target)
    return None if found is None else within(found, project.roots)


def _recommend(
    prepared: TargetContext, lock: Lock, client: IndexClient, predictor: Predictor
) -> Callable[[], RecommendedStack]:
    problem = without_pins(prepared.problem, lock)
    objective = choose("objective", prepared.asked.objective, prepared.settings) or ""
    criteria = [objective]
    if objective == "stable":
        criteria += [
            choose("min-age", prepared.asked.min_age, prepared.settings) or "",
            str(datetime.now(UTC).date()),
        ]

    def find() -> RecommendedStack:
        def solve() -> Any:
            from advisor.resolve.recommend import recommend

            inquiry = replace(prepared, problem=problem).inquiry(client, predictor.estimator)
            return inquiry, recommend(inquiry)

        return find_recommended_stack(problem, client, predictor, criteria=criteria, solve=solve)

    return find

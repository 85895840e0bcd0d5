"""From what the user asked to what answers it: the project, its target, the indexes, what is known."""

from __future__ import annotations

import platform as this_machine
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli.console import say, warn
from advisor.cli.options import open_client, open_to_read, read_moment
from advisor.cli.project_options import ProjectOptions

if TYPE_CHECKING:
    from advisor.domain.target import Target
    from advisor.index.client import IndexClient
    from advisor.project.interface import ProjectRequirements
    from advisor.project.locks import Lock
    from advisor.project.sources import Proposal
    from advisor.resolve.problem import CandidatePolicy, ResolutionProblem
    from advisor.resolve.recommend import ResolutionRequest
    from knowledge.estimate.interface import Estimator
    from knowledge.estimate.posterior import PosteriorEstimator

TargetTable = tuple[str, Mapping[str, Any]]
"""Name and keys of a target; without a name, the target that the other keys describe."""


@dataclass(frozen=True, kw_only=True)
class TargetContext:
    """A project that was read, for one target.

    Attributes:
        name: Name of the target; empty where it has none.
        project: What was read.
        target: What is resolved for.
        problem: What is resolved.
        settings: The project's settings as they bear on the target.
        address: Address of the knowledge base, or none for the user's own.
        workload: Name of the workload.
        proposal: The workload that the project's sources speak for, where nobody chose one.
        lock: Name of the lock that the target says is its own, or none.
        asked: The options.
    """

    name: str
    project: ProjectRequirements
    target: Target
    problem: ResolutionProblem
    settings: Mapping[str, Any]
    address: str | None
    workload: str
    proposal: Proposal | None
    lock: Path | None
    asked: ProjectOptions

    def inquiry(self, client: IndexClient, estimator: Estimator, python: str | None = None) -> ResolutionRequest:
        """Resolve the baseline and make ready to answer; for another Python version where one is given."""
        from advisor.config import choose

        objective = choose("objective", self.asked.objective, self.settings) or ""
        min_age = choose("min-age", self.asked.min_age, self.settings) or ""
        return _inquiry(self.problem, client, estimator, objective, min_age, self.asked, python)


@dataclass(frozen=True, kw_only=True)
class AdviceContext:
    """A prepared project with its indexes and what is known.

    Attributes:
        prepared: The project for its target.
        client: The indexes.
        estimator: What the observations imply.
        current: What the project has now; none where it has no lock.
        ask: Makes an inquiry; for another Python version than the target's where one is given.
    """

    prepared: TargetContext
    client: IndexClient
    estimator: PosteriorEstimator
    current: Lock | None
    ask: Callable[[str | None], ResolutionRequest]


def read_asked(asked: ProjectOptions, *, tell: Callable[[str], None] = warn) -> ProjectRequirements:
    """Read the project that was asked for, and tell what of it was left out.

    Raises:
        AdvisorError: If it cannot be read, or its settings are wrong.
    """
    from advisor.config import check_table
    from advisor.project.read import read_project

    project = read_project(
        asked.directory,
        requirements=asked.requirements or (),
        constraints=asked.constraints or (),
        overrides=asked.overrides or (),
        extras=asked.extra or (),
        groups=asked.group or (),
    )
    for reason in project.skipped:
        tell(reason)
    check_table(project.settings, "pyproject.toml")
    return project


def chosen_targets(asked: ProjectOptions, project: ProjectRequirements) -> Sequence[TargetTable]:
    """Return the targets that were named; where none was, the project's, unless flags describe one.

    Raises:
        InputError: If the project has no target of a name.
    """
    from advisor.config import nearest
    from knowledge.domain.errors import InputError

    known: Mapping[str, Mapping[str, Any]] = project.settings.get("targets", {})
    for name in asked.target or ():
        if name not in known:
            raise InputError(
                f"the project has no target `{name}`",
                hint=nearest(name, known) or "`[tool.advisor.targets.NAME]` in `pyproject.toml` makes one",
            )
    if asked.target:
        return [(name, known[name]) for name in dict.fromkeys(asked.target)]
    if not known or asked.hardware or asked.python or asked.platform:
        return [("", {})]
    return [(name, known[name]) for name in known]


def prepare(asked: ProjectOptions, project: ProjectRequirements, table: TargetTable = ("", {})) -> TargetContext:
    """Make a project ready for one target.

    Raises:
        AdvisorError: If the target or a setting is wrong.
    """
    from advisor.config import DEFAULT_WORKLOAD, choose
    from advisor.project.sources import propose_workload

    name, own = table
    settings = {**project.settings, **own}
    hardware = choose("hardware", asked.hardware, settings)
    if asked.hardware is None and hardware and (asked.directory / hardware).is_file():
        hardware = str(asked.directory / hardware)
    target = _target(
        project,
        hardware=hardware,
        python=choose("python", asked.python, settings),
        platform=choose("platform", asked.platform, settings),
    )
    workload, proposal = choose("workload", asked.workload, settings), None
    if workload is None:
        proposal = propose_workload(asked.directory)
        workload = proposal.workload if proposal else DEFAULT_WORKLOAD
    return TargetContext(
        name=name,
        project=project,
        target=target,
        problem=problem_of(asked, project, target),
        settings=settings,
        address=choose("knowledge", asked.knowledge, settings),
        workload=workload,
        proposal=proposal,
        lock=asked.directory / own["lock"] if "lock" in own else None,
        asked=asked,
    )


@contextmanager
def opened(asked: ProjectOptions) -> Iterator[AdviceContext]:
    """Read a project and open what it takes to resolve it for one target; say what was left out or damaged.

    Raises:
        AdvisorError: If anything that was asked for cannot be used.
    """
    from knowledge.domain.errors import InputError

    project = read_asked(asked)
    targets = chosen_targets(asked, project) if asked.target else [("", {})]
    if len(targets) > 1:
        raise InputError("this command answers for one target at a time", hint="name one `--target`")
    prepared = prepare(asked, project, targets[0])
    current = _current(prepared)
    with connected(asked, project) as client, _estimator(prepared) as estimator:
        yield AdviceContext(
            prepared=prepared,
            client=client,
            estimator=estimator,
            current=current,
            ask=lambda python: prepared.inquiry(client, estimator, python),
        )


@contextmanager
def connected(asked: ProjectOptions, project: ProjectRequirements) -> Iterator[IndexClient]:
    """Open the indexes of a project; say at the end what was asked of them, and which cache entries were damaged."""
    client = _client(asked, project)
    try:
        yield client
    finally:
        client.close()
        if asked.verbose:
            made = ", ".join(f"{count} {kind}" for kind, count in sorted(client.transport.requests_made.items()))
            say(f"index: {sum(client.transport.requests_made.values())} requests{f' ({made})' if made else ''}")
        for damaged in client.cache.damaged:
            warn(f"the cache entry `{damaged}` is damaged and was not used")


def _current(prepared: TargetContext) -> Lock | None:
    """Read what the project has now; a lock that nobody named may be damaged without harm."""
    from advisor.project.current import read_current
    from knowledge.domain.errors import InputError

    named = prepared.asked.current or (str(prepared.lock) if prepared.lock and prepared.lock.exists() else None)
    try:
        return read_current(named, prepared.asked.directory, prepared.target)
    except InputError as error:
        if named is not None:
            raise
        warn(f"the stack is not compared with the current one: {error.message}")
        return None


def _client(asked: ProjectOptions, project: ProjectRequirements) -> IndexClient:
    from packaging.utils import canonicalize_name

    from advisor.config import choose
    from knowledge.domain.errors import InputError

    bindings: dict[str, str] = {
        **project.bindings,
        **{canonicalize_name(k): str(v) for k, v in project.settings.get("package-index", {}).items()},
    }
    for word in asked.package_index or ():
        name, separator, url = word.partition("=")
        if not separator or "/" in name:
            raise InputError(
                f"`{word}` does not bind a package to an index",
                hint="write it as `--package-index torch=https://.../simple/`",
            )
        bindings[canonicalize_name(name)] = url
    return open_client(
        asked.directory,
        index_url=asked.index_url or project.index_url,
        extra_index_url=[*project.extra_index_urls, *(asked.extra_index_url or ())],
        find_links=[*project.find_links, *(asked.find_links or ())],
        bindings=bindings,
        strategy=choose("index-strategy", asked.index_strategy, project.settings),
        cache_dir=asked.cache_dir,
        offline=asked.offline,
        refresh=asked.refresh,
    )


def _target(project: ProjectRequirements, *, hardware: str | None, python: str | None, platform: str | None) -> Target:
    from packaging.specifiers import SpecifierSet

    from advisor.domain.target import make_target
    from knowledge.domain.errors import InputError
    from knowledge.hardware.profiles import find_profile

    target = make_target(
        python=python or this_machine.python_version(), platform=platform, hardware=find_profile(hardware or "detect")
    )
    admitted = project.requires_python
    if admitted and not SpecifierSet(admitted).contains(target.python, prereleases=True):
        raise InputError(
            f"the project requires Python `{admitted}`, and the target has {target.python}",
            hint="choose another interpreter with `--python`",
        )
    return target


def problem_of(asked: ProjectOptions, project: ProjectRequirements, target: Target) -> ResolutionProblem:
    """Return what a project requires on a target."""
    from advisor.project.interface import settings_requirements
    from advisor.resolve.problem import ResolutionProblem

    overrides = (*project.overrides, *settings_requirements(project.settings, "overrides"))
    roots = (*project.roots, *settings_requirements(project.settings, "constraints", constraint=True))
    overridden = {override.name for override in overrides}
    problem = ResolutionProblem(
        roots=tuple(root for root in roots if not (root.constraint and root.name in overridden)),
        target=target,
        policy=_policy(asked, project),
        overrides=overrides,
    )
    return problem.with_overridden_roots()


def _policy(asked: ProjectOptions, project: ProjectRequirements) -> CandidatePolicy:
    from packaging.utils import canonicalize_name

    from advisor.resolve.problem import CandidatePolicy

    def names(*lists: object) -> frozenset[str]:
        words = [str(word) for chosen in lists if isinstance(chosen, list | tuple) for word in chosen]
        return frozenset(word if word == ":all:" else canonicalize_name(word) for word in words)

    return CandidatePolicy(
        prereleases=asked.prereleases or project.prereleases,
        only_binary=names(asked.only_binary, project.only_binary),
        no_binary=names(asked.no_binary, project.no_binary),
        build_sdists=asked.build_sdists,
        exclude_newer=read_moment(asked.exclude_newer, "--exclude-newer").isoformat() if asked.exclude_newer else None,
    )


@contextmanager
def _estimator(prepared: TargetContext) -> Iterator[PosteriorEstimator]:
    from knowledge.estimate.model_cache import Fits
    from knowledge.estimate.posterior import PosteriorEstimator
    from knowledge.estimate.workloads import find_workload
    from pi_runners.vocabulary import FRAMEWORKS

    chosen = find_workload(prepared.workload)
    with open_to_read(prepared.address) as store:
        yield PosteriorEstimator(
            Fits(store), hardware=prepared.target.hardware, workload=chosen, frameworks=frozenset(FRAMEWORKS)
        )


def _inquiry(
    problem: ResolutionProblem,
    client: IndexClient,
    estimator: Estimator,
    objective: str,
    min_age: str,
    asked: ProjectOptions,
    python: str | None,
) -> ResolutionRequest:
    from datetime import UTC, datetime, timedelta

    from advisor.domain.target import make_target
    from advisor.resolve.candidates import IndexCandidates
    from advisor.resolve.objectives import OBJECTIVES
    from advisor.resolve.recommend import inquire
    from advisor.resolve.solver import Effort
    from knowledge.domain.errors import InputError
    from knowledge.rules.catalogue import shipped_rules
    from knowledge.rules.engine import RuleBook

    if objective not in OBJECTIVES:
        raise InputError(f"there is no objective `{objective}`", hint=f"take one of {', '.join(OBJECTIVES)}")
    if not min_age.isdigit():
        raise InputError(f"`{min_age}` is not a number of days", hint="write it as `--min-age 14`")
    target = problem.target
    if python is not None:
        target = make_target(python=python, platform=target.platform, hardware=target.hardware)
        problem = replace(problem, target=target)
    until = problem.policy.exclude_newer
    now = datetime.fromisoformat(until) if until else datetime.now(UTC)
    return inquire(
        problem,
        IndexCandidates(client, problem, advisories=objective == "security"),
        rules=RuleBook(shipped_rules(), target.hardware),
        estimator=estimator,
        objective=objective,
        young_after=(now - timedelta(days=int(min_age))).isoformat(),
        effort=Effort(workers=asked.workers),
    )

"""What every command that resolves a project asks of the user, and the inquiry that comes of it."""

from __future__ import annotations

import dataclasses
import inspect
import platform as this_machine
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.console import say, warn
from advisor.cli.options import (
    CacheOption,
    ExtraIndexUrlOption,
    FindLinksOption,
    HardwareOption,
    IndexUrlOption,
    KnowledgeOption,
    OfflineOption,
    open_client,
    open_store,
    read_moment,
)

if TYPE_CHECKING:
    from packaging.version import Version

    from advisor.index.client import IndexClient
    from advisor.project.interface import ProjectRequirements
    from advisor.project.sources import Proposal
    from advisor.resolve.problem import Policy, Problem
    from advisor.resolve.recommend import Inquiry
    from advisor.resolve.target import Target
    from knowledge.estimate.interface import Estimator

_Text = str | None
_Texts = list[str] | None
_Paths = list[Path] | None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options that name a project, a target, indexes and what is best."""

    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The project.")] = Path(".")
    requirements: Annotated[
        _Paths, typer.Option("--requirements", "-r", metavar="FILE", help="Requirements file instead (repeatable).")
    ] = None
    constraints: Annotated[
        _Paths, typer.Option("--constraint", "-c", metavar="FILE", help="Constraints file (repeatable).")
    ] = None
    overrides: Annotated[
        _Paths, typer.Option("--override", metavar="FILE", help="Requirements that replace all others (repeatable).")
    ] = None
    extra: Annotated[_Texts, typer.Option("--extra", help="Extra of the project (repeatable).")] = None
    group: Annotated[_Texts, typer.Option("--group", help="Dependency group (repeatable).")] = None
    current: Annotated[
        _Text,
        typer.Option("--current", metavar="LOCK|PYTHON", help="Stack to compare with: a lock or an interpreter."),
    ] = None
    hardware: HardwareOption = None
    python: Annotated[
        _Text,
        typer.Option(
            "--python", metavar="VERSION", envvar="ADVISOR_PYTHON", help="Target Python; by default this one."
        ),
    ] = None
    platform: Annotated[
        _Text, typer.Option("--platform", metavar="TAG", envvar="ADVISOR_PLATFORM", help="Target platform tag.")
    ] = None
    objective: Annotated[
        _Text,
        typer.Option(
            "--objective",
            metavar="performance|latest|stable|security",
            envvar="ADVISOR_OBJECTIVE",
            help="What is best.",
        ),
    ] = None
    workload: Annotated[
        _Text, typer.Option("--workload", metavar="NAME", envvar="ADVISOR_WORKLOAD", help="What the project does.")
    ] = None
    min_age: Annotated[
        _Text, typer.Option("--min-age", metavar="DAYS", envvar="ADVISOR_MIN_AGE", help="What `stable` calls young.")
    ] = None
    prereleases: Annotated[bool, typer.Option("--prereleases", "--pre", help="Admit pre-releases.")] = False
    only_binary: Annotated[
        _Texts, typer.Option("--only-binary", metavar="NAME", help="Never from an sdist; `:all:` for all.")
    ] = None
    no_binary: Annotated[
        _Texts, typer.Option("--no-binary", metavar="NAME", help="Never from a wheel; `:all:` for all.")
    ] = None
    build_sdists: Annotated[
        bool,
        typer.Option("--build-sdists", help="Build sdists to learn what they require: runs their code."),
    ] = False
    exclude_newer: Annotated[
        _Text, typer.Option("--exclude-newer", metavar="DATE", help="Ignore files uploaded after this date.")
    ] = None
    workers: Annotated[int, typer.Option("--workers", min=1, help="Threads of the solver.")] = 1
    knowledge: KnowledgeOption = None
    index_url: IndexUrlOption = None
    extra_index_url: ExtraIndexUrlOption = None
    package_index: Annotated[
        _Texts,
        typer.Option("--package-index", metavar="NAME=URL", help="Take a package from this index only (repeatable)."),
    ] = None
    index_strategy: Annotated[
        _Text,
        typer.Option(
            "--index-strategy",
            metavar="first-index|unsafe-best-match",
            envvar="ADVISOR_INDEX_STRATEGY",
            help="Which of several indexes a package comes from.",
        ),
    ] = None
    find_links: FindLinksOption = None
    cache_dir: CacheOption = None
    refresh: Annotated[bool, typer.Option("--refresh", help="Ask for index pages even where they are fresh.")] = False
    offline: OfflineOption = False
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say on standard error what was asked of the indexes.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A project that was read, for a target, with its indexes and what is known.

    Attributes:
        project: What was read.
        client: The indexes.
        estimator: What the observations imply.
        current: Versions that the project has now, by package; none where it has no lock.
        proposal: The workload that the project's sources speak for, where nobody chose one.
        ask: Makes an inquiry; for another Python version than the target's where one is given.
    """

    project: ProjectRequirements
    target: Target
    client: IndexClient
    estimator: Estimator
    current: Mapping[str, Version] | None
    proposal: Proposal | None
    ask: Callable[[str | None], Inquiry]


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`Asked`, whose values it gets as its first argument."""
    own = list(inspect.signature(command).parameters.values())[1:]
    hints = typing.get_type_hints(command, include_extras=True)
    shared = typing.get_type_hints(Asked, include_extras=True)

    def run(**values: Any) -> None:
        command(Asked(**{name: values.pop(name) for name in shared}), **values)

    parameters = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=shared[f.name])
        for f in dataclasses.fields(Asked)
    ]
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in own]
    # The directory is optional; an argument that is required stands before it.
    parameters.sort(key=lambda p: p.default is not inspect.Parameter.empty)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    return run


@contextmanager
def opened(asked: Asked) -> Iterator[Opened]:
    """Read a project and open what it takes to resolve it; say what was left out or damaged.

    Raises:
        AdvisorError: If anything that was asked for cannot be used.
    """
    from advisor.config import DEFAULT_WORKLOAD, check_table, choose
    from advisor.project.read import read_project
    from advisor.project.sources import propose_workload

    project = read_project(
        asked.directory,
        requirements=asked.requirements or (),
        constraints=asked.constraints or (),
        overrides=asked.overrides or (),
        extras=asked.extra or (),
        groups=asked.group or (),
    )
    for reason in project.skipped:
        warn(reason)
    settings = project.settings
    check_table(settings, "pyproject.toml")
    target = _target(
        project,
        hardware=choose("hardware", asked.hardware, settings),
        python=choose("python", asked.python, settings),
        platform=choose("platform", asked.platform, settings),
    )
    current = _current(asked, target)
    address = choose("knowledge", asked.knowledge, settings)
    workload, proposal = choose("workload", asked.workload, settings), None
    if workload is None:
        proposal = propose_workload(asked.directory)
        workload = proposal.workload if proposal else DEFAULT_WORKLOAD
    objective = choose("objective", asked.objective, settings) or ""
    min_age = choose("min-age", asked.min_age, settings) or ""
    client = _client(asked, project)
    problem = _problem(asked, project, target)

    try:
        with _estimator(address, target, workload) as estimator:

            def ask(python: str | None) -> Inquiry:
                return _inquiry(problem, client, estimator, objective, min_age, asked, python)

            yield Opened(
                project=project,
                target=target,
                client=client,
                estimator=estimator,
                current=current,
                proposal=proposal,
                ask=ask,
            )
    finally:
        client.close()
        if asked.verbose:
            made = ", ".join(f"{count} {kind}" for kind, count in sorted(client.transport.requests_made.items()))
            say(f"index: {sum(client.transport.requests_made.values())} requests{f' ({made})' if made else ''}")
        for damaged in client.cache.damaged:
            warn(f"the cache entry `{damaged}` is damaged and was not used")


def _current(asked: Asked, target: Target) -> Mapping[str, Version] | None:
    """Read what the project has now; a lock that nobody named may be damaged without harm."""
    from advisor.project.current import read_current
    from knowledge.domain.errors import InputError

    try:
        return read_current(asked.current, asked.directory, target)
    except InputError as error:
        if asked.current is not None:
            raise
        warn(f"the stack is not compared with the current one: {error.message}")
        return None


def _client(asked: Asked, project: ProjectRequirements) -> IndexClient:
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

    from advisor.resolve.target import make_target
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


def _problem(asked: Asked, project: ProjectRequirements, target: Target) -> Problem:
    from advisor.project.interface import settings_requirements
    from advisor.resolve.problem import Problem

    overrides = (*project.overrides, *settings_requirements(project.settings, "overrides"))
    roots = (*project.roots, *settings_requirements(project.settings, "constraints", constraint=True))
    overridden = {override.name for override in overrides}
    problem = Problem(
        roots=tuple(root for root in roots if not (root.constraint and root.name in overridden)),
        target=target,
        policy=_policy(asked, project),
        overrides=overrides,
    )
    return problem.with_overridden_roots()


def _policy(asked: Asked, project: ProjectRequirements) -> Policy:
    from packaging.utils import canonicalize_name

    from advisor.resolve.problem import Policy

    def names(*lists: object) -> frozenset[str]:
        words = [str(word) for chosen in lists if isinstance(chosen, list | tuple) for word in chosen]
        return frozenset(word if word == ":all:" else canonicalize_name(word) for word in words)

    return Policy(
        prereleases=asked.prereleases or project.prereleases,
        only_binary=names(asked.only_binary, project.only_binary),
        no_binary=names(asked.no_binary, project.no_binary),
        build_sdists=asked.build_sdists,
        exclude_newer=read_moment(asked.exclude_newer, "--exclude-newer").isoformat() if asked.exclude_newer else None,
    )


@contextmanager
def _estimator(address: str | None, target: Target, workload: str) -> Iterator[Estimator]:
    from knowledge.estimate.fits import Fits
    from knowledge.estimate.posterior import PosteriorEstimator
    from knowledge.estimate.workloads import find_workload
    from pi_runners.backends import FRAMEWORKS

    chosen = find_workload(workload)
    with open_store(address) as store:
        yield PosteriorEstimator(
            Fits(store), hardware=target.hardware, workload=chosen, frameworks=frozenset(FRAMEWORKS)
        )


def _inquiry(
    problem: Problem,
    client: IndexClient,
    estimator: Estimator,
    objective: str,
    min_age: str,
    asked: Asked,
    python: str | None,
) -> Inquiry:
    from datetime import UTC, datetime, timedelta

    from advisor.resolve.candidates import IndexCandidates
    from advisor.resolve.objectives import OBJECTIVES
    from advisor.resolve.recommend import inquire
    from advisor.resolve.solver import Effort
    from advisor.resolve.target import make_target
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
        problem = dataclasses.replace(problem, target=target)
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

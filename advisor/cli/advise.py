"""`advisor advise`: from a project to a verified lock."""

from __future__ import annotations

import platform as this_machine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.console import warn
from advisor.cli.options import (
    CacheOption,
    ExtraIndexUrlOption,
    FindLinksOption,
    FormatOption,
    HardwareOption,
    IndexUrlOption,
    KnowledgeOption,
    OfflineOption,
    check_format,
    open_client,
)

if TYPE_CHECKING:
    from advisor.index.client import IndexClient
    from advisor.project.interface import ProjectRequirements
    from advisor.resolve.problem import Policy, Problem
    from advisor.resolve.recommend import Advice
    from advisor.resolve.target import Target
    from knowledge.estimate.interface import Estimator


def advise(
    directory: Annotated[Path, typer.Argument(metavar="[DIRECTORY]", help="The project.")] = Path("."),
    requirements: Annotated[
        list[Path] | None,
        typer.Option("--requirements", "-r", metavar="FILE", help="Requirements file instead (repeatable)."),
    ] = None,
    constraints: Annotated[
        list[Path] | None, typer.Option("--constraint", "-c", metavar="FILE", help="Constraints file (repeatable).")
    ] = None,
    extra: Annotated[list[str] | None, typer.Option("--extra", help="Extra of the project (repeatable).")] = None,
    group: Annotated[list[str] | None, typer.Option("--group", help="Dependency group (repeatable).")] = None,
    hardware: HardwareOption = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="VERSION", envvar="ADVISOR_PYTHON", help="Target Python; by default this one."
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option("--platform", metavar="TAG", envvar="ADVISOR_PLATFORM", help="Target platform tag."),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option("--objective", metavar="performance|latest", envvar="ADVISOR_OBJECTIVE", help="What is best."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option("--workload", metavar="NAME", envvar="ADVISOR_WORKLOAD", help="What the project does."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Lock: pylock.toml (default), pylock.NAME.toml or *.txt."),
    ] = None,
    format: FormatOption = "text",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
    prereleases: Annotated[bool, typer.Option("--prereleases", "--pre", help="Admit pre-releases.")] = False,
    only_binary: Annotated[
        list[str] | None, typer.Option("--only-binary", metavar="NAME", help="Never from an sdist; `:all:` for all.")
    ] = None,
    no_binary: Annotated[
        list[str] | None, typer.Option("--no-binary", metavar="NAME", help="Never from a wheel; `:all:` for all.")
    ] = None,
    exclude_newer: Annotated[
        str | None, typer.Option("--exclude-newer", metavar="DATE", help="Ignore files uploaded after this date.")
    ] = None,
    knowledge: KnowledgeOption = None,
    index_url: IndexUrlOption = None,
    extra_index_url: ExtraIndexUrlOption = None,
    find_links: FindLinksOption = None,
    cache_dir: CacheOption = None,
    offline: OfflineOption = False,
) -> None:
    """Recommend, verify and lock the best-scored stack of a project for a target machine."""
    from advisor.config import check_table, choose
    from advisor.lock.write import write_atomically
    from advisor.project.read import read_project
    from advisor.report.interface import Report
    from advisor.report.json import advice_json
    from advisor.report.text import advice_text
    from advisor.resolve.problem import Problem

    check_format(format)
    path = output or directory / "pylock.toml"
    if not dry_run:
        _check_lock_path(path)
    project = read_project(
        directory,
        requirements=requirements or (),
        constraints=constraints or (),
        extras=extra or (),
        groups=group or (),
    )
    for reason in project.skipped:
        warn(reason)
    check_table(project.settings, "pyproject.toml")
    target = _target(
        project,
        hardware=choose("hardware", hardware, project.settings),
        python=choose("python", python, project.settings),
        platform=choose("platform", platform, project.settings),
    )
    problem = Problem(
        roots=project.roots, target=target, policy=_policy(project, prereleases, only_binary, no_binary, exclude_newer)
    )
    estimator = _estimator(
        choose("knowledge", knowledge, project.settings), target, choose("workload", workload, project.settings) or ""
    )
    client = open_client(
        directory,
        index_url=index_url or project.index_url,
        extra_index_url=[*project.extra_index_urls, *(extra_index_url or ())],
        find_links=[*project.find_links, *(find_links or ())],
        cache_dir=cache_dir,
        offline=offline,
    )
    try:
        advice = _recommend(problem, client, estimator, choose("objective", objective, project.settings) or "")
        written = ""
        if not dry_run:
            write_atomically(path, _lock_text(path, advice, client, target))
            written = str(path)
    finally:
        client.close()
        for damaged in client.cache.damaged:
            warn(f"the cache entry `{damaged}` is damaged and was not used")
    direct = frozenset(str(root.name) for root in problem.roots if not root.constraint)
    report = Report(advice=advice, target=target, written=written, direct=direct)
    typer.echo(advice_json(report) if format == "json" else advice_text(report))


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


def _policy(
    project: ProjectRequirements,
    prereleases: bool,
    only_binary: list[str] | None,
    no_binary: list[str] | None,
    exclude_newer: str | None,
) -> Policy:
    from datetime import UTC, datetime

    from packaging.utils import canonicalize_name

    from advisor.resolve.problem import Policy
    from knowledge.domain.errors import InputError

    def names(*lists: object) -> frozenset[str]:
        words = [str(word) for chosen in lists if isinstance(chosen, list | tuple) for word in chosen]
        return frozenset(word if word == ":all:" else canonicalize_name(word) for word in words)

    until = None
    if exclude_newer:
        try:
            moment = datetime.fromisoformat(exclude_newer)
        except ValueError:
            raise InputError(
                f"`{exclude_newer}` is not a date", hint="write it as `--exclude-newer 2026-01-31`"
            ) from None
        until = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return Policy(
        prereleases=prereleases or project.prereleases,
        only_binary=names(only_binary, project.only_binary),
        no_binary=names(no_binary, project.no_binary),
        exclude_newer=until,
    )


def _estimator(address: str | None, target: Target, workload: str) -> Estimator:
    from knowledge.estimate.versions import VersionEstimator
    from knowledge.estimate.workloads import find_workload
    from knowledge.store.engine import default_address, open_knowledge_base
    from pi_runners.backends import FRAMEWORKS

    chosen = find_workload(workload)
    with open_knowledge_base(address or default_address()) as store:
        return VersionEstimator(
            store.observations(), hardware=target.hardware, workload=chosen, frameworks=frozenset(FRAMEWORKS)
        )


def _recommend(
    problem: Problem, client: IndexClient, estimator: Estimator, objective: str
) -> Advice:
    from advisor.resolve.candidates import IndexCandidates
    from advisor.resolve.objectives import OBJECTIVES
    from advisor.resolve.recommend import recommend
    from knowledge.domain.errors import InputError
    from knowledge.rules.catalogue import shipped_rules
    from knowledge.rules.engine import RuleBook

    if objective not in OBJECTIVES:
        raise InputError(f"there is no objective `{objective}`", hint=f"take one of {', '.join(OBJECTIVES)}")
    source = IndexCandidates(client, problem)
    rules = RuleBook(shipped_rules(), problem.target.hardware)
    return recommend(problem, source, rules=rules, estimator=estimator, objective=objective)


def _check_lock_path(path: Path) -> None:
    """Refuse a lock that cannot be written before any work is done for it."""
    from packaging.pylock import is_valid_pylock_path

    from knowledge.domain.errors import InputError

    if not is_valid_pylock_path(path) and path.suffix != ".txt":
        raise InputError(
            f"`{path.name}` is not the name of a lock that can be written",
            hint="name it `pylock.toml`, `pylock.NAME.toml` or `requirements.txt`",
        )
    if not path.parent.is_dir():
        raise InputError(
            f"`{path.parent}` is not a directory", hint="name a project, or a lock file in an existing folder"
        )


def _lock_text(path: Path, advice: Advice, client: IndexClient, target: Target) -> str:
    from advisor.lock.pylock import write_pylock
    from advisor.lock.requirements import write_requirements

    stack = advice.optimum.stack
    client.prefetch_sizes(c.file for c in stack)
    files = {c.name: client.pinned(c.file) for c in stack}
    if path.suffix == ".txt":
        return write_requirements(stack, files, target, client.configuration)
    return write_pylock(stack, files, target)

"""What every command that resolves a project asks of the user."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.cli.options import (
    CacheOption,
    ExtraIndexUrlOption,
    FindLinksOption,
    HardwareOption,
    IndexUrlOption,
    KnowledgeOption,
    OfflineOption,
)

_Text = str | None
_Texts = list[str] | None
_Paths = list[Path] | None


@dataclass(frozen=True, kw_only=True)
class ProjectOptions:
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
    target: Annotated[
        _Texts,
        typer.Option("--target", metavar="NAME", help="A target of `[tool.advisor.targets]` (`check`: repeatable)."),
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


@functools.cache
def _hints() -> dict[str, Any]:
    # Told once for all commands: it takes as long as a command's other preparations.
    return typing.get_type_hints(ProjectOptions, include_extras=True)


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`ProjectOptions`, whose values it gets as its first argument."""
    own = list(inspect.signature(command).parameters.values())[1:]
    hints = typing.get_type_hints(command, include_extras=True)
    shared = _hints()

    def run(**values: Any) -> None:
        command(ProjectOptions(**{name: values.pop(name) for name in shared}), **values)

    parameters = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=shared[f.name])
        for f in dataclasses.fields(ProjectOptions)
    ]
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in own]
    # The directory is optional; an argument that is required stands before it.
    parameters.sort(key=lambda p: p.default is not inspect.Parameter.empty)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    return run

"""Groups of command-line options: dataclasses whose fields become options of a command."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.api.options import IndexOptions, ProjectFiles, ResolutionOptions, TargetOptions
from advisor.cli.command_help import INDEX, OBJECTIVE, PROJECT, TARGET
from advisor.cli.options import (
    CacheOption,
    ExtraIndexUrlOption,
    FindLinksOption,
    HardwareOption,
    IndexUrlOption,
    KnowledgeOption,
    OfflineOption,
    read_moment,
)
from knowledge.domain.errors import AdvisorError

_Text = str | None
_Texts = list[str] | None
_Paths = list[Path] | None


@dataclass(frozen=True, kw_only=True)
class ProjectOptions:
    """Options of the commands that resolve a project."""

    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The project (default: here).")] = Path(".")
    requirements: Annotated[
        _Paths,
        typer.Option(
            *("--requirements", "-r"),
            metavar="FILE",
            rich_help_panel=PROJECT,
            help="Requirements file instead (repeatable).",
        ),
    ] = None
    constraints: Annotated[
        _Paths,
        typer.Option(
            "--constraint", "-c", metavar="FILE", rich_help_panel=PROJECT, help="Constraints file (repeatable)."
        ),
    ] = None
    overrides: Annotated[
        _Paths,
        typer.Option(
            "--override",
            metavar="FILE",
            rich_help_panel=PROJECT,
            help="Requirements that replace others (repeatable).",
        ),
    ] = None
    extra: Annotated[
        _Texts,
        typer.Option("--extra", metavar="NAME", rich_help_panel=PROJECT, help="Extra of the project (repeatable)."),
    ] = None
    group: Annotated[
        _Texts, typer.Option("--group", metavar="NAME", rich_help_panel=PROJECT, help="Dependency group (repeatable).")
    ] = None
    current: Annotated[
        _Text,
        typer.Option("--current", metavar="FILE", rich_help_panel=PROJECT, help="Lock or interpreter to compare with."),
    ] = None
    build_project: Annotated[
        bool,
        typer.Option(
            "--build-project",
            envvar="ADVISOR_BUILD_PROJECT",
            rich_help_panel=PROJECT,
            help="Build the project's metadata: runs its code.\nOnly if nothing but a build knows what it requires.",
        ),
    ] = False
    build_sdists: Annotated[
        bool,
        typer.Option(
            "--build-sdists",
            envvar="ADVISOR_BUILD_SDISTS",
            rich_help_panel=PROJECT,
            help="Build sdists, too: runs their code.\nThe project and sdists are built to learn what they require.",
        ),
    ] = False
    target: Annotated[
        _Texts,
        typer.Option(
            "--target",
            metavar="NAME",
            rich_help_panel=TARGET,
            help="A target of the project.\nThey are in `[tool.advisor.targets]`. `check`: repeatable.",
        ),
    ] = None
    hardware: HardwareOption = None
    python: Annotated[
        _Text,
        typer.Option(
            "--python",
            metavar="VERSION",
            envvar="ADVISOR_PYTHON",
            rich_help_panel=TARGET,
            help="Python version, or `best` (default: this one).\n`best` is the one with the best stack.",
        ),
    ] = None
    platform: Annotated[
        _Text,
        typer.Option(
            "--platform",
            metavar="TAG",
            envvar="ADVISOR_PLATFORM",
            rich_help_panel=TARGET,
            help="Platform tag, such as manylinux_2_28_x86_64.",
        ),
    ] = None
    objective: Annotated[
        _Text,
        typer.Option(
            "--objective",
            metavar="NAME",
            envvar="ADVISOR_OBJECTIVE",
            rich_help_panel=OBJECTIVE,
            help="performance, latest, stable, security or size.\nBy default performance.",
        ),
    ] = None
    workload: Annotated[
        _Text,
        typer.Option(
            "--workload",
            metavar="NAME",
            envvar="ADVISOR_WORKLOAD",
            rich_help_panel=OBJECTIVE,
            help="Workload that predictions are for.",
        ),
    ] = None
    max_size: Annotated[
        _Text,
        typer.Option(
            "--max-size",
            metavar="SIZE",
            envvar="ADVISOR_MAX_SIZE",
            rich_help_panel=OBJECTIVE,
            help="Largest download of the stack, such as 2GB.",
        ),
    ] = None
    allow: Annotated[
        _Texts,
        typer.Option(
            "--allow",
            metavar="WHAT",
            envvar="ADVISOR_ALLOW",
            rich_help_panel=OBJECTIVE,
            help="`replace-packages` or `reduced-precision`.\n"
            "Take other packages with the same modules if they suit the hardware better; recommend run-time "
            "settings with a lower precision (repeatable).",
        ),
    ] = None
    recommend_settings: Annotated[
        bool | None,
        typer.Option(
            "--recommend-settings/--no-recommend-settings",
            envvar="ADVISOR_RECOMMEND_SETTINGS",
            rich_help_panel=OBJECTIVE,
            help="Choose run-time settings, too (default: yes).",
        ),
    ] = None
    min_age: Annotated[
        _Text,
        typer.Option(
            "--min-age",
            metavar="DAYS",
            envvar="ADVISOR_MIN_AGE",
            rich_help_panel=OBJECTIVE,
            help="Least age of releases for `stable` (default: 14).",
        ),
    ] = None
    min_gain: Annotated[
        _Text,
        typer.Option(
            "--min-gain",
            metavar="PERCENT",
            envvar="ADVISOR_MIN_GAIN",
            rich_help_panel=OBJECTIVE,
            help="Least gain of an older release (default: 3%).\nIts gain of speed over the newest one.",
        ),
    ] = None
    prereleases: Annotated[
        bool, typer.Option("--prereleases", "--pre", rich_help_panel=OBJECTIVE, help="Admit pre-releases.")
    ] = False
    only_binary: Annotated[
        _Texts,
        typer.Option(
            "--only-binary",
            metavar="NAME",
            rich_help_panel=OBJECTIVE,
            help="No sdist of this package; `:all:` for all.",
        ),
    ] = None
    no_binary: Annotated[
        _Texts,
        typer.Option(
            "--no-binary", metavar="NAME", rich_help_panel=OBJECTIVE, help="No wheel of this package; `:all:` for all."
        ),
    ] = None
    exclude_newer: Annotated[
        _Text,
        typer.Option(
            "--exclude-newer",
            metavar="DATE",
            rich_help_panel=OBJECTIVE,
            help="Ignore files uploaded after this date.",
        ),
    ] = None
    preview: Annotated[
        _Texts,
        typer.Option(
            "--preview",
            metavar="NAME",
            envvar="ADVISOR_PREVIEW",
            rich_help_panel=OBJECTIVE,
            help="Preview feature: `variants` (repeatable).",
        ),
    ] = None
    workers: Annotated[
        int,
        typer.Option("--workers", metavar="NUMBER", min=1, rich_help_panel=OBJECTIVE, help="Threads of the solver."),
    ] = 1
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            min=1,
            rich_help_panel=OBJECTIVE,
            help="Time for the search.\nThen the best stack so far is the result, with what is not proven.",
        ),
    ] = 300
    knowledge: KnowledgeOption = None
    index_url: IndexUrlOption = None
    extra_index_url: ExtraIndexUrlOption = None
    package_index: Annotated[
        _Texts,
        typer.Option(
            "--package-index",
            metavar="NAME=URL",
            rich_help_panel=INDEX,
            help="The only index of a package (repeatable).",
        ),
    ] = None
    framework_indexes: Annotated[
        bool | None,
        typer.Option(
            "--framework-indexes/--no-framework-indexes",
            envvar="ADVISOR_FRAMEWORK_INDEXES",
            rich_help_panel=INDEX,
            help="Also builds on publishers' indexes (default: no).\nSuch as those of PyTorch for one CUDA version.",
        ),
    ] = None
    index_strategy: Annotated[
        _Text,
        typer.Option(
            "--index-strategy",
            metavar="NAME",
            envvar="ADVISOR_INDEX_STRATEGY",
            rich_help_panel=INDEX,
            help="`first-index` (default) or `unsafe-best-match`.\nWhich of several indexes a package comes from.",
        ),
    ] = None
    find_links: FindLinksOption = None
    advisories: Annotated[
        _Text,
        typer.Option(
            "--advisories",
            metavar="URL",
            envvar="ADVISOR_ADVISORIES",
            rich_help_panel=INDEX,
            help="Service for vulnerabilities, or `off`.\nFor those that the index has no record of (default: OSV).",
        ),
    ] = None
    cache_dir: CacheOption = None
    refresh: Annotated[
        bool,
        typer.Option("--refresh", rich_help_panel=INDEX, help="Ask for index pages even where they are fresh."),
    ] = False
    offline: OfflineOption = False
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print the number of index requests."),
    ] = False

    def files(self) -> ProjectFiles:
        """Return the project's files."""
        return ProjectFiles(
            directory=self.directory,
            requirements=tuple(self.requirements or ()),
            constraints=tuple(self.constraints or ()),
            overrides=tuple(self.overrides or ()),
            extras=tuple(self.extra or ()),
            groups=tuple(self.group or ()),
            current=self.current,
        )

    def targets(self) -> TargetOptions:
        """Return the target."""
        return TargetOptions(
            names=tuple(self.target or ()), hardware=self.hardware, python=self.python, platform=self.platform
        )

    def indexes(self) -> IndexOptions:
        """Return the package indexes.

        Raises:
            InputError: If `--package-index` is not written as `NAME=URL`.
        """
        from knowledge.domain.errors import InputError

        bindings = {}
        for word in self.package_index or ():
            name, separator, url = word.partition("=")
            if not separator or "/" in name:
                raise InputError(
                    f"`{word}` does not bind a package to an index",
                    hint="write it as `--package-index torch=https://.../simple/`",
                )
            bindings[name] = url
        return IndexOptions(
            index_url=self.index_url,
            extra_index_urls=tuple(self.extra_index_url or ()),
            find_links=tuple(self.find_links or ()),
            package_indexes=bindings,
            framework_indexes=self.framework_indexes,
            strategy=self.index_strategy,
            cache_directory=self.cache_dir,
            offline=self.offline,
            refresh=self.refresh,
            advisories=self.advisories,
        )

    def resolution(self) -> ResolutionOptions:
        """Return what the best stack is.

        Raises:
            InputError: If `--min-age` or `--exclude-newer` cannot be read.
        """
        from advisor.api.options import read_days

        return ResolutionOptions(
            objective=self.objective,
            workload=self.workload,
            min_age_days=None if self.min_age is None else read_days(self.min_age),
            min_gain=self.min_gain,
            knowledge=self.knowledge,
            prereleases=self.prereleases,
            only_binary=tuple(self.only_binary or ()),
            no_binary=tuple(self.no_binary or ()),
            build_project=self.build_project,
            build_sdists=self.build_sdists,
            allow=tuple(self.allow or ()),
            recommend_settings=self.recommend_settings,
            exclude_newer=read_moment(self.exclude_newer, "--exclude-newer") if self.exclude_newer else None,
            preview=None if self.preview is None else tuple(self.preview),
            max_size=self.max_size,
            workers=self.workers,
            time_limit=self.time_limit,
        )

    def groups(self) -> tuple[ProjectFiles, TargetOptions, IndexOptions, ResolutionOptions]:
        """Return the options as the API groups them.

        Raises:
            InputError: If an option cannot be read.
        """
        if self.verbose:
            from advisor.cli.console import show_information

            show_information()
        return self.files(), self.targets(), self.indexes(), self.resolution()


@dataclass(frozen=True, kw_only=True)
class IndexUrlOptions:
    """Options of the commands that lock stacks to measure."""

    index_url: IndexUrlOption = None
    extra_index_url: ExtraIndexUrlOption = None
    find_links: FindLinksOption = None
    cache_dir: CacheOption = None
    offline: OfflineOption = False

    def indexes(self) -> IndexOptions:
        """Return the package indexes."""
        return IndexOptions(
            index_url=self.index_url,
            extra_index_urls=tuple(self.extra_index_url or ()),
            find_links=tuple(self.find_links or ()),
            cache_directory=self.cache_dir,
            offline=self.offline,
        )


@functools.cache
def _hints(group: type) -> dict[str, Any]:
    # Cached, because several commands share a group and each evaluation takes milliseconds.
    return typing.get_type_hints(group, include_extras=True)


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with one option for each field of the dataclasses among its parameters.

    Args:
        command: A function whose parameters are arguments and options of typer, or dataclasses with such fields.
    """
    hints = _command_hints(command)
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            groups[parameter.name] = hint
            annotations = _hints(hint)
            parameters += [
                inspect.Parameter(
                    f.name, inspect.Parameter.KEYWORD_ONLY, default=_default(f), annotation=annotations[f.name]
                )
                for f in dataclasses.fields(hint)
            ]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            options = {f.name: values.pop(f.name) for f in dataclasses.fields(group)}
            values[name] = group(**options)
        command(**values)

    # A required argument comes before optional ones, such as the directory.
    parameters.sort(key=lambda p: p.default is not inspect.Parameter.empty)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _default(field: dataclasses.Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _command_hints(command: Callable[..., None]) -> dict[str, Any]:
    return typing.get_type_hints(command, include_extras=True)


def with_consent(run: Callable[[ProjectOptions], None], options: ProjectOptions) -> None:
    """Run a command; if it needs builds and the user agrees on a terminal, run it again with them.

    The project is one question; the packages that a stack needs are another one, which lists them.

    Args:
        run: The command.
        options: Its options.

    Raises:
        BuildsNeededError, UnbuiltProjectError: If there is no terminal, or the user does not agree.
    """
    try:
        run(options)
    except AdvisorError as error:
        # Imported here, because a remembered answer needs neither.
        from advisor.project.interface import UnbuiltProjectError
        from advisor.resolve.candidates.problem import BuildsNeededError

        if isinstance(error, UnbuiltProjectError):
            _ask(error, (), "Build the metadata of the project? This runs its code on this machine")
            with_consent(run, replace(options, build_project=True))
        elif isinstance(error, BuildsNeededError):
            question = "Build these and other packages that a stack needs? This runs their code on this machine"
            _ask(error, error.packages, question)
            run(replace(options, build_sdists=True))
        else:
            raise


def _ask(error: AdvisorError, packages: Sequence[str], question: str) -> None:
    """Ask whether to build; raise the error without a terminal, or if the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise error
    typer.echo(error.message, err=True)
    for package in packages:
        typer.echo(f"  {package}", err=True)
    if not typer.confirm(question, default=False, err=True):
        raise error

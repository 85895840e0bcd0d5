"""Options of the API functions and of the commands about a project, in groups: files, target, resolution, indexes.

Each option is declared here and nowhere else; see :mod:`advisor.api.option`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from advisor.api.option import INDEX, OBJECTIVE, PROJECT, TARGET, Option, option_group, read_moment
from advisor.domain.words import parse_size, quoted
from knowledge.domain.errors import InputError, suggest
from knowledge.domain.ratio import MIN_GAIN

REDUCED_PRECISION = "reduced-precision"
REPLACE_PACKAGES = "replace-packages"
ALLOWED = (REPLACE_PACKAGES, REDUCED_PRECISION)
"""What can be allowed in addition."""
VARIANTS = "variants"
"""The preview feature wheel variants (PEP 825)."""
PREVIEWS = (VARIANTS,)
"""Preview features: drafts of standards that the program follows only if the user asks for it."""


MIN_AGE_DAYS = 14
"""Least age of releases for the objective `stable`."""
_MIN_GAIN = f"{MIN_GAIN:.0%}"


def _check_names(names: Iterable[str], *, choices: Sequence[str], message: str) -> None:
    """Raise an `InputError` with a message for the first name that is none of the choices."""
    for name in names:
        if name not in choices:
            raise InputError(message.format(name), hint=suggest(name, choices))


def read_max_size(text: str) -> int:
    """Read the largest admissible download, such as ``2GB``; return it in bytes.

    Raises:
        InputError: If it is not a size.
    """
    size = parse_size(text)
    if size is None:
        raise InputError(f"`{text}` is not a size", hint="write it as `--max-size 2GB` or `500MB`")
    return size


def read_memory(text: str) -> int:
    """Read an amount of memory, such as ``40GB``; return it in bytes.

    Raises:
        InputError: If it is not one.
    """
    size = parse_size(text)
    if size is None:
        raise InputError(f"`{text}` is not an amount of memory", hint="write it as `40GB` or `24GiB`")
    return size


def read_fraction(text: str) -> float | None:
    """Return a fraction below 1, such as ``3%`` or ``0.03``; ``None`` if it is something else, or negative."""
    number, sign, _ = text.partition("%")
    try:
        fraction = float(number) / (100 if sign else 1)
    except ValueError:
        return None
    return fraction if 0 <= fraction < 1 and text in (number, f"{number}%") else None


def read_min_gain(text: str) -> float:
    """Read the smallest gain of speed that counts, such as ``3%`` or ``0.03``; return the fraction.

    Raises:
        InputError: If it is neither, negative, or 100 % or more.
    """
    gain = read_fraction(text)
    if gain is None:
        raise InputError(f"`{text}` is not a gain of speed", hint="write it as `--min-gain 3%` or `0.03`")
    return gain


def read_days(text: str) -> int:
    """Read a number of days.

    Raises:
        InputError: If it is not a whole number of days.
    """
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"`{text}` is not a number of days", hint="write it as `--min-age 14`")
    return int(text)


def read_bindings(texts: Iterable[str]) -> dict[str, str]:
    """Read ``NAME=URL`` texts: the only index of each package.

    Raises:
        InputError: If a text is not written like this.
    """
    bindings = {}
    for text in texts:
        name, separator, url = text.partition("=")
        if not separator or "/" in name:
            raise InputError(
                f"`{text}` does not bind a package to an index",
                hint="write it as `--package-index torch=https://.../simple/`",
            )
        bindings[name] = url
    return bindings


HARDWARE = Option(
    "--hardware",
    metavar="NAME",
    panel=TARGET,
    key="hardware",
    per_target=True,
    otherwise="detect",
    help="Hardware profile, cloud instance or file.\n"
    "A shipped profile, a cloud instance, a YAML or JSON file, or `detect` (this machine).",
)
KNOWLEDGE = Option(
    "--knowledge",
    metavar="URL",
    panel=INDEX,
    key="knowledge",
    unset="a SQLite file in the user's data directory",
    help="Knowledge base (default: the user's own).\nBy default a SQLite file in the user's data directory.",
)
_project = partial(Option, panel=PROJECT)
_target = partial(Option, panel=TARGET)
_objective = partial(Option, panel=OBJECTIVE)
_memory = partial(Option, panel=OBJECTIVE, page="../how-to/check-memory.md")
_index = partial(Option, panel=INDEX)


@option_group
@dataclass(frozen=True, kw_only=True)
class ProjectFiles:
    """Files that state what a project requires, and what it has installed."""

    directory: Annotated[Path, Option(metavar="DIRECTORY", help="The project (default: here).")] = Path(".")
    requirements: Annotated[
        tuple[Path, ...],
        _project("--requirements -r", metavar="FILE", help="Requirements file instead (repeatable)."),
    ] = ()
    constraints: Annotated[
        tuple[Path, ...], _project("--constraint -c", metavar="FILE", help="Constraints file (repeatable).")
    ] = ()
    overrides: Annotated[
        tuple[Path, ...],
        _project("--override", metavar="FILE", help="Requirements that replace others (repeatable)."),
    ] = ()
    extras: Annotated[
        tuple[str, ...], _project("--extra", metavar="NAME", help="Extra of the project (repeatable).")
    ] = ()
    groups: Annotated[tuple[str, ...], _project("--group", metavar="NAME", help="Dependency group (repeatable).")] = ()
    current: Annotated[
        str | None, _project("--current", metavar="FILE", help="Lock or interpreter to compare with.")
    ] = None

    def __post_init__(self) -> None:
        """Convert texts to paths, so that both can be given."""
        object.__setattr__(self, "directory", Path(self.directory))
        for name in ("requirements", "constraints", "overrides"):
            object.__setattr__(self, name, tuple(Path(path) for path in getattr(self, name)))

    def moved_to(self, directory: Path) -> ProjectFiles:
        """Return the same files below another directory; files from outside the project stay where they are."""

        def moved(paths: tuple[Path, ...]) -> tuple[Path, ...]:
            # One of the two may be absolute, and the other not.
            below = [Path(os.path.relpath(path, self.directory)) for path in paths]
            return tuple(
                path if ".." in relative.parts else directory / relative
                for path, relative in zip(paths, below, strict=True)
            )

        return replace(
            self,
            directory=directory,
            requirements=moved(self.requirements),
            constraints=moved(self.constraints),
            overrides=moved(self.overrides),
        )


@option_group
@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Machine and interpreter to resolve for."""

    names: Annotated[
        tuple[str, ...],
        _target(
            "--target",
            metavar="NAME",
            help="A target of the project.\nThey are in `[tool.advisor.targets]`. `check`: repeatable.",
        ),
    ] = ()
    hardware: Annotated[str | None, HARDWARE] = None
    python: Annotated[
        str | None,
        _target(
            "--python",
            metavar="VERSION",
            key="python",
            per_target=True,
            unset="the running interpreter",
            page="../how-to/choose-builds.md#choose-the-interpreter",
            help="Python version, or `best` (default: this one).\n`best` is the one with the best stack.",
        ),
    ] = None
    platform: Annotated[
        str | None,
        _target(
            "--platform",
            metavar="TAG",
            key="platform",
            per_target=True,
            unset="from the hardware",
            help="Platform tag, such as manylinux_2_28_x86_64.\n"
            "By default the platform of the hardware profile, with glibc 2.28 if the profile names no version.",
        ),
    ] = None


@option_group
@dataclass(frozen=True, kw_only=True)
class ResolutionOptions:
    """What the best stack is, and which files may be part of it."""

    build_project: Annotated[
        bool,
        _project(
            "--build-project",
            has_variable=True,
            help="Build the project's metadata: runs its code.\nOnly if nothing but a build knows what it requires.",
        ),
    ] = False
    build_sdists: Annotated[
        bool,
        _project(
            "--build-sdists",
            has_variable=True,
            help="Build sdists, too: runs their code.\nThe project and sdists are built to learn what they require.",
        ),
    ] = False
    workload: Annotated[
        str | None,
        _objective(
            "--workload",
            metavar="NAME",
            key="workload",
            per_target=True,
            unset="what the sources suggest, else all kinds",
            page="cli.md#workloads",
            help="Workload that predictions are for.\n"
            "By default the only profiled workload of the project, else the one that its source files suggest, else "
            "all kinds.",
        ),
    ] = None
    objective: Annotated[
        str | None,
        _objective(
            "--objective",
            metavar="NAME",
            key="objective",
            otherwise="performance",
            page="cli.md#objectives",
            help="performance, latest, stable, security or size.\nBy default performance.",
        ),
    ] = None
    knowledge: Annotated[str | None, KNOWLEDGE] = None
    min_age_days: Annotated[
        int | None,
        _objective(
            "--min-age",
            metavar="DAYS",
            key="min-age",
            otherwise=str(MIN_AGE_DAYS),
            example=str(MIN_AGE_DAYS),
            parse=read_days,
            page="cli.md#objectives",
            help=f"Least age of releases for `stable` (default: {MIN_AGE_DAYS}).\nIn days.",
        ),
    ] = None
    min_gain: Annotated[
        str | None,
        _objective(
            "--min-gain",
            metavar="PERCENT",
            key="min-gain",
            numbers=(int, float),
            otherwise=_MIN_GAIN,
            check=read_min_gain,
            example=f'"{_MIN_GAIN}"',
            page="cli.md#objectives",
            help=f"Least gain of an older release (default: {_MIN_GAIN}).\n"
            f"Its gain of speed over the newest one, such as `{_MIN_GAIN}` or `{MIN_GAIN}`.",
        ),
    ] = None
    max_size: Annotated[
        str | None,
        _objective(
            "--max-size",
            metavar="SIZE",
            key="max-size",
            per_target=True,
            unset="no limit",
            check=read_max_size,
            example='"2GB"',
            page="../how-to/choose-builds.md#limit-the-download",
            help="Largest download of the stack, such as 2GB.\nFor `advisor check`, of the lock.",
        ),
    ] = None
    allow: Annotated[
        tuple[str, ...],
        _objective(
            "--allow",
            metavar="WHAT",
            key="allow",
            check=partial(_check_names, choices=ALLOWED, message="`{}` cannot be allowed"),
            example='["replace-packages"]',
            page="../how-to/choose-builds.md#replace-packages",
            help="`replace-packages` or `reduced-precision`.\n"
            "Take other packages with the same modules if they suit the hardware better; recommend run-time "
            "settings with a lower precision (repeatable).",
        ),
    ] = ()
    recommend_settings: Annotated[
        bool | None,
        _objective(
            "--recommend-settings/--no-recommend-settings",
            key="recommend-settings",
            otherwise="true",
            page="../how-to/apply-settings.md",
            help="Choose run-time settings, too (default: yes).",
        ),
    ] = None
    prereleases: Annotated[bool, _objective("--prereleases --pre", help="Admit pre-releases.")] = False
    only_binary: Annotated[
        tuple[str, ...],
        _objective("--only-binary", metavar="NAME", help="No sdist of this package; `:all:` for all."),
    ] = ()
    no_binary: Annotated[
        tuple[str, ...],
        _objective("--no-binary", metavar="NAME", help="No wheel of this package; `:all:` for all."),
    ] = ()
    exclude_newer: Annotated[
        datetime | None,
        _objective(
            "--exclude-newer",
            metavar="DATE",
            parse=partial(read_moment, option="--exclude-newer"),
            help="Ignore files uploaded after this date.\nWithout a time zone it is UTC.",
        ),
    ] = None
    preview: Annotated[
        tuple[str, ...] | None,
        _objective(
            "--preview",
            metavar="NAME",
            key="preview",
            check=partial(
                _check_names,
                choices=PREVIEWS,
                message=f"there is no preview feature `{{}}`; the known ones are: {quoted(PREVIEWS)}",
            ),
            example='["variants"]',
            page="cli.md#preview-features",
            help="Preview feature: `variants` (repeatable).",
        ),
    ] = None
    workers: Annotated[int, _objective("--workers", metavar="NUMBER", minimum=1, help="Threads of the solver.")] = 1
    time_limit: Annotated[
        float,
        _objective(
            "--time-limit",
            metavar="SECONDS",
            minimum=1,
            help="Time for the search.\n"
            "For each target. Then the best stack so far is the result, with what is not proven.",
        ),
    ] = 300.0

    @property
    def max_size_bytes(self) -> int | None:
        """Largest admissible download, in bytes; ``None`` for no limit."""
        return None if self.max_size is None else read_max_size(self.max_size)

    @property
    def min_gain_fraction(self) -> float:
        """Smallest gain of speed that counts; 0 if none is set."""
        return 0.0 if self.min_gain is None else read_min_gain(self.min_gain)


@option_group
@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Package indexes, and the cache of what they answer."""

    index_url: Annotated[
        str | None,
        _index(
            "--index-url -i",
            metavar="URL",
            help="Default index instead of the configured ones.\nReplaces all that pip and uv are configured to use.",
        ),
    ] = None
    extra_index_urls: Annotated[
        tuple[str, ...], _index("--extra-index-url", metavar="URL", help="Further index (repeatable).")
    ] = ()
    package_indexes: Annotated[
        Mapping[str, str],
        _index(
            "--package-index",
            metavar="NAME=URL",
            key="package-index",
            has_variable=False,
            reads=list[str],
            parse=read_bindings,
            example='{ torch = "https://..." }',
            help="The only index of a package (repeatable).",
        ),
    ] = field(default_factory=dict)
    framework_indexes: Annotated[
        bool | None,
        _index(
            "--framework-indexes/--no-framework-indexes",
            key="framework-indexes",
            otherwise="false",
            page="../how-to/choose-builds.md#take-the-build-for-the-target",
            help="Also builds on publishers' indexes (default: no).\nSuch as builds of PyTorch for one CUDA version.",
        ),
    ] = None
    strategy: Annotated[
        str | None,
        _index(
            "--index-strategy",
            metavar="NAME",
            key="index-strategy",
            unset="as uv is configured, else first-index",
            help="`first-index` (default) or `unsafe-best-match`.\nWhich of several indexes a package comes from.",
        ),
    ] = None
    find_links: Annotated[
        tuple[str, ...],
        _index("--find-links -f", metavar="PLACE", help="Directory or page of wheels (repeatable)."),
    ] = ()
    advisories: Annotated[
        str | None,
        _index(
            "--advisories",
            metavar="URL",
            key="advisories",
            unset="https://api.osv.dev",
            help="Service for vulnerabilities, or `off`.\nFor those that the index has no record of (default: OSV).",
        ),
    ] = None
    cache_directory: Annotated[
        Path | None,
        _index("--cache-dir", metavar="DIRECTORY", has_variable=True, help="Cache (default: the user's own)."),
    ] = None
    refresh: Annotated[bool, _index("--refresh", help="Ask for index pages even where they are fresh.")] = False
    offline: Annotated[bool, _index("--offline", has_variable=True, help="Answer from the cache alone.")] = False


@dataclass(frozen=True, kw_only=True)
class ProjectOptions:
    """All options about a project.

    Attributes:
        files: Its files.
        target: What it is resolved for.
        resolution: What the best stack is.
        indexes: The package indexes.
    """

    files: ProjectFiles = ProjectFiles()
    target: TargetOptions = TargetOptions()
    resolution: ResolutionOptions = ResolutionOptions()
    indexes: IndexOptions = field(default_factory=IndexOptions)

    @classmethod
    def of(
        cls,
        project: Project,
        target: TargetOptions | None = None,
        indexes: IndexOptions | None = None,
        resolution: ResolutionOptions | None = None,
    ) -> ProjectOptions:
        """Return the options of a project with defaults for those that are not named."""
        return cls(
            files=project if isinstance(project, ProjectFiles) else ProjectFiles(directory=Path(project)),
            target=target or TargetOptions(),
            indexes=indexes or IndexOptions(),
            resolution=resolution or ResolutionOptions(),
        )


TIME, COST, ENERGY = CHOICE_OBJECTIVES = ("time", "cost", "energy")
"""What machines are ranked by."""
MOST_ITEMS = 1e18
"""Largest number of items that times and costs are computed for."""


def read_choice_objective(text: str) -> str:
    """Return what machines are ranked by.

    Raises:
        InputError: If there is no objective of the name.
    """
    _check_names([text], choices=CHOICE_OBJECTIVES, message="there is no objective `{}`")
    return text


def read_number(text: str) -> float:
    """Read a positive number such as ``1281167``, ``1.28M`` or ``5e9``.

    Raises:
        InputError: If it is not one.
    """
    number, factor = (text[:-1], _FACTORS[text[-1]]) if text[-1:] in _FACTORS else (text, 1.0)
    try:
        value = float(number) * factor
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"`{text}` is not a positive number", hint="write it as `1281167`, `1.28M` or `5e9`")
    return value


_FACTORS = {"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


MOST_GRAMS = 1e4
"""Largest carbon intensity of electricity in grams for a kWh: beyond any power station. The bound is a judgement."""


def read_intensity(text: str) -> float:
    """Read a carbon intensity in grams for a kWh, from 0.001 to :data:`MOST_GRAMS`.

    Raises:
        InputError: If it is not one.
    """
    try:
        grams = float(text)
    except ValueError:
        grams = math.nan
    if not 1e-3 <= grams <= MOST_GRAMS:
        raise InputError(
            f"`--carbon-intensity {text}` is not a number of grams from 0.001 to {MOST_GRAMS:g}",
            hint="write grams for a kWh, such as `380`",
        )
    return grams


def read_date(text: str) -> date:
    """Read a date such as ``2026-11-29``.

    Raises:
        InputError: If it is not one.
    """
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError(f"`{text}` is not a date", hint="write it as `--price-date 2026-11-29`") from None


def read_items(text: str) -> float:
    """Read a number of items, from 1 to :data:`MOST_ITEMS`.

    Raises:
        InputError: If it is not one.
    """
    number = read_number(text)
    if not 1 <= number <= MOST_ITEMS:
        raise InputError(f"`{text}` is not a number of items from 1 to {MOST_ITEMS:g}")
    return number


@option_group
@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """Which machines are compared, and by what."""

    machines: Annotated[
        tuple[str, ...],
        _target(
            "--hardware",
            metavar="NAME",
            help="A machine (repeatable).\n"
            "A hardware profile, a cloud instance or a file. By default the targets of the project, else every machine "
            "with a price, else every accelerator that was compared at the workload.",
        ),
    ] = ()
    prices: Annotated[
        tuple[Path, ...],
        _objective(
            "--prices",
            metavar="FILE",
            page="../how-to/choose-hardware.md#add-prices",
            help="Prices of machines (repeatable).\nA YAML file, or a catalogue of SkyPilot (CSV).",
        ),
    ] = ()
    price_date: Annotated[
        date | None,
        _objective("--price-date", metavar="DATE", parse=read_date, help="Date of prices that state none."),
    ] = None
    region: Annotated[str | None, _objective("--region", metavar="NAME", help="Only prices of this region.")] = None
    spot: Annotated[bool, _objective("--spot", help="Take the prices of spot instances.")] = False
    objective: Annotated[
        str | None,
        _objective(
            "--objective",
            metavar="NAME",
            parse=read_choice_objective,
            help="time, cost or energy (default: cost with prices).\nWithout prices, machines are ranked by time.",
        ),
    ] = None
    budget: Annotated[
        float | None, _objective("--budget", metavar="AMOUNT", parse=read_number, help="Largest cost of the items.")
    ] = None
    min_memory: Annotated[
        int | None,
        _objective(
            "--min-memory", metavar="SIZE", parse=read_memory, help="Least memory of an accelerator, such as 40GB."
        ),
    ] = None
    items: Annotated[
        float | None,
        _objective(
            "--items",
            metavar="NUMBER",
            parse=read_items,
            default_text="1M; 1 with --to-quality",
            help="Images, sequences or tokens to compute.\nSuch as those of an epoch; time and cost are for them.",
        ),
    ] = None
    to_quality: Annotated[
        bool,
        _objective(
            "--to-quality",
            page="../how-to/choose-hardware.md#time-to-train",
            help="Times of a whole training.\nTo the quality that MLPerf requires of the workload's model.",
        ),
    ] = False
    carbon_intensity: Annotated[
        float | None,
        _objective(
            "--carbon-intensity",
            metavar="GRAMS",
            parse=read_intensity,
            help="Grams of CO2 for a kWh of your electricity.\nThe report states the grams of each machine then.",
        ),
    ] = None
    nodes: Annotated[int, _objective("--nodes", metavar="NUMBER", minimum=1, help="Machines that work together.")] = 1

    @property
    def number(self) -> float:
        """Number of items, or of trainings."""
        return self.items or (1.0 if self.to_quality else 1e6)


MOST_ITEMS_OF_STEP = 10**9
"""Largest batch and length."""


def read_count(text: str) -> int:
    """Read a batch or a length, from 1 to :data:`MOST_ITEMS_OF_STEP`.

    Raises:
        InputError: If it is not one.
    """
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_ITEMS_OF_STEP)) else 0
    if not 1 <= number <= MOST_ITEMS_OF_STEP:
        raise InputError(f"`{text}` is not a whole number from 1 to {MOST_ITEMS_OF_STEP:.0e}")
    return number


@option_group
@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """What must fit into the memory of an accelerator."""

    batch: Annotated[
        int | None,
        _memory(
            "--batch",
            metavar="NUMBER",
            parse=read_count,
            help="Items of a step on each accelerator.\nMachines whose memory is too small for them are excluded.",
        ),
    ] = None
    model: Annotated[
        str | None,
        _memory(
            "--model",
            metavar="MODEL",
            help="A `config.json`, or the name of a model.\n"
            "The file is that of a model of Hugging Face. By default, it is the model of the workload.",
        ),
    ] = None
    length: Annotated[
        int | None, _memory("--length", metavar="NUMBER", parse=read_count, help="Tokens of an item of text.")
    ] = None
    optimizer: Annotated[
        str | None,
        _memory(
            "--optimizer",
            metavar="NAME",
            default_text="adamw",
            help="sgd, momentum, adam, adamw or adam-8bit.\nThe optimizer of a workload that trains.",
        ),
    ] = None
    checkpointing: Annotated[
        bool, _memory("--checkpointing", help="Compute each layer again in the backward pass.")
    ] = False
    sharded: Annotated[
        bool,
        _memory(
            "--sharded",
            help="Weights, gradients and the state of the optimizer are divided among all accelerators.\n"
            "As FSDP's FULL_SHARD and ZeRO stage 3 do it. In inference, weights and cache are divided among the "
            "accelerators of each machine (tensor parallelism).",
        ),
    ] = False


Project = ProjectFiles | Path | str
"""A project: its directory, or its files."""


def listed(values: Sequence[Any] | Path | str) -> Sequence[Any]:
    """Return values as a sequence: one text or path is one value."""
    return (values,) if isinstance(values, str | Path) else values


GROUPS: list[type] = [ProjectFiles, TargetOptions, ResolutionOptions, IndexOptions]
"""The groups whose options `[tool.advisor]` sets."""


def at_least_one(name: str, value: int) -> None:
    """Raise an `InputError` for the argument of a name whose value is less than 1."""
    if value < 1:
        raise InputError(f"`{name}` must be at least 1, not {value}")

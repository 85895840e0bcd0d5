"""Options of the API functions, in groups: project files, target, package indexes, resolution."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knowledge.domain.errors import InputError

if TYPE_CHECKING:
    from advisor.project.interface import ProjectRequirements
    from advisor.resolve.candidates.problem import AllowedReplacements, CandidatePolicy


@dataclass(frozen=True, kw_only=True)
class ProjectFiles:
    """Files that state what a project requires, and what it has installed.

    Attributes:
        directory: Directory of the project.
        requirements: Requirements files to read instead of the project's own files.
        constraints: Constraints files, as ``pip install -c``.
        overrides: Files whose requirements replace all other requirements on the same packages.
        extras: Extras of the project.
        groups: Dependency groups of the project (PEP 735).
        current: Lock file or Python interpreter that holds the present stack; by default the project's lock.
    """

    directory: Path = Path(".")
    requirements: tuple[Path, ...] = ()
    constraints: tuple[Path, ...] = ()
    overrides: tuple[Path, ...] = ()
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    current: str | None = None

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


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Machine and interpreter to resolve for.

    Attributes:
        names: Targets of ``[tool.advisor.targets]``.
        hardware: A shipped profile, a YAML or JSON file, or ``detect``; by default the project's setting, else this
            machine.
        python: Version of the interpreter, or ``best`` for the one with the best-scored stack; by default the project's
            setting, else the running one.
        platform: Platform tag, such as ``manylinux_2_28_x86_64``; by default that of the hardware.
    """

    names: tuple[str, ...] = ()
    hardware: str | None = None
    python: str | None = None
    platform: str | None = None


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Package indexes, and the cache of what they answer.

    Attributes:
        index_url: Default index; replaces every index that pip and uv are configured to use.
        extra_index_urls: Further indexes.
        find_links: Directories of distribution files.
        package_indexes: Address of the only index of a package, by package name.
        framework_indexes: Whether further builds of frameworks are taken from their publishers' indexes; by default the
            project's setting, else not.
        strategy: ``first-index`` or ``unsafe-best-match``; by default as uv is configured.
        cache_directory: Cache directory; by default the user's.
        offline: Whether to answer from the cache alone.
        refresh: Whether to request index pages even if they are fresh.
        advisories: Address of a service with the API of OSV, for versions without a record on the index, or ``off``; by
            default the project's setting, else OSV.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    package_indexes: Mapping[str, str] = field(default_factory=dict)
    framework_indexes: bool | None = None
    strategy: str | None = None
    cache_directory: Path | None = None
    offline: bool = False
    refresh: bool = False
    advisories: str | None = None


@dataclass(frozen=True, kw_only=True)
class ResolutionOptions:
    """What the best stack is, and which files may be part of it.

    Attributes:
        objective: ``performance``, ``latest``, ``stable``, ``security`` or ``size``; by default the project's setting,
            else ``performance``.
        workload: Workload that predictions are for; by default the project's setting, else what its sources suggest.
        min_age_days: Age below which objective ``stable`` avoids a release, in days.
        min_gain: Smallest gain of speed for which another stack than the newest one is recommended, such as ``3%`` or
            ``0.03``; by default the project's setting, else 3 %.
        knowledge: Address of the knowledge base; by default the user's own.
        prereleases: Whether pre-releases are candidates.
        only_binary: Packages never taken from an sdist; ``:all:`` for every package.
        no_binary: Packages never taken from a wheel; ``:all:`` for every package.
        build_project: Whether the project itself may be built to learn what it requires, which runs its code.
        build_sdists: Whether the project and sdists may be built to learn what they require, which runs their code.
        allow: What is allowed in addition: ``replace-packages``, to take other packages with the same modules where the
            hardware of the target decides that they fit; ``reduced-precision``, to recommend run-time settings with a
            lower precision.
        recommend_settings: Whether run-time settings are recommended, and count when versions are compared; by default
            the project's setting, else yes.
        exclude_newer: Files uploaded later are ignored; without a time zone it is UTC.
        preview: Preview features: ``variants``; by default the project's setting, else none.
        max_size: Largest admissible download of the stack, such as ``2GB``; by default the project's setting, else no
            limit.
        workers: Threads of the solver.
        time_limit: Time limit of the search for each target, in seconds.
    """

    objective: str | None = None
    workload: str | None = None
    min_age_days: int | None = None
    min_gain: str | None = None
    knowledge: str | None = None
    prereleases: bool = False
    only_binary: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    build_project: bool = False
    build_sdists: bool = False
    allow: tuple[str, ...] = ()
    recommend_settings: bool | None = None
    exclude_newer: datetime | None = None
    preview: tuple[str, ...] | None = None
    max_size: str | None = None
    workers: int = 1
    time_limit: float = 300.0


def at_least_one(name: str, value: int) -> None:
    """Check a number that must be at least 1.

    Args:
        name: Name of the argument.
        value: Its value.

    Raises:
        InputError: If it is less than 1.
    """
    if value < 1:
        raise InputError(f"`{name}` must be at least 1, not {value}")


def candidate_policy(resolution: ResolutionOptions, project: ProjectRequirements) -> CandidatePolicy:
    """Return which files may become candidates, by the options and the files of a project.

    Args:
        resolution: The options.
        project: What the files contain.

    Raises:
        InputError: If there is no preview feature of a name.
    """
    from packaging.utils import canonicalize_name

    from advisor.domain.preview import VARIANTS, check_previews
    from advisor.resolve.candidates.problem import CandidatePolicy

    def names(words: Sequence[str]) -> frozenset[str]:
        return frozenset(word if word == ":all:" else canonicalize_name(word) for word in words)

    preview = resolution.preview
    previews = check_previews(project.settings.get("preview", ()) if preview is None else preview)
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
        variants=VARIANTS in previews,
    )


def read_allowed_replacements(resolution: ResolutionOptions, settings: Mapping[str, Any]) -> AllowedReplacements:
    """Return which packages may replace others.

    Raises:
        InputError: If the options or the settings allow something that does not exist.
    """
    from packaging.utils import canonicalize_name

    from advisor.api.configuration import check_allowed
    from advisor.resolve.candidates.problem import AllowedReplacements

    allow = (*resolution.allow, *settings.get("allow", ()))
    check_allowed(allow)
    replacements = settings.get("replace-packages", {})
    if replacements:
        from advisor.resolve.recommendation.package_choices import check_replacement

        for name, other in replacements.items():
            check_replacement(name, other)
    return AllowedReplacements(
        by_hardware="replace-packages" in allow,
        by_name={canonicalize_name(name): canonicalize_name(other) for name, other in replacements.items()},
    )


def allows_reduced_precision(resolution: ResolutionOptions, settings: Mapping[str, Any]) -> bool:
    """Return whether run-time settings with a lower precision may be chosen."""
    return "reduced-precision" in (*resolution.allow, *settings.get("allow", ()))


def recommends_settings(resolution: ResolutionOptions, settings: Mapping[str, Any]) -> bool:
    """Return whether run-time settings are recommended, and count when versions are compared."""
    option = resolution.recommend_settings
    return bool(settings.get("recommend-settings", True)) if option is None else option


def read_max_size(text: str | None) -> int | None:
    """Read the largest admissible download, in bytes; none if there is no limit.

    Raises:
        InputError: If it is not a size.
    """
    from advisor.domain.words import parse_size
    from knowledge.domain.errors import InputError

    if text is None:
        return None
    size = parse_size(text)
    if size is None:
        raise InputError(f"`{text}` is not a size", hint="write it as `--max-size 2GB` or `500MB`")
    return size


def read_min_gain(text: str) -> float:
    """Read the smallest gain of speed that counts, a percentage or a fraction; return the fraction.

    Raises:
        InputError: If it is neither, negative, or 100 % or more.
    """
    from knowledge.domain.errors import InputError

    number, sign, _ = text.partition("%")
    try:
        gain = float(number) / (100 if sign else 1)
    except ValueError:
        gain = math.nan
    if not 0 <= gain < 1 or text not in (number, f"{number}%"):
        raise InputError(f"`{text}` is not a gain of speed", hint="write it as `--min-gain 3%` or `0.03`")
    return gain


def read_days(text: str) -> int:
    """Read a number of days.

    Raises:
        InputError: If it is not a whole number of days.
    """
    from knowledge.domain.errors import InputError

    if not (text.isascii() and text.isdigit()):
        raise InputError(f"`{text}` is not a number of days", hint="write it as `--min-age 14`")
    return int(text)

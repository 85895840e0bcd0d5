"""The requirements of a project, independent of the file format, and helpers that all readers share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from advisor.domain.requirement import RootRequirement
from knowledge.domain.errors import InputError
from knowledge.domain.lines import lines_of
from knowledge.domain.requirements import requirement_from

_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRequirements:
    """Requirements and settings of a project.

    Attributes:
        roots: Requirements and constraints.
        requires_python: Specifier of the supported interpreters, or none.
        index_url: Default index, or none.
        extra_index_urls: Further indexes.
        find_links: Directories with distributions.
        trusted_hosts: Hosts whose certificates are not verified, as requirements files say.
        bindings: By package, the address of the only index that it comes from.
        overrides: Requirements that replace every requirement on the same package.
        only_binary: Packages that are never installed from an sdist; ``:all:`` for every package.
        no_binary: Packages that are never installed from a wheel; ``:all:`` for every package.
        prereleases: Whether pre-releases of every package are allowed.
        settings: The ``[tool.advisor]`` table.
        files: Files that were read, for messages.
        skipped: Files that were not read, each with the reason.
    """

    roots: tuple[RootRequirement, ...]
    requires_python: str | None = None
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    bindings: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[RootRequirement, ...] = ()
    only_binary: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    prereleases: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@contextmanager
def shape_checked(path: Path) -> Iterator[None]:
    """Convert the exceptions of reading a document with values of the wrong type to an error that names the file.

    Args:
        path: The file.

    Raises:
        InputError: If such an exception occurs.
    """
    try:
        yield
    except (AttributeError, TypeError, KeyError, IndexError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"`{path}` has a value of the wrong type: {reason}",
            hint="look for a table where a list or a string belongs, or the reverse",
        ) from None


def settings_requirements(
    settings: Mapping[str, Any], key: str, *, constraint: bool = False
) -> tuple[RootRequirement, ...]:
    """Return the requirements in a list of ``[tool.advisor]``.

    Raises:
        InputError: If a requirement is malformed.
    """
    origin = f"tool.advisor.{key}"
    return tuple(
        RootRequirement(requirement=parse_requirement(text, origin), origin=origin, constraint=constraint)
        for text in settings.get(key, ())
    )


def line_of(path: Path, text: str, part: str) -> str:
    """Return ``FILE:LINE`` of the first line that contains a text; empty if no line contains it."""
    for number, content in enumerate(lines_of(text), start=1):
        if part in content:
            return f"{path.name}:{number}"
    return ""


def parse_requirement(text: str, origin: str) -> Requirement:
    """Parse one requirement.

    Args:
        text: The requirement (PEP 508).
        origin: File and line, for messages.

    Raises:
        InputError: If it is malformed, or requires a URL instead of a version.
    """
    try:
        requirement = requirement_from(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{origin}: `{text}` is not a requirement: {reason}", hint="write it as `name>=1.0; marker`"
        ) from None
    if requirement.url:
        raise not_supported(text, origin)
    return requirement


def defined_source(source: Any, sources: Mapping[str, str], package: str, place: str) -> str:
    """Return the address of a package's source.

    Args:
        source: Name of the source.
        sources: Addresses of the sources that the project defines, by name.
        package: The package, for messages.
        place: File and line, for messages.

    Raises:
        InputError: If the source is not defined; the package would be taken from another index.
    """
    if source not in sources:
        raise InputError(
            f"{place}: `{package}` comes from the source `{source}`, which is not defined",
            hint=f"the project defines {', '.join(f'`{name}`' for name in sources) or 'no source'}",
        )
    return sources[source]


def filled_address(url: str, place: str) -> str:
    """Return the address of an index with its environment variables (`${NAME}`) replaced by their values.

    Args:
        url: The address.
        place: File and line, for messages.

    Raises:
        InputError: If a variable is not set; without the index, a package would be taken from another one.
    """
    for name in _VARIABLE.findall(url):
        if name not in os.environ:
            raise InputError(
                f"{place}: the address of an index contains the variable `{name}`, which is not set",
                hint=f"set `{name}` in the environment",
            )
    return _VARIABLE.sub(lambda match: os.environ[match[1]], url)


def not_supported(text: str, origin: str) -> InputError:
    """Return the error for a requirement on a URL, a path or a repository."""
    return InputError(
        f"{origin}: `{text}` is a URL, path or VCS requirement, which is not supported",
        hint="require a version from an index, or leave this requirement out with `--requirements FILE`",
    )


def merge_requirements(parts: Sequence[ProjectRequirements]) -> ProjectRequirements:
    """Return the requirements and index options of several files; messages about what was not read are left out.

    Args:
        parts: The files, at least one; later index options come before earlier ones.
    """
    merged = replace(parts[0], roots=_roots_with_path(parts[0]))
    for part in parts[1:]:
        merged = replace(
            merged,
            roots=merged.roots + _roots_with_path(part),
            requires_python=merged.requires_python or part.requires_python,
            index_url=part.index_url or merged.index_url,
            extra_index_urls=merged.extra_index_urls + part.extra_index_urls,
            find_links=merged.find_links + part.find_links,
            trusted_hosts=merged.trusted_hosts + part.trusted_hosts,
            bindings={**merged.bindings, **part.bindings},
            only_binary=merged.only_binary + part.only_binary,
            no_binary=merged.no_binary + part.no_binary,
            prereleases=merged.prereleases or part.prereleases,
            settings={**merged.settings, **part.settings},
            files=merged.files + part.files,
        )
    return merged


def _roots_with_path(part: ProjectRequirements) -> tuple[RootRequirement, ...]:
    """Return the requirements of a file, with the path of the file if the reader did not set one."""
    return tuple(root if root.path or not part.files else replace(root, path=part.files[0]) for root in part.roots)

"""What a project asks for, whatever file it says so in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    """What was read of a project.

    Attributes:
        roots: Requirements and constraints.
        requires_python: Specifier of the interpreters the project supports, or none.
        index_url: Default index that a requirements file names, or none.
        extra_index_urls: Further indexes that requirements files name.
        find_links: Directories that requirements files name.
        trusted_hosts: Hosts whose certificates requirements files say are not to be checked.
        bindings: By package, the address of the one index that it comes from.
        overrides: Requirements that stand in for every requirement on their package.
        settings: The ``[tool.advisor]`` table.
        files: Files that were read, for people.
        skipped: Files of the project that were not read, each with the reason.
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
    """Turn a document whose parts are of other kinds than its format says into an error that names the file.

    Raises:
        InputError: Where reading it trips over such a part.
    """
    try:
        yield
    except (AttributeError, TypeError, KeyError, IndexError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"`{path}` is not shaped as its format says: {reason}",
            hint="look for a table where a list or a text belongs, or the other way round",
        ) from None


def settings_requirements(
    settings: Mapping[str, Any], key: str, *, constraint: bool = False
) -> tuple[RootRequirement, ...]:
    """Return the requirements that a list of ``[tool.advisor]`` holds.

    Raises:
        InputError: If one is malformed.
    """
    origin = f"tool.advisor.{key}"
    return tuple(
        RootRequirement(requirement=parse_requirement(text, origin), origin=origin, constraint=constraint)
        for text in settings.get(key, ())
    )


def line_of(path: Path, text: str, part: str) -> str:
    """Return the file and the first line that holds a part of it; empty where none does."""
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
        InputError: If it is malformed, or names an address instead of a version.
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
    """Return the address of the source that a package names.

    Args:
        source: The name of the source.
        sources: The addresses of those that the project defines, by name.
        package: The package, for messages.
        place: File and line, for messages.

    Raises:
        InputError: If it is not defined: the package would come from another index.
    """
    if source not in sources:
        raise InputError(
            f"{place}: `{package}` comes from the source `{source}`, which is not defined",
            hint=f"the project defines {', '.join(f'`{name}`' for name in sources) or 'no source'}",
        )
    return sources[source]


def filled_address(url: str, place: str) -> str:
    """Return an index's address with the environment variables that it names (`${NAME}`) filled in.

    Args:
        url: The address.
        place: File and line, for messages.

    Raises:
        InputError: If a variable is not set: without its index, a package would come from another one.
    """
    for name in _VARIABLE.findall(url):
        if name not in os.environ:
            raise InputError(
                f"{place}: the address of an index names the variable `{name}`, which is not set",
                hint=f"set `{name}` in the environment",
            )
    return _VARIABLE.sub(lambda match: os.environ[match[1]], url)


def not_supported(text: str, origin: str) -> InputError:
    """Return the error for a requirement on an address, a path or a repository."""
    return InputError(
        f"{origin}: `{text}` is a URL, path or VCS requirement, which is not supported",
        hint="require a version from an index, or leave this requirement out with `--requirements FILE`",
    )

"""The requirements of a project, independent of the file format, and helpers that all readers share.

Each helper raises an `InputError` for a value that is malformed; its message says where the value is.
"""

from __future__ import annotations

import os
import platform as this_machine
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from advisor.domain.direct_reference import DirectReference, parse_direct_reference
from advisor.domain.requirement import RootRequirement
from advisor.domain.target import NEWEST_PYTHON, Target
from advisor.domain.words import quoted
from advisor.index.metadata.core import CoreMetadata
from advisor.project.package_sources import PackageSource
from advisor.project.text_file import TomlFile, read_toml
from knowledge.domain.documents import requirement_from, specifiers_from
from knowledge.domain.errors import InputError

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_OLDEST = 6
"""Minor version of the oldest CPython 3 that is tried."""
_MOST_PATCHES = 30


class UnbuiltProjectError(InputError):
    """Raised when the requirements of the project itself are only known after a build, and builds were not allowed."""

    code = "unbuilt-project"

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            hint="`--build-project` builds its metadata, which runs its code; or pass the file that lists the "
            "requirements with `--requirements FILE`",
        )


class NoRequirementsError(InputError):
    """Raised when a directory has no file with requirements."""

    code = "no-requirements"


ProjectBuilder = Callable[[Path], CoreMetadata]
"""Builds the metadata of the project in a directory, which runs its code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedParts:
    """What the user selected of a project.

    Attributes:
        extras: Extras of the project to include.
        groups: Dependency groups to include.
        build: Builds the metadata of the project if its requirements are only known after a build, which may end with
            a `BuildError`; `None` to refuse this with an :class:`UnbuiltProjectError`.
    """

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    build: ProjectBuilder | None = None


NOTHING = SelectedParts()
"""Neither extras nor groups, and no build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRequirements:
    """Requirements and settings of a project.

    Attributes:
        roots: Requirements and constraints.
        requires_python: Specifier of the supported interpreters, or `None`.
        index_url: Default index, or `None`.
        extra_index_urls: Further indexes.
        supplemental_index_urls: Indexes that are searched for what no other index has.
        find_links: Directories with distributions.
        trusted_hosts: Hosts whose certificates are not verified, as requirements files say.
        bindings: By package, the address of the only index that it comes from.
        sources: By package, places that it may come from; the first that applies on a target is used.
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
    supplemental_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    bindings: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[PackageSource, ...]] = field(default_factory=dict)
    overrides: tuple[RootRequirement, ...] = ()
    only_binary: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    prereleases: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def on_target(self, target: Target) -> ProjectRequirements:
        """Return the project with each package taken from the first of its sources that applies on a target."""
        source_by_name: dict[str, PackageSource] = {}
        for name, sources in self.sources.items():
            source = next((source for source in sources if source.applies(target)), None)
            if source is not None and name not in self.settings.get("package-index", {}):
                source_by_name[name] = source

        def with_source(root: RootRequirement) -> RootRequirement:
            source = source_by_name.get(root.name)
            return root if root.direct or source is None else replace(root, direct=source.reference)

        return replace(
            self,
            roots=tuple(map(with_source, self.roots)),
            overrides=tuple(map(with_source, self.overrides)),
            bindings={
                **self.bindings,
                **{name: source.index for name, source in source_by_name.items() if source.index},
            },
            sources={},
        )


@contextmanager
def opened_toml(path: Path) -> Iterator[TomlFile]:
    """Yield a file in TOML; reading a value of the wrong type from it becomes an :class:`InputError` with its name."""
    file = read_toml(path)
    try:
        yield file
    except (AttributeError, TypeError, KeyError, IndexError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"`{path}` has a value of the wrong type: {reason}",
            hint="look for a table where a list or a string belongs, or the reverse",
        ) from None


def settings_requirements(
    settings: Mapping[str, Any], key: str, *, constraint: bool = False
) -> tuple[RootRequirement, ...]:
    """Return the requirements in a list of ``[tool.advisor]``."""
    origin = f"tool.advisor.{key}"
    roots = (parse_root(text, origin, Path()) for text in settings.get(key, ()))
    return tuple(replace(root, constraint=constraint) for root in roots)


def check_available(names: Iterable[str], available: Collection[str], path: Path, *, kind: str = "extra") -> None:
    """Raise an :class:`InputError` if a file does not have one of the parts that the user selected."""
    for name in names:
        if name not in available:
            raise InputError(f"`{path}` has no {kind} `{name}`", hint=f"it has {quoted(sorted(available)) or 'none'}")


def table_in(document: Mapping[str, Any], key: str, path: Path, *, parent: str = "") -> Mapping[str, Any]:
    """Return a table of a document, or of the table ``parent`` (with a point at its end), empty if there is none."""
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise InputError(f"`{path}`: `{parent}{key}` is not a table")
    return table


def python_specifier(text: str | None, place: str) -> str | None:
    """Return the specifier of the supported interpreters; `None` if there is none."""
    try:
        return None if text is None else str(specifiers_from(text))
    except InvalidSpecifier:
        raise InputError(f"{place} `{text}` is not a version specifier") from None


def parse_requirement(text: str, origin: str) -> Requirement:
    """Parse one requirement, which may have an address."""
    try:
        return requirement_from(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{origin}: `{text}` is not a requirement: {reason}", hint="write it as `name>=1.0; marker`"
        ) from None


def parse_root(text: str, origin: str, folder: Path, *, direct: DirectReference | None = None) -> RootRequirement:
    """Parse one requirement of the user.

    Args:
        text: The requirement (PEP 508).
        origin: File and line, for messages.
        folder: Folder that a relative path in it starts at.
        direct: Where the package comes from, if the text does not say it.
    """
    requirement = parse_requirement(text, origin)
    if requirement.url is None:
        return RootRequirement(requirement=requirement, origin=origin, direct=direct)
    marker = str(requirement.marker or "")
    return direct_root(requirement.url, origin, folder, name=requirement.name, extras=requirement.extras, marker=marker)


def direct_root(
    address: str,
    origin: str,
    folder: Path,
    *,
    name: str = "",
    extras: Iterable[str] = (),
    marker: str = "",
    editable: bool = False,
) -> RootRequirement:
    """Return the requirement for an address or a path.

    Args:
        address: The address or path.
        origin: File and line, for messages.
        folder: Folder that a relative path starts at.
        name: Name of the package; empty if only the address may contain it.
        extras: Extras of the package.
        marker: Environment marker; empty if it always applies.
        editable: Whether changes of the package apply immediately.
    """
    try:
        parsed = parse_direct_reference(address, folder, editable=editable)
        written_name = name or parsed.name
        requirement = Requirement(written_name or parsed.reference.guessed_name)
        requirement.extras = {*extras, *parsed.extras}
        requirement.marker = Marker(marker) if marker else None
    except (ValueError, InvalidMarker, InvalidRequirement) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{origin}: `{address}` is not an address or a path of a package: {reason}",
            hint="write it as `name @ https://...`, `name @ git+https://...@TAG` or `./directory`",
        ) from None
    has_name = bool(written_name) or parsed.reference.filename.endswith(".whl")
    return RootRequirement(
        requirement=requirement,
        origin=origin,
        hashes=frozenset({parsed.reference.sha256} - {""}),
        direct=parsed.reference,
        has_guessed_name=not has_name,
    )


def requirement_text(name: str, version: str, *, extras: Iterable[Any] = (), marker: str = "") -> str:
    """Return a requirement (PEP 508) of its parts; a version `*` accepts all."""
    extras_text = f"[{','.join(map(str, extras))}]" if extras else ""
    return f"{name}{extras_text}{'' if version.strip() == '*' else version}{f' ; {marker}' if marker else ''}"


def parse_direct(address: str, origin: str) -> DirectReference:
    """Parse the address of a package, or a path."""
    try:
        return parse_direct_reference(address, Path()).reference
    except ValueError as error:
        raise InputError(f"{origin}: `{address}` is not an address or a path of a package: {error}") from None


def defined_source(source: Any, sources: Mapping[str, str], package: str, place: str) -> str:
    """Return the address of the source of a package, from those that the project defines.

    Raises:
        InputError: If the source is not defined; the package would be taken from another index.
    """
    if source not in sources:
        raise InputError(
            f"{place}: `{package}` comes from the source `{source}`, which is not defined",
            hint=f"the project defines {quoted(sources) or 'no source'}",
        )
    return sources[source]


def filled_address(url: str, place: str) -> str:
    """Return the address of an index with its environment variables (`${NAME}`) replaced by their values.

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


def merge_requirements(parts: Sequence[ProjectRequirements]) -> ProjectRequirements:
    """Return the requirements and index options of several files without messages; the last default index counts."""
    merged = replace(parts[0], roots=_roots_with_path(parts[0]))
    for part in (replace(part, roots=_roots_with_path(part)) for part in parts[1:]):
        joined = {name: _joined(getattr(merged, name), getattr(part, name)) for name in ProjectRequirements.__slots__}
        merged = replace(
            merged, **{**joined, "index_url": part.index_url or merged.index_url, "skipped": merged.skipped}
        )
    return merged


def _joined(first: Any, second: Any) -> Any:
    """Return lists one after the other, tables with the entries of both, and of other values the first that is set."""
    if isinstance(first, Mapping):
        return {**first, **second}
    return first + second if isinstance(first, tuple) else first or second


def _roots_with_path(part: ProjectRequirements) -> tuple[RootRequirement, ...]:
    """Return the requirements of a file, with the path of the file if the reader did not set one."""
    return tuple(root if root.path or not part.files else replace(root, path=part.files[0]) for root in part.roots)


def supported_pythons(required: str | None) -> tuple[str, ...]:
    """Return the released CPythons that a specifier admits, newest first, one for each minor version."""
    specifier = SpecifierSet(required or "")
    versions = []
    for minor in range(NEWEST_PYTHON - 1, _OLDEST - 1, -1):
        patches = (f"3.{minor}.{patch}" for patch in range(_MOST_PATCHES))
        admitted = next((text for text in patches if specifier.contains(text)), None)
        if admitted is not None:
            versions.append(admitted.removesuffix(".0"))
    return tuple(versions)


def supports_own_python(project: ProjectRequirements) -> bool:
    """Whether a project supports the interpreter of this program."""
    required = project.requires_python
    return not required or SpecifierSet(required).contains(this_machine.python_version(), prereleases=True)


def pythons_to_compare(project: ProjectRequirements) -> tuple[str, ...]:
    """Return the interpreters that a project supports, newest first."""
    pythons = supported_pythons(project.requires_python)
    if not pythons:
        raise InputError(
            f"no released Python satisfies `{project.requires_python}`, which the project requires",
            hint="correct `requires-python`, or choose an interpreter with `--python`",
        )
    return pythons

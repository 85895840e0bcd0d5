"""Reads conda environments: `environment.yml`, and `pixi.toml`.

Their packages of the package index are read as in a requirements file. A conda package is read if its name on the
package index is certain (`conda_names.yaml`); the others are reported. Versions are converted from conda's syntax:
https://docs.conda.io/projects/conda-build/en/stable/resources/package-spec.html#package-match-specifications.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name

from advisor.domain.requirement import RootRequirement
from advisor.domain.words import quoted
from advisor.project.formats.requirements import read_requirement_lines
from advisor.project.interface import ProjectRequirements, check_available, opened_toml, parse_root, requirement_text
from advisor.project.package_sources import reference_of
from advisor.project.text_file import TomlFile, read_text
from knowledge.domain.documents import specifiers_from
from knowledge.domain.errors import InputError
from knowledge.records import shipped_yaml

ENVIRONMENTS = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
"""Names of files with a conda environment."""

_SPECIFICATION = re.compile(r"(?:[^\s:]+::)?(?P<name>[A-Za-z0-9_][\w.-]*)\s*(?P<version>[^\[]*)(?:\[(?P<keys>.*)\])?")
_VERSION_KEY = re.compile(r"version\s*=\s*(?:'([^']*)'|\"([^\"]*)\")")
_OPERATOR = re.compile(r"(==|!=|>=|<=|~=|=|>|<)\s*")
_tables = partial(shipped_yaml, "advisor.project.formats", "conda_names.yaml")
"""Returns the tables of names."""
_INSTALLERS = frozenset({"pip", "conda", "uv"})
_MOST_NAMES = 20
"""Maximum number of packages in a message."""


@dataclass(kw_only=True)
class _CondaPackages:
    """Conda packages that were read from a file.

    Attributes:
        roots: Those with a name on the package index, as requirements.
        unresolved: Names of the others.
        python: Specifier of the interpreter; `None` if every one is accepted.
    """

    roots: list[RootRequirement] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    python: str | None = None

    def add(self, name: str, version: str, origin: str, marker: str = "") -> None:
        """Add a conda package; its version is in conda's syntax, and empty if every one is accepted."""
        normalised = canonicalize_name(name)
        if normalised in _INSTALLERS:
            return
        index_name = _index_names().get(normalised)
        if index_name is None and normalised != "python":
            self.unresolved.append(name)
            return
        try:
            specifier = specifier_of(version)
            specifiers_from(specifier)
        except (ValueError, InvalidSpecifier):
            raise InputError(
                f"{origin}: `{version}` is not a version of the conda package `{name}` that a requirement can express",
                hint="write it as `NAME=1.2`, `NAME==1.2.3` or `NAME>=1.2,<2`",
            ) from None
        if index_name is None:
            self.python = _without_patch(specifier) or None
        else:
            self.roots.append(parse_root(requirement_text(index_name, specifier, marker=marker), origin, Path()))

    def messages(self, path: Path) -> tuple[str, ...]:
        """Return a message about the packages that are not resolved."""
        names = list(dict.fromkeys(self.unresolved))
        if not names:
            return ()
        return (
            f"conda packages of `{path.name}` that are not resolved, because no package of the index certainly is the "
            f"same: {quoted(names, _MOST_NAMES)}",
        )


def read_environment(path: Path) -> ProjectRequirements:
    """Read a conda environment (`environment.yml`)."""
    # Slow to import, and few projects have such a file.
    import yaml

    text = read_text(path)
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(f"`{path}` is not valid YAML: {' '.join(str(error).split())}") from None
    entries = dict(_pairs(document)).get("dependencies")
    if not isinstance(entries, yaml.SequenceNode):
        raise InputError(f"`{path}` has no list `dependencies`: it is not a conda environment")
    packages = _CondaPackages()
    lines: list[tuple[int, str]] = []
    for entry in entries.value:
        if isinstance(entry, yaml.ScalarNode):
            origin = f"{path.name}:{entry.start_mark.line + 1}"
            packages.add(*_parts(str(entry.value), origin), origin)
            continue
        for installer, value in _pairs(entry):
            if installer != "pip" or not isinstance(value, yaml.SequenceNode):
                place = f"{path.name}:{entry.start_mark.line + 1}"
                raise InputError(f"{place}: `{installer}` is not the list `pip`", hint="write it as `- pip:`")
            lines += [(line.start_mark.line + 1, str(line.value)) for line in value.value]
    project = read_requirement_lines(path, lines)
    return replace(
        project,
        roots=(*packages.roots, *project.roots),
        requires_python=packages.python,
        skipped=packages.messages(path),
    )


def read_pixi(path: Path, *, groups: Iterable[str] = ()) -> ProjectRequirements:
    """Read `pixi.toml`: `dependencies` and `pypi-dependencies` of the workspace and of the selected features.

    Source: https://pixi.sh/latest/reference/pixi_manifest/.
    """
    with opened_toml(path) as file:
        features = file.at("feature")
        selected = tuple(groups)
        check_available(selected, features, path, kind="feature")
        return _read_pixi(file, [file.document, *(features[group] for group in selected)])


def _read_pixi(file: TomlFile, tables: Sequence[Mapping[str, Any]]) -> ProjectRequirements:
    path = file.path
    packages = _CondaPackages()
    roots: list[RootRequirement] = []
    bindings: dict[str, str] = {}
    for table, marker in _with_targets(tables):
        for name, value in table.get("dependencies", {}).items():
            version = value.get("version", "*") if isinstance(value, dict) else value
            packages.add(name, str(version), file.entry_place(name), marker)
        for name, value in table.get("pypi-dependencies", {}).items():
            origin = file.entry_place(name)
            own = _without_replaced(table, name, marker)
            direct = reference_of(value, path.parent, origin)
            roots.append(parse_root(_pypi_line(name, value, own, origin), origin, path.parent, direct=direct))
            if isinstance(value, dict) and "index" in value:
                bindings[canonicalize_name(name)] = str(value["index"])
    options = (file.at("workspace") or file.at("project")).get("pypi-options", {})
    options = {**options, **file.at("pypi-options")}
    return ProjectRequirements(
        roots=(*packages.roots, *roots),
        requires_python=packages.python,
        index_url=options.get("index-url"),
        extra_index_urls=tuple(map(str, options.get("extra-index-urls", ()))),
        bindings=bindings,
        files=(str(path),),
        skipped=packages.messages(path),
    )


def specifier_of(version: str) -> str:
    """Convert a version of a conda package, such as `=1.2`, `>=1.2,<2` or `=1.2.3=py38_0`, to a specifier (PEP 440).

    Raises:
        ValueError: If a specifier cannot express it.
    """
    text = _OPERATOR.sub(r"\1", re.sub(r"\s*,\s*", ",", version.strip()))
    if text in ("", "*", "=*"):
        return ""
    if "|" in text:
        raise ValueError("alternatives")
    # `NAME=VERSION=BUILD` and `NAME VERSION BUILD` select one build of one version.
    words = text.split()
    match = re.fullmatch(r"={1,2}([^=,<>!~]+)=([^=,<>!~]+)", words[0])
    if match or len(words) == 2:
        return f"=={(match[1] if match else words[0].lstrip('='))}"
    if len(words) > 2:
        raise ValueError("several words")
    return ",".join(map(_clause, text.split(",")))


def _clause(text: str) -> str:
    """Convert one condition on a version: `=1.2` and `1.2*` accept 1.2 and 1.2.x, and `>=1.2.*` is `>=1.2`."""
    match = _OPERATOR.match(text)
    operator, number = (match[1], text[match.end() :]) if match else ("==", text)
    prefix = number.rstrip("*").rstrip(".")
    is_release = re.fullmatch(r"[\d.!]*", prefix) is not None
    # PEP 440 has no prefix of a pre-release: `=3.1.3b2` is that version.
    is_prefix = (operator == "=" and is_release) or (number.endswith("*") and operator in ("==", "!="))
    return f"{'==' if operator == '=' else operator}{prefix}{'.*' if is_prefix else ''}"


def _parts(text: str, origin: str) -> tuple[str, str]:
    """Return the name and the version of a conda package."""
    match = _SPECIFICATION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{origin}: `{text}` is not a conda package", hint="write it as `NAME=VERSION`")
    key = _VERSION_KEY.search(match["keys"] or "")
    return match["name"], (key[1] or key[2]) if key else match["version"]


def _without_patch(specifier: str) -> str:
    """Return a specifier of Python that accepts every patch release of an exact version."""
    return re.sub(r"==(\d+\.\d+)(?:\.[\d.]+)?(?:\.\*)?(?=,|$)", r"==\1.*", specifier)


def _with_targets(tables: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the tables of a manifest and of its platforms (`[target.linux-64]`), each with its marker."""
    platforms = _tables()["platforms"]
    for table in tables:
        yield table, ""
        for platform, own in table.get("target", {}).items():
            if platform not in platforms:
                raise ValueError(f"the platform `{platform}` is unknown")
            yield own, " and ".join(f"{variable} == '{name}'" for variable, name in platforms[platform].items())


def _without_replaced(table: Mapping[str, Any], name: str, marker: str) -> str:
    """Return the marker of a package: entries for a platform replace the entry for all platforms."""
    if marker:
        return marker
    replacing = [
        _tables()["platforms"][platform]
        for platform, own in table.get("target", {}).items()
        if any(canonicalize_name(other) == canonicalize_name(name) for other in own.get("pypi-dependencies", {}))
    ]
    negated = (" or ".join(f"{variable} != '{other}'" for variable, other in one.items()) for one in replacing)
    return " and ".join(f"({condition})" for condition in negated)


def _pypi_line(name: str, value: Any, marker: str, origin: str) -> str:
    """Return a package of the package index as a requirement."""
    options = value if isinstance(value, dict) else {"version": value}
    version = options.get("version", "*")
    if not isinstance(version, str) or not re.match(r"\s*([<>=!~*]|$)", version):
        raise InputError(f"{origin}: `{version}` is not a version of `{name}`", hint=f'write it as `{name} = "==1.2"`')
    return requirement_text(name, version, extras=options.get("extras", ()), marker=marker)


def _pairs(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a YAML mapping; nothing for another node."""
    if getattr(node, "id", "") == "mapping":
        for key, value in node.value:
            yield str(key.value), value


@cache
def _index_names() -> Mapping[str, str]:
    """Return the name on the package index of each conda package for which it is certain, by normalised name."""
    return {**{name: name for name in _tables()["same"].split()}, **_tables()["renamed"]}

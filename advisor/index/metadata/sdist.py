"""Core metadata of an sdist without a build.

The requirements in its ``PKG-INFO`` hold if that has metadata version 2.2 or newer and does not declare them as dynamic
(PEP 643). Otherwise those in the table ``project`` of its ``pyproject.toml`` hold, if that does not declare them as
dynamic: a build backend cannot add to a field that is not declared
(https://packaging.python.org/en/latest/specifications/pyproject-toml/#dynamic). If there is no such table, those of
Poetry and flit hold for the build backends of that name, which copy them
(https://python-poetry.org/docs/pyproject/, https://flit.pypa.io/en/stable/pyproject_toml.html#old-style-metadata). Name
and version are the file's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from advisor.index.metadata.core import header_of, parse_metadata
from knowledge.domain.documents import parse_toml, requirement_from, specifiers_from

_REPLACED = ("metadata-version", "requires-dist", "requires-python", "provides-extra", "dynamic")
_ADDRESSES = ("git", "url", "path", "file")
_MOST_CONSTRAINT_CHARACTERS = 2000
"""poetry-core needs time that is quadratic in the number of spaces."""
_DYNAMIC = frozenset({"dependencies", "optional-dependencies", "requires-python"})


def is_static(pkg_info: str) -> bool:
    """Whether the requirements in a ``PKG-INFO`` hold without a build, or it is malformed and cannot be completed."""
    try:
        return not parse_metadata(header_of(pkg_info)).dynamic
    except ValueError:
        return True


def static_metadata(pkg_info: str, pyproject: str | None) -> str:
    """Return the header of the core metadata of an sdist, with static requirements if there are any.

    Raises:
        ValueError: If the header of ``PKG-INFO`` is too long.
    """
    header = header_of(pkg_info)
    if pyproject is None or is_static(pkg_info):
        return header
    try:
        document = parse_toml(pyproject)
        name, lines = _stated(document)
        if canonicalize_name(name) != parse_metadata(header).name:
            return header
    except Exception:  # Besides errors of values, poetry-core raises exceptions of a parser that it vendors.
        # A build reports what is wrong with it.
        return header
    return "\n".join(["Metadata-Version: 2.2", *_other_lines(header), *lines]) + "\n"


def _stated(document: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the name of a project and the fields of its requirements; any exception if these are not stated."""
    if "project" in document:
        table = document["project"]
        if _DYNAMIC & {name.lower() for name in _lines(table.get("dynamic", []))}:
            raise ValueError("the requirements are dynamic")
        return table["name"], list(_requirement_lines(table))
    backend, tool = document["build-system"]["build-backend"], document["tool"]
    if backend.startswith("poetry."):
        return tool["poetry"]["name"], list(_poetry_lines(tool["poetry"]))
    if backend.startswith("flit"):
        table = flit_project(tool["flit"]["metadata"])
        return table["name"], list(_requirement_lines(table))
    raise ValueError("no table states the requirements")


def _poetry_lines(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of the requirements in a table ``tool.poetry``; what is optional belongs to extras."""
    from poetry.core.constraints.version import parse_constraint
    from poetry.core.factory import Factory

    extras = {
        canonicalize_name(name): frozenset(map(canonicalize_name, _lines(packages)))
        for name, packages in table.get("extras", {}).items()
    }
    for extra in extras:
        yield f"Provides-Extra: {extra}"
    for name, constraints in table.get("dependencies", {}).items():
        for constraint in constraints if isinstance(constraints, list) else [constraints]:
            if len(str(constraint)) > _MOST_CONSTRAINT_CHARACTERS:
                raise ValueError("a constraint is too long")
            if name == "python":
                yield f"Requires-Python: {specifiers_from(str(parse_constraint(str(constraint))))}"
                continue
            options = constraint if isinstance(constraint, dict) else {}
            if any(key in options for key in _ADDRESSES):
                raise ValueError("a dependency is not on an index")
            (text,) = _lines([Factory.create_dependency(name, constraint).to_pep_508()])
            if not options.get("optional"):
                yield f"Requires-Dist: {requirement_from(text)}"
            for extra, packages in extras.items():
                if canonicalize_name(name) in packages:
                    yield f"Requires-Dist: {of_extra(requirement_from(text), extra)}"


def flit_project(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return an old table ``tool.flit.metadata`` in the form of the table ``project``.

    Source: https://flit.pypa.io/en/stable/pyproject_toml.html#old-style-metadata.
    """
    extras = {**({"dev": table["dev-requires"]} if "dev-requires" in table else {}), **table.get("requires-extra", {})}
    python = {"requires-python": table["requires-python"]} if "requires-python" in table else {}
    name = table.get("dist-name", table.get("module", ""))
    return {"name": name, "dependencies": table.get("requires", []), "optional-dependencies": extras, **python}


def _requirement_lines(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of the requirements in a table ``project``, and of its extras."""
    for python in _lines([table["requires-python"]] if "requires-python" in table else []):
        yield f"Requires-Python: {specifiers_from(python)}"
    for text in _lines(table.get("dependencies", [])):
        yield f"Requires-Dist: {requirement_from(text)}"
    for extra, texts in table.get("optional-dependencies", {}).items():
        (name,) = map(canonicalize_name, _lines([extra]))
        yield f"Provides-Extra: {name}"
        for text in _lines(texts):
            yield f"Requires-Dist: {of_extra(requirement_from(text), name)}"


def of_extra(requirement: Requirement, extra: str) -> Requirement:
    """Return a requirement that applies only with an extra."""
    condition = f'extra == "{extra}"'
    requirement.marker = Marker(f"({requirement.marker}) and {condition}" if requirement.marker else condition)
    return requirement


def _lines(values: Any) -> list[str]:
    """Return the texts of a list; each becomes a line, so that it may not have several."""
    if not isinstance(values, list) or not all(isinstance(value, str) and value.isprintable() for value in values):
        raise ValueError("a field is not a list of single lines")
    return values


def _other_lines(header: str) -> Iterator[str]:
    """Yield the lines of a header without the fields that are replaced."""
    is_replaced = False
    for line in header.splitlines():
        if not line[:1].isspace():
            is_replaced = line.partition(":")[0].strip().lower() in _REPLACED
        if not is_replaced and line.strip():
            yield line

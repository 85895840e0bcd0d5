"""Core metadata of a source tree without a build: from `PKG-INFO`, `pyproject.toml`, `setup.cfg` or `setup.py`.

Requirements on a repository, an archive or a directory are written as addresses (PEP 508), also where a tool has a
table of its own for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from advisor.domain.direct_reference import DirectReference, without_variables
from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target
from advisor.index.metadata.core import header_of, parse_metadata
from advisor.index.metadata.sdist import is_static, of_extra
from advisor.project.formats.pyproject import read_pyproject
from advisor.project.formats.setup_files import (
    attribute_in,
    file_within,
    read_setup_files,
    setup_extras,
    setup_identity,
    variable_in,
)
from advisor.project.interface import ProjectRequirements, SelectedParts
from advisor.project.text_file import TomlFile, read_text, read_toml
from knowledge.domain.errors import InputError

_UNRELIABLE = (InputError, ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError)

Locate = Callable[[DirectReference], DirectReference]
"""Returns where a directory below a source tree is for others; raises `ValueError` if it is outside of the tree."""


def read_source_tree(
    directory: Path, target: Target, *, locate: Locate, kind: Literal["vcs", "archive", "directory"] = "directory"
) -> str | None:
    """Return the header of the core metadata of a source tree; `None` if only a build generates it.

    Args:
        directory: The tree.
        target: The target, which determines where required packages come from.
        locate: Converts required directories, whose paths are below ``directory``.
        kind: What the tree was: only an archive has a `PKG-INFO` that is certainly up to date, and only a directory
            is the user's own, so that addresses in it may contain environment variables.
    """
    own = kind == "directory"
    stated = directory / "PKG-INFO"
    try:
        if kind == "archive" and stated.is_file() and is_static(text := read_text(stated)):
            header = header_of(text)
        else:
            with nullcontext() if own else without_variables():
                header = "\n".join(_lines(directory, target, locate)) + "\n"
        parse_metadata(header)
    except _UNRELIABLE:
        return None
    return header


def _lines(directory: Path, target: Target, locate: Locate) -> Iterator[str]:
    """Yield the fields of the metadata.

    Raises:
        InputError, ValueError, ...: If a field is not known without a build.
    """
    path = directory / "pyproject.toml"
    file = read_toml(path) if path.is_file() else TomlFile(path, "", {})
    states_requirements = "project" in file.document or "dependencies" in file.at("tool", "poetry")

    def read(extras: Iterable[str]) -> ProjectRequirements:
        selection = SelectedParts(extras=tuple(extras))
        project = read_pyproject(path, selection) if states_requirements else read_setup_files(directory, selection)
        return project.on_target(target)

    project = read(())
    if project.skipped:
        raise ValueError("a part is known only after a build")
    yield "Metadata-Version: 2.2"
    yield f"Name: {_name(file)}"
    yield f"Version: {_version(file)}"
    if project.requires_python:
        yield f"Requires-Python: {project.requires_python}"
    own = [_text(root, locate) for root in project.roots if not root.constraint]
    for text in own:
        yield f"Requires-Dist: {text}"
    for extra in _extras(file) if states_requirements else setup_extras(directory):
        yield f"Provides-Extra: {canonicalize_name(extra)}"
        for root in read((extra,)).roots:
            if not root.constraint and (text := _text(root, locate)) not in own:
                yield f"Requires-Dist: {of_extra(Requirement(text), canonicalize_name(extra))}"


def _text(root: RootRequirement, locate: Locate) -> str:
    """Return a requirement with its address, if it has one."""
    if root.direct is None:
        return str(root.requirement)
    reference = locate(root.direct) if root.direct.is_local else root.direct
    extras = f"[{','.join(sorted(root.requirement.extras))}]" if root.requirement.extras else ""
    marker = f" ; {root.requirement.marker}" if root.requirement.marker else ""
    return f"{root.requirement.name}{extras} @ {reference.address}{marker}"


def _extras(file: TomlFile) -> list[str]:
    """Return the extras in a `pyproject.toml`."""
    if "project" not in file.document:
        return list(file.at("tool", "poetry", "extras"))
    if "optional-dependencies" not in file.at("project", "dynamic"):
        return list(file.at("project", "optional-dependencies"))
    hatch = file.at("tool", "hatch", "metadata", "hooks", "requirements_txt", "optional-dependencies")
    setuptools = file.at("tool", "setuptools", "dynamic", "optional-dependencies")
    return list(setuptools) or list(hatch) or list(setup_extras(file.path.parent))


def _name(file: TomlFile) -> str:
    """Return the name of a project; empty if none is written."""
    project, poetry = file.at("project"), file.at("tool", "poetry")
    return str(project.get("name") or poetry.get("name") or setup_identity(file.path.parent)[0])


def _version(file: TomlFile) -> str:
    """Return the version of a project; empty if it is not known without a build."""
    directory, project = file.path.parent, file.at("project")
    if version := project.get("version") or file.at("tool", "poetry").get("version"):
        return str(version)
    dynamic = file.at("tool", "setuptools", "dynamic", "version")
    if "attr" in dynamic:
        return attribute_in(directory, str(dynamic["attr"]))
    if "file" in dynamic:
        files = dynamic["file"]
        return read_text(file_within(directory, files if isinstance(files, str) else files[0])).strip()
    hatch = file.at("tool", "hatch", "version")
    # https://hatch.pypa.io/latest/version/: without a pattern, the variable is `__version__` or `VERSION`.
    if "path" in hatch and not set(hatch) - {"path"}:
        path = file_within(directory, str(hatch["path"]))
        return variable_in(path, "__version__") or variable_in(path, "VERSION")
    backend = str(file.at("build-system").get("build-backend", ""))
    if backend.startswith("flit_core"):
        return attribute_in(directory, f"{str(project.get('name', '')).replace('-', '_')}.__version__")
    return setup_identity(directory)[1]

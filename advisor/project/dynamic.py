"""Reads dependencies that `pyproject.toml` declares as dynamic, where they are known without a build.

Sources: https://setuptools.pypa.io/en/latest/userguide/pyproject_config.html#dynamic-metadata and
https://github.com/repo-helper/hatch-requirements-txt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from advisor.domain.words import quoted
from advisor.project.built_metadata import ProjectBuilder, built_requirements
from advisor.project.interface import ProjectRequirements, merge_requirements
from advisor.project.requirements import read_requirements
from advisor.project.setup_files import has_setup_files, read_setup_files
from knowledge.domain.errors import InputError

_OTHER_BACKENDS = ("hatchling", "flit_core", "pdm", "poetry", "maturin", "scikit_build_core", "mesonpy")


def read_dynamic(
    path: Path, document: Mapping[str, Any], *, extras: Iterable[str] = (), build: ProjectBuilder | None = None
) -> ProjectRequirements:
    """Read the dynamic dependencies of a project, and those of extras that are dynamic, too.

    Args:
        path: The `pyproject.toml`.
        document: Its content.
        extras: Extras of the project to include.
        build: Builds the metadata if the dependencies are only known after a build; none to refuse this.

    Raises:
        InputError: If they are known only after a build, which is refused, or a file cannot be read.
        BuildError: If the build fails.
    """
    dynamic = document["project"]["dynamic"]
    selected = tuple(extras) if "optional-dependencies" in dynamic else ()
    tool = document.get("tool", {})
    setuptools = tool.get("setuptools", {}).get("dynamic", {})
    hatch = tool.get("hatch", {}).get("metadata", {}).get("hooks", {}).get("requirements_txt", {})
    if "dependencies" in setuptools:
        tables = setuptools.get("optional-dependencies", {})
        return _read_files(path, [setuptools["dependencies"], *_extras(path, tables, selected)])
    if hatch:
        files = hatch.get("files") or [hatch.get("filename", "requirements.txt")]
        tables = {name: {"file": names} for name, names in hatch.get("optional-dependencies", {}).items()}
        return _read_files(path, [{"file": files}, *_extras(path, tables, selected)])
    backend = str(document.get("build-system", {}).get("build-backend", ""))
    if not backend.startswith(_OTHER_BACKENDS) and has_setup_files(path.parent):
        return read_setup_files(path.parent, extras=selected, build=build)
    reason = f"`{path}`: `project.dependencies` is dynamic: it is only known after a build"
    return built_requirements(path, reason, extras=selected, build=build)


def _extras(path: Path, tables: Mapping[str, Any], extras: Iterable[str]) -> list[Any]:
    by_name = {canonicalize_name(name): table for name, table in tables.items()}
    for extra in map(canonicalize_name, extras):
        if extra not in by_name:
            available = quoted(sorted(by_name)) if by_name else "none"
            raise InputError(f"`{path}` has no extra `{extra}`", hint=f"it has {available}")
    return [by_name[canonicalize_name(extra)] for extra in extras]


def _read_files(path: Path, tables: Iterable[Mapping[str, Any]]) -> ProjectRequirements:
    """Read the requirements files that tables name."""
    names = [table["file"] for table in tables]
    files = [file for name in names for file in ([name] if isinstance(name, str) else name)]
    return merge_requirements([read_requirements(path.parent / file) for file in files])

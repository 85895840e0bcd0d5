"""Reads the package sources in the PDM tables of `pyproject.toml`.

Source: https://pdm-project.org/latest/usage/config/ and https://pdm-project.org/latest/usage/dependency/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from advisor.config import line_in
from advisor.project.interface import ProjectRequirements, filled_address, not_supported
from knowledge.domain.errors import InputError

_DEFAULT = "pypi"
"""A source with this name replaces the default index."""


def with_pdm_sources(
    project: ProjectRequirements, path: Path, text: str, pdm: Mapping[str, Any]
) -> ProjectRequirements:
    """Return a project with the indexes of the `source` tables of PDM added.

    Args:
        project: The requirements of the project.
        path: The `pyproject.toml`.
        text: Its content, for line numbers.
        pdm: Its `[tool.pdm]`.

    Raises:
        InputError: If a package does not come from an index, or a source is invalid or not supported.
    """
    for name, version in pdm.get("resolution", {}).get("overrides", {}).items():
        if isinstance(version, str) and ("://" in version or version.startswith((".", "/"))):
            place = f"{path.name}:{line_in(text, '[tool.pdm.resolution.overrides]', name)}"
            raise not_supported(f"{name} = {version}", place)
    default, extra, links = project.index_url, list(project.extra_index_urls), list(project.find_links)
    bindings = dict(project.bindings)
    for source in pdm.get("source", ()):
        name = str(source.get("name", ""))
        place = f"{path.name}:{line_in(text, '[[tool.pdm.source]]', name)}"
        url = filled_address(str(source.get("url", "")), place)
        if patterns := source.get("exclude_packages") or [p for p in source.get("include_packages", ()) if "*" in p]:
            raise InputError(
                f"{place}: the source `{name}` selects packages by a pattern (`{patterns[0]}`), which is not supported",
                hint="list each package in `include_packages`",
            )
        if source.get("type") == "find_links":
            links.append(url)
        elif "include_packages" in source:
            bindings |= {canonicalize_name(package): url for package in source["include_packages"]}
        elif name == _DEFAULT:
            default = url or default
        else:
            extra.append(url)
    return replace(
        project,
        index_url=default,
        extra_index_urls=tuple(filter(None, extra)),
        find_links=tuple(filter(None, links)),
        bindings=bindings,
    )

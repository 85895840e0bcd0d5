"""Reads the package sources and the overrides in the PDM tables of `pyproject.toml`.

Source: https://pdm-project.org/latest/usage/config/ and https://pdm-project.org/latest/usage/dependency/.
"""

from __future__ import annotations

from dataclasses import replace

from packaging.utils import canonicalize_name

from advisor.project.interface import ProjectRequirements, filled_address, parse_root
from advisor.project.text_file import TomlFile
from knowledge.domain.errors import InputError

_DEFAULT = "pypi"
"""A source with this name replaces the default index."""


def with_pdm_sources(project: ProjectRequirements, file: TomlFile) -> ProjectRequirements:
    """Return a project with the indexes and the overrides in the tables of PDM of its `pyproject.toml` added.

    Raises:
        InputError: If a source or an override is invalid or not supported.
    """
    overrides = list(project.overrides)
    for name, version in file.at("tool", "pdm", "resolution", "overrides").items():
        place = file.place_after("[tool.pdm.resolution.overrides]", name)
        is_version = version[:1].isdigit()
        separator = "==" if is_version else " @ " if "://" in version or version.startswith((".", "/")) else ""
        overrides.append(parse_root(f"{name}{separator}{version}", place, file.path.parent))
    default, extra, links = project.index_url, list(project.extra_index_urls), list(project.find_links)
    bindings = dict(project.bindings)
    for source in file.at("tool", "pdm").get("source", ()):
        name = str(source.get("name", ""))
        place = file.place_after("[[tool.pdm.source]]", name)
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
        overrides=tuple(overrides),
        index_url=default,
        extra_index_urls=tuple(filter(None, extra)),
        find_links=tuple(filter(None, links)),
        bindings=bindings,
    )

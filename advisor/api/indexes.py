"""Package indexes, opened with the options and settings of a project."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from advisor.api.option import with_settings
from advisor.api.options import IndexOptions
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import check_strategy, read_configuration
from advisor.index.vulnerabilities.database import AdvisoryDatabase
from advisor.index.vulnerabilities.records import DEFAULT_SERVICE
from advisor.project.interface import ProjectRequirements
from advisor.user_directories import advisory_database_path, cache_directory
from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile

logger = logging.getLogger(__name__)


@contextmanager
def open_indexes(
    options: IndexOptions,
    directory: Path,
    project: ProjectRequirements | None = None,
    machines: Sequence[HardwareProfile] = (),
) -> Iterator[IndexClient]:
    """Open the indexes of :func:`make_client`; log the number of requests and damaged cache entries at the end."""
    with opened(make_client(options, directory, project, machines)) as client:
        yield client


@contextmanager
def opened(client: IndexClient) -> Iterator[IndexClient]:
    """Close a client at the end, and log the number of its requests and damaged cache entries."""
    try:
        yield client
    finally:
        client.close()
        requests = client.transport.request_counts
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(requests.items()))
        logger.info("index: %d requests%s", sum(requests.values()), f" ({kinds})" if kinds else "")
        for damaged in client.cache.damaged:
            logger.warning("the cache entry `%s` is damaged and was not used", damaged)


def make_client(
    options: IndexOptions,
    directory: Path,
    project: ProjectRequirements | None = None,
    machines: Sequence[HardwareProfile] = (),
) -> IndexClient:
    """Return a client of the indexes that the options, a project and its directory's configuration name.

    Args:
        options: Options of the indexes.
        directory: Directory whose configuration files of uv are read.
        project: The project, which may name indexes of its own.
        machines: The machines that builds of frameworks are for; without any, none are taken from the indexes of their
            publishers.

    Raises:
        InputError: If the configuration is wrong.
    """
    configuration = read_configuration(directory)
    project = project or ProjectRequirements(roots=())
    default = options.index_url or project.index_url
    if default:
        # `--index-url` replaces every configured index: no configured extra index can add a package.
        configuration = replace(configuration, default=default, extra=(), find_links=())
    options = with_settings(options, project.settings)
    bindings: dict[str, str] = {canonicalize_name(name): str(url) for name, url in options.package_indexes.items()}
    configuration = replace(
        configuration,
        extra=(*configuration.extra, *project.extra_index_urls, *options.extra_index_urls),
        supplemental=project.supplemental_index_urls,
        find_links=(*configuration.find_links, *project.find_links, *options.find_links),
        bindings={**configuration.bindings, **project.bindings, **bindings},
        **_framework_indexes(options, project.settings, machines),
        strategy=check_strategy(options.strategy) if options.strategy else configuration.strategy,
    )
    database = advisory_database_path()
    return IndexClient(
        configuration,
        cache=DiskCache(cache_directory(options.cache_directory) / "index"),
        offline=options.offline,
        refresh=options.refresh,
        advisory_service=_advisory_service(options.advisories),
        advisory_database=AdvisoryDatabase(database) if database else None,
    )


def _framework_indexes(
    options: IndexOptions, settings: Mapping[str, Any], machines: Sequence[HardwareProfile]
) -> dict[str, Any]:
    """Return the publishers' indexes with builds that a machine can use, by package, as a part of a configuration."""
    if not machines or not options.framework_indexes:
        return {}
    # Most projects do not need the catalogue of builds here.
    from knowledge.catalogue.rule_book import publishers_indexes

    mirrors: Mapping[str, str] = settings.get("index-mirrors", {})
    builds: dict[str, tuple[str, ...]] = {}
    exclusive: set[str] = set()
    for index in publishers_indexes(machines):
        url = _mirror_of(index.url, mirrors)
        exclusive.update(index.exclusive)
        builds |= {name: (*builds.get(name, ()), url) for name in index.packages}
    return {"builds": builds, "exclusive": frozenset(exclusive)}


def _mirror_of(url: str, mirrors: Mapping[str, str]) -> str:
    """Return the address that takes the place of another: by the longest of the texts that it begins with."""
    prefix = max((p for p in mirrors if url.startswith(p)), key=len, default=None)
    return url if prefix is None else mirrors[prefix] + url.removeprefix(prefix)


def _advisory_service(choice: str | None) -> str | None:
    """Return the address of the service for known vulnerabilities; ``None`` if none is used."""
    if choice == "off":
        return None
    if choice is not None and not choice.startswith(("http://", "https://")):
        raise InputError(
            f"`{choice}` is not the address of a service", hint="write it as `--advisories https://...` or `off`"
        )
    return choice or DEFAULT_SERVICE

"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.user_directories import cache_directory, readable_address

if TYPE_CHECKING:
    from datetime import datetime

    from advisor.index.client import IndexClient
    from knowledge.store.sql import SqlKnowledgeBase

HardwareOption = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="NAME|FILE|detect",
        envvar="ADVISOR_HARDWARE",
        help="Target hardware: a shipped profile, a YAML or JSON file, or `detect`.",
    ),
]
KnowledgeOption = Annotated[
    str | None,
    typer.Option(
        "--knowledge",
        metavar="URL",
        envvar="ADVISOR_KNOWLEDGE",
        help="Knowledge base; by default a SQLite file in the user's data directory.",
    ),
]
FormatOption = Annotated[str, typer.Option("--format", metavar="text|json", help="Output format.")]
OfflineOption = Annotated[
    bool, typer.Option("--offline", envvar="ADVISOR_OFFLINE", help="Answer from the cache alone.")
]
IndexUrlOption = Annotated[
    str | None,
    typer.Option(
        "--index-url",
        "-i",
        metavar="URL",
        help="Default index; replaces everything that pip and uv are configured to use.",
    ),
]
ExtraIndexUrlOption = Annotated[
    list[str] | None, typer.Option("--extra-index-url", metavar="URL", help="Further index (repeatable).")
]
FindLinksOption = Annotated[
    list[str] | None, typer.Option("--find-links", "-f", metavar="DIR", help="Directory of wheels (repeatable).")
]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache-dir", envvar="ADVISOR_CACHE_DIR", help="Cache directory; by default the user's."),
]


def open_to_read(address: str | None) -> SqlKnowledgeBase:
    """Open the knowledge base that was asked for, or the user's own, for a command that adds nothing to it.

    Where the user's own cannot be created, what ships with the program takes its place.
    """
    from knowledge.store.engine import open_knowledge_base

    return open_knowledge_base(readable_address(address))


def open_store(address: str | None) -> SqlKnowledgeBase:
    """Open the knowledge base that was asked for, or the user's own."""
    from knowledge.store.engine import open_knowledge_base
    from knowledge.store.state_hash import default_address

    return open_knowledge_base(address or default_address())


def read_moment(text: str, option: str) -> datetime:
    """Read a date or a time of an option; without a time zone it is UTC.

    Raises:
        InputError: If it is neither.
    """
    from datetime import UTC, datetime

    from knowledge.domain.errors import InputError

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"`{text}` is not a date", hint=f"write it as `{option} 2026-01-31`") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def check_format(chosen: str, *, among: Sequence[str] = ("text", "json"), what: str = "format") -> None:
    """Refuse an unknown output format, or another word of a few.

    Raises:
        InputError: If it is none of those.
    """
    from knowledge.domain.errors import InputError

    if chosen not in among:
        raise InputError(f"there is no {what} `{chosen}`", hint=f"take one of {', '.join(f'`{f}`' for f in among)}")


def open_client(
    directory: Path,
    *,
    index_url: str | None = None,
    extra_index_url: Sequence[str] | None = None,
    find_links: Sequence[str] | None = None,
    bindings: Mapping[str, str] | None = None,
    strategy: str | None = None,
    cache_dir: Path | None = None,
    offline: bool = False,
    refresh: bool = False,
) -> IndexClient:
    """Return a client of the indexes that a project's directory and the command's options name."""
    from advisor.index.cache import DiskCache
    from advisor.index.client import IndexClient
    from advisor.index.configuration import check_strategy, read_configuration

    configuration = read_configuration(directory)
    if index_url:
        # Whoever names the index means that one: no configured extra index can slip a package in.
        configuration = replace(configuration, default=index_url, extra=(), find_links=())
    configuration = replace(
        configuration,
        extra=(*configuration.extra, *(extra_index_url or ())),
        find_links=(*configuration.find_links, *(find_links or ())),
        bindings={**configuration.bindings, **(bindings or {})},
        strategy=check_strategy(strategy) if strategy else configuration.strategy,
    )
    cache = DiskCache(cache_directory(cache_dir) / "index")
    return IndexClient(configuration, cache=cache, offline=offline, refresh=refresh)

"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.command_help import INDEX, TARGET

if TYPE_CHECKING:
    from datetime import datetime

HardwareOption = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="NAME",
        envvar="ADVISOR_HARDWARE",
        rich_help_panel=TARGET,
        help="Hardware profile, cloud instance or file.\n"
        "A shipped profile, a cloud instance, a YAML or JSON file, or `detect` (this machine).",
    ),
]
KnowledgeOption = Annotated[
    str | None,
    typer.Option(
        "--knowledge",
        metavar="URL",
        envvar="ADVISOR_KNOWLEDGE",
        rich_help_panel=INDEX,
        help="Knowledge base (default: the user's own).\nBy default a SQLite file in the user's data directory.",
    ),
]
FormatOption = Annotated[str, typer.Option("--format", metavar="FORMAT", help="text or json.")]
OfflineOption = Annotated[
    bool,
    typer.Option("--offline", envvar="ADVISOR_OFFLINE", rich_help_panel=INDEX, help="Answer from the cache alone."),
]
IndexUrlOption = Annotated[
    str | None,
    typer.Option(
        "--index-url",
        "-i",
        metavar="URL",
        rich_help_panel=INDEX,
        help="Default index instead of the configured ones.\nReplaces all that pip and uv are configured to use.",
    ),
]
ExtraIndexUrlOption = Annotated[
    list[str] | None,
    typer.Option("--extra-index-url", metavar="URL", rich_help_panel=INDEX, help="Further index (repeatable)."),
]
FindLinksOption = Annotated[
    list[str] | None,
    typer.Option(
        *("--find-links", "-f"),
        metavar="PLACE",
        rich_help_panel=INDEX,
        help="Directory or page of wheels (repeatable).",
    ),
]
CacheOption = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="DIRECTORY",
        envvar="ADVISOR_CACHE_DIR",
        rich_help_panel=INDEX,
        help="Cache (default: the user's own).",
    ),
]


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


def read_pairs(
    texts: Iterable[str], option: str, *, example: str = "name=value", allow_empty: bool = False
) -> list[tuple[str, str]]:
    """Read ``NAME=VALUE`` texts of an option.

    Args:
        texts: The texts.
        option: The option, for the error message.
        example: A correct text, for the error message.
        allow_empty: Whether a value may be empty.

    Returns:
        Name and value of each text.

    Raises:
        InputError: If a text has no name or no value.
    """
    from knowledge.domain.errors import InputError

    pairs = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not (value or allow_empty):
            raise InputError(f"`{option} {text}` has no value", hint=f"write it as `{option} {example}`")
        pairs.append((name, value))
    return pairs


def check_format(choice: str, *, among: Sequence[str] = ("text", "json"), what: str = "format") -> None:
    """Refuse an unknown output format, or another word of a few.

    Raises:
        InputError: If it is none of those.
    """
    from knowledge.domain.errors import InputError

    if choice not in among:
        raise InputError(f"there is no {what} `{choice}`", hint=f"take one of {', '.join(f'`{f}`' for f in among)}")

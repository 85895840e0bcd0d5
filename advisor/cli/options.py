"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from advisor.api.options import HARDWARE, KNOWLEDGE
from advisor.cli.option_groups import typer_option
from knowledge.domain.errors import InputError

HardwareOption = Annotated[str | None, typer_option(HARDWARE)]
KnowledgeOption = Annotated[str | None, typer_option(KNOWLEDGE)]
FormatOption = Annotated[str, typer.Option("--format", metavar="FORMAT", help="text or json.")]


def check_format(choice: str, *, among: Sequence[str] = ("text", "json"), what: str = "format") -> None:
    """Refuse an unknown output format, or another word of a few.

    Raises:
        InputError: If it is none of those.
    """
    if choice not in among:
        raise InputError(f"there is no {what} `{choice}`", hint=f"take one of {', '.join(f'`{f}`' for f in among)}")

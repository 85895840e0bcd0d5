"""`advisor knowledge push`, `pull`, `token`, `quarantine` and `source`: knowledge that comes from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from advisor import api
from advisor.api.measurements.options import TOKEN
from advisor.cli.command_help import CommandGroup
from advisor.cli.console import say, warn
from advisor.cli.options import FormatOption, KnowledgeOption, print_list, typer_option
from knowledge.domain.errors import InputError
from knowledge.store.base import KnowledgeBase, QuarantinedObservation

UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="Address of a knowledge base's service.")]
TokenOption = Annotated[str, typer_option(TOKEN)]
SourceOption = Annotated[str | None, typer.Option("--source", help="Name of who delivers it.")]
WhichArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[ID...]", help="Identities or prefixes, as `list` prints them.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All quarantined observations.")]
OfOption = Annotated[str | None, typer.Option("--source", help="All quarantined observations of this source.")]

tokens = CommandGroup(help="Tokens of the service.")
quarantine = CommandGroup(help="Implausible observations in quarantine.")
sources = CommandGroup(help="Sources of observations.")
_FEW = 10


def push(url: UrlArgument, token: TokenOption = "", knowledge: KnowledgeOption = None) -> None:
    """Send the observations that a service does not have; those that it has are not counted twice."""
    _print_result(api.exchange.push(url, token, knowledge=knowledge, progress=say), "delivered")


def pull(
    url: UrlArgument, token: TokenOption = "", source: SourceOption = None, knowledge: KnowledgeOption = None
) -> None:
    """Fetch the observations that a service has and this knowledge base does not; implausible ones are quarantined."""
    result = api.exchange.pull(url, token, source=source, knowledge=knowledge, progress=say, warn=warn)
    _print_result(result, "fetched")


def _print_result(result: api.exchange.DeliveryReceipt, verb: str) -> None:
    typer.echo(f"{verb}: {result.added} added, {result.known} already stored, {len(result.quarantined)} quarantined")
    for entry in result.quarantined[:_FEW]:
        say(f"  {entry.id[:12]} quarantined: {entry.reason}")


@tokens.command("create")
def create_token(
    source: Annotated[str, typer.Argument(help="Who will use it: the source of what it adds.")],
    role: Annotated[str, typer.Option("--role", metavar="reader|runner|admin", help="What it allows.")] = "runner",
    days: Annotated[
        float | None, typer.Option("--days", min=0.0, help="Days until the token expires; by default never.")
    ] = (None),
    knowledge: KnowledgeOption = None,
) -> None:
    """Create a token and print it. It cannot be printed again: only its hash is stored."""
    with api.stores.open_writable_store(knowledge) as store:
        text, token = store.create_token(role=role, source=source, days=days)
    say(
        f"token `{token.id}` for `{source}`, role `{role}`"
        + (f", until {token.expires_at}" if token.expires_at else "")
    )
    typer.echo(text)


@tokens.command("list")
def list_tokens(format: FormatOption = "text", knowledge: KnowledgeOption = None) -> None:
    """List the tokens by their identifiers; the tokens themselves are not stored."""
    with api.stores.open_writable_store(knowledge) as store:
        stored = store.tokens()
    ends = (f"revoked {t.revoked_at}" if t.revoked_at else f"until {t.expires_at or 'revoked'}" for t in stored)
    lines = (
        f"{t.id}  {t.role:6}  {t.source}  since {t.created_at}, {end}" for t, end in zip(stored, ends, strict=True)
    )
    print_list(format, "tokens", map(asdict, stored), lines)


@tokens.command("revoke")
def revoke_token(
    identity: Annotated[str, typer.Argument(metavar="ID", help="Its name, as `list` prints it.")],
    knowledge: KnowledgeOption = None,
) -> None:
    """Revoke a token permanently; a running service refuses it at once."""
    with api.stores.open_writable_store(knowledge) as store:
        store.revoke_token(identity)
    typer.echo(f"token `{identity}` is revoked")


@quarantine.command("list")
def list_quarantine(format: FormatOption = "text", knowledge: KnowledgeOption = None) -> None:
    """List quarantined observations with the reasons."""
    with api.stores.open_writable_store(knowledge) as store:
        entries = store.quarantined()
    records = (
        {
            "id": q.observation.identity,
            "source": q.source,
            "block": q.observation.block,
            "indicator": q.observation.indicator.label,
            "received_at": q.received_at,
            "reason": q.reason,
        }
        for q in entries
    )
    lines = (
        f"{q.observation.identity[:12]}  {q.received_at}  from {q.source or 'here'}  {q.observation.indicator.label}: "
        f"{q.reason}"
        for q in entries
    )
    print_list(format, "quarantined", records, lines, empty="the quarantine is empty")


@quarantine.command("accept")
def accept(
    which: WhichArgument = None, all_: AllOption = False, source: OfOption = None, knowledge: KnowledgeOption = None
) -> None:
    """Store quarantined observations."""
    with api.stores.open_writable_store(knowledge) as store:
        result = store.release(_selected_identities(store, which or [], all_=all_, source=source))
    typer.echo(f"{result.added} accepted" + (f", {result.known} already stored" if result.known else ""))


@quarantine.command("drop")
def drop(
    which: WhichArgument = None, all_: AllOption = False, source: OfOption = None, knowledge: KnowledgeOption = None
) -> None:
    """Delete quarantined observations permanently."""
    with api.stores.open_writable_store(knowledge) as store:
        deletions = store.drop(_selected_identities(store, which or [], all_=all_, source=source))
    typer.echo(f"{deletions} deleted")


def _selected_identities(store: KnowledgeBase, prefixes: Sequence[str], *, all_: bool, source: str | None) -> list[str]:
    """Return the identities that are meant."""
    entries: tuple[QuarantinedObservation, ...] = store.quarantined()
    if not prefixes and not all_ and source is None:
        raise InputError("no observations are selected", hint="name identities, `--source NAME` or `--all`")
    selected = [q.observation.identity for q in entries if all_ or (source is not None and q.source == source)]
    for prefix in prefixes:
        matches = [q.observation.identity for q in entries if q.observation.identity.startswith(prefix)]
        if len(matches) != 1:
            raise InputError(
                f"`{prefix}` is a prefix of {len(matches)} quarantined observations",
                hint="`advisor knowledge quarantine list` prints their identities",
            )
        selected += matches
    return selected


@sources.command("list")
def list_sources(format: FormatOption = "text", knowledge: KnowledgeOption = None) -> None:
    """List the sources of observations with the trust in each."""
    with api.stores.open_writable_store(knowledge) as store:
        stored = store.sources()
    own = "(this knowledge base's own)"
    lines = (
        f"{s.name or own}  trust {s.trust:g}  {s.observations} observations in "
        f"{s.blocks} blocks{f', {s.quarantined} quarantined' if s.quarantined else ''}"
        for s in stored
    )
    print_list(format, "sources", map(asdict, stored), lines)


@sources.command("trust")
def trust(
    name: Annotated[str, typer.Argument(help="Name of the source.")],
    weight: Annotated[float, typer.Argument(metavar="WEIGHT", min=0.0, max=1.0, help="Trust, from 0 (ignored) to 1.")],
    knowledge: KnowledgeOption = None,
) -> None:
    """Set the trust in a source: half the trust doubles the variance of its observations."""
    with api.stores.open_writable_store(knowledge) as store:
        store.trust(name, weight)
    typer.echo(f"`{name}` is trusted with {weight:g}")

"""Tokens of the knowledge base's service: kept as hashes, shown once, revocable."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from sqlalchemy import Connection, insert, select, update

from knowledge.domain.errors import InputError
from knowledge.store.tables import token

Role = Literal["runner", "reader"]
"""``runner`` may add observations and read; ``reader`` may read."""
ROLES: tuple[str, ...] = get_args(Role)
_PREFIX = "seshat_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token; not the token itself, which nobody can tell from this.

    Attributes:
        id: Names it, for people.
        role: What it allows.
        source: Who uses it: the source of what it adds.
        created_at: ISO 8601, UTC.
        expires_at: When it ends to be valid; none where it does not.
        revoked_at: When it was revoked; none where it was not.
    """

    id: str
    role: str
    source: str
    created_at: str
    expires_at: str | None = None
    revoked_at: str | None = None

    def valid(self, now: datetime) -> bool:
        """Whether it may be used."""
        return self.revoked_at is None and (self.expires_at is None or now < datetime.fromisoformat(self.expires_at))


def create_token(
    connection: Connection, *, role: str, source: str, days: float | None, now: datetime
) -> tuple[str, Token]:
    """Make a token, and return it with what is kept of it. It is not kept itself: this is the only time it is seen.

    Raises:
        InputError: If there is no such role.
    """
    if role not in ROLES:
        raise InputError(f"there is no role `{role}`", hint=f"take one of {', '.join(f'`{name}`' for name in ROLES)}")
    # 256 random bits need no slow hash: there is nothing to guess.
    text = _PREFIX + secrets.token_urlsafe(32)
    made = Token(
        id=secrets.token_hex(4),
        role=role,
        source=source,
        created_at=_written(now),
        expires_at=None if days is None else _written(now + timedelta(days=days)),
    )
    row = {name: getattr(made, name) for name in ("id", "role", "source", "created_at", "expires_at", "revoked_at")}
    connection.execute(insert(token), [{**row, "sha256": _hash(text)}])
    return text, made


def token_of(connection: Connection, text: str) -> Token | None:
    """Return what is known of a token, or none where it is none of ours."""
    row = connection.execute(select(token).where(token.c.sha256 == _hash(text))).first()
    return None if row is None else _token(row)


def all_tokens(connection: Connection) -> tuple[Token, ...]:
    """Return all tokens, oldest first."""
    return tuple(_token(row) for row in connection.execute(select(token).order_by(token.c.created_at, token.c.id)))


def revoke_token(connection: Connection, identity: str, *, now: datetime) -> None:
    """Revoke a token, for good.

    Raises:
        InputError: If there is no such token.
    """
    done = connection.execute(
        update(token).where(token.c.id == identity, token.c.revoked_at.is_(None)).values(revoked_at=_written(now))
    )
    if done.rowcount == 0 and not any(t.id == identity for t in all_tokens(connection)):
        raise InputError(f"there is no token `{identity}`", hint="`advisor knowledge token list` lists them")


def _token(row: object) -> Token:
    names = ("id", "role", "source", "created_at", "expires_at", "revoked_at")
    return Token(**{name: getattr(row, name) for name in names})


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")

"""Tokens of the knowledge base's service. The database stores only their hashes."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from sqlalchemy import Connection, insert, select, update

from knowledge.domain.errors import InputError
from knowledge.store.tables import token

Role = Literal["runner", "reader"]
"""``runner`` may read and add observations; ``reader`` may only read."""
ROLES: tuple[str, ...] = get_args(Role)
_PREFIX = "seshat_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Record of a token, without the token itself.

    Attributes:
        id: Identifier for people.
        role: What the token permits.
        source: Source of the observations that are delivered with the token.
        created_at: Time of creation, ISO 8601, UTC.
        expires_at: End of validity; ``None`` if the token does not expire.
        revoked_at: Time of revocation; ``None`` if the token is not revoked.
    """

    id: str
    role: str
    source: str
    created_at: str
    expires_at: str | None = None
    revoked_at: str | None = None

    def valid(self, now: datetime) -> bool:
        """Whether the token may be used at a time."""
        return self.revoked_at is None and (self.expires_at is None or now < datetime.fromisoformat(self.expires_at))


def create_token(
    connection: Connection, *, role: str, source: str, days: float | None, now: datetime
) -> tuple[str, Token]:
    """Create a token.

    Args:
        connection: Connection to the database.
        role: What the token permits; one of :data:`ROLES`.
        source: Source of the observations that are delivered with the token.
        days: Validity in days; unlimited if none.
        now: Time of creation.

    Returns:
        The token, which is not stored and cannot be shown again, and its record.

    Raises:
        InputError: If there is no such role.
    """
    if role not in ROLES:
        raise InputError(f"there is no role `{role}`", hint=f"use {' or '.join(f'`{name}`' for name in ROLES)}")
    # A fast hash is enough: 256 random bits cannot be guessed.
    text = _PREFIX + secrets.token_urlsafe(32)
    record = Token(
        id=secrets.token_hex(4),
        role=role,
        source=source,
        created_at=_timestamp(now),
        expires_at=None if days is None else _timestamp(now + timedelta(days=days)),
    )
    connection.execute(insert(token), [{**asdict(record), "sha256": _hash(text)}])
    return text, record


def find_token(connection: Connection, text: str) -> Token | None:
    """Return the record of a token, or ``None`` if the token is unknown."""
    row = connection.execute(select(token).where(token.c.sha256 == _hash(text))).first()
    return None if row is None else _token(row)


def all_tokens(connection: Connection) -> tuple[Token, ...]:
    """Return all tokens, oldest first."""
    return tuple(_token(row) for row in connection.execute(select(token).order_by(token.c.created_at, token.c.id)))


def revoke_token(connection: Connection, identity: str, *, now: datetime) -> None:
    """Revoke a token permanently.

    Raises:
        InputError: If there is no such token.
    """
    result = connection.execute(
        update(token).where(token.c.id == identity, token.c.revoked_at.is_(None)).values(revoked_at=_timestamp(now))
    )
    if result.rowcount == 0 and not any(t.id == identity for t in all_tokens(connection)):
        raise InputError(f"there is no token `{identity}`", hint="`advisor knowledge token list` lists them")


def _token(row: object) -> Token:
    return Token(**{field.name: getattr(row, field.name) for field in fields(Token)})


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")

"""Tokens of the knowledge base's service. The database stores only their hashes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from knowledge.domain.errors import InputError

ROLES = ("reader", "runner", "admin")
"""``reader`` may only read; ``runner`` may also add observations and retry campaigns; ``admin`` may also change tokens,
sources and the quarantine. Each may do what the ones before it may."""
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


def permits(role: str, needed: str) -> bool:
    """Return whether a role may do what another one may."""
    return ROLES.index(role) >= ROLES.index(needed)


def new_token(*, role: str, source: str, days: float | None) -> tuple[str, Token]:
    """Return a new token and its record; the token is valid for some days, or without a limit.

    Raises:
        InputError: If the role is not one of :data:`ROLES`.
    """
    if role not in ROLES:
        raise InputError(f"there is no role `{role}`", hint=f"use {' or '.join(f'`{name}`' for name in ROLES)}")
    # A fast hash is enough: 256 random bits cannot be guessed.
    text = _PREFIX + secrets.token_urlsafe(32)
    now = datetime.now(UTC)
    record = Token(
        id=secrets.token_hex(4),
        role=role,
        source=source,
        created_at=timestamp(now),
        expires_at=None if days is None else timestamp(now + timedelta(days=days)),
    )
    return text, record


def timestamp(moment: datetime) -> str:
    """Return a time as the database stores it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")

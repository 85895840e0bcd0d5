"""A hash of a set that does not depend on order, so that it can be kept while members come and go.

The sum of the members' hashes modulo 2^256 (AdHash: Bellare and Micciancio, "A New Paradigm for Collision-Free
Hashing", Eurocrypt 1997): equal sums of accidental origin are out of the question, and nobody gains by forging one.
"""

from __future__ import annotations

from collections.abc import Iterable

_MODULUS = 1 << 256
EMPTY = "0" * 64
"""Digest of the empty set."""


def combine(digest: str, members: Iterable[str], *, sign: int = 1) -> str:
    """Return the digest after members, named by their hashes in hexadecimal, came (or went, with ``sign=-1``)."""
    return f"{(int(digest, 16) + sign * sum(int(member, 16) for member in members)) % _MODULUS:064x}"

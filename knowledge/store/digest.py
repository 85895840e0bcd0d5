"""A hash of a set that does not depend on the order, and that is updated when members are added or removed.

The sum of the members' hashes modulo 2^256 (AdHash: Bellare and Micciancio, "A New Paradigm for Collision-Free
Hashing", Eurocrypt 1997). Accidental collisions are practically impossible, and a forged one would bring no advantage.
"""

from __future__ import annotations

from collections.abc import Iterable

_MODULUS = 1 << 256
EMPTY = "0" * 64
"""Digest of the empty set."""


def combine(digest: str, members: Iterable[str], *, sign: int = 1) -> str:
    """Return the digest after members are added or removed.

    Args:
        digest: Digest before the change.
        members: Hashes of the members, in hexadecimal.
        sign: 1 to add the members, -1 to remove them.
    """
    return f"{(int(digest, 16) + sign * sum(int(member, 16) for member in members)) % _MODULUS:064x}"

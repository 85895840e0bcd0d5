"""Check that a change does not remove hashes which its base has."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.gate.findings import Finding, Place
from advisor.gate.scope import Scope
from advisor.locks.lock import Lock, LockedVersion


def check_hash_loss(scope: Scope, before: Lock) -> Iterator[Finding]:
    """Yield the packages that have no hashes in a lock, although they have them in the lock of the base.

    A new package must have hashes if all packages of the base's lock have them.
    """
    indexed = {name for name, locked in before.entries if not locked.direct_reference}
    hashed = indexed - {name for name, locked in before.entries if not _is_hashed(locked)}
    locked_packages = [(name, locked) for name, locked in scope.lock.entries if not locked.direct_reference]
    if (
        hashed
        and hashed == indexed
        and locked_packages
        and not any(_is_hashed(locked) for _, locked in locked_packages)
    ):
        place = Place(path=str(scope.lock.path), line=1)
        yield scope.finding("ADV029", "the lock has no hashes, but the base has", place=place, subject="all")
        return
    for name, locked in locked_packages:
        if not _is_hashed(locked) and (name in hashed or (name not in indexed and hashed and hashed == indexed)):
            owner = "of all packages" if name not in indexed else "of its files"
            place = Place(path=locked.path or str(scope.lock.path), line=locked.line)
            message = f"the lock does not have all hashes of `{name} {locked.version}`, but the base has those {owner}"
            yield scope.finding("ADV029", message, package=name, place=place)


def _is_hashed(locked: LockedVersion) -> bool:
    return bool(locked.hashes) and all(file.sha256 for file in locked.files)

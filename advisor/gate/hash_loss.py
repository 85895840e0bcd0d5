"""Whether a change removes hashes that its base has."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.gate.findings import Finding, Place
from advisor.gate.scope import Scope
from advisor.project.locks import Lock, LockedVersion


def lost_hashes(scope: Scope, before: Lock) -> Iterator[Finding]:
    """Yield the packages of a lock that have no hashes, though they have them in the lock before it.

    A new package must have them where all packages of the lock before it have them.
    """
    indexed = {name for name, locked in before.entries if not locked.elsewhere}
    hashed = indexed - {name for name, locked in before.entries if not _is_hashed(locked)}
    now = [(name, locked) for name, locked in scope.lock.entries if not locked.elsewhere]
    if hashed and hashed == indexed and now and not any(_is_hashed(locked) for _, locked in now):
        place = Place(path=str(scope.lock.path), line=1)
        yield scope.finding("ADV029", "the lock holds no hashes, the base does", place=place, subject="all")
        return
    for name, locked in now:
        if not _is_hashed(locked) and (name in hashed or (name not in indexed and hashed and hashed == indexed)):
            what = "of all packages" if name not in indexed else "of its files"
            place = Place(path=locked.path or str(scope.lock.path), line=locked.line)
            message = f"the lock does not hold all hashes of `{name} {locked.version}`, the base holds those {what}"
            yield scope.finding("ADV029", message, package=name, place=place)


def _is_hashed(locked: LockedVersion) -> bool:
    return bool(locked.hashes) and all(file.sha256 for file in locked.files)

"""The size of the download of a lock, compared with the largest admissible one, `max-size`."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.domain.words import size_text, size_texts
from advisor.gate.findings import Cause, Finding
from advisor.gate.growth import Sizes, read_download, unknown_sizes
from advisor.gate.scope import InstallableFiles, Scope
from advisor.index.client import IndexClient
from advisor.locks.lock import Lock

_NAMED = 3
"""Maximum number of packages that a message names."""


def check_download(
    scope: Scope,
    client: IndexClient,
    installable: InstallableFiles,
    *,
    limit: int | None,
    base: tuple[Lock, InstallableFiles] | None = None,
) -> Iterator[Finding]:
    """Yield that the download of a lock exceeds the limit, and what is not known of it.

    Like `advise`, it counts the files that the target would download, and packages of unknown size as nothing. With a
    base, only a download that is larger than that of the base is reported.

    Args:
        scope: The lock, the target and the policy.
        client: The package indexes.
        installable: The file of each locked package that the target would install.
        limit: Largest admissible download, in bytes; none for no limit.
        base: The lock of the base, and the files that the target would install from it.
    """
    if limit is None:
        return
    sizes = read_download(scope.lock, installable, client)
    before = read_download(*base, client) if base is not None else {}
    download = _total(sizes)
    if download > limit and (base is None or download > _total(before)):
        text, most = size_texts(download, limit)
        largest = sorted(sizes, key=lambda package: (-(sizes[package] or 0), package))[:_NAMED]
        listed = ", ".join(f"`{package}` with {size_text(sizes[package] or 0)}" for package in largest)
        yield scope.finding(
            "ADV032",
            f"the download is {text}, and `max-size` allows {most}; the largest: {listed}",
            subject="max-size",
            cause=Cause.of(scope.lock.versions),
        )
    old = base[0].versions if base is not None else {}
    changed = [name for name in sizes if old.get(name) != scope.lock.versions[name]]
    unknown = [name for name in changed if sizes[name] is None]
    yield from unknown_sizes(scope, unknown, total="the download that `max-size` limits", subject="max-size")


def _total(sizes: Sizes) -> int:
    return sum(size or 0 for size in sizes.values())

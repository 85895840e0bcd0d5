"""Checks of what the target would download: its vulnerabilities, its growth since the base, and `max-size`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from advisor.domain.words import count, quoted, size_text, size_texts
from advisor.gate.checks.artifacts import LockArtifacts
from advisor.gate.findings import Cause, Finding
from advisor.gate.scope import Scope
from advisor.index.pages.filenames import file_key
from advisor.locks.lock import LockedVersion

_NAMED = 3
"""Maximum number of packages that a message names."""
Sizes = Mapping[str, int | None]
"""Size of the file of each package in bytes; `None` if it is not known."""


def read_download(scope: Scope) -> dict[str, int | None]:
    """Return the size of the file of each package that the target would download for a lock.

    The size on the index page counts; if the page has none, that in the lock; else the file's header is requested.
    """
    lock, client, installable = scope.lock, scope.case.client, scope.once(LockArtifacts).installable
    sizes: dict[str, int | None] = {}
    for name, locked in lock.packages.items():
        file = installable[name].file if name in installable else None
        on_page = file.size if file is not None else None
        sizes[name] = on_page if on_page is not None else _locked_size(locked, file.filename if file else "")
    missing = {name: installable[name].file for name in lock.packages if sizes[name] is None and name in installable}
    read = client.file_sizes.read(missing.values())
    return sizes | {name: read[file.identity].download for name, file in missing.items()}


def total_size(sizes: Sizes) -> int:
    """Return the sum of sizes in bytes; those that are not known count as nothing."""
    return sum(size or 0 for size in sizes.values())


def _locked_size(locked: LockedVersion, filename: str) -> int | None:
    """Return the size that a lock records of a file; if no file can be installed, of its only file."""
    if not filename:
        return locked.files[0].size if len(locked.files) == 1 else None
    key = file_key(filename)
    return next((file.size for file in locked.files if file_key(file.name) == key), None)


def check_vulnerabilities(scope: Scope) -> Iterator[Finding]:
    """Yield the known vulnerabilities of the locked packages, and how many packages have no record.

    Raises:
        UnavailableError: If an index cannot be read.
    """
    candidates = sorted(scope.once(LockArtifacts).installable.values())
    scope.case.client.prefetch_vulnerabilities((c.file, c.name, str(c.version)) for c in candidates)
    unrecorded = 0
    for c in candidates:
        identifiers = scope.case.client.vulnerabilities(c.file, c.name, str(c.version))
        unrecorded += identifiers is None
        for name in identifiers or ():
            message = f"`{c.name} {c.version}` has the known vulnerability {name}"
            cause = Cause.of({c.name: c.version})
            yield scope.finding("ADV009", message, package=c.name, subject=name, cause=cause)
    if unrecorded:
        message = f"there is no vulnerability record for {unrecorded} of {len(candidates)} packages"
        yield scope.finding("ADV022", message, subject="vulnerabilities")


def check_growth(scope: Scope) -> Iterator[Finding]:
    """Yield the growth of the download, if it exceeds the policy's `max-growth`, and what is not known of it.

    A package counts only if its size is known in both locks, or in the only one that has it.
    """
    limit, base = scope.policy.max_growth, scope.base
    if limit is None or base is None or scope.comparison is None:
        return
    name, before, after = scope.comparison.base, base.once(read_download), scope.once(read_download)
    growths = _growths(before, after)
    growth, base_bytes = sum(growths.values()), sum(size or 0 for size in before.values())
    if limit.fraction is not None and before and not base_bytes:
        message = f"the growth of the download is not known in percent: no size of {name} is known"
        yield scope.finding("ADV022", message, subject="growth")
    elif not limit.allows(growth, base=base_bytes):
        largest = sorted((p for p in growths if growths[p] > 0), key=lambda p: (-growths[p], p))
        message = (
            f"the download grows by {size_text(growth)}, from {size_text(base_bytes)} of {name}; {limit} is allowed; "
            + ", ".join(f"`{package}` by {size_text(growths[package])}" for package in largest[:_NAMED])
        )
        yield scope.finding("ADV031", message, subject="growth", cause=Cause.of(scope.lock.versions))
    # A package of unknown size that stays as it is does not make the download grow.
    unknown = [p for p in after if p not in growths and base.lock.versions.get(p) != scope.lock.versions[p]]
    yield from unknown_sizes(scope, unknown, total="the growth of the download", subject="growth")


def unknown_sizes(scope: Scope, packages: Sequence[str], *, total: str, subject: str) -> Iterator[Finding]:
    """Yield that a sum of sizes does not contain some packages; nothing if there are none."""
    if packages:
        message = (
            f"{total} does not contain {count(len(packages), 'package')} of unknown size: "
            f"{quoted(packages[:_NAMED])}{' and others' if len(packages) > _NAMED else ''}"
        )
        yield scope.finding("ADV022", message, subject=subject)


def _growths(before: Sizes, after: Sizes) -> dict[str, int]:
    """Return the growth of each package in bytes; a package of unknown size in one of the locks is left out."""
    pairs = {package: (before.get(package, 0), after.get(package, 0)) for package in sorted({**before, **after})}
    return {package: new - old for package, (old, new) in pairs.items() if old is not None and new is not None}


def check_download(scope: Scope) -> Iterator[Finding]:
    """Yield that the download of a lock exceeds `max-size`, and what is not known of it.

    Like `advise`, it counts the files that the target would download, and packages of unknown size as nothing. With a
    base, only a download that has grown is reported.
    """
    limit, base = scope.case.max_size, scope.base
    if limit is None:
        return
    sizes = scope.once(read_download)
    before = base.once(read_download) if base is not None else {}
    download = total_size(sizes)
    if download > limit and (base is None or download > total_size(before)):
        text, most = size_texts(download, limit)
        largest = sorted(sizes, key=lambda package: (-(sizes[package] or 0), package))[:_NAMED]
        listed = ", ".join(f"`{package}` with {size_text(sizes[package] or 0)}" for package in largest)
        message = f"the download is {text}, and `max-size` allows {most}; the largest: {listed}"
        yield scope.finding("ADV032", message, subject="max-size", cause=Cause.of(scope.lock.versions))
    old = base.lock.versions if base is not None else {}
    changed = [name for name in sizes if old.get(name) != scope.lock.versions[name]]
    unknown = [name for name in changed if sizes[name] is None]
    yield from unknown_sizes(scope, unknown, total="the download that `max-size` limits", subject="max-size")


STATE_CHECKS = (check_vulnerabilities,)
CHANGE_CHECKS = (check_growth, check_download)

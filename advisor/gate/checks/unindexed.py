"""Packages of a lock that come from no index (repositories, archives, directories) or that have no version."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from advisor.domain.direct_reference import DirectReference
from advisor.gate.findings import Cause, Finding
from advisor.gate.scope import Scope
from advisor.index.addresses import local_path, printable
from advisor.locks.lock import Lock, LockedSource

# Suffixes of archives according to pip (pip/_internal/utils/filetypes.py).
_ARCHIVES = (
    *(".zip", ".whl", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz"),
    *(".tar.xz", ".txz", ".tar.lz", ".tlz", ".tar.lzma"),
)


def unindexed_packages(scope: Scope, listed: Collection[LockedSource] = ()) -> Iterator[Finding]:
    """Yield packages that come from no index, packages without a version, and hosts without a certificate.

    Sources that an index of the project lists, with their hashes, are left out.
    """
    lock = scope.lock
    for source in lock.sources:
        if source in listed:
            continue
        if is_within_project(lock, source):
            if os.path.normpath(source.address) != ".":
                message = f"`{source.name}` comes from the directory `{source.address}`: its files are not checked"
                yield scope.finding("ADV022", message, package=source.name, place=scope.at(source.line))
        elif any(is_of(lock, source, reference) for reference in scope.state.trusted_references):
            address = printable(source.address)
            message = f"`{source.name}` comes from `{address}`, as the project requires: its files are not checked"
            yield scope.finding("ADV022", message, package=source.name, place=scope.at(source.line), subject=address)
        else:
            yield _not_from_index(scope, source)
    for name, line in lock.open_entries:
        message = f"the lock has no version of `{name}` for some platforms where it is required"
        yield scope.finding("ADV023", message, package=name, place=scope.at(line), subject="open")
    for host, line in lock.trusted_hosts:
        message = f"the certificate of `{host}` is not verified (`--trusted-host`, `verify_ssl`)"
        yield scope.finding("ADV030", message, place=scope.at(line), subject=host)


def check_replaced_by_directories(scope: Scope) -> Iterator[Finding]:
    """Yield the packages that a lock takes from a directory, but the base's lock from an index."""
    indexed = {name for name, _ in scope.base.lock.indexed} if scope.base is not None else set()
    for source in scope.lock.sources:
        if source.name in indexed and is_within_project(scope.lock, source):
            yield _not_from_index(scope, source)


def check_changed_content(scope: Scope) -> Iterator[Finding]:
    """Yield packages of trusted places whose commit or hash differs from the base's lock.

    A commit or a hash that the project itself states, or that its branch has now, may replace the former one.
    """
    if scope.base is None:
        return
    former: dict[str, set[tuple[str, str]]] = {}
    for source in scope.base.lock.sources:
        former.setdefault(source.name, set()).add((source.address, source.content))
    for source in scope.lock.sources:
        if is_within_project(scope.lock, source):
            continue
        references = [r for r in scope.state.trusted_references if is_of(scope.lock, source, r)]
        is_former = (source.address, source.content) in former.get(source.name, ())
        if references and not is_former and not any(_states_content(source, r) for r in references):
            yield _not_from_index(scope, source)


def _states_content(source: LockedSource, reference: DirectReference) -> bool:
    """Whether the project, or its branch now, says that a package has the content that is locked."""
    if reference.kind == "vcs":
        return source.commit == (reference.commit or reference.revision)
    return reference.is_local or bool(reference.sha256)


def is_within_project(lock: Lock, source: LockedSource) -> bool:
    """Whether a package comes from a directory of the project, whose content is reviewed with the project."""
    address = os.path.normpath(source.address)
    inside = ":" not in address and "\\" not in address and not Path(address).is_absolute()
    if not (source.directory and inside) or address.split("/")[0] == ".." or address.lower().endswith(_ARCHIVES):
        return False
    if lock.path is None:
        return True
    place = lock.path.parent / address
    try:
        return not place.is_file() and place.resolve().is_relative_to(lock.path.parent.resolve())
    except (OSError, ValueError, RuntimeError):  # Not a path, or circular links.
        return False


def is_of(lock: Lock, source: LockedSource, reference: DirectReference) -> bool:
    """Whether a package of a lock comes from a direct reference, with the commit or the hash that the reference states.

    A branch or a tag states no commit.
    """
    if source.subdirectory.strip("/") != reference.subdirectory:
        return False
    if reference.sha256 and source.hashes != {reference.sha256}:
        return False
    if reference.is_local:
        if lock.path is None or "://" in source.address.removeprefix("file://"):
            return False
        path = (local_path(source.address) if source.address.startswith("file:") else None) or Path(source.address)
        return os.path.normpath((lock.path.parent / path).absolute()) == reference.url
    if _place_of(source.url.removeprefix(f"{reference.vcs}+")) != _place_of(reference.url):
        return False
    states_commit = reference.kind == "vcs" and replace(reference, commit="").is_exact
    return not states_commit or source.commit == reference.revision


def _place_of(address: str) -> str:
    """Return the address of a repository or archive without user and suffix."""
    parts = urlsplit(address)
    path = parts.path.rstrip("/").removesuffix(".git")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}?{parts.query}"


def _not_from_index(scope: Scope, source: LockedSource) -> Finding:
    address, place, cause = printable(source.address), scope.at(source.line), Cause(files=(source.content,))
    message = f"`{source.name}` comes from `{address}`, not from an index: its files cannot be compared"
    return scope.finding("ADV026", message, package=source.name, place=place, subject=address, cause=cause)


CHANGE_CHECKS = (check_replaced_by_directories, check_changed_content)

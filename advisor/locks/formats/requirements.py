"""Reads requirements files that are locks: each line has an exact version, or an address with a commit."""

from __future__ import annotations

from pathlib import Path

from packaging.utils import NormalizedName
from packaging.version import InvalidVersion, Version

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target
from advisor.locks.entries import holds
from advisor.locks.lock import Lock, LockedSource, LockedVersion, read_text
from advisor.project.formats.requirements import decoded, read_requirements
from advisor.project.text_file import UnreadableFileError
from knowledge.domain.documents import lines_of


def read_pinned_requirements(path: Path, target: Target) -> Lock:
    """Return the packages of a requirements file for a target.

    Args:
        path: The file.
        target: The target whose packages are read.

    Raises:
        InputError: If the file does not exist.
        UnreadableFileError: If it cannot be read, or a line names neither an exact version nor an exact address.
    """
    text = read_text(path, decode=decoded) if path.is_file() else ""
    project = read_requirements(path)
    packages: dict[NormalizedName, LockedVersion] = {}
    entries: list[tuple[NormalizedName, LockedVersion]] = []
    sources: list[LockedSource] = []
    for root in project.roots:
        if root.direct is not None:
            if not root.direct.is_exact:
                raise _unpinned(root, path, f"`{root.direct.printable}` names no commit, so this file is not a lock")
            sources.append(_source_of(root, root.direct))
            continue
        marker = root.requirement.marker
        pins = [s.version for s in root.requirement.specifier if s.operator in ("==", "===") and "*" not in s.version]
        on_target = marker is None or holds(str(marker), target)
        if len(pins) != 1:
            raise _unpinned(root, path, f"`{root.requirement}` is not an exact version, so this file is not a lock")
        for pin in pins:
            try:
                version = Version(pin)
            except InvalidVersion:
                raise _unpinned(root, path, f"`{pin}` is not a valid version (PEP 440)") from None
            locked = LockedVersion(
                version=version,
                line=root.line,
                path=root.path,
                hashes=frozenset(h.lower() for h in root.hashes),
                other_hashes=root.other_hashes,
            )
            entries.append((root.name, locked))
            if on_target:
                packages[root.name] = locked
    addresses = (project.index_url, *project.extra_index_urls, *project.find_links)
    urls = [url for url in addresses if url]
    lines = list(enumerate(lines_of(text), 1))
    places = {word: next((n for n, line in lines if word in line), 1) for word in (*urls, *project.trusted_hosts)}
    has_hashes = any(locked.hashes or locked.other_hashes for _, locked in entries)
    return Lock(
        path=path,
        packages=packages,
        entries=tuple(entries),
        sources=tuple(sources),
        indexes=tuple((url, places[url]) for url in dict.fromkeys(urls)),
        trusted_hosts=tuple((host, places[host]) for host in dict.fromkeys(project.trusted_hosts)),
        records_hashes=has_hashes,
    )


def _source_of(root: RootRequirement, reference: DirectReference) -> LockedSource:
    return LockedSource(
        name=root.name,
        address=reference.url if reference.is_local else reference.address,
        content=" ".join((reference.address, *sorted(root.hashes))),
        directory=reference.kind == "directory",
        line=root.line,
        url=reference.url,
        commit=reference.commit or reference.revision,
        subdirectory=reference.subdirectory,
        hashes=root.hashes,
    )


def _unpinned(root: RootRequirement, path: Path, message: str) -> UnreadableFileError:
    return UnreadableFileError(
        f"{root.origin}: {message}",
        path=Path(root.path or path),
        line=root.line,
        package=root.name,
        hint="pin every line with `==`, as `pip freeze` does, or choose another file with `--current`",
    )

"""Comparison of every file that a lock names, for any platform, with the project's indexes: name, address, hash."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.gate.checks.unindexed import unindexed_packages
from advisor.gate.findings import Cause, Finding
from advisor.gate.scope import Scope
from advisor.index.addresses import comparable, is_on_this_machine, local_path, origin_of, printable
from advisor.index.configuration import IndexConfiguration
from advisor.index.memo import Memo
from advisor.index.pages.filenames import file_key, version_of
from advisor.index.pages.page import DistributionFile
from advisor.locks.lock import LockedFile, LockedSource, LockedVersion

_PYPI_FILE = re.compile(
    r"https://files\.pythonhosted\.org/packages/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{60}/(?P<name>[^/?]+)"
)
"""Address of a file on PyPI, which contains the BLAKE2b hash of its content.

Source: https://www.mail-archive.com/nix-dev@lists.science.uu.nl/msg18816.html
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """How a locked version differs from its index, which indexes list it, and how many files have no SHA-256 there."""

    findings: tuple[Finding, ...] = ()
    origins: tuple[str, ...] = ()
    unhashed: int = 0


class LockedFiles:
    """The files of a lock, compared with the files that the project's indexes list.

    `foreign` are packages that are locked from another index; `compared` are those whose files were compared.
    """

    def __init__(self, scope: Scope) -> None:
        """Compare the files.

        Raises:
            UnavailableError: If an index cannot be read.
        """
        self.scope, self.client = scope, scope.case.client
        self._memo = Memo(scope.case.client.cache, "listed")
        self._allowed_indexes = frozenset(map(_base, scope.state.allowed_indexes))
        self.findings: list[Finding] = []
        self.foreign: set[NormalizedName] = set()
        self.compared: set[NormalizedName] = set()
        every = (*scope.lock.packages.items(), *scope.lock.entries)
        self.client.prefetch(projects=dict.fromkeys(name for name, locked in every if not locked.direct_reference))
        unhashed = 0
        for name, locked in scope.lock.indexed:
            comparison = self._compare(name, locked)
            self.compared.add(name)
            unhashed += comparison.unhashed
            if foreign := self._foreign(name, locked, comparison.origins):
                self.foreign.add(name)
                self.findings.append(foreign)
            self.findings += comparison.findings
        self.findings += unindexed_packages(scope, [s for s in scope.lock.sources if self._is_listed_build(s)])
        for url, line in scope.lock.indexes:
            if not self._is_expected(url):
                address = printable(url)
                message = f"packages may come from `{address}`, which is not one of the project's indexes"
                self.findings.append(scope.finding("ADV015", message, place=scope.at(line), subject=address))
        if unhashed:
            message = f"the index gives no SHA-256 for {unhashed} files of the lock"
            self.findings.append(scope.finding("ADV022", message, subject="hashes"))

    def _compare(self, name: NormalizedName, locked: LockedVersion) -> _Comparison:
        """Compare one version; skip it if it did not differ before and neither page nor lock has changed since."""
        question = self._question(name, locked)
        if question and (origins := self._memo.read(question)) is not None:
            return _Comparison(origins=tuple(origins))
        comparison = self._differences(name, locked)
        if comparison.findings and not self.client.offline:
            # The cached page may be older than the file.
            self.client.renew(name)
            comparison, question = self._differences(name, locked), self._question(name, locked)
        if question and not comparison.findings and not comparison.unhashed:
            self._memo.write(question, comparison.origins)
        return comparison

    def _question(self, name: NormalizedName, locked: LockedVersion) -> list[Any]:
        """Return what a comparison depends on; empty if that may change unnoticed, as a directory does."""
        digests = [page.digest for page in self.client.pages(name)]
        if not all(digests) or any(file.path for file in locked.files):
            return []
        return [self._admits_pypi(), name, locked.version, digests, locked.identities]

    def _differences(self, name: NormalizedName, locked: LockedVersion) -> _Comparison:
        names = {file.name for file in locked.files}
        pattern = _release_pattern(locked.version)
        listed = self.client.select_files(name, lambda filename: filename in names or bool(pattern.search(filename)))
        # No installer uses files whose name has no version.
        of_version = [file for file in listed if version_of(file.filename) in (locked.version, None)]
        if not any(f.filename in names or version_of(f.filename) == locked.version for f in listed):
            message = f"`{name} {locked.version}` is not on the index"
            return _Comparison(findings=(self._finding("ADV011", message, name, locked, files=locked.identities),))
        keys = {file_key(filename) for filename in names}
        compared = [f for f in listed if file_key(f.filename) in keys] if names else of_version
        return _Comparison(
            findings=(*self._of_files(name, locked, listed), *self._of_hashes(name, locked, of_version)),
            origins=tuple(dict.fromkeys(file.index for file in listed)),
            unhashed=sum(not self._sha256(file) for file in compared) if locked.hashes else 0,
        )

    def _of_files(
        self, name: NormalizedName, locked: LockedVersion, listed: Sequence[DistributionFile]
    ) -> Iterator[Finding]:
        """Yield the problems of the files that a lock names."""
        moved: dict[str, list[tuple[LockedFile, DistributionFile]]] = {}
        for file in locked.files:
            offered = [candidate for candidate in listed if file_key(candidate.filename) == file_key(file.name)]
            if not offered or version_of(file.name) not in (locked.version, None):
                what = "which is of another version" if offered else "which its index does not list"
                message = f"the lock names `{file.name}` for `{name} {locked.version}`, {what}"
                yield self._finding("ADV024", message, name, locked, subject=file.name, files=(file.identity,))
                continue
            differences = [self._difference(file, o) for o in offered]
            if any(not text and self._is_at(file, o) for text, o in zip(differences, offered, strict=True)):
                if not file.sha256 and locked.hashes:
                    message = f"the lock has no SHA-256 of `{file.name}`"
                    yield self._finding("ADV013", message, name, locked, subject=file.name, files=(file.identity,))
            elif all(differences):
                message = differences[0]
                yield self._finding("ADV014", message, name, locked, subject=file.name, files=(file.identity,))
            else:
                moved.setdefault(origin_of(file.path or file.url), []).append((file, offered[0]))
        for origin, several in moved.items():
            file, first = several[0]
            more = f" (and {len(several) - 1} more of its files)" if len(several) > 1 else ""
            message = (
                f"the lock takes `{file.name}` from `{printable(file.path or file.url)}`, but its index has it at "
                f"`{first.url}`{more}"
            )
            files = [moved_file.identity for moved_file, _ in several]
            yield self._finding("ADV025", message, name, locked, subject=origin, files=files)

    def _difference(self, file: LockedFile, offered: DistributionFile) -> str:
        """Return how a file differs from the file of the same name on the index; empty if it does not differ."""
        if file.other_hashes:
            # pip takes a file that has any of the hashes (pip/_internal/utils/hashes.py).
            algorithm = file.other_hashes[0].partition(":")[0]
            return f"the lock admits `{file.name}` by its `{algorithm}` hash, which the index does not give"
        digest = self._sha256(offered)
        if file.sha256 and digest and file.sha256 != digest:
            return f"the index offers `{file.name}` with another SHA-256 than the lock"
        if file.size is not None and offered.size is not None and file.size != offered.size:
            return f"the index offers `{file.name}` with {offered.size} bytes, but the lock has {file.size} bytes"
        return ""

    def _is_at(self, file: LockedFile, offered: DistributionFile) -> bool:
        """Whether a lock names the address on the page of the index, or PyPI's for a mirror; true if it names none."""
        if file.path:
            return self._is_same_path(file.path, offered)
        if not file.url:
            return True
        url = file.url.removesuffix(f"#sha256={file.sha256}")
        if is_on_this_machine(url):
            return self._is_same_path(url, offered)
        if comparable(url) == comparable(offered.url):
            return True
        match = _PYPI_FILE.fullmatch(comparable(url))
        if match is None or file_key(match["name"]) != file_key(file.name) or file.sha256 != self._sha256(offered):
            return False
        return bool(file.sha256) and self._admits_pypi() and _base(offered.index) != _pypi()

    def _is_same_path(self, path: str, offered: DistributionFile) -> bool:
        indexed_path = local_path(offered.url) if is_on_this_machine(offered.url) else None
        lock = self.scope.lock.path
        locked_path = local_path(path) if is_on_this_machine(path) else None
        if indexed_path is None or locked_path is None or lock is None:
            return False
        return (lock.parent / locked_path).resolve() == indexed_path.resolve()

    def _sha256(self, file: DistributionFile) -> str:
        """Return the SHA-256 of a file that an index lists; empty if a remote index does not give it."""
        if file.sha256:
            return file.sha256.lower()
        path = local_path(file.url) if is_on_this_machine(file.index) and is_on_this_machine(file.url) else None
        if path is None or not path.is_file():
            return ""
        return self.client.pinned(file).sha256 or ""

    def _of_hashes(
        self, name: NormalizedName, locked: LockedVersion, of_version: Sequence[DistributionFile]
    ) -> Iterator[Finding]:
        """Yield the problems of hashes whose files the lock does not name."""
        for hashed in sorted(locked.other_hashes):
            message = (
                f"the lock admits files of `{name} {locked.version}` by a `{hashed.partition(':')[0]}` hash, which "
                "the index does not give"
            )
            yield self._finding("ADV024", message, name, locked, subject=hashed, files=(hashed,))
        unnamed = locked.hashes - {file.sha256 for file in locked.files}
        digests = {self._sha256(file) for file in of_version} if unnamed else set()
        unlisted = sorted(unnamed - digests)
        if "" in digests or not unlisted:
            return
        if len(unlisted) == len(unnamed):
            message = f"the index offers no file of `{name} {locked.version}` with a SHA-256 of the lock"
            yield self._finding("ADV014", message, name, locked, files=unlisted)
            return
        for digest in unlisted:
            message = (
                f"the lock admits a file of `{name} {locked.version}` with the SHA-256 `{digest}`, which its index "
                "does not list"
            )
            yield self._finding("ADV024", message, name, locked, subject=f"sha256:{digest}", files=(digest,))

    def _finding(
        self,
        code: str,
        message: str,
        name: NormalizedName,
        locked: LockedVersion,
        *,
        subject: str = "",
        files: Sequence[str] = (),
    ) -> Finding:
        """Return a finding at the line of one version; a lock may have several entries of one package."""
        return self.scope.finding(
            code,
            message,
            package=name,
            place=self.scope.place_of_entry(locked),
            subject=subject,
            cause=Cause.of({name: locked.version}, files=files),
        )

    def _foreign(self, name: NormalizedName, locked: LockedVersion, origins: Iterable[str]) -> Finding | None:
        """Return the finding for a package that is locked from an index which the project does not use for it."""
        if locked.index is None or is_on_this_machine(locked.index):
            return None  # A directory of this machine is trusted.
        bound = self.client.configuration.bindings.get(name)
        if bound is not None and self.scope.policy.indexes is None:
            if _base(bound) == _base(locked.index):
                return None
            reason = f"the project binds it to `{printable(bound)}`"
        elif self._is_expected(locked.index, origins):
            return None
        else:
            reason = "which is not one of the project's indexes"
        index = printable(locked.index)
        return self._finding("ADV015", f"`{name}` is locked from `{index}`, {reason}", name, locked, subject=index)

    def _is_listed_build(self, source: LockedSource) -> bool:
        """Whether a package comes from the address of a further build, with the hash that its index gives."""
        name = canonicalize_name(source.name)
        filename = unquote(urlsplit(source.address).path.rpartition("/")[2])
        return any(
            comparable(file.url) == comparable(source.address) and source.hashes == {self._sha256(file)}
            for file in self.client.select_files(name, lambda listed: listed == filename)
            if self.client.configuration.has_builds_of(name, file.index)
        )

    def _is_expected(self, url: str, origins: Iterable[str] = ()) -> bool:
        address = _base(url)
        if address in self._allowed_indexes:
            return True
        if self.scope.policy.indexes is not None:
            return False
        # PyPI last, which other tools record even if a mirror is configured here: its address comes from a library that
        # is slow to load.
        return address in map(_base, origins) or address == _pypi()

    def _admits_pypi(self) -> bool:
        """Whether packages may come from PyPI, even if a mirror is configured instead of it."""
        return self.scope.policy.indexes is None or _pypi() in self._allowed_indexes


def _base(url: str) -> str:
    """Return the address of an index without a final slash, for comparison."""
    return comparable(url).rstrip("/")


def _pypi() -> str:
    return _base(IndexConfiguration().default_url)


def _release_pattern(version: Version) -> re.Pattern[str]:
    """Return a pattern that the name of every file of a version matches: its release without trailing zeros."""
    release = list(version.release)
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    return re.compile(r"(?<!\d)" + r"[._]".join(f"0*{number}" for number in release) + r"(?!\d)")

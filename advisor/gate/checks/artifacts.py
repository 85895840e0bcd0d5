"""Checks of the files that the target would install: available, not yanked, unchanged, hashed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.gate.checks.locked_files import LockedFiles
from advisor.gate.findings import Cause, Finding
from advisor.gate.scope import Scope
from advisor.index.addresses import printable
from advisor.index.pages.filenames import file_key, version_of
from advisor.locks.lock import LockedVersion
from advisor.resolve.candidates.compatible_files import CompatibleFile, CompatibleFileReader
from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.candidates.variants import VariantFileReader


class LockArtifacts:
    """The file of each locked package that the target would install, if there is one, and the problems of the files."""

    def __init__(self, scope: Scope) -> None:
        """Look up the file of each locked package.

        Raises:
            UnavailableError: If an index cannot be read.
        """
        self._scope, self._client, problem = scope, scope.case.client, scope.problem
        self._files = files = LockedFiles(scope)
        self._reader = (
            VariantFileReader(problem, self._client)
            if problem.policy.variants
            else CompatibleFileReader(problem.target, self._client.cache)
        )
        self._differing = {finding.package for finding in files.findings if finding.code in ("ADV014", "ADV024")}
        self.installable: dict[NormalizedName, Candidate] = {}
        self.findings = [
            scope.finding(
                "ADV012", f"the lock {text}", place=scope.at(line), subject="lock", cause=Cause(files=(text,))
            )
            for text, line in scope.lock.obstacles
        ]
        self.findings += files.findings
        for name, locked in scope.lock.packages.items():
            if address := locked.direct_reference:
                if scope.lock.path is None:
                    text = f"`{name}` comes from `{printable(address)}`, not from an index: its files are not checked"
                    self.findings.append(scope.finding("ADV022", text, package=name))
                continue
            offers = self._compatible_files(name, locked.version)
            if not offers and not self._client.offline and name not in files.compared:
                # The version may be newer than the cached page.
                self._client.renew(name)
                offers = self._compatible_files(name, locked.version)
            if name in files.foreign:
                continue
            self.findings += self._locate(name, locked, offers)
        self.findings += self._without_hashes()

    def _compatible_files(self, name: NormalizedName, version: Version) -> dict[str, CompatibleFile]:
        """Return the files of a version that the target could install, by file name."""
        offers: dict[str, CompatibleFile] = {}
        for page in self._client.pages(name):
            for offer in self._reader.of_version(page, name, version):
                offers.setdefault(offer.file.filename, offer)
        return offers

    def _locate(
        self, name: NormalizedName, locked: LockedVersion, offers: Mapping[str, CompatibleFile]
    ) -> Iterator[Finding]:
        """Store the file that the target would install, and yield its problems."""
        keys = {file_key(file.name) for file in locked.files}
        usable = {f: o for f, o in offers.items() if not keys or file_key(f) in keys}
        if locked.hashes and not keys:
            usable = {f: o for f, o in offers.items() if o.file.sha256 is None or o.file.sha256 in locked.hashes}
        if not usable and name not in self._differing:
            yield from self._unusable(name, locked, offers)
        best = min((usable or offers).values(), key=lambda o: o.rank, default=None)
        if best is None:
            return
        self.installable[name] = Candidate(name=name, version=locked.version, file=best.file)
        if all(offer.file.yanked for offer in (usable or offers).values()):
            message = f"`{name} {locked.version}` was yanked by its publisher"
            cause = Cause.of({name: locked.version}, files=[str(locked.version)])
            yield self._scope.finding("ADV010", message, package=name, cause=cause)

    def _unusable(
        self, name: NormalizedName, locked: LockedVersion, offers: Mapping[str, CompatibleFile]
    ) -> Iterator[Finding]:
        """Yield why the target can install no file of the lock: the version was removed, or is for other platforms."""
        cause = Cause.of({name: locked.version})
        if any(version_of(file.filename) == locked.version for file in self._client.files(name)):
            target, owner = self._scope.problem.target, "the lock" if offers else "the index"
            message = (
                f"{owner} has no file of `{name} {locked.version}` that Python {target.python_minor} on "
                f"{target.platform} can install"
            )
            yield self._scope.finding("ADV012", message, package=name, cause=cause)
        elif name not in self._files.compared:
            message = f"`{name} {locked.version}` is not on the index"
            yield self._scope.finding("ADV011", message, package=name, cause=cause)

    def _without_hashes(self) -> Iterator[Finding]:
        """Yield the packages whose files have no hash, for any platform, extra or group."""
        indexed = self._scope.lock.indexed
        unhashed: dict[NormalizedName, LockedVersion] = {}
        for name, locked in indexed:
            if not locked.hashes and name not in self._files.foreign:
                unhashed.setdefault(name, locked)
        if unhashed and not any(locked.hashes for _, locked in indexed):
            yield self._scope.finding("ADV013", "the lock has no hashes", subject="all")
            return
        for name, locked in unhashed.items():
            message = f"the lock has no hash of `{name} {locked.version}`"
            yield self._scope.finding("ADV013", message, package=name, place=self._scope.place_of_entry(locked))


def check_files(scope: Scope) -> Iterator[Finding]:
    """Yield the problems of the files of a lock.

    Raises:
        UnavailableError: If an index cannot be read.
    """
    yield from scope.once(LockArtifacts).findings


def check_hash_loss(scope: Scope) -> Iterator[Finding]:
    """Yield the packages that have no hashes in a lock, although they have them in the lock of the base.

    A new package must have hashes if all packages of the base's lock have them.
    """
    before = scope.base.lock.indexed if scope.base is not None else ()
    indexed = {name for name, _ in before}
    hashed = indexed - {name for name, locked in before if not _is_hashed(locked)}
    has_all = bool(hashed) and hashed == indexed
    locked_packages = scope.lock.indexed
    if has_all and locked_packages and not any(_is_hashed(locked) for _, locked in locked_packages):
        yield scope.finding("ADV029", "the lock has no hashes, but the base has", place=scope.at(1), subject="all")
        return
    for name, locked in locked_packages:
        if not _is_hashed(locked) and (name in hashed or (name not in indexed and has_all)):
            owner = "of all packages" if name not in indexed else "of its files"
            message = f"the lock does not have all hashes of `{name} {locked.version}`, but the base has those {owner}"
            yield scope.finding("ADV029", message, package=name, place=scope.place_of_entry(locked))


def _is_hashed(locked: LockedVersion) -> bool:
    return bool(locked.hashes) and all(file.sha256 for file in locked.files)


STATE_CHECKS = (check_files,)
CHANGE_CHECKS = (check_hash_loss,)

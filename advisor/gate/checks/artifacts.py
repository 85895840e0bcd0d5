"""Checks of the files that the target would install: available, not yanked, unchanged, hashed, not vulnerable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.gate.checks.locked_files import LockedFiles
from advisor.gate.findings import Cause, Finding, Place
from advisor.index.addresses import printable
from advisor.index.pages.filenames import file_key, version_of
from advisor.index.pages.page import DistributionFile
from advisor.locks.lock import LockedVersion
from advisor.resolve.candidates.compatible_files import CompatibleFile, CompatibleFileReader
from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.candidates.variants import VariantFileReader


class LockArtifacts:
    """The files that the target would install from a lock.

    Attributes:
        installable: The file of each locked package that the target would install, if there is one.
        findings: Problems of the files.
    """

    def __init__(self, files: LockedFiles) -> None:
        """Look up the file of each locked package.

        Args:
            files: All files of the lock, compared with the indexes.

        Raises:
            UnavailableError: If an index cannot be read.
        """
        self._files = files
        self._scope = files.scope
        self._client = files.client
        problem = self._scope.problem
        self._reader = (
            VariantFileReader(problem, self._client)
            if problem.policy.variants
            else CompatibleFileReader(problem.target, self._client.cache)
        )
        self._differing = {finding.package for finding in files.findings if finding.code in ("ADV014", "ADV024")}
        self.installable: dict[NormalizedName, Candidate] = {}
        self.findings: list[Finding] = [*self._lock_obstacles(), *files.findings]
        for name, locked in self._scope.lock.packages.items():
            if locked.direct_reference:
                if self._scope.lock.path is None:
                    self.findings.append(self._not_from_index(name, locked))
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

    def vulnerabilities(self) -> Iterator[Finding]:
        """Yield the known vulnerabilities of the locked packages, and how many packages have no record.

        Raises:
            UnavailableError: If an index cannot be read.
        """
        candidates = sorted(self.installable.values())
        self._client.prefetch_vulnerabilities((c.file, c.name, str(c.version)) for c in candidates)
        unrecorded = 0
        for candidate in candidates:
            identifiers = self._client.vulnerabilities(candidate.file, candidate.name, str(candidate.version))
            unrecorded += identifiers is None
            for identifier in identifiers or ():
                yield self._scope.finding(
                    "ADV009",
                    f"`{candidate.name} {candidate.version}` has the known vulnerability {identifier}",
                    package=candidate.name,
                    subject=identifier,
                    cause=Cause.of({candidate.name: candidate.version}),
                )
        if unrecorded:
            yield self._scope.finding(
                "ADV022",
                f"there is no vulnerability record for {unrecorded} of {len(candidates)} packages",
                subject="vulnerabilities",
            )

    def _lock_obstacles(self) -> Iterator[Finding]:
        """Yield why the target cannot install the lock as a whole."""
        for problem, line in self._scope.lock.obstacles:
            yield self._scope.finding(
                "ADV012",
                f"the lock {problem}",
                place=Place(path=str(self._scope.lock.path), line=line),
                subject="lock",
                cause=Cause(files=(problem,)),
            )

    def _not_from_index(self, name: NormalizedName, locked: LockedVersion) -> Finding:
        return self._scope.finding(
            "ADV022",
            f"`{name}` comes from `{printable(locked.direct_reference)}`, not from an index: its files are not checked",
            package=name,
        )

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
            yield self._scope.finding(
                "ADV010", message, package=name, cause=Cause.of({name: locked.version}, files=[str(locked.version)])
            )

    def _unusable(
        self, name: NormalizedName, locked: LockedVersion, offers: Mapping[str, CompatibleFile]
    ) -> Iterator[Finding]:
        """Yield why the target can install no file of the lock: the version was removed, or is for other platforms."""
        cause = Cause.of({name: locked.version})
        if self._files_of(name, locked.version):
            target = self._scope.problem.target
            owner = "the lock" if offers else "the index"
            yield self._scope.finding(
                "ADV012",
                f"{owner} has no file of `{name} {locked.version}` that Python {target.python_minor} on "
                f"{target.platform} can install",
                package=name,
                cause=cause,
            )
        elif name not in self._files.compared:
            yield self._scope.finding(
                "ADV011", f"`{name} {locked.version}` is not on the index", package=name, cause=cause
            )

    def _files_of(self, name: NormalizedName, version: Version) -> list[DistributionFile]:
        """Return all files of a version, for any target."""
        return [file for file in self._client.files(name) if version_of(file.filename) == version]

    def _without_hashes(self) -> Iterator[Finding]:
        """Yield the packages whose files have no hash, for any platform, extra or group."""
        indexed = [(name, locked) for name, locked in self._scope.lock.entries if not locked.direct_reference]
        unhashed: dict[NormalizedName, LockedVersion] = {}
        for name, locked in indexed:
            if not locked.hashes and name not in self._files.foreign:
                unhashed.setdefault(name, locked)
        if unhashed and not any(locked.hashes for _, locked in indexed):
            yield self._scope.finding("ADV013", "the lock has no hashes", subject="all")
            return
        for name, locked in unhashed.items():
            place = Place(path=locked.path or str(self._scope.lock.path), line=locked.line)
            message = f"the lock has no hash of `{name} {locked.version}`"
            yield self._scope.finding("ADV013", message, package=name, place=place)

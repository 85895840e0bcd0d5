"""Whether the files of a lock are those of the project's indexes: present, unwithdrawn, unchanged, from where meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.gate.findings import Finding
from advisor.gate.locked_files import LockedFiles
from advisor.gate.scope import Scope
from advisor.index.addresses import printable
from advisor.index.client import IndexClient
from advisor.index.filenames import file_key, version_of
from advisor.index.page import DistributionFile
from advisor.project.locks import LockedVersion
from advisor.resolve.compatible_files import Offer, OfferReader
from advisor.resolve.problem import Candidate


class Distribution:
    """The files of one lock on the indexes.

    Attributes:
        located: The file of each locked package that the target would install, as far as there is one.
    """

    def __init__(self, scope: Scope, client: IndexClient, *, expected: Collection[str]) -> None:
        """Find the locked packages on the indexes.

        Args:
            scope: What is examined.
            client: The indexes.
            expected: Addresses that packages may come from, beside the usual default one.

        Raises:
            UnavailableError: If an index cannot be read.
        """
        self._scope = scope
        self._client = client
        self._offers = OfferReader(scope.problem.target, client.cache)
        self.located: dict[NormalizedName, Candidate] = {}
        self._found: list[Finding] = []
        every = (*scope.lock.packages.items(), *scope.lock.entries)
        client.prefetch(projects=dict.fromkeys(name for name, locked in every if not locked.elsewhere))
        files = LockedFiles(scope, client, expected=expected)
        self._compared = files.compared
        self._differing = {finding.package for finding in files.findings if finding.code in ("ADV014", "ADV024")}
        self._found += files.findings
        unhashed: list[NormalizedName] = []
        for name, locked in scope.lock.packages.items():
            if locked.elsewhere:
                if scope.lock.path is None:
                    self._found.append(self._unjudged(name, locked))
                continue
            offers = self._offered(name, locked.version)
            if not offers and not client.offline and name not in self._compared:
                # It may be newer than the page that is kept.
                client.renew(name)
                offers = self._offered(name, locked.version)
            if name in files.foreign:
                continue
            self._found += self._locate(name, locked, offers)
            if not locked.hashes:
                unhashed.append(name)
        if scope.lock.path is not None:
            self._found += self._unhashed(unhashed)

    def findings(self) -> Sequence[Finding]:
        """Return what is wrong with the files."""
        return self._found

    def vulnerabilities(self) -> Iterator[Finding]:
        """Yield the known vulnerabilities of what is locked, and how much could not be told.

        Raises:
            UnavailableError: If an index cannot be read.
        """
        chosen = sorted(self.located.values())
        self._client.prefetch_vulnerabilities((c.file, c.name, str(c.version)) for c in chosen)
        silent = 0
        for candidate in chosen:
            known = self._client.vulnerabilities(candidate.file, candidate.name, str(candidate.version))
            silent += known is None
            for identifier in known or ():
                yield self._scope.finding(
                    "ADV009",
                    f"`{candidate.name} {candidate.version}` has the known vulnerability {identifier}",
                    package=candidate.name,
                    subject=identifier,
                    versions={candidate.name: candidate.version},
                )
        if silent:
            yield self._scope.finding(
                "ADV022",
                f"the index keeps no vulnerability record of {silent} of {len(chosen)} packages",
                subject="vulnerabilities",
            )

    def _unjudged(self, name: NormalizedName, locked: LockedVersion) -> Finding:
        return self._scope.finding(
            "ADV022",
            f"`{name}` comes from `{printable(locked.elsewhere)}`, no index: its files are not judged",
            package=name,
        )

    def _offered(self, name: NormalizedName, version: Version) -> dict[str, Offer]:
        """Return the files of a version that the target could install, by file name."""
        offers: dict[str, Offer] = {}
        for page in self._client.pages(name):
            for offer in self._offers.of_version(page, name, version):
                offers.setdefault(offer.file.filename, offer)
        return offers

    def _locate(self, name: NormalizedName, locked: LockedVersion, offers: Mapping[str, Offer]) -> Iterator[Finding]:
        """Find the file that the target would install; yield what is wrong with it."""
        keys = {file_key(file.name) for file in locked.files}
        usable = {f: o for f, o in offers.items() if not keys or file_key(f) in keys}
        if locked.hashes and not keys:
            usable = {f: o for f, o in offers.items() if o.file.sha256 is None or o.file.sha256 in locked.hashes}
        if not usable and name not in self._differing:
            yield from self._unusable(name, locked, offers)
        chosen = min((usable or offers).values(), key=lambda o: o.rank, default=None)
        if chosen is None:
            return
        self.located[name] = Candidate(name=name, version=locked.version, file=chosen.file)
        if all(offer.file.yanked for offer in (usable or offers).values()):
            message = f"`{name} {locked.version}` was withdrawn by its publisher (yanked)"
            yield self._scope.finding(
                "ADV010", message, package=name, versions={name: locked.version}, files=[str(locked.version)]
            )

    def _unusable(self, name: NormalizedName, locked: LockedVersion, offers: Mapping[str, Offer]) -> Iterator[Finding]:
        """Tell why no file of the lock serves the target: the version is gone, or for others."""
        versions: dict[str, object] = {name: locked.version}
        if self._files_of(name, locked.version):
            target = self._scope.problem.target
            holds = "the lock holds" if offers else "the index has"
            yield self._scope.finding(
                "ADV012",
                f"{holds} no file of `{name} {locked.version}` that Python {target.python_minor} on {target.platform} "
                "can install",
                package=name,
                versions=versions,
            )
        elif name not in self._compared:
            yield self._scope.finding(
                "ADV011", f"`{name} {locked.version}` is not on the index", package=name, versions=versions
            )

    def _files_of(self, name: NormalizedName, version: Version) -> list[DistributionFile]:
        """Return all files of a version, for whatever target."""
        return [file for file in self._client.files(name) if version_of(file.filename) == version]

    def _unhashed(self, names: Sequence[NormalizedName]) -> Iterator[Finding]:
        if not names:
            return
        if len(names) == len(self._scope.lock.packages):
            yield self._scope.finding("ADV013", "the lock holds no hashes", subject="all")
            return
        for name in names:
            yield self._scope.finding("ADV013", f"the lock holds no hash of `{name}`", package=name)

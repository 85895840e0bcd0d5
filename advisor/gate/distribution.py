"""Whether the files of a lock are those of the project's indexes: present, unwithdrawn, unchanged, from where meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    NormalizedName,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from advisor.gate.findings import Finding, Place
from advisor.gate.scope import Scope
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration, without_credentials
from advisor.index.page import DistributionFile
from advisor.project.locks import LockedVersion
from advisor.resolve.offers import Offer, OfferReader
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
        self._expected = frozenset(map(comparable, expected))
        self._offers = OfferReader(scope.problem.target, client.cache)
        self.located: dict[NormalizedName, Candidate] = {}
        self._found: list[Finding] = []
        client.prefetch(projects=[n for n, locked in scope.lock.packages.items() if not locked.elsewhere])
        unhashed: list[NormalizedName] = []
        for name, locked in scope.lock.packages.items():
            if locked.elsewhere:
                self._found.append(self._unjudged(name, locked))
                continue
            offers = self._offered(name, locked.version)
            if not offers and not client.offline:
                # It may be newer than the page that is kept.
                client.renew(name)
                offers = self._offered(name, locked.version)
            if foreign := self._foreign(name, locked, {o.file.index for o in offers.values()}):
                self._found.append(foreign)
                continue
            self._found += self._locate(name, locked, offers)
            if not locked.hashes:
                unhashed.append(name)
        self._found += self._named_indexes()
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
            f"`{name}` comes from `{without_credentials(locked.elsewhere)}`, no index: its files are not judged",
            package=name,
        )

    def _offered(self, name: NormalizedName, version: Version) -> dict[str, Offer]:
        """Return the files of a version that the target could install, by file name."""
        offers: dict[str, Offer] = {}
        for page in self._client.pages(name):
            for offer in self._offers.of_version(page, name, version):
                offers.setdefault(offer.file.filename, offer)
        return offers

    def _foreign(self, name: NormalizedName, locked: LockedVersion, origins: Collection[str]) -> Finding | None:
        """Return the finding on a package that is recorded from an index which is not meant for it.

        Args:
            name: The package.
            locked: What is locked.
            origins: Where the indexes of the project offer it from.
        """
        if locked.index is None or not locked.index.startswith(("http:", "https:")):
            return None  # A directory is nobody else's.
        bound = self._client.configuration.bindings.get(name)
        if bound is not None and self._scope.policy.indexes is None:
            if comparable(bound) == comparable(locked.index):
                return None
            reason = f"the project binds it to `{without_credentials(bound)}`"
        elif self._is_expected(locked.index, origins):
            return None
        else:
            reason = "which is not one of the project's indexes"
        return self._scope.finding(
            "ADV015",
            f"`{name}` is locked from `{without_credentials(locked.index)}`, {reason}",
            package=name,
            subject=without_credentials(locked.index),
            versions={name: locked.version},
        )

    def _named_indexes(self) -> Iterator[Finding]:
        for url, line in self._scope.lock.indexes:
            if not self._is_expected(url):
                yield self._scope.finding(
                    "ADV015",
                    f"packages may come from `{without_credentials(url)}`, which is not one of the project's indexes",
                    place=Place(path=str(self._scope.lock.path), line=line),
                    subject=without_credentials(url),
                )

    def _is_expected(self, url: str, origins: Collection[str] = ()) -> bool:
        named = comparable(url)
        if named in self._expected:
            return True
        if self._scope.policy.indexes is not None:
            return False
        # Last the address that the field's tools record where nothing is configured, whatever mirror stands in for it
        # here: it comes from a library that is slow to load.
        return named in map(comparable, origins) or named == comparable(IndexConfiguration().default_url)

    def _locate(self, name: NormalizedName, locked: LockedVersion, offers: Mapping[str, Offer]) -> Iterator[Finding]:
        """Find the file that the target would install; yield what is wrong with it."""
        changed = [f for f in locked.files if f in offers and offers[f].file.sha256 not in (None, locked.files[f])]
        usable = {f: o for f, o in offers.items() if not locked.files or f in locked.files}
        if locked.hashes and not locked.files:
            usable = {f: o for f, o in offers.items() if o.file.sha256 is None or o.file.sha256 in locked.hashes}
        if changed:
            yield self._changed(name, locked, changed[0])
        elif not usable:
            yield from self._unusable(name, locked, offers)
        chosen = min((usable or offers).values(), key=lambda o: o.rank, default=None)
        if chosen is None:
            return
        self.located[name] = Candidate(name=name, version=locked.version, file=chosen.file)
        if all(offer.file.yanked for offer in (usable or offers).values()):
            message = f"`{name} {locked.version}` was withdrawn by its publisher (yanked)"
            yield self._scope.finding("ADV010", message, package=name, versions={name: locked.version})

    def _unusable(self, name: NormalizedName, locked: LockedVersion, offers: Mapping[str, Offer]) -> Iterator[Finding]:
        """Tell why no file of the lock serves the target: the version is gone, for others, or was exchanged."""
        versions: dict[str, object] = {name: locked.version}
        every = self._files_of(name, locked.version)
        if not every:
            yield self._scope.finding(
                "ADV011", f"`{name} {locked.version}` is not on the index", package=name, versions=versions
            )
        elif offers and locked.hashes and not any(f.sha256 in locked.hashes for f in every):
            yield self._changed(name, locked, next(iter(offers)))
        else:
            target = self._scope.problem.target
            holds = "the lock holds" if offers else "the index has"
            yield self._scope.finding(
                "ADV012",
                f"{holds} no file of `{name} {locked.version}` that Python {target.python_minor} on {target.platform} "
                "can install",
                package=name,
                versions=versions,
            )

    def _changed(self, name: NormalizedName, locked: LockedVersion, filename: str) -> Finding:
        return self._scope.finding(
            "ADV014",
            f"the index offers `{filename}` with another SHA-256 than the lock holds",
            package=name,
            versions={name: locked.version},
        )

    def _files_of(self, name: NormalizedName, version: Version) -> list[DistributionFile]:
        """Return all files of a version, for whatever target."""
        return [file for file in self._client.files(name) if _version_of(file.filename) == version]

    def _unhashed(self, names: Sequence[NormalizedName]) -> Iterator[Finding]:
        if not names:
            return
        if len(names) == len(self._scope.lock.packages):
            yield self._scope.finding("ADV013", "the lock holds no hashes", subject="all")
            return
        for name in names:
            yield self._scope.finding("ADV013", f"the lock holds no hash of `{name}`", package=name)


def comparable(url: str) -> str:
    """Return an address as it is compared: without credentials and a final slash."""
    return without_credentials(url).rstrip("/")


def _version_of(filename: str) -> Version | None:
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None

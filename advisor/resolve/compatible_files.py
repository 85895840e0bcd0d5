"""Which files of a project page the target could install, remembered for each page and target."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import parse_tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    NormalizedName,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from advisor.domain.target import Target
from advisor.index.cache import DiskCache
from advisor.index.page import DistributionFile, dump_files, is_distribution, load_files
from advisor.index.pages import ProjectPage

_SDIST_RANK = 1 << 30
_NO_WHEEL = "no wheel for the target"
_FORMAT = 3
"""To be raised when what is remembered changes its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A file that the target could install; of one version, that with the least rank is installed."""

    version: Version
    rank: tuple[int, int]
    file: DistributionFile

    @property
    def is_wheel(self) -> bool:
        """Whether it is a wheel."""
        return self.rank[0] != _SDIST_RANK


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What a page offers a target.

    Attributes:
        files: What it could install.
        refused: How many files it could not, by reason.
        examples: One file name for each reason.
    """

    files: tuple[Offer, ...]
    refused: Counter[str]
    examples: dict[str, str]


class OfferReader:
    """Judges files by name and by their interpreter, for one target."""

    def __init__(self, target: Target, cache: DiskCache) -> None:
        self._target = target
        self._cache = cache
        self._ranks: dict[str, int | None] = {}
        self._pythons: dict[str, bool] = {}

    def read(self, page: ProjectPage, name: NormalizedName) -> Offers:
        """Return what a page offers; from the cache where this page was judged for such a target before."""
        if not page.digest:
            return self._judge(page, name)
        key = self._key(page)
        stored = self._cache.read("offers", key)
        if stored is not None:
            try:
                return _load(json.loads(stored))
            except (ValueError, KeyError, TypeError, InvalidVersion):
                pass  # Written by another version of the program.
        offers = self._judge(page, name)
        self._cache.write("offers", key, json.dumps(_dump(offers)).encode())
        return offers

    def of_version(self, page: ProjectPage, name: NormalizedName, version: Version) -> tuple[Offer, ...]:
        """Return what a page offers a target of one version; as :meth:`read`, without looking at the others."""
        stored = self._cache.read("offers", self._key(page)) if page.digest else None
        if stored is not None:
            try:
                return _load(json.loads(stored), only=str(version)).files
            except (ValueError, KeyError, TypeError, InvalidVersion):
                pass  # Written by another version of the program.
        return tuple(offer for offer in self.read(page, name).files if offer.version == version)

    def _key(self, page: ProjectPage) -> str:
        return f"{_FORMAT} {page.digest} {self._target.python} {self._target.platform}"

    def runs_on_target(self, requires_python: str | None) -> bool:
        """Whether a ``Requires-Python`` admits the target's interpreter."""
        if not requires_python:
            return True
        if requires_python not in self._pythons:
            try:
                admitted = SpecifierSet(requires_python).contains(self._target.python, prereleases=True)
            except InvalidSpecifier:
                # As pip does: a malformed field does not hide the file.
                admitted = True
            self._pythons[requires_python] = admitted
        return self._pythons[requires_python]

    def _judge(self, page: ProjectPage, name: NormalizedName) -> Offers:
        offers: list[Offer] = []
        refused: Counter[str] = Counter()
        examples: dict[str, str] = {}

        def wanted(filename: str) -> bool:
            # Most files of a large project are for other targets: of them, only the names are looked at.
            if not filename.endswith(".whl"):
                return is_distribution(filename)
            if self._rank(filename) is not None:
                return True
            refused[_NO_WHEEL] += 1
            examples.setdefault(_NO_WHEEL, filename)
            return False

        listing = page.read(wanted)
        for file in listing.files:
            found = self._offer(name, file)
            if isinstance(found, Offer):
                offers.append(found)
            else:
                refused[found] += 1
                examples.setdefault(found, file.filename)
        for filename, reason in listing.malformed:
            refused[reason] += 1
            examples.setdefault(reason, filename)
        return Offers(files=tuple(offers), refused=refused, examples=examples)

    def _offer(self, name: NormalizedName, file: DistributionFile) -> Offer | str:
        """Return a file as an offer, or the reason why it is none."""
        is_wheel = file.filename.endswith(".whl")
        rank = self._rank(file.filename) if is_wheel else _SDIST_RANK
        if rank is None:
            return _NO_WHEEL
        build = 0
        try:
            if is_wheel:
                found, version, build_tag, _ = parse_wheel_filename(file.filename)
                build = build_tag[0] if build_tag else 0
            else:
                found, version = parse_sdist_filename(file.filename)
        except (InvalidWheelFilename, InvalidSdistFilename):
            return "file name or version is not standard"
        if found != name:
            return "file of another project"
        if not self.runs_on_target(file.requires_python):
            return "requires another Python"
        # Of two wheels for the target the more specific one is installed; then the higher build number.
        return Offer(version=version, rank=(rank, -build), file=file)

    def _rank(self, filename: str) -> int | None:
        """Return the rank of a wheel's best tag on the target, or none where it has none."""
        tags = "-".join(filename[:-4].rsplit("-", 3)[1:])
        if tags not in self._ranks:
            try:
                ranks = [self._target.tags[tag] for tag in parse_tag(tags) if tag in self._target.tags]
            except ValueError:
                # Not three tags: the file's name will be judged not standard.
                ranks = [0]
            self._ranks[tags] = min(ranks, default=None)
        return self._ranks[tags]


def _dump(offers: Offers) -> dict[str, Any]:
    return {
        "files": dump_files(o.file for o in offers.files),
        "about": [[str(o.version), *o.rank] for o in offers.files],
        "refused": dict(offers.refused),
        "examples": offers.examples,
    }


def _load(document: dict[str, Any], *, only: str | None = None) -> Offers:
    entries = [
        (entry, about)
        for entry, about in zip(document["files"], document["about"], strict=True)
        if only is None or about[0] == only
    ]
    files = load_files(entry for entry, _ in entries)
    return Offers(
        files=tuple(
            Offer(version=Version(version), rank=(rank, build), file=file)
            for file, (_, (version, rank, build)) in zip(files, entries, strict=True)
        ),
        refused=Counter(document["refused"]),
        examples=document["examples"],
    )

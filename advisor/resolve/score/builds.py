"""The builds of candidates on one target: which of them match, and which the target prefers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.score.costs import Candidates, Choice
from knowledge.catalogue.builds import Build, BuildExtra, BuildFamily, CatalogueEntry, Replacement
from knowledge.catalogue.rule_book import RuleBook
from knowledge.domain.hardware import HardwareProfile

Mismatch = tuple[frozenset[Choice], frozenset[Choice], str]
"""Choices of two packages whose builds do not match, with the reason."""


class TargetBuilds:
    """The builds of the packages of a catalogue, on one target."""

    def __init__(self, entries: Iterable[CatalogueEntry], rules: RuleBook, hardware: HardwareProfile) -> None:
        entries = tuple(entries)
        self._families = tuple(entry for entry in entries if isinstance(entry, BuildFamily))
        self._extras: dict[NormalizedName, list[BuildExtra]] = {}
        for extra in entries:
            if isinstance(extra, BuildExtra) and extra.serves(hardware):
                self._extras.setdefault(canonicalize_name(extra.package), []).append(extra)
        self.replacements = tuple(e for e in entries if isinstance(e, Replacement) and e.fits(hardware))
        """Packages that may replace others on the target."""
        indexes = rules.usable_indexes(entries)
        self._published = frozenset(canonicalize_name(name) for index in indexes for name in index.packages)
        self._family_of = {canonicalize_name(name): family for family in self._families for name in family.packages}
        self.rules = rules
        """The rules that apply to the target."""
        self._hardware = hardware
        self._build_of: dict[tuple[NormalizedName, Version], Build] = {}

    def build_of(self, name: NormalizedName, version: Version) -> Build | None:
        """Return the build of a version; `None` if the catalogue does not know builds of the package."""
        family = self._family_of.get(name)
        if family is None:
            return None
        # Needed for each candidate in each iteration of the search.
        if (name, version) not in self._build_of:
            build = family.build_of(name, version, self._hardware)
            if build.runtime == "cuda" and not build.version and (cuda := self.rules.default_cuda(name, version)):
                build = Build(runtime="cuda", version=cuda)
            self._build_of[name, version] = build
        return self._build_of[name, version]

    def index_name(self, candidate: Candidate) -> str:
        """Return a name for the index of a further build, such as ``pytorch-cu126``."""
        family = self._family_of.get(candidate.name)
        return f"{family.id if family else candidate.name}-{candidate.version.local or 'builds'}"

    @property
    def has_extras(self) -> bool:
        """Whether the catalogue has an extra for an accelerator of the target."""
        every = (extra.build for extras in self._extras.values() for extra in extras)
        return any(build.runtime != "cpu" and build.has_device_on(self._hardware) for build in every)

    def extras_of(self, name: NormalizedName) -> list[BuildExtra]:
        """Return the extras of a package that make it use an accelerator of the target, the newest runtime first."""
        usable = [e for e in self._extras.get(name, ()) if e.runtime != "cpu" and self.rules.is_usable(e.build)]
        return sorted(usable, key=lambda extra: Version(extra.version or "0"), reverse=True)

    def extra_names(self, name: NormalizedName) -> frozenset[str]:
        """Return every extra of a package that makes it use an accelerator on the target's platform."""
        return frozenset(extra for entry in self._extras.get(name, ()) for extra in entry.extras)

    def idle_extras(self, name: NormalizedName, required: Iterable[str]) -> list[BuildExtra]:
        """Return the required extras of a package for accelerators that the target does not have."""
        required = frozenset(required)
        return [
            entry
            for entry in self._extras.get(name, ())
            if not set(entry.extras).isdisjoint(required) and not entry.build.has_device_on(self._hardware)
        ]

    def replacements_of(self, name: NormalizedName) -> list[Replacement]:
        """Return the packages that may replace another one on the target."""
        return [entry for entry in self.replacements if canonicalize_name(entry.package) == name]

    def alternatives(self, candidate: Candidate, offered: Sequence[Candidate]) -> set[Build | None]:
        """Return the builds that are offered of the release of a candidate."""
        release = candidate.release
        return {self.build_of(c.name, c.version) for c in offered if c.release == release}

    def publisher_hint(self, name: NormalizedName) -> str:
        """Return that the publisher of a package has builds for the target; empty if none is known."""
        if name not in self._published:
            return ""
        return "; `--framework-indexes` also considers the builds on its publisher's indexes"

    def idle(self, name: NormalizedName, offered: Sequence[Candidate]) -> frozenset[Choice]:
        """Return the versions of a package that use no accelerator of the target, or are for one that it does not have.

        Nothing if there is no other version: a stack without the package is no better.
        """
        idle = {c.version for c in offered if self.is_idle(c)}
        return frozenset((name, version) for version in idle) if len(idle) < len(offered) else frozenset()

    def all_idle(self, offered: Sequence[Candidate]) -> bool:
        """Whether every version of a package is an idle build."""
        return bool(offered) and all(map(self.is_idle, offered))

    def is_idle(self, candidate: Candidate) -> bool:
        """Whether a candidate uses no accelerator of the target, or is built for another one."""
        build = self.build_of(candidate.name, candidate.version)
        if build is None:
            return False
        # A build for processors leaves an accelerator idle.
        leaves_idle = build.runtime == "cpu" and bool(self._hardware.accelerators)
        return leaves_idle or not build.has_device_on(self._hardware)

    def ranks(
        self, name: NormalizedName, offered: Sequence[Candidate], forbidden: Mapping[Choice, str]
    ) -> dict[Version, int]:
        """Return the place of each version among the builds of the same release, the preferred build first.

        Preferred are builds for an accelerator of the target, of them those with the newest runtime (one whose runtime
        is not known comes first), and of equal ones that without a local version. Builds that the rules forbid have no
        place.
        """
        if name not in self._family_of:
            return {}
        releases: dict[str, list[Version]] = {}
        for candidate in offered:
            if (name, candidate.version) not in forbidden:
                releases.setdefault(candidate.release, []).append(candidate.version)
        return {
            version: place
            for versions in releases.values()
            for place, version in enumerate(sorted(versions, key=lambda version: self._preference(name, version)))
        }

    def _preference(self, name: NormalizedName, version: Version) -> tuple[bool, list[float], bool, str]:
        build = self.build_of(name, version)
        assert build is not None
        is_used = build.runtime != "cpu" and build.has_device_on(self._hardware)
        needs_nothing = build.runtime == "cpu" and not self._hardware.accelerators
        # The publisher's own choice comes first if its version is not known.
        unknown = [-math.inf] if build.runtime == "cuda" else [0.0]
        runtime = [-float(part) for part in Version(build.version).release] if build.version else unknown
        return not (is_used or needs_nothing), runtime, version.local is not None, version.local or ""

    def reason(self, candidate: Candidate, plain: Candidate | None) -> str:
        """Return why a candidate is another build than a plain resolver's; empty if it is the same or no build."""
        build = self.build_of(candidate.name, candidate.version)
        if build is None or plain is None or build == self.build_of(plain.name, plain.version):
            return ""
        return f"build for {build}, {self.why(build)}"

    def why(self, build: Build) -> str:
        """Return what a build has to do with the target."""
        devices = [accelerator.model for accelerator in self._hardware.accelerators]
        if build.runtime == "cpu":
            return f"which leaves {devices[0]} idle" if devices else "because the target has no accelerator"
        if not devices:
            return "although the target has no accelerator"
        return (
            f"which runs on {devices[0]}" if build.has_device_on(self._hardware) else f"which cannot use {devices[0]}"
        )

    def mismatches(self, candidates: Candidates) -> tuple[list[Mismatch], list[Mismatch]]:
        """Return the choices of two packages of a family that do not work together, and those that may not.

        The second ones are builds for the same accelerators; the runtime's version of one is unknown.
        """
        every = [
            mismatch
            for family in self._families
            for pair in combinations([n for n in map(canonicalize_name, family.packages) if candidates.get(n)], 2)
            for mismatch in self._compare(family, pair, candidates)
        ]
        return [m for is_certain, m in every if is_certain], [m for is_certain, m in every if not is_certain]

    def _compare(
        self, family: BuildFamily, pair: tuple[NormalizedName, NormalizedName], candidates: Candidates
    ) -> Iterator[tuple[bool, Mismatch]]:
        """Yield the choices of two packages whose builds do not match, and whether that is certain."""
        ones, others = (self._by_build(name, candidates[name]) for name in pair)
        for (build, is_default), choices in sorted(ones.items()):
            unlike: dict[bool, set[Choice]] = {True: set(), False: set()}
            for (other_build, is_other_default), other_choices in others.items():
                if not build.matches(other_build):
                    unlike[True] |= other_choices
                elif build != other_build and not (is_default and is_other_default):
                    unlike[False] |= other_choices
            reason = f"`{pair[0]}` for {build} does not work with another build of `{pair[1]}` ({family.source})"
            for is_certain, mismatched in unlike.items():
                if mismatched:
                    yield is_certain, (frozenset(choices), frozenset(mismatched), reason)

    def _by_build(self, name: NormalizedName, offered: Sequence[Candidate]) -> dict[tuple[Build, bool], set[Choice]]:
        """Group versions by their build, and by whether they have no local version."""
        by_build: dict[tuple[Build, bool], set[Choice]] = {}
        for candidate in offered:
            build = self.build_of(name, candidate.version)
            assert build is not None
            key = (build, candidate.version.local is None)
            by_build.setdefault(key, set()).add((name, candidate.version))
        return by_build

"""The files of a project page that the target can install, cached for each target, and the candidates among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
from packaging.version import Version

from advisor.domain.target import Target
from advisor.index.cache import DiskCache
from advisor.index.memo import Memo
from advisor.index.pages.filenames import is_variants_file, parse_variants_filename, split_variant_label
from advisor.index.pages.page import DistributionFile, dump_files, is_distribution, load_files
from advisor.index.pages.reader import ProjectPage
from advisor.resolve.candidates.problem import Candidate, ResolutionProblem

SDIST_RANK = 1 << 30
"""Rank of an sdist, which is installed if there is no wheel."""
_NO_WHEEL = "no wheel for the target"
PRERELEASE = "pre-release"
"""Why a pre-release is no candidate unless pre-releases are admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibleFile:
    """A file that the target can install; of several of a version, the one with the lowest rank is installed.

    Its label is that of its variant, and empty for other files.
    """

    version: Version
    rank: tuple[int, ...]
    file: DistributionFile
    label: str = ""

    @property
    def is_wheel(self) -> bool:
        """Whether it is a wheel."""
        return self.file.filename.endswith(".whl")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibleFiles:
    """The files of a page, for one target.

    Attributes:
        files: Files that the target can install.
        refused: Number of other files, by reason.
        examples: One file name for each reason.
        variants: The file that describes the variants of a version, by version.
    """

    files: tuple[CompatibleFile, ...]
    refused: Counter[str]
    examples: dict[str, str]
    variants: Mapping[Version, DistributionFile] = field(default_factory=dict)


class CompatibleFileReader:
    """Selects compatible files by their name and `Requires-Python`, for one target.

    Variant wheels (PEP 825) are compatible if `variants` is true, whatever their properties are.
    """

    def __init__(self, target: Target, cache: DiskCache, *, variants: bool = False) -> None:
        self._target = target
        self._memo = Memo(cache, "offers")
        self._variants = variants
        self._ranks: dict[str, int | None] = {}
        self._pythons: dict[str, bool] = {}

    def read(self, page: ProjectPage, name: NormalizedName) -> CompatibleFiles:
        """Return the compatible files of a page, from the cache if possible."""
        if not page.digest:
            return self._select(page, name)
        return _load(self._memo.answer(self._question(page), lambda: _dump(self._select(page, name))))

    def of_version(self, page: ProjectPage, name: NormalizedName, version: Version) -> tuple[CompatibleFile, ...]:
        """Return the compatible files of one version; like :meth:`read`, but without parsing the others."""
        stored = self._memo.read(self._question(page)) if page.digest else None
        if stored is not None:
            return _load(stored, only=str(version)).files
        return tuple(offer for offer in self.read(page, name).files if offer.version == version)

    def _question(self, page: ProjectPage) -> list[Any]:
        return [page.digest, self._target.python, self._target.platform, self._variants]

    def runs_on_target(self, requires_python: str | None) -> bool:
        """Whether a ``Requires-Python`` admits the target's interpreter."""
        if not requires_python:
            return True
        if requires_python not in self._pythons:
            try:
                admitted = SpecifierSet(requires_python).contains(self._target.python, prereleases=True)
            except InvalidSpecifier:
                # Like pip: a malformed field does not hide the file.
                admitted = True
            self._pythons[requires_python] = admitted
        return self._pythons[requires_python]

    def _select(self, page: ProjectPage, name: NormalizedName) -> CompatibleFiles:
        offers: list[CompatibleFile] = []
        refused: Counter[str] = Counter()
        examples: dict[str, str] = {}

        def is_compatible(filename: str) -> bool:
            # Most files of a large project are for other targets: only their names are parsed.
            if not filename.endswith(".whl"):
                return is_distribution(filename) or (self._variants and is_variants_file(filename))
            if self._rank(filename) is not None:
                return True
            refused[_NO_WHEEL] += 1
            examples.setdefault(_NO_WHEEL, filename)
            return False

        variants: dict[Version, DistributionFile] = {}
        listing = page.read(is_compatible)
        for file in listing.files:
            if is_variants_file(file.filename):
                described = parse_variants_filename(file.filename)
                if described is not None and described[0] == name:
                    variants.setdefault(described[1], file)
                continue
            outcome = self._check_file(name, file)
            if isinstance(outcome, CompatibleFile):
                offers.append(outcome)
            else:
                refused[outcome] += 1
                examples.setdefault(outcome, file.filename)
        for filename, reason in listing.malformed:
            refused[reason] += 1
            examples.setdefault(reason, filename)
        return CompatibleFiles(files=tuple(offers), refused=refused, examples=examples, variants=variants)

    def _check_file(self, name: NormalizedName, file: DistributionFile) -> CompatibleFile | str:
        """Return a compatible file, or the reason why a file is not compatible."""
        is_wheel = file.filename.endswith(".whl")
        rank = self._rank(file.filename) if is_wheel else SDIST_RANK
        if rank is None:
            return _NO_WHEEL
        build = 0
        plain, label = split_variant_label(file.filename) if self._variants else (file.filename, "")
        try:
            if is_wheel:
                name_in_file, version, build_tag, _ = parse_wheel_filename(plain)
                build = build_tag[0] if build_tag else 0
            else:
                name_in_file, version = parse_sdist_filename(file.filename)
        except (InvalidWheelFilename, InvalidSdistFilename):
            return "file name or version is not standard"
        if name_in_file != name:
            return "file of another project"
        if not self.runs_on_target(file.requires_python):
            return "requires another Python"
        # The wheel with the most specific tag is installed, then the one with the highest build number.
        return CompatibleFile(version=version, rank=(rank, -build), file=file, label=label)

    def _rank(self, filename: str) -> int | None:
        """Return the rank of a wheel's best tag on the target, or `None` if no tag is compatible."""
        if self._variants:
            filename, _ = split_variant_label(filename)
        tags = "-".join(filename[:-4].rsplit("-", 3)[1:])
        if tags not in self._ranks:
            try:
                ranks = [self._target.tags[tag] for tag in parse_tag(tags) if tag in self._target.tags]
            except ValueError:
                # Not three tags: the file name is reported as not standard later.
                ranks = [0]
            self._ranks[tags] = min(ranks, default=None)
        return self._ranks[tags]


def _dump(offers: CompatibleFiles) -> dict[str, Any]:
    document = {
        "files": dump_files(o.file for o in offers.files),
        "about": [[str(o.version), *o.rank, o.label] for o in offers.files],
        "refused": dict(offers.refused),
        "examples": offers.examples,
    }
    if offers.variants:
        document["variants"] = [[str(v), *dump_files([file])] for v, file in offers.variants.items()]
    return document


def _load(document: dict[str, Any], *, only: str | None = None) -> CompatibleFiles:
    entries = [
        (entry, about)
        for entry, about in zip(document["files"], document["about"], strict=True)
        if only is None or about[0] == only
    ]
    files = load_files(entry for entry, _ in entries)
    return CompatibleFiles(
        files=tuple(
            CompatibleFile(version=Version(version), rank=(rank, build), file=file, label=label)
            for file, (_, (version, rank, build, label)) in zip(files, entries, strict=True)
        ),
        refused=Counter(document["refused"]),
        examples=document["examples"],
        variants={
            Version(version): load_files([entry])[0]
            for version, entry in document.get("variants", ())
            if only is None or version == only
        },
    )


def select_candidates(
    name: NormalizedName,
    pages: Iterable[CompatibleFiles],
    problem: ResolutionProblem,
    skip: Callable[[NormalizedName, str, str, int], None],
) -> tuple[Candidate, ...]:
    """Return the candidates of a package, newest first: the best file of each version that the problem allows.

    If several pages list a file of one name, the first is used. Files that cannot be candidates are recorded by `skip`:
    package, reason, an example and the number of files.
    """
    reason_against = _refuser(name, problem)
    best: dict[Version, CompatibleFile] = {}
    filenames: set[str] = set()
    for offers in pages:
        for reason, count in offers.refused.items():
            skip(name, reason, offers.examples[reason], count)
        for offer in offers.files:
            if offer.file.filename in filenames:
                continue
            filenames.add(offer.file.filename)
            previous = best.get(offer.version)
            if reason := reason_against(offer):
                skip(name, reason, offer.file.filename, 1)
            elif previous is None or offer.rank < previous.rank:
                best[offer.version] = offer
    admitted = _without_prereleases(name, best, problem)
    for version in best:
        if version not in admitted:
            skip(name, PRERELEASE, str(version), 1)
    return tuple(
        Candidate(name=name, version=version, file=best[version].file) for version in sorted(admitted, reverse=True)
    )


def _refuser(name: NormalizedName, problem: ResolutionProblem) -> Callable[[CompatibleFile], str]:
    """Return a function for why the policy or the project's requirements exclude a file; empty if they do not."""
    policy, roots = problem.policy, problem.roots_of(name)
    hashes = [root.hashes for root in roots if root.hashes]
    # A version that is pinned may be yanked (PEP 592).
    specifiers = (s for root in roots for s in root.requirement.specifier)
    pins = [s for s in specifiers if s.operator == "===" or (s.operator == "==" and not s.version.endswith(".*"))]

    def reason(offer: CompatibleFile) -> str:
        uploaded, version = offer.file.uploaded, offer.version
        if offer.is_wheel and not policy.allows_wheels(name):
            return "wheels are excluded by `--no-binary`"
        if not offer.is_wheel and not policy.allows_sdists(name):
            return "sdists are excluded by `--only-binary`"
        if policy.exclude_newer and (uploaded is None or uploaded > policy.exclude_newer):
            return "newer than `--exclude-newer`" if uploaded else "no upload time, which `--exclude-newer` needs"
        if (
            offer.file.yanked
            and (name, version) not in policy.retained
            and not any(pin.contains(version, prereleases=True) for pin in pins)
        ):
            return "yanked"
        if any(offer.file.sha256 not in accepted for accepted in hashes):
            return "hash differs from the required ones"
        return ""

    return reason


def _without_prereleases(
    name: NormalizedName, versions: Iterable[Version], problem: ResolutionProblem
) -> frozenset[Version]:
    """Drop pre-releases unless there are no other versions, or a requirement of the project names one (PEP 440)."""
    versions = frozenset(versions)
    retained = problem.policy.retained
    final = frozenset(v for v in versions if not v.is_prerelease or (name, v) in retained)
    opted_in = problem.policy.prereleases or any(
        root.requirement.specifier.prereleases for root in problem.roots_of(name)
    )
    return versions if opted_in or not final else final

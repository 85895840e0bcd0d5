"""The candidates of each package for the target, from the package indexes, newest first."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.index.client import IndexClient
from advisor.index.memo import Memo
from advisor.index.metadata.core import CoreMetadata
from advisor.index.metadata.distributions import MetadataError
from advisor.index.pages.filenames import split_variant_label, version_of
from advisor.index.pages.page import DistributionFile
from advisor.index.variants.markers import VariantEnvironment, requirements_for
from advisor.resolve.candidates.compatible_files import CompatibleFileReader, select_candidates
from advisor.resolve.candidates.problem import Candidate, Dependency, ResolutionProblem, admits
from advisor.resolve.candidates.variants import VariantFileReader
from knowledge.domain.errors import UnavailableError

_UPPER_LIMITS = ("==", "===", "<", "<=", "~=")
"""Operators of requirements that may not admit the newest version."""
_UNBUILT = "sdist whose requirements are only known after a build of its metadata (`--build-sdists`)"
_UNDECLARED = (
    "metadata: the build of {version} needs `{module}` of the stack, which is not among its declared build "
    "requirements; older versions were not built"
)
"""Why a version cannot be a candidate, and older ones only where a requirement excludes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCandidates:
    """Files or versions of a package that cannot be candidates, and the reason."""

    package: str
    reason: str
    count: int
    example: str

    @property
    def description(self) -> str:
        """Number and reason; with one of the files if their content is the reason."""
        if self.reason.startswith("metadata"):
            return f"{self.count} because of the {self.reason} (`{self.example}`)"
        return f"{self.count} {self.reason}"


class IndexCandidates:
    """The candidates of a problem on the configured indexes.

    Attributes:
        fetched: Addresses of the files whose metadata has been requested.
        unknown_extras: ``(package, extra)`` pairs that are required, but that the package does not provide.
        variants: Chooses among variant wheels; `None` without the preview feature.
        undeclared_builds: Versions of each package whose builds need a package of the stack that they do not declare.
    """

    def __init__(
        self, client: IndexClient, problem: ResolutionProblem, *, advisories: bool = False, sizes: bool = False
    ) -> None:
        """Create the candidates; vulnerability records, and sizes that index pages lack, are requested if wanted."""
        self._client = client
        self._problem = problem
        self._advisories = advisories
        self._reads_sizes = sizes
        self._requested_sizes: dict[str, int | None] = {}
        self._candidates: dict[NormalizedName, tuple[Candidate, ...]] = {}
        self._skipped: dict[NormalizedName, Counter[str]] = {}
        self._examples: dict[tuple[NormalizedName, str], str] = {}
        self._dependencies: dict[tuple[str, NormalizedName | None], tuple[Dependency, ...] | None] = {}
        self.variants = VariantFileReader(problem, client) if problem.policy.variants else None
        self._reader = self.variants or CompatibleFileReader(problem.target, client.cache)
        self._requirements = Memo(client.cache, "requires")
        self._lock = threading.Lock()
        self._prefetched: set[object] = set()
        self._requested: set[str] = set()
        self.fetched: set[str] = set()
        self.unknown_extras: set[tuple[str, str]] = set()
        self._lacking: set[tuple[str, str]] = set()
        self.undeclared_builds: dict[NormalizedName, list[Version]] = {}

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        """Return the candidates of a package for the target, newest first."""
        self._requested.add(name)
        return self._load(name)

    def _load(self, name: NormalizedName) -> tuple[Candidate, ...]:
        if name in self._problem.direct:
            return (self._problem.direct[name].candidate,)
        if name in self._problem.unread:
            raise self._problem.unread[name]
        if name not in self._candidates:
            pages = self._client.pages(name)
            with self._lock:
                if name not in self._candidates:
                    files = (self._reader.read(page, name) for page in pages)
                    self._candidates[name] = select_candidates(name, files, self._problem, self._skip)
        return self._candidates[name]

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        """Return a candidate's dependencies, or the additional ones of an extra; `None` if its metadata is unusable."""
        key = (candidate.file.url, extra)
        if key not in self._dependencies:
            try:
                self._dependencies[key] = self._read_dependencies(candidate, extra)
            except MetadataError as error:
                self._skip(candidate.name, str(error), candidate.file.filename)
                self._dependencies[key] = None
        return self._dependencies[key]

    def lacks_extra(self, candidate: Candidate, extra: NormalizedName) -> bool:
        """Whether a candidate, whose dependencies with an extra were read, does not provide the extra."""
        return (candidate.file.url, extra) in self._lacking

    def fetch(self, candidates: Iterable[Candidate]) -> None:
        """Fetch the metadata of candidates in one parallel batch."""
        candidates = list(candidates)
        pending = [c for c in candidates if c.file.url not in self.fetched and c.direct is None]
        unread = [c for c in pending if self._problem.stated_of(c) is None]
        self.prefetch_metadata(unread)
        if self._advisories:
            self._client.prefetch_vulnerabilities((c.file, c.name, str(c.version)) for c in pending)
        self._request_sizes([c.file for c in candidates if not self._is_sized(c)])
        if self._problem.policy.build_sdists:
            unbuilt = [c for c in unread if self._is_unbuilt(c)]
            # An older version shall not be chosen because its build happens to need less than the newest one's build.
            newest = [c for name in sorted({c.name for c in unbuilt}) if (c := self._newest_unbuilt(name)) is not None]
            self._client.prefetch_builds(c.file for c in (*unbuilt, *newest))
            pending = [*newest, *pending]
        for candidate in pending:
            self.dependencies(candidate)

    def _is_unbuilt(self, candidate: Candidate) -> bool:
        """Whether a candidate is known to need a build; false if its metadata cannot be read."""
        try:
            return self.needs_build(candidate)
        except (MetadataError, UnavailableError):
            return False

    def vulnerabilities(self, candidate: Candidate) -> tuple[str, ...] | None:
        """Return a candidate's known vulnerabilities, or `None` without a record, as for what no index lists."""
        if candidate.direct is not None:
            return None
        return self._client.vulnerabilities(candidate.file, candidate.name, str(candidate.version))

    def _request_sizes(self, files: Sequence[DistributionFile]) -> None:
        self._client.prefetch_sizes(files)
        for file in files:
            self._requested_sizes[file.url] = self._client.size(file)

    def _is_sized(self, candidate: Candidate) -> bool:
        """Whether the size of a candidate is known, or does not matter."""
        is_stated = candidate.file.size is not None or candidate.direct is not None
        return is_stated or not self._reads_sizes or candidate.file.url in self._requested_sizes

    def size(self, candidate: Candidate) -> int | None:
        """Return the size of a candidate's file in bytes; `None` if it is not known without a request."""
        return candidate.file.size if candidate.file.size is not None else self._requested_sizes.get(candidate.file.url)

    def for_problem(self, problem: ResolutionProblem) -> IndexCandidates:
        """Return the candidates of a problem that differs only in the project's own requirements or in the policy."""
        other = IndexCandidates(self._client, problem, advisories=self._advisories, sizes=self._reads_sizes)
        roots = (*problem.roots, *self._problem.roots)
        changed = {r.name for r in roots if problem.roots_of(r.name) != self._problem.roots_of(r.name)}
        if problem.policy == self._problem.policy:
            other._candidates = {n: c for n, c in list(self._candidates.items()) if n not in changed}
        if problem.substitutions == self._problem.substitutions:
            other._dependencies = self._dependencies
            other._lacking = self._lacking
        other.fetched = self.fetched
        other.undeclared_builds = self.undeclared_builds
        other.variants, other._reader = self.variants, self._reader
        other._prefetched = self._prefetched
        other._requested_sizes = self._requested_sizes
        return other

    def has_indexes_of(self, other: IndexCandidates) -> bool:
        """Whether other candidates come from the same indexes."""
        return self._client is other._client

    @property
    def lacks_builds(self) -> bool:
        """Whether a version was left out because its requirements are only known after a build."""
        return any(_UNBUILT in reasons for reasons in list(self._skipped.values()))

    def lacks_build(self, candidate: Candidate) -> bool:
        """Whether a candidate cannot be used because its requirements are only known after a build."""
        return self.dependencies(candidate) is None and self._is_unbuilt(candidate)

    def failed_newer(self, candidate: Candidate) -> Sequence[Version]:
        """Return the newer versions whose builds need something undeclared, and that no own requirement excludes."""
        failed = self.undeclared_builds.get(candidate.name)
        if not failed or not candidate.is_sdist or self._problem.stated_of(candidate) is not None:
            return ()
        roots = self._problem.roots_of(candidate.name)
        newer = (version for version in failed if version > candidate.version)
        return [version for version in newer if all(admits(root.requirement, version) for root in roots)]

    def needs_build(self, candidate: Candidate) -> bool:
        """Whether the requirements of a candidate are only known after a build."""
        return candidate.direct is None and candidate.is_sdist and self._read_metadata(candidate).dynamic

    def _read_metadata(self, candidate: Candidate) -> CoreMetadata:
        """Return the metadata that the project states, else of a file, else of a wheel if an sdist states only a part.

        The wheel need not fit the target. uv assumes, too, that all files of a version require the same.
        """
        if (stated := self._problem.stated_of(candidate)) is not None:
            return stated
        metadata = self._client.metadata(candidate.file)
        if not (candidate.is_sdist and metadata.dynamic):
            return metadata
        wheel = self._other_wheel(candidate)
        return metadata if wheel is None else replace(self._client.metadata(wheel), dynamic=False)

    def _other_wheel(self, candidate: Candidate) -> DistributionFile | None:
        """Return the first wheel of a version on the same index, by name; `None` if there is none."""
        own_index = [
            file
            for file in self._client.select_files(candidate.name, lambda name: name.endswith(".whl"))
            if file.index == candidate.file.index
            and version_of(file.filename) == candidate.version
            and not split_variant_label(file.filename)[1]
        ]
        return min(own_index, key=lambda file: file.filename, default=None)

    def assuming_sdists(self) -> tuple[ResolutionProblem, IndexCandidates]:
        """Return the problem and its candidates if sdists require what they state without a build."""
        policy = replace(self._problem.policy, assume_sdists=True)
        problem = replace(self._problem, policy=policy)
        return problem, IndexCandidates(self._client, problem)

    def is_known(self, candidate: Candidate) -> bool:
        """Whether the candidate's metadata has been read."""
        return candidate.direct is not None or (candidate.file.url in self.fetched and self._is_sized(candidate))

    def prefetch(self, names: Iterable[NormalizedName], requirements: Iterable[Requirement] = ()) -> None:
        """Start to fetch the pages of packages without waiting, and what a resolver is likely to need next.

        That is the metadata of the newest candidate of each that the requirements admit, and the same for what it
        requires; this does not mark it as known.
        """
        names = [name for name in names if name not in self._problem.direct and name not in self._problem.unread]
        self._client.prefetch(projects=names)
        if self._client.offline:
            return
        by_name: dict[NormalizedName, list[Requirement]] = {name: [] for name in names}
        for requirement in requirements:
            by_name.get(canonicalize_name(requirement.name), []).append(requirement)
        for name, on_it in by_name.items():
            self._prefetch_later(name, on_it)

    def _prefetch_later(self, name: NormalizedName, requirements: Sequence[Requirement]) -> None:
        # Other requirements admit the newest version, too, unless it is the first one.
        limits = [r for r in requirements if any(s.operator in _UPPER_LIMITS for s in r.specifier)]
        extras = frozenset(NormalizedName(extra) for r in requirements for extra in r.extras)
        key = name, extras, frozenset(str(r.specifier) for r in limits)
        if key not in self._prefetched:
            self._prefetched.add(key)
            self._client.in_background(lambda: self._prefetch_newest(name, limits, extras))

    def _prefetch_newest(
        self, name: NormalizedName, limits: Sequence[Requirement], extras: frozenset[NormalizedName]
    ) -> None:
        """Fetch the metadata of the newest candidate within limits, and prefetch what it requires."""
        admitted = (c for c in self._load(name) if self._problem.admits(c))
        candidate = next((c for c in admitted if all(admits(r, c.version) for r in limits)), None)
        if candidate is None:
            return
        if self._problem.policy.build_sdists and self.needs_build(candidate):
            self._client.prefetch_builds([candidate.file])
        metadata = self._problem.stated_of(candidate) or self._client.metadata(candidate.file)
        required = [r for r in metadata.requires if any(self._problem.applies(r, extra) for extra in ("", *extras))]
        self.prefetch([canonicalize_name(r.name) for r in required], required)

    def prefetch_metadata(self, candidates: Iterable[Candidate]) -> None:
        """Start to fetch the metadata of candidates without waiting; this does not mark it as known."""
        if not self._client.offline:
            files = (c.file for c in candidates)
            unread = [f for f in files if not (f.sha256 and self._requirements.knows(self._question(f, None)))]
            self._client.prefetch(files=unread)

    def is_further_build(self, candidate: Candidate) -> bool:
        """Whether a candidate comes from an index that only further builds of its package are taken from."""
        return self._client.configuration.has_builds_of(candidate.name, candidate.file.index)

    @property
    def has_further_builds(self) -> bool:
        """Whether there are indexes that only further builds of some packages are taken from."""
        return bool(self._client.configuration.builds)

    @property
    def failed_builds(self) -> Mapping[str, UnavailableError]:
        """Why an index with further builds could not be read, by its address."""
        return self._client.failed_builds

    @property
    def loaded_packages(self) -> Sequence[NormalizedName]:
        """Packages whose candidates have been loaded, sorted."""
        return sorted(self._candidates)

    def is_on_index(self, name: NormalizedName) -> bool:
        """Whether any index has a page of a package, or the project says where else it comes from."""
        return name in self._problem.direct or bool(self._client.pages(name))

    def skipped(self) -> tuple[SkippedCandidates, ...]:
        """Return what cannot be a candidate, by package and reason."""
        return tuple(
            SkippedCandidates(package=name, reason=reason, count=count, example=self._examples[name, reason])
            for name, reasons in sorted(self._skipped.items())
            if name in self._requested
            for reason, count in sorted(reasons.items())
        )

    def reasons(self, name: str) -> str:
        """Describe in a few words which files of a package cannot be candidates."""
        return "; ".join(s.description for s in self.skipped() if s.package == name)

    def _skip(self, name: NormalizedName, reason: str, filename: str, count: int = 1) -> None:
        self._skipped.setdefault(name, Counter())[reason] += count
        self._examples.setdefault((name, reason), filename)

    def _question(self, file: DistributionFile, extra: str | None) -> list[Any]:
        return [self._problem.target.python, self._problem.target.platform, extra, file.identity]

    def _read_dependencies(self, candidate: Candidate, extra: NormalizedName | None) -> tuple[Dependency, ...]:
        """Return the dependencies of a candidate; those of files of an index are remembered, without overrides."""
        is_own = candidate.direct is not None or self._problem.stated_of(candidate) is not None
        # Files of the same name may differ.
        question = None if is_own or not candidate.file.sha256 else self._question(candidate.file, extra)
        if question is not None and (texts := self._requirements.read(question)) is not None:
            self.fetched.add(candidate.file.url)
            return self._with_overrides(candidate, extra, map(Requirement, texts))
        metadata = self._usable_metadata(candidate)
        if extra is not None and extra not in metadata.extras:
            self.unknown_extras.add((candidate.name, extra))
            self._lacking.add((candidate.file.url, extra))
            return ()
        environment = self.variants.environment(candidate) if self.variants else VariantEnvironment()
        pending = [
            requirement
            for requirement in (*metadata.requires, *requirements_for(metadata.variant_requires, environment))
            if self._problem.applies(requirement, extra or "")
            and (extra is None or not self._problem.applies(requirement))
        ]
        if question is not None and not (candidate.is_sdist or metadata.variant_requires):
            self._requirements.write(question, [str(requirement) for requirement in pending])
        return self._with_overrides(candidate, extra, pending)

    def _with_overrides(
        self, candidate: Candidate, extra: NormalizedName | None, declared: Iterable[Requirement]
    ) -> tuple[Dependency, ...]:
        """Return requirements with undeclared ones and the project's overrides.

        A package of an index may not bring code from elsewhere: as in uv, the project has to require the address, too.
        """
        dependencies = []
        undeclared = self._problem.undeclared_of(candidate) if extra is None else ()
        for original, written in (*((requirement, "") for requirement in declared), *undeclared):
            declared_name = canonicalize_name(original.name)
            for requirement in self._problem.overridden(original):
                name = canonicalize_name(requirement.name)
                if requirement.url is not None and name not in self._problem.direct:
                    raise MetadataError(f"requires `{name}` from an address, which the project does not require itself")
                instead_of = declared_name if name != declared_name else None
                dependencies.append(
                    Dependency(name=name, requirement=requirement, instead_of=instead_of, source=written)
                )
        return tuple(dependencies)

    def _built_metadata(self, candidate: Candidate, stated: CoreMetadata) -> CoreMetadata:
        """Return the metadata of an sdist from a build, or raise why there is none."""
        if not self._problem.policy.build_sdists:
            raise MetadataError(_UNBUILT)
        try:
            return self._client.built_metadata(candidate.file)
        except MetadataError as error:
            module = error.missing_module
            required = {canonicalize_name(r.name) for r in stated.requires if self._problem.applies(r)}
            if not module or canonicalize_name(module) not in {*required, *self._requested}:
                raise
            self.undeclared_builds.setdefault(candidate.name, []).append(candidate.version)
            raise MetadataError(_UNDECLARED.format(version=candidate.version, module=module)) from None

    def _newest_unbuilt(self, name: NormalizedName) -> Candidate | None:
        """Return the newest version of a package that the project admits and that needs a build."""
        return next((c for c in self._load(name) if self._problem.admits(c) and self._is_unbuilt(c)), None)

    def _usable_metadata(self, candidate: Candidate) -> CoreMetadata:
        """Return the metadata of a candidate, or raise why it cannot be used."""
        if candidate.direct is not None:
            return self._problem.direct[candidate.name].metadata
        self.fetched.add(candidate.file.url)
        metadata = self._read_metadata(candidate)
        if candidate.is_sdist and metadata.dynamic and not self._problem.policy.assume_sdists:
            metadata = self._built_metadata(candidate, metadata)
        if metadata.name != candidate.name or metadata.version.public != candidate.release:
            raise MetadataError("metadata and file name disagree")
        if metadata.variant_requires and self.variants is None:
            raise MetadataError("metadata with markers of wheel variants, which need `--preview variants`")
        if metadata.requires_python and not self._reader.runs_on_target(str(metadata.requires_python)):
            raise MetadataError("requires another Python")
        return metadata

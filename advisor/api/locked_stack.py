"""A solved stack as locks record it: files with hashes, and on request what requires each package and its licences."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import NormalizedName

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.index.client import IndexClient
from advisor.index.configuration import without_credentials
from advisor.locks.certificate import Certificate
from advisor.locks.interface import PackageToLock, StackToLock
from advisor.locks.registry import format_to_write
from advisor.locks.setting_value import AppliedSetting
from advisor.locks.settings_table import settings_texts
from advisor.project.formats.pyproject import ProjectIdentity, read_identity
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import PROJECT, Candidate, CandidateSource, ResolutionProblem
from advisor.resolve.explanation.stack_requirements import replaced_packages, requirements_within
from advisor.resolve.optimum.request import Solved


def lock_texts(
    paths: Sequence[Path],
    solved: Solved,
    client: IndexClient,
    settings: Sequence[AppliedSetting] | None = None,
    certificate: Certificate | None = None,
) -> dict[Path, str]:
    """Return the text of a lock of a stack for each path, and of the settings files next to locks that need them.

    Settings are ``None`` if they are not recommended at all, and so is the certificate if nothing was measured.

    Raises:
        InputError: If a path has no known format, or its directory does not exist.
    """
    formats = {path: format_to_write(path) for path in paths}
    if not formats:
        return {}
    has_table = bool(settings) or certificate is not None
    stack = SolvedStack.of(solved, client).to_lock(tuple(settings or ()) if has_table else None)
    stack = replace(stack, certificate=certificate)
    texts = {path: lock_format.write(path, [stack]) for path, lock_format in formats.items()}
    return texts if settings is None else texts | settings_texts(paths, settings, certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvedStack:
    """A solved stack with what only some locks record; see :class:`advisor.locks.interface.StackDetails`.

    Attributes:
        problem: What was resolved.
        source: The candidates.
        stack: The packages, sorted by name.
        client: The indexes.
    """

    problem: ResolutionProblem
    source: IndexCandidates
    stack: Sequence[Candidate]
    client: IndexClient

    @classmethod
    def of(cls, solved: Solved, client: IndexClient) -> SolvedStack:
        """Return the best stack of a request."""
        request = solved.request
        return cls(problem=request.problem, source=request.source, stack=solved.stack, client=client)

    def to_lock(self, settings: Sequence[AppliedSetting] | None = None) -> StackToLock:
        """Return everything that a lock records; sizes and hashes that an index does not list are read."""
        with_files = [c for c in self.stack if c.direct is None or c.direct.kind == "archive"]
        self.client.prefetch_sizes(c.file for c in with_files)
        files = {c.name: self.client.pinned(c.file) for c in with_files}
        reader = self.source.variants
        variants = reader.metadata_of(self.stack) if reader else {}
        return StackToLock(
            target=self.problem.target,
            packages=[
                PackageToLock(
                    name=candidate.name,
                    version=candidate.version,
                    file=files.get(candidate.name),
                    direct=None if candidate.direct is None else _without_password(candidate.direct),
                    variants=variants.get(candidate.name),
                )
                for candidate in self.stack
            ],
            configuration=self.client.configuration,
            details=self,
            settings=settings,
        )

    def requirers(self, folder: Path) -> dict[NormalizedName, tuple[str, ...]]:
        """Return, for each package, what requires or constrains it, sorted, as pip-compile names it.

        That is `-r FILE`, `-c FILE` and `--override FILE` for requirements files, named relative to the folder of the
        lock, `NAME (pyproject.toml)` for a project, and the names of packages.

        Raises:
            InputError: If a `pyproject.toml` with requirements can no longer be read.
        """
        requirers: dict[NormalizedName, set[str]] = {candidate.name: set() for candidate in self.stack}
        for package, required in self.dependencies().items():
            for name in required:
                if package not in (PROJECT, name) and name in requirers:
                    requirers[name].add(package)
        for option, roots in (("", self.problem.roots), ("--override", self.problem.overrides)):
            for root in roots:
                if root.name in requirers and not root.is_added and self.problem.applies(root.requirement):
                    requirers[root.name].add(_place(root, option or ("-c" if root.constraint else "-r"), folder))
        return {name: tuple(sorted(places)) for name, places in requirers.items()}

    def no_deps_reasons(self) -> Sequence[str]:
        """Return why pip needs `--no-deps` for the stack."""
        return no_deps_reasons(self.problem, self.source, self.stack)

    def dependencies(self) -> Mapping[NormalizedName, Iterable[NormalizedName]]:
        """Return the packages that the project and each package require."""
        return requirements_within(self.problem, self.source, self.stack)

    def licenses(self) -> Mapping[NormalizedName, Sequence[str]]:
        """Return what each package states as its licences in its metadata."""
        indexed = [candidate for candidate in self.stack if candidate.direct is None]
        self.client.prefetch(files=[candidate.file for candidate in indexed])
        licenses = {candidate.name: self.client.licenses(candidate.file) for candidate in indexed}
        return licenses | {name: package.metadata.licenses for name, package in self.problem.direct.items()}

    def project(self, folder: Path) -> ProjectIdentity:
        """Return the identity in the `pyproject.toml` next to the requirements or the lock, else the folder's name."""
        folders = [Path(root.path).parent for root in self.problem.roots if root.path and not root.constraint]
        for other in dict.fromkeys([*folders, folder]):
            if (identity := read_identity(other / "pyproject.toml")) is not None:
                return identity
        return ProjectIdentity(name=folder.resolve().name or "project", version=None)


def no_deps_reasons(problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate]) -> tuple[str, ...]:
    """Return why pip needs `--no-deps` for a requirements file of a stack; empty if it does not need it.

    pip requires what the metadata of the packages require, and does not know what takes its place in the stack: there
    is one text for each package that a package of the stack requires and another one takes the place of.
    """
    return tuple(
        f"{', '.join(replaced.required_by)} {'requires' if len(replaced.required_by) == 1 else 'require'} "
        f"{replaced.name}, which {replaced.replacement} replaces"
        for replaced in replaced_packages(problem, source, stack)
        if replaced.required_by
    )


def _without_password(reference: DirectReference) -> DirectReference:
    """Return a reference without user name and password in an HTTP address; the user of an SSH address stays."""
    is_http = reference.url.startswith(("http://", "https://"))
    return replace(reference, url=without_credentials(reference.url)) if is_http else reference


def _place(root: RootRequirement, option: str, folder: Path) -> str:
    """Return where a requirement of the user was read, as one line."""
    path = Path(root.path)
    if not root.path:
        text = root.origin
    elif path.name == "pyproject.toml":
        identity = read_identity(path)
        text = f"{identity.name} ({path.name})" if identity else path.name
    elif path.suffix in (".txt", ".in"):
        text = f"{option} {Path(os.path.relpath(path, folder)).as_posix()}"
    else:
        text = path.name
    # A line break in the name of a file would begin a line of the lock.
    return "".join(character if character.isprintable() else "?" for character in text)

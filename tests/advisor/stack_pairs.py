"""Pairs of small stacks that nobody has to resolve."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.experiment.stack_pair import Side, StackEnd, StackPair
from advisor.index.pages.page import DistributionFile
from advisor.resolve.candidates.problem import Candidate, CandidateStack, Dependency
from knowledge.domain.observation import Scalar

Requirements = Mapping[tuple[str, str], list[str]]


def candidate(name: str, version: str, *, tag: str = "py3", sha256: str = "") -> Candidate:
    file = DistributionFile(
        filename=f"{name}-{version}-{tag}.whl", url=f"{name}-{version}-{tag}", index="", sha256=sha256
    )
    return Candidate(name=NormalizedName(name), version=Version(version), file=file)


def end(
    versions: Mapping[str, str],
    *,
    python: str = "3.11",
    settings: Mapping[str, Scalar] | None = None,
    compiled: str = "",
    sha256: str = "",
) -> StackEnd:
    """Return a stack; one of its packages may be compiled for its interpreter."""
    stack = CandidateStack(
        candidate(name, version, tag=python if name == compiled else "py3", sha256=sha256)
        for name, version in sorted(versions.items())
    )
    return StackEnd(name="lock", python=python, python_minor=python, stack=stack, settings=settings or {})


def pair(good: StackEnd, bad: StackEnd, required: Requirements | None = None, *, has_files: bool = True) -> StackPair:
    """Return two stacks whose packages require what is given by name and version."""

    def dependencies(package: Candidate, extra: NormalizedName | None, side: Side) -> list[Dependency]:
        target = (good, bad)[side].python_minor
        texts = [] if extra else (required or {}).get((str(package.name), str(package.version)), [])
        requirements = [Requirement(text) for text in texts]
        applying = [r for r in requirements if r.marker is None or r.marker.evaluate({"python_version": target})]
        return [Dependency(name=NormalizedName(r.name), requirement=r) for r in applying]

    def other_file(package: Candidate, side: Side) -> Candidate | None:
        if "py3" in package.file.filename:
            return package
        return candidate(package.name, str(package.version), tag=(good, bad)[side].python_minor) if has_files else None

    return StackPair(good, bad, dependencies=dependencies, other_file=other_file)

"""Checks that a lock satisfies the requirements of its project and packages, and contains nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.gate.checks.artifacts import LockArtifacts
from advisor.gate.checks.unindexed import is_of
from advisor.gate.findings import Cause, Finding
from advisor.gate.scope import Scope, place_of_root
from advisor.index.addresses import printable
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, Dependency, admits

CODES = ("ADV001", "ADV019", "ADV023")
_MAX_NAMES = 3
_Node = tuple[NormalizedName, NormalizedName | None]
"""A package, and an extra of it."""
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "uv"})


def check_requirements(scope: Scope) -> Iterator[Finding]:
    """Yield unmet requirements, requirements without a locked version, and packages that nothing requires.

    Packages whose files the target cannot install count as requiring nothing.
    """
    if not scope.state.requirements_known:
        return
    lock, problem = scope.lock, scope.problem
    source, installable = IndexCandidates(scope.client, problem), scope.once(LockArtifacts).installable
    source.fetch(installable.values())
    # A requirements file need not contain the name of a package that comes from a directory or repository.
    direct = {locked.name for locked in lock.sources} | {
        name
        for name, package in problem.direct.items()
        if any(is_of(lock, locked, package.candidate.direct) for locked in lock.sources if package.candidate.direct)
    }
    candidates = {**installable, **{name: problem.direct[name].candidate for name in direct if name in problem.direct}}
    roots = [root for root in problem.roots if problem.applies(root.requirement)]
    for root in roots:
        yield from _check_root(scope, root, direct)
    visited: set[_Node] = set()
    missing: dict[NormalizedName, str] = {}
    required = [Dependency(name=root.name, requirement=root.requirement) for root in roots if not root.constraint]
    queue = [node for dependency in required for node in _nodes(dependency)]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in visited or not (name in lock.packages or name in direct):
            continue
        visited.add((name, extra))
        for dependency in source.dependencies(candidates[name], extra) or () if name in candidates else ():
            locked = lock.packages.get(dependency.name)
            if locked is None and dependency.name not in direct:
                missing.setdefault(dependency.name, name)
            elif locked is not None and not admits(dependency.requirement, locked.version):
                yield _unmet(scope, candidates[name], dependency, locked.version)
            queue += _nodes(dependency)
    yield from _missing(scope, missing)
    complete = all(name in candidates for name in (*lock.packages, *direct))
    surplus = sorted(set(lock.packages) - {name for name, _ in visited} - _INSTALLERS)
    if surplus and complete and not missing:
        yield _surplus(scope, surplus)


def _nodes(dependency: Dependency) -> Iterator[_Node]:
    """Yield a required package without extras, and with each of the required extras."""
    return ((dependency.name, extra) for extra in (None, *dependency.extras))


def _check_root(scope: Scope, root: RootRequirement, direct: Collection[str]) -> Iterator[Finding]:
    """Yield that the lock does not satisfy a requirement or a constraint of the project, if so."""
    locked = scope.lock.packages.get(root.name)
    if root.direct is not None and not root.constraint:
        yield from _check_direct(scope, root, root.direct)
    elif locked is None and root.name not in direct and not root.constraint:
        yield _absent(scope, root)
    elif locked is not None and not admits(root.requirement, locked.version):
        yield _violated(scope, root)


def _unmet(scope: Scope, candidate: Candidate, dependency: Dependency, locked: Version) -> Finding:
    return scope.finding(
        "ADV001",
        f"`{candidate.name} {candidate.version}` requires `{_without_marker(dependency)}`, but the lock has {locked}",
        package=dependency.name,
        subject=f"{candidate.name} requires {dependency.name}",
        cause=Cause.of({candidate.name: candidate.version, dependency.name: locked}),
    )


def _check_direct(scope: Scope, root: RootRequirement, reference: DirectReference) -> Iterator[Finding]:
    """Yield the finding that the lock does not have a package from where the project requires it, if so."""
    lock = scope.lock
    if lock.path is None or any(is_of(lock, source, reference) for source in lock.sources):
        return
    other = next((source.address for source in lock.sources if source.name == root.name), None)
    if other is None and root.name not in lock.packages:
        yield _absent(scope, root)
        return
    yield scope.finding(
        "ADV001",
        f"`{root.name}` ({root.origin}) is required from `{reference.printable}`, but the lock has it from "
        f"{f'`{printable(other)}`' if other else 'an index'}",
        package=root.name,
        place=place_of_root(root),
        subject=f"the project requires {root.name}",
        cause=Cause(files=(other or "index",)),
    )


def _absent(scope: Scope, root: RootRequirement) -> Finding:
    return scope.finding(
        "ADV001",
        f"`{root.requirement}` ({root.origin}) is required, but it is not in the lock",
        package=root.name,
        place=place_of_root(root),
        subject=f"the project requires {root.name}",
    )


def _violated(scope: Scope, root: RootRequirement) -> Finding:
    version = scope.lock.packages[root.name].version
    verb = "is a constraint" if root.constraint else "is required"
    return scope.finding(
        "ADV001",
        f"`{root.requirement}` ({root.origin}) {verb}, but the lock has {version}",
        package=root.name,
        place=place_of_root(root),
        subject=f"the project requires {root.name}",
        cause=Cause.of({root.name: version}),
    )


def _missing(scope: Scope, missing: dict[NormalizedName, str]) -> Iterator[Finding]:
    """Yield one finding for all dependencies that are not locked: if one is missing, many usually are."""
    if not missing:
        return
    names = ", ".join(f"`{name}` (for `{parent}`)" for name, parent in sorted(missing.items())[:_MAX_NAMES])
    more = f" and {len(missing) - _MAX_NAMES} more" if len(missing) > _MAX_NAMES else ""
    first = min(missing)
    if scope.lock.is_project:
        yield scope.finding(
            "ADV023",
            f"{len(missing)} dependencies have no locked version: {names}{more}",
            place=scope.at(1),
            subject="open",
            cause=Cause(files=tuple(sorted(missing))),
        )
        return
    yield scope.finding(
        "ADV001",
        f"requirements of locked packages are not in the lock: {names}{more}",
        package=first if len(missing) == 1 else "",
        place=scope.place_of(missing[first]),
        subject="missing",
        cause=Cause(files=tuple(sorted(missing))),
    )


def _surplus(scope: Scope, surplus: list[NormalizedName]) -> Finding:
    names = ", ".join(f"`{name}`" for name in surplus[:_MAX_NAMES])
    more = f" and {len(surplus) - _MAX_NAMES} more" if len(surplus) > _MAX_NAMES else ""
    return scope.finding(
        "ADV019",
        f"nothing on the target requires {names}{more}",
        package=surplus[0] if len(surplus) == 1 else "",
        place=scope.place_of(surplus[0]),
        subject="surplus",
    )


def _without_marker(dependency: Dependency) -> str:
    return str(dependency.requirement).partition(";")[0].strip()

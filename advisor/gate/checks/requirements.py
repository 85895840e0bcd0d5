"""Checks that a lock satisfies the requirements of its project and packages, and contains nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.words import listed, quoted
from advisor.gate.checks.artifacts import LockArtifacts
from advisor.gate.checks.unindexed import is_of
from advisor.gate.findings import Cause, Finding, Place
from advisor.gate.scope import Scope
from advisor.index.addresses import printable
from advisor.locks.lock import Lock
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import PROJECT, Candidate, Dependency, Node, admits, walk

_MAX_NAMES = 3
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "uv"})


def check_requirements(scope: Scope) -> Iterator[Finding]:
    """Yield unmet requirements, requirements without a locked version, and packages that nothing requires.

    Packages whose files the target cannot install count as requiring nothing.
    """
    if not scope.state.requirements_known:
        return
    lock, problem = scope.lock, scope.problem
    source, installable = IndexCandidates(scope.case.client, problem), scope.once(LockArtifacts).installable
    source.fetch(installable.values())
    # A requirements file need not contain the name of a package that comes from a directory or repository.
    direct = {locked.name for locked in lock.sources} | {
        name
        for name, package in problem.direct.items()
        if any(is_of(lock, locked, package.candidate.direct) for locked in lock.sources if package.candidate.direct)
    }
    candidates = {**installable, **{name: problem.direct[name].candidate for name in direct if name in problem.direct}}
    roots = [root for root in problem.roots if problem.applies(root.requirement)]
    yield from _violated(scope, roots, direct)
    required: set[NormalizedName] = set()
    missing: dict[NormalizedName, str] = {}

    def dependencies_of(node: Node) -> Iterable[Dependency]:
        name, extra = node
        required.add(name)
        return (source.dependencies(candidates[name], extra) or ()) if name in candidates else ()

    for parent, dependency in walk(problem.required, dependencies_of):
        locked = lock.packages.get(dependency.name)
        if parent == PROJECT:
            continue  # Checked above.
        if locked is None and dependency.name not in direct:
            missing.setdefault(dependency.name, parent)
        elif locked is not None and not admits(dependency.requirement, locked.version):
            yield _unmet(scope, candidates[parent], dependency, locked.version)
    yield from _missing(scope, missing)
    complete = all(name in candidates for name in (*lock.packages, *direct))
    surplus = sorted(set(lock.packages) - required - _INSTALLERS)
    if surplus and complete and not missing:
        message = f"nothing on the target requires {quoted(surplus, _MAX_NAMES)}"
        package, place = surplus[0] if len(surplus) == 1 else "", scope.place_of(surplus[0])
        yield scope.finding("ADV019", message, package=package, place=place, subject="surplus")


def _unmet(scope: Scope, parent: Candidate, dependency: Dependency, locked: Version) -> Finding:
    required = str(dependency.requirement).partition(";")[0].strip()
    return scope.finding(
        "ADV001",
        f"`{parent.name} {parent.version}` requires `{required}`, but the lock has {locked}",
        package=dependency.name,
        subject=f"{parent.name} requires {dependency.name}",
        cause=Cause.of({parent.name: parent.version, dependency.name: locked}),
    )


def _violated(scope: Scope, roots: Iterable[RootRequirement], direct: Collection[str]) -> Iterator[Finding]:
    """Yield the requirements and constraints of the project that the lock does not satisfy."""
    for root in roots:
        if violation := _violation(scope.lock, root, direct):
            message, cause = violation
            place = Place(path=root.path, line=root.line) if root.path and root.line else None
            subject = f"the project requires {root.name}"
            yield scope.finding("ADV001", message, package=root.name, place=place, subject=subject, cause=cause)


def _violation(lock: Lock, root: RootRequirement, direct: Collection[str]) -> tuple[str, Cause] | None:
    """Return how a lock violates a requirement, with the cause; `None` if it satisfies it."""
    locked = lock.packages.get(root.name)
    required = f"`{root.requirement}` ({root.origin}) {'is a constraint' if root.constraint else 'is required'}"
    absent = f"{required}, but it is not in the lock", Cause()
    if root.direct is not None and not root.constraint:
        if lock.path is None or any(is_of(lock, source, root.direct) for source in lock.sources):
            return None
        other = next((source.address for source in lock.sources if source.name == root.name), None)
        if other is None and locked is None:
            return absent
        required = f"`{root.name}` ({root.origin}) is required from `{root.direct.printable}`"
        place = f"`{printable(other)}`" if other else "an index"
        return f"{required}, but the lock has it from {place}", Cause(files=(other or "index",))
    if locked is None:
        return None if root.constraint or root.name in direct else absent
    if admits(root.requirement, locked.version):
        return None
    return f"{required}, but the lock has {locked.version}", Cause.of({root.name: locked.version})


def _missing(scope: Scope, missing: Mapping[NormalizedName, str]) -> Iterator[Finding]:
    """Yield one finding for all dependencies that are not locked: if one is missing, many usually are."""
    if not missing:
        return
    names = sorted(missing)
    texts = listed([f"`{name}` (for `{missing[name]}`)" for name in names], _MAX_NAMES)
    cause = Cause(files=tuple(names))
    if scope.lock.is_project:
        message = f"{len(missing)} dependencies have no locked version: {texts}"
        yield scope.finding("ADV023", message, place=scope.at(1), subject="open", cause=cause)
        return
    message = f"requirements of locked packages are not in the lock: {texts}"
    package, place = names[0] if len(missing) == 1 else "", scope.place_of(missing[names[0]])
    yield scope.finding("ADV001", message, package=package, place=place, subject="missing", cause=cause)


STATE_CHECKS = (check_requirements,)

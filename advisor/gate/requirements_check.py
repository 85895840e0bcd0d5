"""Whether a lock holds what its project requires, and what its own packages require, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.utils import NormalizedName

from advisor.domain.requirement import RootRequirement
from advisor.gate.findings import Finding, Place
from advisor.gate.scope import Located, Scope, place_of_root
from advisor.resolve.problem import CandidateSource, Dependency, admits

_FEW = 3
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "uv"})


def unmet(scope: Scope, source: CandidateSource, located: Located) -> Iterator[Finding]:
    """Yield what is out of date, left open, or not required.

    Args:
        scope: What is examined.
        source: Tells what a candidate requires.
        located: The locked packages whose requirements can be told; others count as requiring nothing.
    """
    lock, problem = scope.lock, scope.problem
    source.fetch(located.values())
    seen: set[tuple[NormalizedName, NormalizedName | None]] = set()
    missing: dict[NormalizedName, str] = {}
    queue: list[tuple[NormalizedName, NormalizedName | None]] = []

    def ask(dependency: Dependency) -> None:
        queue.extend((dependency.name, extra) for extra in (None, *dependency.extras))

    for root in problem.roots:
        if not problem.applies(root.requirement):
            continue
        locked = lock.packages.get(root.name)
        if locked is None and not root.constraint:
            yield _absent(scope, root)
        elif locked is not None and not admits(root.requirement, locked.version):
            yield _violated(scope, root)
        if not root.constraint:
            ask(Dependency(name=root.name, requirement=root.requirement))
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen or name not in lock.packages:
            continue
        seen.add((name, extra))
        if name not in located:
            continue
        for dependency in source.dependencies(located[name], extra) or ():
            locked = lock.packages.get(dependency.name)
            if locked is None:
                missing.setdefault(dependency.name, name)
            elif not admits(dependency.requirement, locked.version):
                yield scope.finding(
                    "ADV001",
                    f"`{name} {lock.packages[name].version}` requires `{_plain(dependency)}`, and the lock holds "
                    f"{locked.version}",
                    package=dependency.name,
                    subject=f"{name} requires {dependency.name}",
                    versions={name: lock.packages[name].version, dependency.name: locked.version},
                )
            ask(dependency)
    yield from _missing(scope, missing)
    complete = all(name in located for name in lock.packages)
    surplus = sorted(set(lock.packages) - {name for name, _ in seen} - _INSTALLERS)
    if surplus and complete and not missing:
        yield _surplus(scope, surplus)


def _absent(scope: Scope, root: RootRequirement) -> Finding:
    return scope.finding(
        "ADV001",
        f"`{root.requirement}` ({root.origin}) is required, and the lock does not hold it",
        package=root.name,
        place=place_of_root(root),
        subject=f"the project requires {root.name}",
    )


def _violated(scope: Scope, root: RootRequirement) -> Finding:
    version = scope.lock.packages[root.name].version
    verb = "is a constraint" if root.constraint else "is required"
    return scope.finding(
        "ADV001",
        f"`{root.requirement}` ({root.origin}) {verb}, and the lock holds {version}",
        package=root.name,
        place=place_of_root(root),
        subject=f"the project requires {root.name}",
        versions={root.name: version},
    )


def _missing(scope: Scope, missing: dict[NormalizedName, str]) -> Iterator[Finding]:
    """Yield one finding for all that is not locked: where one dependency is forgotten, many mostly are."""
    if not missing:
        return
    told = ", ".join(f"`{name}` (for `{parent}`)" for name, parent in sorted(missing.items())[:_FEW])
    more = f" and {len(missing) - _FEW} more" if len(missing) > _FEW else ""
    first = min(missing)
    if scope.lock.is_project:
        yield scope.finding(
            "ADV023",
            f"{len(missing)} dependencies are left open: {told}{more}",
            place=Place(path=str(scope.lock.path), line=1),
            subject="open",
            files=sorted(missing),
        )
        return
    yield scope.finding(
        "ADV001",
        f"the lock does not hold what its own packages require: {told}{more}",
        package=first if len(missing) == 1 else "",
        place=scope.place_of(missing[first]),
        subject="missing",
        files=sorted(missing),
    )


def _surplus(scope: Scope, surplus: list[NormalizedName]) -> Finding:
    told = ", ".join(f"`{name}`" for name in surplus[:_FEW])
    more = f" and {len(surplus) - _FEW} more" if len(surplus) > _FEW else ""
    return scope.finding(
        "ADV019",
        f"nothing on the target requires {told}{more}",
        package=surplus[0] if len(surplus) == 1 else "",
        place=scope.place_of(surplus[0]),
        subject="surplus",
    )


def _plain(dependency: Dependency) -> str:
    return str(dependency.requirement).partition(";")[0].strip()

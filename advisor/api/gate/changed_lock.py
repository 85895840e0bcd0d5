"""The smallest change of a lock with which it has some versions, such as what a pull request of a bot would change."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

from advisor.api.context import AdviceInputs, TargetContext
from advisor.api.search import prepare_request
from advisor.domain.requirement import RootRequirement
from advisor.domain.words import quoted
from advisor.gate.problem import without_pins
from advisor.gate.scope import GateCase
from advisor.gate.update import updated_lock
from advisor.locks.lock import Lock, LockedVersion
from advisor.resolve.candidates.problem import PROJECT, Candidate, ResolutionProblem
from advisor.resolve.explanation.no_stack import no_stack_error
from advisor.resolve.explanation.stack_requirements import requirements_within
from advisor.resolve.optimum.request import ResolutionRequest, solve
from advisor.resolve.optimum.result import InfeasibleError
from advisor.resolve.recommendation.package_choices import locked_extras
from advisor.resolve.score.criteria import LeastChange
from knowledge.domain.errors import InputError


def request_for_lock(context: TargetContext, case: GateCase, problem: ResolutionProblem) -> ResolutionRequest:
    """Return the request for the stacks that the lock of a case may be changed to, with what they must satisfy."""
    lock = case.head.lock
    # Locked versions stay candidates even if they were yanked: the gate decides whether they may stay.
    policy = replace(problem.policy, retained=frozenset(lock.versions.items()))
    context = replace(context, problem=replace(problem, policy=policy))
    # The smallest change keeps the extras that the lock has, and adds none.
    request = prepare_request(AdviceInputs(context=context, client=case.client, estimator=case.predictor))
    extras = locked_extras(request.problem, request.source, request.score.builds, lock.versions)
    return request.with_problem(request.problem.with_substitutions(extras)) if extras else request


def read_upgrades(texts: Sequence[str]) -> tuple[Requirement, ...]:
    """Return the requirements on packages that a lock is to be changed to, such as ``torch==2.15.0``.

    Raises:
        InputError: If a text is no requirement with a version, or a package is named twice.
    """
    upgrades: dict[str, Requirement] = {}
    for text in texts:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            requirement = None
        if requirement is None or not requirement.specifier or requirement.url or requirement.marker:
            raise InputError(f"`{text}` does not say what to change", hint="write it as `torch==2.13.0`")
        name = canonicalize_name(requirement.name)
        if name in upgrades:
            raise InputError(f"`{name}` is named twice")
        upgrades[name] = requirement
    return tuple(upgrades.values())


def with_upgrades(context: TargetContext, case: GateCase, upgrades: Sequence[Requirement]) -> GateCase:
    """Return the case of the smallest change of a lock that satisfies some requirements; its base is the lock.

    A requirement takes the place of the project's own ones on the same package, as in a pull request that changes them.

    Raises:
        NoStackError: If no stack satisfies them.
        SearchLimitError: If the search ended before it found one.
        UnavailableError: If an index cannot be read.
    """
    before, lock = case.head, case.head.lock
    free = without_pins(before.problem, lock)
    roots = tuple(_changed(free.roots, upgrades, lock.versions))
    overrides = _without(free.overrides, upgrades)
    request = request_for_lock(context, case, replace(free, roots=roots, overrides=overrides))
    if further := _not_required(request, free, lock.packages):
        request = request.with_problem(replace(request.problem, roots=(*request.problem.roots, *further)))
    # What the change adds is the newest, as with other tools: with fewer additions, it could be ancient.
    request = request.with_score(change=LeastChange(locked=lock.versions, added=0))
    try:
        optimum = solve(request)
    except InfeasibleError:
        raise no_stack_error(request, baseline=True) from None
    head = replace(before, lock=_with_pins(lock, optimum.stack, upgrades), problem=request.problem)
    name = f"`{lock.path}`" if lock.path else "the newest stack"
    change = f"the smallest change with {quoted([str(upgrade) for upgrade in upgrades])}"
    return replace(case, head=head, base=(name, before), change=change)


def _with_pins(lock: Lock, stack: Sequence[Candidate], upgrades: Sequence[Requirement]) -> Lock:
    """Return a lock with the versions of a stack; pinned requirements get pins of the upgrades, too."""
    if lock.is_project:
        names = {canonicalize_name(upgrade.name) for upgrade in upgrades} - lock.packages.keys()
        pins = {c.name: LockedVersion(version=c.version) for c in stack if c.name in names}
        lock = replace(lock, packages={**lock.packages, **pins})
    return updated_lock(lock, stack)


def _not_required(
    request: ResolutionRequest, problem: ResolutionProblem, locked: Mapping[NormalizedName, LockedVersion]
) -> tuple[RootRequirement, ...]:
    """Return requirements on the locked packages that nothing requires before the change: they stay."""
    stack = [c for name, entry in locked.items() for c in request.source.candidates(name) if c.version == entry.version]
    required = requirements_within(problem, request.source, stack)
    reached, waiting = set[NormalizedName](), [PROJECT]
    while waiting:
        new = required.get(waiting.pop(), {}).keys() - reached
        reached |= new
        waiting += new
    names = sorted(candidate.name for candidate in stack if candidate.name not in reached)
    return tuple(RootRequirement(requirement=Requirement(name), origin="the lock", is_added=True) for name in names)


def _changed(
    roots: Sequence[RootRequirement], upgrades: Sequence[Requirement], locked: Container[str]
) -> Iterator[RootRequirement]:
    """Yield requirements with the versions of the upgrades, and those upgrades that the project does not require.

    A package that is not locked is new.
    """
    versions = {canonicalize_name(upgrade.name): upgrade for upgrade in upgrades}
    for root in roots:
        if root.name not in versions:
            yield root
            continue
        free = root.without_versions()
        free.requirement.specifier = versions[root.name].specifier
        yield replace(free, origin="the change", path="")
    for name in sorted(versions.keys() - {root.name for root in roots}):
        requirement = versions[name]
        yield RootRequirement(
            requirement=requirement, origin=f"`{requirement}`", constraint=name in locked, is_added=name in locked
        )


def _without(roots: Sequence[RootRequirement], upgrades: Sequence[Requirement]) -> tuple[RootRequirement, ...]:
    names = {canonicalize_name(upgrade.name) for upgrade in upgrades}
    return tuple(root for root in roots if root.name not in names)

"""Errors about a stack that does not exist: the conflict, the builds or the size, and a change that allows a stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from advisor.domain.progress import announce, progress
from advisor.domain.requirement import RootRequirement
from advisor.domain.time_limit import TimeLimit
from advisor.domain.words import count, quoted, size_text, size_texts
from advisor.resolve.candidates.compatible_files import PRERELEASE
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import (
    NO_PACKAGES,
    BuildsNeededError,
    CandidateStack,
    NoStackError,
    SizeLimitError,
    admits,
)
from advisor.resolve.explanation.conflict import (
    Conflict,
    describe_conflict,
    find_conflict,
    find_pinned_conflict,
    is_contradictory,
    relax_requirement,
)
from advisor.resolve.optimum.baseline import FIRST_ROUNDS, BaselineLimitError, resolve_baseline
from advisor.resolve.optimum.request import ResolutionRequest, solve
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError

_HINT_WORK = 2.0
"""Work limit of the search for a change that solves a conflict, in the solver's unit."""
_HINT_SECONDS = 3.0
"""Time limit of the search for the cheapest such change."""


def no_stack_error(request: ResolutionRequest, *, baseline: bool) -> NoStackError:
    """Return the error that explains why there is no stack, with the cheapest change that allows one.

    With a `baseline`, the requirements alone, without the rules, have a solution.
    """
    request = admitting_untried_sdists(request)
    if not baseline and (conflict := find_pinned_conflict(request.problem, request.source)) is not None:
        return _error_of(request, conflict, "no set of versions satisfies the requirements")
    if not baseline and request.source.lacks_builds:
        return _error_about_builds(request)
    return _conflict_error(request, baseline=baseline)


def admitting_untried_sdists(request: ResolutionRequest) -> ResolutionRequest:
    """Return the request without the rule about sdists whose build was not tried."""
    return request.with_score(admits_untried_sdists=True)


def untried_sdists_error(request: ResolutionRequest) -> BuildsNeededError | None:
    """Return the error if all stacks contain sdists whose build was not tried; `None` if not even such stacks exist."""
    names = request.source.loaded_packages
    if not any(request.score.is_untried_sdist(c) for name in names for c in request.source.candidates(name)):
        return None
    try:
        stack = solve(admitting_untried_sdists(request)).stack
    except (InfeasibleError, SearchLimitError):
        return None
    packages = [f"{c.name} {c.version}" for c in stack if request.score.is_untried_sdist(c)]
    reason = f"{quoted(packages)} {'has' if len(packages) == 1 else 'have'} no wheel for the target"
    return BuildsNeededError(packages, reason=reason)


def error_about_size(
    request: ResolutionRequest, smallest: Sequence[Optimum], *, not_compared: str = "", further: str = ""
) -> SizeLimitError:
    """Return the error that no stack satisfies the limit of the download, with the smallest of several stacks.

    There is one stack for each way to state the problem, without those that were not compared. `further` is what stacks
    have to satisfy in addition to the requirements.
    """
    best = min(smallest, key=lambda optimum: optimum.bounds[0].value)
    size = best.bounds[0].value
    most, least = size_texts(request.score.max_size or 0, size)
    # An option that is not much larger than needed, without many digits.
    enough = f"{-(-size // 10**6)}MB" if size >= 10**7 else f"{-(-size // 10**3)}kB"
    message = f"no stack with at most {most} to download satisfies the requirements{further}"
    if not_compared:
        message = f"no stack with at most {most} to download was found: {not_compared}"
    are_proven = not not_compared and all(optimum.proven for optimum in smallest)
    is_proven = "the smallest possible stack" if are_proven else "the smallest stack that was found"
    details = [f"{is_proven} has {count(len(best.stack), 'package')} with {least} to download"]
    bound = min(optimum.bounds[0].bound for optimum in smallest)
    if not are_proven and not not_compared and bound > (request.score.max_size or 0):
        details.append(
            f"a smaller one may exist, because the search for it was {best.stopped}; proven: every stack has at least "
            f"{size_text(bound)}"
        )
    error = SizeLimitError(message, details=tuple(details), hint=f"allow more with `--max-size {enough}`, or remove it")
    announce(error)
    return error


def error_without_versions(request: ResolutionRequest, roots: Sequence[RootRequirement]) -> NoStackError:
    """Return the error about requirements of the project that admit no version."""
    names = sorted({root.name for root in roots})
    details: list[str] = []
    for name in names:
        conflict = Conflict(roots=tuple(r for r in roots if r.name == name), relations=(), rules=())
        details += describe_conflict(conflict, request)
    error = NoStackError("no set of versions satisfies the requirements", details=tuple(details))
    announce(error)
    error.hint = (
        _prerelease_hint(request)
        or (_cheapest_change(request, roots) if len(names) == 1 else "")
        or f"relax the requirements on {quoted(names)}, or choose another `--python` or `--platform`"
    )
    return error


def _error_about_builds(request: ResolutionRequest) -> NoStackError:
    """Return the error if requirements are only known after a build: about the builds, or a conflict without them.

    A conflict that remains if sdists require what they state without a build is no matter of builds.
    """
    problem, source = request.source.assuming_sdists()
    assumed = replace(request, problem=problem).with_score(source=source)
    try:
        stack = resolve_baseline(problem, source, max_rounds=FIRST_ROUNDS, limit=request.effort.limit)
    except NoStackError:
        if is_contradictory(assumed):
            return _conflict_error(assumed, baseline=False)
        offered = [
            [c for c in source.candidates(root.name) if admits(root.requirement, c.version)]
            for root in problem.roots
            if not root.constraint
        ]
        stack = CandidateStack(several[0] for several in offered if len(several) == 1)
    packages = sorted({c for c in stack if source.needs_build(c)})
    if not packages:
        return _conflict_error(request, baseline=False)
    details = (f"only an sdist of `{c.name}` {c.version} fits: {c.file.filename}" for c in packages)
    return BuildsNeededError([f"{c.name} {c.version}" for c in packages], details=tuple(details))


def _conflict_error(request: ResolutionRequest, *, baseline: bool) -> NoStackError:
    conflict = find_conflict(request)
    message = "no set of versions satisfies the requirements"
    if baseline or (conflict and conflict.rules):
        message = "no set of versions satisfies both the requirements and the rules for the target"
    if conflict is None:
        return NoStackError(message, hint="constrain the packages that have many versions")
    return _error_of(request, conflict, message)


def _error_of(request: ResolutionRequest, conflict: Conflict, message: str) -> NoStackError:
    """Return the error that describes a conflict, with the cheapest change that solves it."""
    error = NoStackError(message, details=describe_conflict(conflict, request))
    announce(error)
    if hint := _build_hint(request.source, conflict) or _prerelease_hint(request):
        error.hint = hint
        return error
    change = _cheapest_change(request, [root for root in request.problem.roots if root in conflict.roots])
    if change is None:
        change = "relaxing a single one of these requirements is not enough"
        if conflict.rules:
            change = "choose another target, or builds that the rules allow (`--framework-indexes`, `--package-index`)"
    if conflict.stopped:
        fewer = f"fewer requirements may conflict, too: the search for them was {conflict.stopped}"
        change = f"{change}; {fewer}" if change else fewer
    error.hint = change
    return error


def _build_hint(source: IndexCandidates, conflict: Conflict) -> str:
    """Return the hint if builds of a package of a conflict need something undeclared; else an empty text."""
    packages = {root.name for root in conflict.roots} | {name for relation in conflict.relations for name in relation}
    names = sorted(packages & source.undeclared_builds.keys())
    if not names:
        return ""
    return (
        f"state what {quoted(names)} requires with `[[tool.advisor.metadata]]` in `pyproject.toml`, and install the "
        "lock without build isolation"
    )


def _prerelease_hint(request: ResolutionRequest) -> str:
    """Return the hint if there is a stack with pre-releases; empty if none was found in the time of a hint."""
    problem = request.problem
    if not any(skipped.reason == PRERELEASE for skipped in request.source.skipped()):
        return ""
    progress("looking for a stack with pre-releases")
    try:
        admitting = replace(problem, policy=replace(problem.policy, prereleases=True))
        stack = _best_within_hint(request.with_problem(admitting), request.effort.limit.at_most(_HINT_SECONDS)).stack
    except (BaselineLimitError, InfeasibleError, NoStackError, SearchLimitError):
        return ""
    names = [f"{c.name} {c.version}" for c in stack if c.version.is_prerelease]
    return f"pre-releases solve it: `--prereleases` admits {quoted(names)}" if names else ""


def _best_within_hint(request: ResolutionRequest, limit: TimeLimit) -> Optimum:
    """Return the best stack of a request, found with the limits of a hint.

    Speed is compared with the newest candidates, so that the costs of several requests can be compared.
    """
    # A plain stack to start from: the problem itself has none.
    baseline = resolve_baseline(request.problem, request.source, max_rounds=FIRST_ROUNDS, limit=limit)
    request = replace(request, effort=replace(request.effort, work=_HINT_WORK, limit=limit))
    return solve(request.with_score(reference=NO_PACKAGES, baseline=baseline))


def _cheapest_change(request: ResolutionRequest, roots: Sequence[RootRequirement]) -> str | None:
    """Describe which of the conflicting requirements is best relaxed.

    `None` if no single one is enough; empty if the limits of the search were reached before one was known.
    """
    is_decided = True
    best: tuple[tuple[int, ...], str] | None = None
    limit = request.effort.limit.at_most(_HINT_SECONDS)
    for number, root in enumerate(roots, 1):
        if limit.is_over:
            break
        progress("looking for the cheapest change: %d of %d requirements", number, len(roots))
        problem = relax_requirement(request.problem, root)
        if problem is None:
            continue
        relaxed = request.with_problem(problem)
        # To compute predictions takes longer than the limit.
        relaxed = replace(relaxed, score=relaxed.score.without("speed", "unmeasured"))
        try:
            optimum = _best_within_hint(relaxed, limit)
        except (BaselineLimitError, SearchLimitError):
            is_decided = False
            continue
        except (NoStackError, InfeasibleError):
            continue
        if optimum.stopped:
            is_decided = False
            continue
        costs = tuple(bound.value for bound in optimum.bounds)
        candidate = next((c for c in optimum.stack if c.name == root.name), None)
        effect = f"`{candidate.name}` becomes {candidate.version}" if candidate else f"`{root.name}` is not needed"
        text = (
            f"the cheapest single change is to relax `{root.requirement}` ({root.origin}): then {effect}, and "
            f"the stack is {relaxed.score.libyears(optimum.stack):.1f} libyears behind the newest"
        )
        if best is None or costs < best[0]:
            best = (costs, text)
    if best is not None:
        return best[1]
    return "" if limit.is_over or not is_decided else None

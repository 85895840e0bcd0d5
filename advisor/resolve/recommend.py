"""The recommendation: from a problem over baseline, rules, score and optimum to a verified stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.announcement import announce
from advisor.domain.progress import progress
from advisor.domain.requirement import RootRequirement
from advisor.domain.time_limit import TimeLimit
from advisor.domain.words import count, quoted, size_text
from advisor.resolve.baseline import (
    MOST_ROUNDS,
    BaselineLimitError,
    BuildsNeededError,
    NoStackError,
    SizeLimitError,
    resolve_baseline,
)
from advisor.resolve.builds import DefaultBuilds, TargetBuilds
from advisor.resolve.candidates import IndexCandidates
from advisor.resolve.conflict import (
    Conflict,
    describe_conflict,
    find_conflict,
    find_contradiction,
    relax_requirement,
)
from advisor.resolve.explain import explain_stack
from advisor.resolve.finding_types import AdviceFinding
from advisor.resolve.findings import collect_findings
from advisor.resolve.objectives import KILOBYTE, Criteria, ObjectiveName
from advisor.resolve.optimise import InfeasibleError, Optimum, SearchLimitError, optimise
from advisor.resolve.pinned_conflict import find_pinned_conflict
from advisor.resolve.problem import Candidate, ResolutionProblem, Substitution, admits
from advisor.resolve.root_checks import check_roots, without_versions
from advisor.resolve.score_basis import ScoreBasis, score_basis
from advisor.resolve.solver import Effort
from advisor.resolve.verify import verify
from knowledge.estimate.interface import Estimator, Prediction
from knowledge.rules.engine import RuleBook

_FIRST_ROUNDS = 500
"""Rounds of the plain resolver after which the problem is checked for a contradiction."""
_HINT_WORK = 2.0
"""Work limit of the search for a change that solves a conflict, in the solver's unit."""
_HINT_SECONDS = 1.0
"""Time limit of the search for the cheapest such change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommended stack and the information about it.

    Attributes:
        objective: The objective.
        baseline: The stack that a plain resolver chooses; empty if it found none.
        optimum: The recommended stack and its proof.
        prediction: Predicted speed-up over the baseline.
        basis: What the score of the stack is based on.
        findings: Findings, sorted by code.
        reasons: For each package of the stack, why it has its version.
        libyears: Years behind the newest candidates, of the stack and of the baseline.
        current: Currently locked versions, by package, and the predicted speed-up of the stack over them; none if there
            is no lock.
    """

    objective: ObjectiveName
    baseline: tuple[Candidate, ...]
    optimum: Optimum
    prediction: Prediction
    basis: ScoreBasis
    findings: tuple[AdviceFinding, ...]
    reasons: dict[str, str]
    libyears: tuple[float, float]
    current: tuple[Mapping[str, Version], Prediction] | None = None


@dataclass(frozen=True, kw_only=True)
class ResolutionRequest:
    """A problem with everything that is needed to solve it, or a variant of it.

    Attributes:
        problem: The problem.
        source: The candidates.
        rules: The rules that apply to the target.
        builds: The builds on the target.
        estimator: Predictions from the observations.
        objective: The objective.
        criteria: The objective, as costs.
        baseline: The stack that a plain resolver chooses; empty if it found none.
        effort: Limits of the search.
        optimum: Its best stack, if it is known.
        compared: Packages that were read to compare it with other requests.
        findings: Findings about how it was chosen among other requests.
    """

    problem: ResolutionProblem
    source: IndexCandidates
    rules: RuleBook
    builds: TargetBuilds
    estimator: Estimator
    objective: ObjectiveName
    criteria: Criteria
    baseline: tuple[Candidate, ...]
    effort: Effort
    optimum: Optimum | None = None
    compared: frozenset[NormalizedName] = frozenset()
    findings: tuple[AdviceFinding, ...] = ()

    @property
    def loaded_packages(self) -> frozenset[NormalizedName]:
        """Packages whose index pages were read to find its best stack."""
        return self.compared.union(self.source.loaded_packages)

    @property
    def direct(self) -> frozenset[NormalizedName]:
        """Packages that the project's own requirements name."""
        return frozenset(root.name for root in self.problem.roots if not root.constraint)

    def best(self) -> Optimum:
        """Return the best stack.

        Raises:
            InfeasibleError: If there is none.
            SearchLimitError: If a limit is reached before a stack or a proof is found.
        """
        if self.optimum is not None:
            return self.optimum
        return optimise(
            self.problem,
            self.source,
            objectives=self.criteria.objectives,
            limits=self.criteria.limits,
            start=self.baseline,
            effort=self.effort,
        )

    def with_problem(self, problem: ResolutionProblem) -> Self:
        """Return the request for a problem that differs only in the project's own requirements.

        Costs stay the same, so that the two results can be compared.
        """
        source = self.source.for_problem(problem)
        criteria = self.criteria.with_source(source)
        return replace(self, problem=problem, source=source, criteria=criteria, optimum=None)

    def compared_with(self, baseline: Iterable[Candidate]) -> Self:
        """Return the request with another stack that speed is compared with."""
        return replace(self, criteria=self.criteria.with_baseline(baseline), optimum=None)

    def with_extra_options(self, options: Mapping[NormalizedName, tuple[Substitution, ...]]) -> Self:
        """Return the request in which extras may be required of a package in addition; see :class:`Criteria`."""
        problem = replace(self.problem, extra_options=options)
        criteria = self.criteria.with_extra_options({name: len(several) for name, several in options.items()})
        return replace(self, problem=problem, criteria=criteria, optimum=None)

    def with_max_size(self, max_size: int | None) -> Self:
        """Return the request with another limit of the download, in bytes; none for no limit."""
        return replace(self, criteria=self.criteria.with_max_size(max_size), optimum=None)

    def with_own_baseline(self) -> Self:
        """Return the request with the baseline of its own problem, as an advice for this problem has it.

        The baseline stays as it is if the plain resolver finds none.
        """
        try:
            baseline = _newest_stack(self.problem, self.source, self.effort.limit, max_rounds=_FIRST_ROUNDS)
        except NoStackError:
            return self
        return replace(self, baseline=baseline, criteria=self.criteria.with_baseline(baseline), optimum=None)

    def predict(self, stack: Sequence[Candidate], before: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up of a stack over another."""
        return self.estimator.predict({str(c.name): c.version for c in stack}, before)

    def libyears(self, stack: Sequence[Candidate]) -> float:
        """Return how far a stack is behind the newest candidates, summed over its packages, in years."""
        return self.criteria.libyears(stack, self.source)

    def is_contradictory(self) -> bool:
        """Whether it is proven that there is no stack."""
        contradiction = find_contradiction(
            self.problem, self.source, limits=self.criteria.limits, start=self.baseline, effort=self.effort
        )
        return contradiction is not None

    def no_stack_error(self, *, baseline: bool) -> NoStackError:
        """Return the error that explains why there is no stack, with the cheapest change that allows one.

        Args:
            baseline: Whether the requirements alone, without the rules, have a solution.
        """
        if not baseline and (conflict := find_pinned_conflict(self.problem, self.source)) is not None:
            return self._error_of(conflict, "no set of versions satisfies the requirements")
        if not baseline and self.source.lacks_builds:
            return self._error_about_builds()
        return self._conflict_error(baseline=baseline)

    def _error_about_builds(self) -> NoStackError:
        """Return the error if requirements are only known after a build: about the builds, or a conflict without them.

        A conflict that remains if sdists require what they state without a build is no matter of builds.
        """
        problem, source = self.source.assuming_sdists()
        request = replace(self, problem=problem, source=source, criteria=self.criteria.with_source(source))
        try:
            stack = resolve_baseline(problem, source, max_rounds=_FIRST_ROUNDS, limit=self.effort.limit)
        except NoStackError:
            if request.is_contradictory():
                return request._conflict_error(baseline=False)
            stack = tuple(c for root in problem.roots for c in _only_candidates(root, source))
        packages = sorted({c for c in stack if source.needs_build(c)})
        if not packages:
            return self._conflict_error(baseline=False)
        details = (f"only an sdist of `{c.name}` {c.version} fits: {c.file.filename}" for c in packages)
        return BuildsNeededError([f"{c.name} {c.version}" for c in packages], details=tuple(details))

    def _conflict_error(self, *, baseline: bool) -> NoStackError:
        """Return the error with the smallest conflict; see :meth:`no_stack_error`."""
        conflict = find_conflict(
            self.problem, self.source, limits=self.criteria.limits, start=self.baseline, effort=self.effort
        )
        message = "no set of versions satisfies the requirements"
        if baseline or (conflict and conflict.rules):
            message = "no set of versions satisfies both the requirements and the rules for the target"
        if conflict is None:
            return NoStackError(message, hint="constrain the packages that have many versions")
        return self._error_of(conflict, message)

    def _error_of(self, conflict: Conflict, message: str) -> NoStackError:
        """Return the error that describes a conflict, with the cheapest change that solves it."""
        error = NoStackError(message, details=describe_conflict(conflict, self.source, self.source.reasons))
        announce(error)
        change = self._cheapest_change([root for root in self.problem.roots if root in conflict.roots])
        if change is None:
            change = "relaxing a single one of these requirements is not enough"
            if conflict.rules:
                change = (
                    "choose another target, or builds that the rules allow (`--framework-indexes`, `--package-index`)"
                )
        if conflict.stopped:
            fewer = f"fewer requirements may conflict, too: the search for them was {conflict.stopped}"
            change = f"{change}; {fewer}" if change else fewer
        error.hint = change
        return error

    def error_about_size(self, variants: Iterable[ResolutionRequest]) -> SizeLimitError | None:
        """Return the error that no stack satisfies the limit of the download; none if there is no stack at all.

        Args:
            variants: The requests that have no stack with this limit.
        """
        optima: list[Optimum] = []
        for request in variants:
            try:
                optima.append(replace(request, criteria=request.criteria.of_size_alone(), optimum=None).best())
            except (InfeasibleError, SearchLimitError):
                continue
        if not optima:
            return None
        smallest = min(optima, key=lambda optimum: optimum.bounds[0].value)
        size = smallest.bounds[0].value * KILOBYTE
        most = size_text(self.criteria.max_size or 0)
        are_proven = all(optimum.proven for optimum in optima)
        is_proven = "the smallest possible stack" if are_proven else "the smallest stack that was found"
        error = SizeLimitError(
            f"no stack with at most {most} to download satisfies the requirements",
            details=(f"{is_proven} has {count(len(smallest.stack), 'package')} with {size_text(size)} to download",),
            hint=f"allow more with `--max-size {-(-size // 10**6)}MB`, or remove it",
        )
        announce(error)
        return error

    def error_without_versions(self, roots: Sequence[RootRequirement]) -> NoStackError:
        """Return the error about requirements of the project that admit no version; see :func:`without_versions`."""
        names = sorted({root.name for root in roots})
        details: list[str] = []
        for name in names:
            conflict = Conflict(roots=tuple(r for r in roots if r.name == name), relations=(), rules=())
            details += describe_conflict(conflict, self.source, self.source.reasons)
        error = NoStackError("no set of versions satisfies the requirements", details=tuple(details))
        announce(error)
        error.hint = (self._cheapest_change(roots) if len(names) == 1 else "") or (
            f"relax the requirements on {quoted(names)}, or choose another `--python` or `--platform`"
        )
        return error

    def _cheapest_change(self, roots: Sequence[RootRequirement]) -> str | None:
        """Describe which of the conflicting requirements is best relaxed.

        None if no single one is enough; empty if the time was over before one was known.
        """
        best: tuple[tuple[int, ...], str] | None = None
        limit = self.effort.limit.at_most(_HINT_SECONDS)
        for number, root in enumerate(roots, 1):
            if limit.is_over:
                break
            progress("looking for the cheapest change: %d of %d requirements", number, len(roots))
            problem = relax_requirement(self.problem, root)
            if problem is None:
                continue
            request = self.with_problem(problem)
            try:
                # A plain stack to start from: the problem itself has none.
                baseline = resolve_baseline(problem, request.source, max_rounds=_FIRST_ROUNDS, limit=limit)
                effort = replace(self.effort, work=_HINT_WORK, limit=limit)
                optimum = replace(request, baseline=baseline, effort=effort).best()
            except (NoStackError, InfeasibleError, SearchLimitError):
                continue
            if optimum.stopped:
                continue
            costs = tuple(bound.value for bound in optimum.bounds)
            candidate = next((c for c in optimum.stack if c.name == root.name), None)
            effect = f"`{candidate.name}` becomes {candidate.version}" if candidate else f"`{root.name}` is not needed"
            text = (
                f"the cheapest single change is to relax `{root.requirement}` ({root.origin}): then {effect}, and "
                f"the stack is {request.libyears(optimum.stack):.1f} libyears behind the newest"
            )
            if best is None or costs < best[0]:
                best = (costs, text)
        if best is not None:
            return best[1]
        return "" if limit.is_over else None


def _only_candidates(root: RootRequirement, source: IndexCandidates) -> list[Candidate]:
    """Return the candidate that a requirement of the project admits if it admits one; else nothing."""
    admitted = [c for c in source.candidates(root.name) if admits(root.requirement, c.version)]
    return admitted if len(admitted) == 1 and not root.constraint else []


def make_request(
    problem: ResolutionProblem,
    source: IndexCandidates,
    *,
    rules: RuleBook,
    builds: TargetBuilds,
    estimator: Estimator,
    objective: ObjectiveName,
    young_after: str = "",
    effort: Effort | None = None,
) -> ResolutionRequest:
    """Resolve the baseline of a problem, and return the request for its best stack.

    Args:
        problem: The problem.
        source: The candidates.
        rules: The rules that apply to the target.
        builds: The builds on the target.
        estimator: Predictions from the observations.
        objective: The objective.
        young_after: ISO 8601 time in UTC; files uploaded later count as young.
        effort: Limits of the search.

    Raises:
        NoStackError: If a required package is not on any index, or no stack satisfies the requirements.
        UnavailableError: If the index cannot be read.
    """
    effort = effort or Effort()
    check_roots(problem, source)
    unsatisfied = without_versions(problem, source)
    direct = {root.name for root in problem.roots if not root.constraint}

    def with_baseline(baseline: tuple[Candidate, ...]) -> ResolutionRequest:
        criteria = Criteria(
            builds=builds,
            estimator=estimator,
            objective=objective,
            direct=direct,
            baseline=baseline,
            source=source,
            young_after=young_after,
        )
        return ResolutionRequest(
            problem=problem,
            source=source,
            rules=rules,
            builds=builds,
            estimator=estimator,
            objective=objective,
            criteria=criteria,
            baseline=baseline,
            effort=effort,
        )

    if unsatisfied:
        raise with_baseline(()).error_without_versions(unsatisfied)
    try:
        return with_baseline(_newest_stack(problem, source, effort.limit, max_rounds=_FIRST_ROUNDS))
    except BaselineLimitError:
        # The exact search finds a contradiction in seconds for which the plain resolver needs minutes.
        request = with_baseline(())
        if request.is_contradictory():
            raise request.no_stack_error(baseline=False) from None
    except NoStackError:
        raise with_baseline(()).no_stack_error(baseline=False) from None
    try:
        # A part of the time is left for the exact search.
        limit = effort.limit.at_most(effort.limit.seconds_left / 2)
        return with_baseline(_newest_stack(problem, source, limit))
    except BaselineLimitError:
        # The optimum does not need a baseline.
        return with_baseline(())
    except NoStackError:
        raise with_baseline(()).no_stack_error(baseline=False) from None


def _newest_stack(
    problem: ResolutionProblem, source: IndexCandidates, limit: TimeLimit, *, max_rounds: int = MOST_ROUNDS
) -> tuple[Candidate, ...]:
    """Resolve a problem, newest versions first; with further builds only if there is no stack without them.

    Raises:
        NoStackError: If no stack satisfies the requirements.
        BaselineLimitError: If none is found within the limits.
    """
    if source.has_further_builds:
        plain = DefaultBuilds(problem, source, source.is_further_build)
        try:
            return resolve_baseline(problem, plain, max_rounds=max_rounds, limit=limit)
        except BaselineLimitError:
            raise
        except NoStackError:
            pass
    return resolve_baseline(problem, source, max_rounds=max_rounds, limit=limit)


def recommend(request: ResolutionRequest, *, current: Mapping[str, Version] | None = None) -> Advice:
    """Return the recommended stack for a request.

    Args:
        request: The problem with its baseline.
        current: Currently locked versions, by package.

    Raises:
        NoStackError: If no stack satisfies the requirements and the rules.
        SearchLimitError: If a limit is reached before a stack or a proof is found.
        UnavailableError: If the index cannot be read.
        VerificationError: If the independent resolver rejects the optimum.
    """
    problem, source, baseline = request.problem, request.source, request.baseline
    try:
        optimum = request.best()
    except InfeasibleError:
        if request.criteria.max_size is not None:
            error = request.error_about_size([request])
            if error is not None:
                raise error from None
        raise request.no_stack_error(baseline=bool(baseline)) from None
    verify(problem, source, optimum.stack)
    versions = {str(c.name): c.version for c in baseline}
    prediction = request.predict(optimum.stack, versions)
    return Advice(
        objective=request.objective,
        baseline=baseline,
        optimum=optimum,
        prediction=prediction,
        basis=score_basis(
            {str(c.name): c.version for c in optimum.stack},
            versions,
            objective=request.objective,
            estimator=request.estimator,
            unmeasured=prediction.unmeasured,
        ),
        findings=collect_findings(request, optimum, prediction),
        reasons=explain_stack(
            problem,
            source,
            stack=optimum.stack,
            baseline=baseline,
            rules=request.rules,
            builds=request.builds,
            prediction=prediction,
        ),
        libyears=(request.libyears(optimum.stack), request.libyears(baseline)),
        current=None if current is None else (current, request.predict(optimum.stack, current)),
    )

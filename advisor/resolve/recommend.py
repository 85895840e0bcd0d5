"""From a problem to verified advice: baseline, rules, score, optimum, verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.resolve.baseline import Impossible, TooDeep, resolve_baseline
from advisor.resolve.candidates import IndexCandidates
from advisor.resolve.conflict import find_conflict, tell, without
from advisor.resolve.explain import explain_stack
from advisor.resolve.findings import AdviceFinding, find
from advisor.resolve.objectives import Criteria, ObjectiveName
from advisor.resolve.optimise import NoSolution, Optimum, SearchLimitError, optimise
from advisor.resolve.problem import Candidate, ResolutionProblem
from advisor.resolve.solver import Effort
from advisor.resolve.verify import verify
from knowledge.estimate.interface import Estimator, Prediction
from knowledge.rules.engine import RuleBook


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommended stack with everything that supports it.

    Attributes:
        objective: What was optimised.
        baseline: What a plain resolver would choose, or empty where it found nothing.
        optimum: The recommended stack and its proof.
        prediction: Predicted speed-up over the baseline.
        findings: In order of code.
        why: One sentence for each package of the stack.
        behind: Years behind the newest candidates: of the stack, and of the baseline.
        current: Versions that the project has now, by package, and what is predicted for a change to the stack; none
            where that is not known.
    """

    objective: ObjectiveName
    baseline: tuple[Candidate, ...]
    optimum: Optimum
    prediction: Prediction
    findings: tuple[AdviceFinding, ...]
    why: dict[str, str]
    behind: tuple[float, float]
    current: tuple[Mapping[str, Version], Prediction] | None = None


@dataclass(frozen=True, kw_only=True)
class ResolutionRequest:
    """A problem with everything that it takes to answer it, and to answer it again with something changed.

    Attributes:
        problem: What is to be resolved.
        source: The candidates.
        rules: The rules on the target.
        estimator: What the observations imply.
        objective: What is best.
        criteria: The objective, as costs.
        baseline: What a plain resolver would choose; empty where it found nothing.
        effort: How hard to try.
    """

    problem: ResolutionProblem
    source: IndexCandidates
    rules: RuleBook
    estimator: Estimator
    objective: ObjectiveName
    criteria: Criteria
    baseline: tuple[Candidate, ...]
    effort: Effort

    @property
    def direct(self) -> frozenset[NormalizedName]:
        """Packages that the user asked for by name."""
        return frozenset(root.name for root in self.problem.roots if not root.constraint)

    def best(self) -> Optimum:
        """Return the best stack.

        Raises:
            NoSolution: If there is none.
            SearchLimitError: If that remained open.
        """
        return optimise(
            self.problem,
            self.source,
            objectives=self.criteria.objectives,
            limits=self.criteria.limits,
            start=self.baseline,
            effort=self.effort,
        )

    def instead(self, problem: ResolutionProblem) -> Self:
        """Return the inquiry into a problem that differs in the user's own requirements only.

        Costs stay what they are, so that the two answers can be compared.
        """
        source = self.source.variant(problem)
        criteria = self.criteria.over(source)
        return replace(self, problem=problem, source=source, criteria=criteria)

    def predict(self, stack: Sequence[Candidate], before: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up of a stack over another."""
        return self.estimator.predict({str(c.name): c.version for c in stack}, before)

    def libyears(self, stack: Sequence[Candidate]) -> float:
        """Return how far a stack lies behind the newest candidates, summed over its packages, in years."""
        return self.criteria.libyears(stack, self.source)

    def conflict(self, *, baseline: bool) -> Impossible:
        """Return the error that tells why there is no stack, and the cheapest change that would make one.

        Args:
            baseline: Whether the requirements alone, without the rules, have a solution.
        """
        found = find_conflict(
            self.problem, self.source, limits=self.criteria.limits, start=self.baseline, effort=self.effort
        )
        message = "no set of versions satisfies the requirements"
        if baseline or (found and found.rules):
            message = "no set of versions satisfies both the requirements and the rules for the target"
        if found is None:
            return Impossible(message, hint="constrain the packages that have many versions")
        change = self._cheapest_change([root for root in self.problem.roots if root in found.roots])
        if not change:
            change = "no single one of these requirements can be relaxed to make it solvable"
            if found.rules:
                change = "choose another target, or name an index whose builds the rules admit (`--package-index`)"
        return Impossible(message, details=tell(found, self.source, self.source.reasons), hint=change)

    def _cheapest_change(self, roots: Sequence[RootRequirement]) -> str:
        """Say which one of the conflicting requirements is best relaxed; empty where none helps alone."""
        best: tuple[tuple[int, ...], str] | None = None
        for root in roots:
            problem = without(self.problem, root)
            if problem is None:
                continue
            inquiry = self.instead(problem)
            try:
                # A plain stack to begin from: there is none for the problem itself.
                optimum = replace(inquiry, baseline=resolve_baseline(problem, inquiry.source)).best()
            except (Impossible, NoSolution, SearchLimitError):
                continue
            costs = tuple(bound.value for bound in optimum.bounds)
            chosen = next((c for c in optimum.stack if c.name == root.name), None)
            became = f"`{chosen.name}` becomes {chosen.version}" if chosen else f"`{root.name}` is not needed"
            text = (
                f"the cheapest single change is to give up `{root.requirement}` ({root.origin}): then {became}, and "
                f"the stack lies {inquiry.libyears(optimum.stack):.1f} libyears behind the newest"
            )
            if best is None or costs < best[0]:
                best = (costs, text)
        return best[1] if best is not None else ""


def inquire(
    problem: ResolutionProblem,
    source: IndexCandidates,
    *,
    rules: RuleBook,
    estimator: Estimator,
    objective: ObjectiveName,
    young_after: str = "",
    effort: Effort | None = None,
) -> ResolutionRequest:
    """Resolve the baseline of a problem, and make ready to answer it.

    Args:
        problem: What is to be resolved.
        source: The candidates.
        rules: The rules on the target.
        estimator: What the observations imply.
        objective: What is best.
        young_after: ISO 8601 time in UTC; what was uploaded later is young.
        effort: How hard to try.

    Raises:
        Impossible: If a package of the user's own is not on any index, or no stack satisfies the requirements.
        UnavailableError: If the index cannot be read.
    """
    _check_roots(problem, source)
    direct = {root.name for root in problem.roots if not root.constraint}

    def inquiry(baseline: tuple[Candidate, ...]) -> ResolutionRequest:
        criteria = Criteria(
            rules=rules,
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
            estimator=estimator,
            objective=objective,
            criteria=criteria,
            baseline=baseline,
            effort=effort or Effort(),
        )

    try:
        return inquiry(resolve_baseline(problem, source))
    except TooDeep:
        # The optimum does not need it.
        return inquiry(())
    except Impossible:
        raise inquiry(()).conflict(baseline=False) from None


def recommend(inquiry: ResolutionRequest, *, current: Mapping[str, Version] | None = None) -> Advice:
    """Answer an inquiry.

    Args:
        inquiry: The problem with its baseline.
        current: Versions that the project has now, by package.

    Raises:
        Impossible: If no stack satisfies the requirements and the rules.
        SearchLimitError: If that remained open.
        UnavailableError: If the index cannot be read.
        VerificationError: If the independent resolver rejects the optimum.
    """
    problem, source, baseline = inquiry.problem, inquiry.source, inquiry.baseline
    try:
        optimum = inquiry.best()
    except NoSolution:
        raise inquiry.conflict(baseline=bool(baseline)) from None
    verify(problem, source, optimum.stack)
    prediction = inquiry.predict(optimum.stack, {str(c.name): c.version for c in baseline})
    return Advice(
        objective=inquiry.objective,
        baseline=baseline,
        optimum=optimum,
        prediction=prediction,
        findings=find(optimum, baseline, source, inquiry.rules, prediction),
        why=explain_stack(
            problem, source, stack=optimum.stack, baseline=baseline, rules=inquiry.rules, prediction=prediction
        ),
        behind=(inquiry.libyears(optimum.stack), inquiry.libyears(baseline)),
        current=None if current is None else (current, inquiry.predict(optimum.stack, current)),
    )


def _check_roots(problem: ResolutionProblem, source: IndexCandidates) -> None:
    source.prefetch(root.name for root in problem.roots if not root.constraint)
    for root in problem.roots:
        if root.constraint or not problem.applies(root.requirement):
            continue
        if not source.knows(root.name):
            raise Impossible(
                f"package `{root.name}`, required by {root.origin}, is not on any configured index",
                hint="check the spelling, or name the index with `--index-url` or `--extra-index-url`",
            )
        if not source.candidates(root.name):
            reasons = source.reasons(root.name)
            if not reasons:
                raise Impossible(
                    f"the index page of `{root.name}`, required by {root.origin}, lists no files",
                    hint="open it in a browser: an index that wants a login may answer with another page",
                )
            raise Impossible(
                f"no version of `{root.name}`, required by {root.origin}, can be installed on the target: {reasons}",
                hint="choose another `--python` or `--platform`",
            )

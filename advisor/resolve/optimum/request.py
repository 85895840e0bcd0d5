"""A problem with everything that is needed to solve it: rules, builds, predictions, criteria and limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, NoStackError, ResolutionProblem, Substitution
from advisor.resolve.explanation.finding_types import AdviceFinding
from advisor.resolve.optimum.baseline import FIRST_ROUNDS, resolve_newest_stack
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError, StackTooLargeError
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.criteria import Criteria, ObjectiveName
from advisor.resolve.score.setting_choice import TargetSettings
from knowledge.catalogue.rule_book import RuleBook
from knowledge.estimate.interface import Estimator, Prediction

MOST_UNCOUNTED = 50
"""Number of combinations of versions whose gain does not count, beyond which the search for a faster stack ends."""


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
        settings: The run-time settings that may be chosen; none if none may.
        reference: The stack that speed is compared with, to compare the best stacks of several problems; by default the
            newest stack of this problem that runs on the target.
        optimum: Its best stack, if it is known.
        compared: Packages that were read to compare it with other requests.
        findings: Findings about how it was chosen among other requests.
        not_compared: Which other requests were not compared with it; empty if all were.
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
    settings: TargetSettings | None = None
    reference: tuple[Candidate, ...] | None = None
    optimum: Optimum | None = None
    compared: frozenset[NormalizedName] = frozenset()
    findings: tuple[AdviceFinding, ...] = ()
    not_compared: str = ""

    @property
    def loaded_packages(self) -> frozenset[NormalizedName]:
        """Packages whose index pages were read to find its best stack."""
        return self.compared.union(self.source.loaded_packages)

    @property
    def direct(self) -> frozenset[NormalizedName]:
        """Packages that the project's own requirements name."""
        return frozenset(root.name for root in self.problem.roots if not root.constraint)

    def best(self, newest: Optimum | None = None) -> Optimum:
        """Return the best stack.

        That is the newest stack that runs on the target, or one that is faster, by a gain that counts: it is
        significant for the whole stack, and at least the smallest gain of the criteria.

        Args:
            newest: The newest stack of this problem, if it is known.

        Raises:
            InfeasibleError: If there is none.
            StackTooLargeError: If all are larger than the limit of the download.
            SearchLimitError: If a limit is reached before a stack or a proof is found.
        """
        if self.optimum is not None:
            return self.optimum
        if not self.criteria.includes_speed:
            return newest or self.newest()
        newest = newest or self.newest()
        reference = newest.stack if self.reference is None else self.reference
        criteria = self.criteria.over(reference)
        if self.reference is not None:
            criteria = criteria.without_uncounted_gain(newest.stack) or criteria
        newest = replace(newest, bounds=criteria.with_speed_bound(newest.bounds, newest.stack), newest=reference)
        if newest.stopped or not any(bound.value for bound in newest.bounds if bound.objective == "speed"):
            # No stack is faster than the bound, so the newest of all is the best.
            return newest
        fastest = self._faster(criteria, newest)
        gain = criteria.gain_over_reference(fastest.stack)
        return replace(fastest, iterations=newest.iterations + fastest.iterations, newest=reference, gain=gain)

    def newest(self) -> Optimum:
        """Return the best stack by all criteria but speed.

        Raises:
            InfeasibleError: If there is none.
            StackTooLargeError: If all are larger than the limit of the download.
            SearchLimitError: If a limit is reached before a stack or a proof is found.
        """
        criteria = self.criteria.without_speed()
        if criteria.max_size is None:
            return self._search(criteria, self.baseline, self.effort)
        smallest, start = None, self.baseline
        if not start or criteria.is_too_large(start):
            # Solving for the size alone is much faster than for the best stack below a limit that nothing satisfies.
            with suppress(SearchLimitError):
                smallest = self._smallest()
                start = smallest.stack
        try:
            return self._search(criteria, start, self.effort)
        except InfeasibleError:
            raise StackTooLargeError(smallest or self._smallest()) from None

    def _faster(self, criteria: Criteria, newest: Optimum) -> Optimum:
        """Return the best stack; one whose gain over the reference does not count is as fast as the reference.

        Args:
            criteria: The criteria, with the stack that speed is compared with.
            newest: The best stack by all criteria but speed.
        """
        for _ in range(MOST_UNCOUNTED):
            optimum = self._search(criteria, newest.stack, self.effort)
            corrected = None if optimum.stopped else criteria.without_uncounted_gain(optimum.stack)
            if corrected is None:
                return optimum
            criteria = corrected
        return replace(newest, not_compared=f"more than {MOST_UNCOUNTED} combinations whose gain does not count")

    def _smallest(self) -> Optimum:
        """Return the stack with the smallest download, or the baseline if a part of the time is not enough.

        Raises:
            InfeasibleError: If there is no stack.
            StackTooLargeError: If all are larger than the limit of the download.
            SearchLimitError: If a limit is reached before a stack or a proof is found.
            KeyboardInterrupt: If the user interrupts the search before a stack below the limit is found.
        """
        limit = self.effort.limit
        part = replace(self.effort, limit=limit.at_most(limit.seconds_left / 2))
        smallest = self._search(self.criteria.of_size_alone(), self.baseline, part)
        if self.criteria.is_above_max_size(smallest.bounds[0].bound):
            raise StackTooLargeError(smallest)
        if smallest.interrupted:
            limit.interrupt()
            if self.criteria.is_too_large(smallest.stack):
                raise KeyboardInterrupt
        return smallest

    def _search(self, criteria: Criteria, start: Sequence[Candidate], effort: Effort) -> Optimum:
        return optimise(
            self.problem,
            self.source,
            objectives=criteria.objectives,
            limits=criteria.limits,
            start=start,
            effort=effort,
            rewarded=criteria.compared_beyond(start),
        )

    def with_problem(self, problem: ResolutionProblem) -> Self:
        """Return the request for a problem that differs only in the project's own requirements.

        Costs stay the same, so that the two results can be compared.
        """
        source = self.source.for_problem(problem)
        criteria = self.criteria.with_source(source)
        return replace(self, problem=problem, source=source, criteria=criteria, optimum=None)

    def over(self, reference: Iterable[Candidate]) -> Self:
        """Return the request with a stack that speed is compared with, whatever the problem becomes."""
        return replace(self, reference=tuple(reference), optimum=None)

    def with_extra_options(self, options: Mapping[NormalizedName, tuple[Substitution, ...]]) -> Self:
        """Return the request in which extras may be required of a package in addition; see :class:`Criteria`."""
        problem = replace(self.problem, extra_options=options)
        criteria = self.criteria.with_extra_options({name: len(several) for name, several in options.items()})
        return replace(self, problem=problem, criteria=criteria, optimum=None)

    def with_max_size(self, max_size: int | None) -> Self:
        """Return the request with another limit of the download, in bytes; none for no limit."""
        return replace(self, criteria=self.criteria.with_max_size(max_size), optimum=None)

    def with_min_gain(self, min_gain: float) -> Self:
        """Return the request with another smallest gain of speed that counts, as a fraction."""
        return replace(self, criteria=self.criteria.with_min_gain(min_gain), optimum=None)

    def with_untried_sdists(self) -> Self:
        """Return the request without the rule about sdists whose build was not tried."""
        return replace(self, criteria=self.criteria.with_untried_sdists(), optimum=None)

    def with_own_baseline(self) -> Self:
        """Return the request with the baseline of its own problem, as an advice for this problem has it.

        The baseline stays as it is if the plain resolver finds none.
        """
        try:
            baseline = resolve_newest_stack(self.problem, self.source, self.effort.limit, max_rounds=FIRST_ROUNDS)
        except NoStackError:
            return self
        return replace(self, baseline=baseline, criteria=self.criteria.with_baseline(baseline), optimum=None)

    def predict(self, stack: Sequence[Candidate], before: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up of a stack over another."""
        return self.estimator.predict({str(c.name): c.version for c in stack}, before)

    def libyears(self, stack: Sequence[Candidate]) -> float:
        """Return how far a stack is behind the newest candidates, summed over its packages, in years."""
        return self.criteria.libyears(stack, self.source)

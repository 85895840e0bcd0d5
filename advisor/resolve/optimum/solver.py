"""The interface to the solver (OR-tools CP-SAT): Booleans, clauses, counts and a linear objective.

No other module imports the solver. Models are built in its message format (`cp_model.proto`), because its modelling
layer imports pandas, which takes longer than solving.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from advisor.domain.time_limit import TimeLimit

Literal = int
"""A Boolean, or its negation: the negation of ``n`` is ``-n - 1``."""

_LEAST = -(2**62)
_QUICK_WORK = 0.1
"""Work limit of the first attempt, without presolving."""


def negated(literal: Literal) -> Literal:
    """Return the opposite of a literal."""
    return -literal - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Limits of the solver.

    Attributes:
        work: Deterministic work of one call, in the solver's unit (about a second on a slow machine).
        workers: Number of threads.
        limit: Time limit of the whole question.
    """

    work: float = 60.0
    workers: int = 1
    limit: TimeLimit = field(default_factory=TimeLimit)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverResult:
    """The result of one call of the solver.

    Attributes:
        values: Value of each Boolean; `None` if no solution was found.
        impossible: Whether it is proven that there is no solution.
        bound: Lower bound of the objective.
        core: Assumptions that are sufficient for a proof that there is no solution.
    """

    values: Sequence[bool] | None
    impossible: bool = False
    bound: int = 0
    core: tuple[Literal, ...] = ()

    def is_true(self, literal: Literal) -> bool:
        """Whether a literal is true in the solution."""
        assert self.values is not None
        return self.values[literal] if literal >= 0 else not self.values[negated(literal)]


class _Difficulty:
    """Whether a model needs presolving; shared with its copies, which are as hard as the model."""

    needs_presolving = False


class SolverModel:
    """A growing set of Booleans and constraints."""

    def __init__(self) -> None:
        from ortools.sat.python import cp_model_helper

        self._solver: Any = cp_model_helper
        self._proto: Any = cp_model_helper.CpModelProto()
        self._difficulty = _Difficulty()

    def copy(self) -> SolverModel:
        """Return an independent copy."""
        other = SolverModel()
        other._proto.copy_from(self._proto)
        other._difficulty = self._difficulty
        return other

    def boolean(self) -> Literal:
        """Add a Boolean."""
        self._proto.variables.add().domain.extend((0, 1))
        return len(self._proto.variables) - 1

    def require_any(self, literals: Iterable[Literal], *, when: Literal | None = None) -> None:
        """Require at least one of some literals (if the literal ``when`` is true)."""
        constraint = self._proto.constraints.add()
        constraint.bool_or.literals.extend([*literals, *(() if when is None else (negated(when),))])

    def require(self, literal: Literal, *, when: Literal | None = None) -> None:
        """Require a literal (if the literal ``when`` is true)."""
        self.require_any((literal,), when=when)

    def exactly_one(self, literals: Iterable[Literal]) -> None:
        """Require exactly one of some literals."""
        self._proto.constraints.add().exactly_one.literals.extend(list(literals))

    def at_most_as_many(
        self, left: Iterable[Literal], right: Iterable[Literal], *, when: Sequence[Literal] = ()
    ) -> None:
        """Require that no more of ``left`` are true than of ``right`` if all of ``when`` are true; none is negated."""
        left, right = list(left), list(right)
        self._limit([*left, *right], [1] * len(left) + [-1] * len(right), 0, when)

    def at_most(self, costs: Mapping[Literal, int], limit: int) -> None:
        """Limit a weighted sum of Booleans, none of them negated."""
        if costs:
            self._limit(list(costs), list(costs.values()), limit, ())

    def _limit(self, variables: list[int], factors: list[int], limit: int, when: Sequence[Literal]) -> None:
        constraint = self._proto.constraints.add()
        constraint.linear.vars.extend(variables)
        constraint.linear.coeffs.extend(factors)
        constraint.linear.domain.extend((_LEAST, limit))
        constraint.enforcement_literal.extend(when)

    def solve(
        self,
        effort: Effort,
        *,
        costs: Mapping[Literal, int] | None = None,
        hint: Mapping[Literal, bool] | None = None,
        assumptions: Sequence[Literal] = (),
    ) -> SolverResult:
        """Return a solution, the cheapest one if Booleans that are true have costs; none of these is negated.

        The hint has values to try first. Assumptions must be true; if there is no solution, the result has those that
        cause it.
        """
        proto = self._proto
        proto.clear_objective()
        proto.clear_solution_hint()
        proto.assumptions.clear()
        if costs:
            proto.objective.vars.extend(list(costs))
            proto.objective.coeffs.extend(list(costs.values()))
        if hint:
            proto.solution_hint.vars.extend(list(hint))
            proto.solution_hint.values.extend([int(value) for value in hint.values()])
        proto.assumptions.extend(list(assumptions))
        status = self._solver.CpSolverStatus
        response = self._response(effort, has_assumptions=bool(assumptions))
        if response.status == status.INFEASIBLE:
            core = tuple(response.sufficient_assumptions_for_infeasibility)
            return SolverResult(values=None, impossible=True, core=core)
        if response.status not in (status.OPTIMAL, status.FEASIBLE):
            return SolverResult(values=None)
        bound = round(response.objective_value) if costs else 0
        if response.status == status.FEASIBLE and costs:
            bound = math.ceil(response.best_objective_bound - 1e-6)
        return SolverResult(values=[bool(v) for v in response.solution], bound=bound)

    def _response(self, effort: Effort, *, has_assumptions: bool) -> Any:
        """Return the solver's response, at first without presolving.

        Presolving takes up to a hundred times as long as solving an easy model, and makes hard ones a hundred times
        faster (measured: docs, resolver). Conflicts need assumptions, which it may replace.
        """
        if has_assumptions:
            return self._run(self._proto, effort, work=effort.work, presolve=False)
        status, quick = self._solver.CpSolverStatus, None
        if not self._difficulty.needs_presolving:
            quick = self._run(self._proto, effort, work=min(_QUICK_WORK, effort.work), presolve=False)
            if quick.status in (status.OPTIMAL, status.INFEASIBLE):
                return quick
            self._difficulty.needs_presolving = True
        response = self._run(self._proto, effort, work=effort.work, presolve=True)
        # If the time ended, the first attempt may have found a solution without a proof.
        return quick if response.status == status.UNKNOWN and quick is not None else response

    def _run(self, proto: Any, effort: Effort, *, work: float, presolve: bool) -> Any:
        parameters = self._solver.SatParameters()
        parameters.num_workers = effort.workers
        parameters.random_seed = 0
        # Otherwise the solver resets the handler of Ctrl-C after each call, and an interrupted command ends at once,
        # without removing its temporary files and ending its processes.
        parameters.catch_sigint_signal = False
        parameters.cp_model_presolve = presolve
        if presolve:
            # With all constraints in the linear relaxation, models with a limit of a sum take 0.1 s instead of minutes
            # (measured: docs, resolver).
            parameters.linearization_level = 2
        # Deterministic work, not seconds: the result is the same on a slow machine.
        parameters.max_deterministic_time = work
        if effort.limit.seconds_left < math.inf:
            parameters.max_time_in_seconds = effort.limit.seconds_left
        wrapper = self._solver.SolveWrapper()
        wrapper.set_parameters(parameters)
        # The solver does not return at Ctrl-C: it runs in a thread of its own, and this one stops it.
        with ThreadPoolExecutor(1) as executor:
            answer = executor.submit(wrapper.solve, proto)
            try:
                return answer.result()
            except BaseException:
                wrapper.stop_search()
                raise

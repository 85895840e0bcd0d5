"""The one module that speaks to the solver (OR-tools CP-SAT): Booleans, clauses, counts and a linear objective.

Models are built in the solver's own message format (`cp_model.proto`), because the modelling layer above it loads
pandas, which takes longer than solving.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Literal = int
"""A Boolean, or its negation: the negation of ``n`` is ``-n - 1``."""

_LEAST = -(2**62)


def negated(literal: Literal) -> Literal:
    """Return the opposite of a literal."""
    return -literal - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard the solver may try.

    Attributes:
        work: Deterministic work for one call, in the solver's own unit (about a second of a slow machine).
        workers: Threads.
    """

    work: float = 60.0
    workers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverResult:
    """What one call found.

    Attributes:
        values: Value of each Boolean; none where no solution was found.
        impossible: Whether it was proven that there is no solution.
        value: The objective of the solution.
        bound: What the objective cannot go below.
        core: Assumptions that suffice for the impossibility.
    """

    values: Sequence[bool] | None
    impossible: bool = False
    value: int = 0
    bound: int = 0
    core: tuple[Literal, ...] = ()

    def holds(self, literal: Literal) -> bool:
        """Whether a literal is true in the solution."""
        assert self.values is not None
        return self.values[literal] if literal >= 0 else not self.values[negated(literal)]


class SolverModel:
    """A growing set of Booleans and constraints."""

    def __init__(self) -> None:
        from ortools.sat.python import cp_model_helper

        self._solver: Any = cp_model_helper
        self._proto: Any = cp_model_helper.CpModelProto()
        self.size = 0
        """Number of Booleans."""

    def copy(self) -> SolverModel:
        """Return an independent copy."""
        other = SolverModel()
        other._proto.copy_from(self._proto)
        other.size = self.size
        return other

    def boolean(self) -> Literal:
        """Add a Boolean."""
        self._proto.variables.add().domain.extend((0, 1))
        self.size += 1
        return self.size - 1

    def require_any(self, literals: Iterable[Literal], *, given: Literal | None = None) -> None:
        """Require one of some literals, at least (where ``given`` holds)."""
        constraint = self._proto.constraints.add()
        constraint.bool_or.literals.extend([*literals, *(() if given is None else (negated(given),))])

    def require(self, literal: Literal, *, given: Literal | None = None) -> None:
        """Require a literal (where ``given`` holds)."""
        self.require_any((literal,), given=given)

    def exactly_one(self, literals: Iterable[Literal]) -> None:
        """Require one of some literals, and no second."""
        self._proto.constraints.add().exactly_one.literals.extend(list(literals))

    def at_most_as_many(
        self, left: Iterable[Literal], right: Iterable[Literal], *, given: Sequence[Literal] = ()
    ) -> None:
        """Require that no more of ``left`` hold than of ``right`` (where all of ``given`` hold); none is negated."""
        left, right = list(left), list(right)
        self._limit([*left, *right], [1] * len(left) + [-1] * len(right), 0, given)

    def at_most(self, costs: Mapping[Literal, int], limit: int) -> None:
        """Require a weighted sum of Booleans, none of them negated, not to exceed a limit."""
        if costs:
            self._limit(list(costs), list(costs.values()), limit, ())

    def _limit(self, variables: list[int], factors: list[int], limit: int, given: Sequence[Literal]) -> None:
        constraint = self._proto.constraints.add()
        constraint.linear.vars.extend(variables)
        constraint.linear.coeffs.extend(factors)
        constraint.linear.domain.extend((_LEAST, limit))
        constraint.enforcement_literal.extend(given)

    def solve(
        self,
        effort: Effort,
        *,
        costs: Mapping[Literal, int] | None = None,
        hint: Mapping[Literal, bool] | None = None,
        assumptions: Sequence[Literal] = (),
    ) -> SolverResult:
        """Find a solution, the cheapest where costs are given.

        Args:
            effort: How hard to try.
            costs: Cost of each Boolean that holds; none is negated.
            hint: Where to look first.
            assumptions: Literals to hold; some of them are named where there is no solution.
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
        wrapper = self._solver.SolveWrapper()
        wrapper.set_parameters(self._parameters(effort))
        response = wrapper.solve(proto)
        status = self._solver.CpSolverStatus
        if response.status == status.INFEASIBLE:
            core = tuple(response.sufficient_assumptions_for_infeasibility)
            return SolverResult(values=None, impossible=True, core=core)
        if response.status not in (status.OPTIMAL, status.FEASIBLE):
            return SolverResult(values=None)
        value = round(response.objective_value) if costs else 0
        bound = value
        if response.status == status.FEASIBLE and costs:
            bound = math.ceil(response.best_objective_bound - 1e-6)
        return SolverResult(values=[bool(v) for v in response.solution], value=value, bound=bound)

    def _parameters(self, effort: Effort) -> Any:
        parameters = self._solver.SatParameters()
        parameters.num_workers = effort.workers
        parameters.random_seed = 0
        # Measured: presolving takes longer than solving these models, up to a hundred times (docs, resolver).
        parameters.cp_model_presolve = False
        # Deterministic work, not seconds: the answer is the same on a slow machine.
        parameters.max_deterministic_time = effort.work
        return parameters

"""The solver presolves models that are hard, and their refinements."""

from __future__ import annotations

import random

import pytest

from advisor.resolve.optimum import solver
from advisor.resolve.optimum.solver import Effort, SolverModel


def hard_model() -> tuple[SolverModel, dict[int, int]]:
    """Return a random covering problem of which the optimum is hard to prove."""
    generator = random.Random(0)
    model = SolverModel()
    literals = [model.boolean() for _ in range(24)]
    for _ in range(60):
        model.require_any(generator.sample(literals, 4))
    return model, {literal: generator.randint(5, 9) for literal in literals}


def test_a_hard_model_is_presolved_and_its_refinements_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[bool] = []
    original = SolverModel._run

    def run(self: SolverModel, *args: object, presolve: bool, **options: object) -> object:
        runs.append(presolve)
        return original(self, *args, presolve=presolve, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SolverModel, "_run", run)
    monkeypatch.setattr(solver, "_QUICK_WORK", 1e-4)
    model, costs = hard_model()

    first = model.solve(Effort(), costs=costs)
    refined = model.copy()
    refined.require(next(iter(costs)))
    second = refined.solve(Effort(), costs=costs)

    assert runs == [False, True, True]
    assert first.values is not None
    assert second.values is not None
    assert sum(cost for literal, cost in costs.items() if first.values[literal]) == first.bound
    assert sum(cost for literal, cost in costs.items() if second.values[literal]) >= first.bound


def test_an_easy_model_is_not_presolved(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = hard_model()
    monkeypatch.setattr(solver, "_QUICK_WORK", 10.0)

    assert model.solve(Effort()).values is not None
    assert not model._difficulty.needs_presolving

"""Compares solvers and encodings on synthetic stacks: which proves the optimum fastest.

CP-SAT (ortools), HiGHS (highspy) and the MaxSAT solver RC2 (python-sat; the extra `benchmark` installs them), each with
one thread. Encodings of "this version requires one of those": `clauses` (a clause for each version), `ranges` (versions
that require the same range share one row: sum of the versions <= sum of the range), `order` (Booleans "this version or
a newer one", implied bounds). CP-SAT also with and without its presolve.

Usage: python benchmarks/encodings.py FILE... [--seconds N]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

METHODS = (
    "cpsat clauses presolved",
    "cpsat clauses",
    "cpsat ranges presolved",
    "cpsat ranges",
    "cpsat order presolved",
    "cpsat order",
    "highs clauses",
    "highs ranges",
    "rc2 clauses",
)
SCALE = 10_000


class Rows:
    """A problem as Booleans, clauses of literals (negative is negated, from 1), rows `sum <= 0`, and rewards."""

    def __init__(self, document: dict[str, Any], encoding: str) -> None:
        self.size = 0
        self.clauses: list[list[int]] = []
        self.exactly: list[list[int]] = []
        self.rows: list[tuple[list[int], list[int]]] = []
        self.rewards: dict[int, int] = {}
        packages = document["packages"]
        self._x = {p: {v: self._new() for v in versions} for p, versions in packages.items()}
        self._present = {p: self._new() for p in packages}
        for p, versions in self._x.items():
            self.exactly.append([-self._present[p], *versions.values()])
        self.clauses += [[self._present[p]] for p in document["direct"]]
        at_least = (
            {p: self._order(list(versions.values())) for p, versions in self._x.items()} if encoding == "order" else {}
        )
        parents: dict[str, list[int]] = {p: [] for p in packages}
        for p, versions in packages.items():
            alike: dict[tuple[str, tuple[str, ...]], list[int]] = {}
            for v, about in versions.items():
                for q, admitted in about["deps"].items():
                    alike.setdefault((q, tuple(admitted)), []).append(self._x[p][v])
                    parents[q].append(self._x[p][v])
            for (q, admitted), choices in alike.items():
                self._require(q, admitted, choices, encoding, at_least)
        for q, requiring in parents.items():
            if q not in document["direct"]:
                self.clauses.append([-self._present[q], *requiring])
        for p, versions in packages.items():
            for v, about in versions.items():
                self.rewards[self._x[p][v]] = round(about["score"] * SCALE)
        for (a, v), (b, w), score in document.get("pairs", []):
            self._pair(self._x[a][v], self._x[b][w], round(score * SCALE))

    def _new(self) -> int:
        self.size += 1
        return self.size

    def _order(self, choices: list[int]) -> list[int]:
        """Return Booleans "this one or a later one" for the choices of a package."""
        variables = [self._new() for _ in choices]
        for place, (choice, here) in enumerate(zip(choices, variables, strict=True)):
            later = variables[place + 1 : place + 2]
            self.clauses += [[-choice, here], [-here, choice, *later]]
            for following in later:
                self.clauses += [[-choice, -following], [-following, here]]
        return variables

    def _require(
        self, q: str, admitted: tuple[str, ...], choices: list[int], encoding: str, at_least: dict[str, list[int]]
    ) -> None:
        right = [self._x[q][v] for v in admitted]
        if encoding == "ranges":
            self.rows.append((choices, right))
        elif encoding == "clauses":
            self.clauses += [[-choice, *right] for choice in choices]
        else:
            every = list(self._x[q])
            low, high = every.index(admitted[0]), every.index(admitted[-1])
            gaps = [self._x[q][v] for v in every[low : high + 1] if v not in set(admitted)]
            for choice in choices:
                self.clauses.append([-choice, at_least[q][low]])
                self.clauses += [[-choice, -at_least[q][high + 1]]] if high + 1 < len(every) else []
                self.clauses += [[-choice, -gap] for gap in gaps]

    def _pair(self, left: int, right: int, reward: int) -> None:
        both = self._new()
        self.clauses += [[-both, left], [-both, right], [-left, -right, both]]
        self.rewards[both] = self.rewards.get(both, 0) + reward


def solve(method: str, document: dict[str, Any], seconds: float) -> tuple[int | None, int | None]:
    """Return the best sum of rewards that was found and what it cannot exceed; none where not known."""
    solver, encoding, *more = method.split()
    rows = Rows(document, encoding)
    if solver == "cpsat":
        return _cpsat(rows, seconds, presolve=bool(more))
    return _highs(rows, seconds) if solver == "highs" else _rc2(rows)


def _cpsat(rows: Rows, seconds: float, *, presolve: bool) -> tuple[int | None, int | None]:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    x: list[Any] = [None, *(model.new_bool_var("") for _ in range(rows.size))]

    def literal(number: int) -> Any:
        return x[number] if number > 0 else ~x[-number]

    for clause in rows.clauses:
        model.add_bool_or([literal(number) for number in clause])
    for group in rows.exactly:
        model.add_exactly_one([literal(number) for number in group])
    for left, right in rows.rows:
        model.add(sum(literal(n) for n in left) <= sum(literal(n) for n in right))
    model.maximize(sum(reward * x[n] for n, reward in rows.rewards.items()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.cp_model_presolve = presolve
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    objective = round(solver.objective_value) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    return objective, round(solver.best_objective_bound)


def _highs(rows: Rows, seconds: float) -> tuple[int | None, int | None]:
    import highspy

    create_model: Any = highspy.Highs
    model = create_model()
    model.silent()
    model.setOptionValue("threads", 1)
    model.setOptionValue("time_limit", seconds)
    model.setOptionValue("mip_rel_gap", 0.0)
    x: list[Any] = [None, *(model.addBinary() for _ in range(rows.size))]

    def value(number: int) -> Any:
        return x[number] if number > 0 else 1 - x[-number]

    for clause in rows.clauses:
        model.addConstr(sum(value(number) for number in clause) >= 1)
    for group in rows.exactly:
        model.addConstr(sum(value(number) for number in group) == 1)
    for left, right in rows.rows:
        model.addConstr(sum(value(n) for n in left) - sum(value(n) for n in right) <= 0)
    model.maximize(sum(reward * x[n] for n, reward in rows.rewards.items()))
    about = model.getInfo()
    return round(about.objective_function_value), round(about.mip_dual_bound)


def _rc2(rows: Rows) -> tuple[int | None, int | None]:
    from pysat.card import CardEnc
    from pysat.examples.rc2 import RC2
    from pysat.formula import WCNF

    formula = WCNF()
    for clause in rows.clauses:
        formula.append(clause)
    top = rows.size
    for group in rows.exactly:
        coded = CardEnc.equals(lits=group, bound=1, top_id=top)
        top = max(top, coded.nv)
        formula.extend(coded.clauses)
    base = 0
    for number, reward in rows.rewards.items():
        base += max(0, reward)
        if reward:
            formula.append([number if reward > 0 else -number], weight=abs(reward))
    with RC2(formula) as solver:
        solver.compute()
        objective = base - solver.cost if solver.cost is not None else None
    return objective, objective


def main() -> None:
    """Print a line for each file and method; each runs in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--method", choices=METHODS)
    options = parser.parse_args()
    if options.method:
        document = json.loads(options.files[0].read_text())
        busy = time.process_time()
        found, bound = solve(options.method, document, options.seconds)
        value = "none" if found is None else f"{found / SCALE:.4f}"
        gap = "unknown" if found is None or bound is None else f"{(bound - found) / SCALE:.4f}"
        print(f"{value} | {gap} | {time.process_time() - busy:.2f}")
        return
    print("| file | method | found | gap | CPU s |\n| --- | --- | --- | --- | --- |")
    for file in options.files:
        for method in METHODS:
            command = [sys.executable, __file__, str(file), "--method", method, "--seconds", str(options.seconds)]
            try:
                run = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds * 2, check=True)
                line = run.stdout.strip()
            except subprocess.TimeoutExpired:
                line = f"none | unknown | over {options.seconds * 2:.0f}"
            print(f"| {file.stem} | {method} | {line} |", flush=True)


if __name__ == "__main__":
    main()

"""Solve linear programmes with HiGHS (https://github.com/scipy/scipy/issues/22754)."""

import time

import numpy as np
from scipy.optimize import linprog

CALLS, VARIABLES, CONSTRAINTS = 20, 200, 100

rng = np.random.default_rng(0)
problems = [
    (-rng.random(VARIABLES), rng.random((CONSTRAINTS, VARIABLES)), VARIABLES * rng.random(CONSTRAINTS))
    for _ in range(CALLS)
]
linprog(problems[0][0], A_ub=problems[0][1], b_ub=problems[0][2], method="highs")

start = time.perf_counter()
for cost, matrix, bound in problems:
    assert linprog(cost, A_ub=matrix, b_ub=bound, method="highs").status == 0
print(f"seconds: {time.perf_counter() - start:.6f}")

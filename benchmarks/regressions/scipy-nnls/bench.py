"""Solve small non-negative least-squares problems (https://github.com/scipy/scipy/issues/22884)."""

import time

import numpy as np
from scipy.optimize import nnls

CALLS = 20_000

rng = np.random.default_rng(0)
matrix, result = rng.random((10, 5)), rng.random(10)
nnls(matrix, result)

start = time.perf_counter()
for _ in range(CALLS):
    nnls(matrix, result)
print(f"seconds: {time.perf_counter() - start:.6f}")

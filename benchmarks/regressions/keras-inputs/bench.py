"""Add symbolic inputs of Keras (https://github.com/tensorflow/tensorflow/issues/61363)."""

import time

from tensorflow.keras import Input

SUMS = 1500

left, right = Input((1,)), Input((1,))
left + right

start = time.perf_counter()
for _ in range(SUMS):
    left + right
print(f"seconds: {time.perf_counter() - start:.6f}")

"""A workload of all indicators, for tests of the estimator with any of them."""

from __future__ import annotations

from knowledge.estimate.workloads import OPERATIONS, Workload, operation_parts

_FAMILIES = (
    *("matmul", "conv1d", "conv2d", "conv3d", "recurrent", "attention", "embedding", "elementwise", "reduction"),
    *("softmax", "normalisation", "fft", "sort", "training_step", "inference"),
)

EVERY_OPERATION = Workload(
    name="every-operation",
    summary="every indicator has the same share of the time",
    parts={OPERATIONS: operation_parts(dict.fromkeys(_FAMILIES, 1.0))},
    backends=(),
    source="no assumption",
)

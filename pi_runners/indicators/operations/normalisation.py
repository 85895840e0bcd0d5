"""Normalisation of rows and of images."""

from __future__ import annotations

import math
from operator import add, mul
from typing import Iterator, List, Tuple

from pi_runners.harness.contract import Backend, Parameter, Parameters, Trial
from pi_runners.harness.random_inputs import decode, random_bytes
from pi_runners.indicators.checks.results import EVERY, Result, checker, decoded_row, difference, pick, row_checker
from pi_runners.indicators.indicator import ELEMENT_ERROR
from pi_runners.indicators.operations.row_operations import RowOperation


class Normalisation(RowOperation):
    """Layer normalisation of rows, batch normalisation of images."""

    copies = 3.0
    name = "normalisation"
    summary = "layer normalisation of rows, batch normalisation of images by the batch's statistics"
    corresponds = (
        "Triton's layer norm tutorial (https://triton-lang.org/main/getting-started/tutorials/05-layer-norm.html)"
    )
    flops_formula = "7 rows columns"
    bytes_formula = "2 item rows columns"
    operations = 7
    """Two sums, difference, square, inverse deviation, gain and offset."""
    parameters = {  # noqa: RUF012
        "kind": Parameter("what is normalised", choices=("layer", "batch")),
        "rows": Parameter("rows; for `batch`, images times pixels"),
        "columns": Parameter("columns; for `batch`, channels"),
    }
    sets = {  # noqa: RUF012
        "small": ({"kind": "layer", "rows": 512, "columns": 1024}, {"kind": "batch", "rows": 8 * 28**2, "columns": 64}),
        "medium": (
            {"kind": "layer", "rows": 4096, "columns": 2048},
            {"kind": "batch", "rows": 32 * 56**2, "columns": 64},
        ),
        "large": (
            {"kind": "layer", "rows": 65536, "columns": 4096},
            {"kind": "batch", "rows": 256 * 56**2, "columns": 128},
        ),
    }

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        return (parameters.get("kind", "layer") + "_norm",)

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        rows, columns = parameters["rows"], parameters["columns"]
        raw = random_bytes(55, rows * columns)
        gain = backend.array(random_bytes(56, columns), (columns,), 0.5, 1.0)
        offset = backend.array(random_bytes(57, columns), (columns,), 0.5)
        gains, offsets = decode(random_bytes(56, columns), "float32"), decode(random_bytes(57, columns), "float32")

        slopes = [1.0 + 0.5 * g for g in gains]
        starts = [0.5 * o for o in offsets]
        if parameters["kind"] == "layer":

            def expected(i: int) -> List[float]:
                return list(map(add, map(mul, _standardised(decoded_row(raw, columns, i)), slopes), starts))

            run = backend.compile(
                lambda b, x, g, o: b.layer_norm(x, g, o), [backend.array(raw, (rows, columns)), gain, offset]
            )
            return Trial(run, row_checker(backend, (rows, columns), expected, 4.0), ELEMENT_ERROR[backend.precision])

        # One image (1, channels, rows, 1): the statistics of a channel do not depend on the number of images.
        shape = (1, columns, rows, 1)

        def errors(elements: Result) -> Iterator[float]:
            channels = pick(columns, max(2, EVERY // rows))
            yield elements.error_of_others(len(channels) == columns)
            for c in channels:
                expected = [x * slopes[c] + starts[c] for x in _standardised(decoded_row(raw, rows, c))]
                yield difference(elements.channel(0, c), expected)

        run = backend.compile(
            lambda b, x, g, o: b.batch_norm(x, g, o, True), [backend.images(raw, shape), gain, offset]
        )
        check = checker(backend, backend.image_index(shape), errors)
        return Trial(run, check, 4 * ELEMENT_ERROR[backend.precision])


def _standardised(row: List[float]) -> List[float]:
    mean = math.fsum(row) / len(row)
    centred = [x - mean for x in row]
    deviation = math.sqrt(math.fsum(map(mul, centred, centred)) / len(row) + 1e-5)
    return [x / deviation for x in centred]

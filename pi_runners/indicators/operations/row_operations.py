"""Operations along the rows of an array: elementwise, reduction, softmax, fft, sort, embedding.

Memory bandwidth limits all of them in an efficient implementation.
"""

from __future__ import annotations

import math
import struct
from array import array
from operator import add, mul
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from pi_runners.harness.contract import Array, Backend, Parameter, Parameters, Trial
from pi_runners.harness.random_inputs import decode, random_bytes
from pi_runners.indicators.checks.exact import whole_numbers
from pi_runners.indicators.checks.results import (
    EVERY,
    FINITE,
    Result,
    checker,
    decoded_row,
    difference,
    pick,
    random_signs,
    row_checker,
    signed_sum,
)
from pi_runners.indicators.indicator import ELEMENT_ERROR, ITEM_BYTES, PROCESS_BYTES, UNIT, Operation

_ROWS = {"rows": Parameter("rows"), "columns": Parameter("columns, the axis of the operation")}
_SETS: Dict[str, Tuple[Parameters, ...]] = {
    "small": ({"rows": 512, "columns": 1024},),
    "medium": ({"rows": 4096, "columns": 2048},),
    "large": ({"rows": 65536, "columns": 4096},),
}


def _with_kinds(*kinds: str) -> Any:
    return {size: tuple(dict(case[0], kind=kind) for kind in kinds) for size, case in _SETS.items()}


class RowOperation(Operation):
    """An operation along random rows."""

    source = "counted from the definition"
    parameters = _ROWS
    sets = _SETS
    operations = 1

    def flops(self, parameters: Parameters) -> float:
        return float(self.operations * parameters["rows"] * parameters["columns"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of the array, read once and written once."""
        return float(2 * ITEM_BYTES[dtype] * parameters["rows"] * parameters["columns"])


class Elementwise(RowOperation):
    """Sum, product, tanh, and a chain of operations that a compiler can fuse."""

    name = "elementwise"
    summary = "x + y, x y, tanh(x), and the chain tanh(x y + x) that a compiler can fuse"
    corresponds = (
        "tf_cnn_benchmarks has none; PyTorch's operator benchmark, binary and unary (benchmarks/operator_benchmark)"
    )
    flops_formula = "rows columns (add, multiply, tanh), 3 rows columns (chain)"
    bytes_formula = "item rows columns (arrays read + 1)"
    parameters = {**_ROWS, "kind": Parameter("operation", choices=("add", "multiply", "tanh", "chain"))}  # noqa: RUF012
    sets = _with_kinds("add", "tanh", "chain")

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        kind = parameters.get("kind", "chain")
        return ("add", "multiply", "tanh") if kind == "chain" else (kind,)

    def flops(self, parameters: Parameters) -> float:
        return float((3 if parameters["kind"] == "chain" else 1) * parameters["rows"] * parameters["columns"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of the inputs, read once, and of the result, written once; a fused chain has two inputs."""
        arrays = 2 if parameters["kind"] == "tanh" else 3
        return float(arrays * ITEM_BYTES[dtype] * parameters["rows"] * parameters["columns"])

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        shape = (parameters["rows"], parameters["columns"])
        raws = [random_bytes(51 + i, math.prod(shape)) for i in range(2)]
        function, exact = _ELEMENTWISE[parameters["kind"]]
        arrays = [backend.array(raw, shape) for raw in raws[: 1 if parameters["kind"] == "tanh" else 2]]

        def expected(i: int) -> List[float]:
            return list(map(exact, *(decoded_row(raw, shape[1], i) for raw in raws[: len(arrays)])))

        check = row_checker(backend, shape, expected)
        return Trial(backend.compile(function, arrays), check, ELEMENT_ERROR[backend.precision])


_ELEMENTWISE: Any = {
    "add": (lambda b, x, y: b.add(x, y), add),
    "multiply": (lambda b, x, y: b.multiply(x, y), mul),
    "tanh": (lambda b, x: b.tanh(x), math.tanh),
    "chain": (lambda b, x, y: b.tanh(b.add(b.multiply(x, y), x)), lambda x, y: math.tanh(x * y + x)),
}


class Reduction(RowOperation):
    """Sum and maximum of every row."""

    copies = 2.5
    name = "reduction"
    summary = "sum and maximum of every row"
    corresponds = "PyTorch's operator benchmark, reductions (benchmarks/operator_benchmark)"
    flops_formula = "rows columns"
    bytes_formula = "item rows (columns + 1)"
    parameters = {**_ROWS, "kind": Parameter("operation", choices=("sum", "max"))}  # noqa: RUF012
    sets = _with_kinds("sum", "max")

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        return ("total" if parameters.get("kind") == "sum" else "largest",)

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of the array, read once, and of one result for each row."""
        return float(ITEM_BYTES[dtype] * parameters["rows"] * (parameters["columns"] + 1))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        rows, columns = parameters["rows"], parameters["columns"]
        raw = random_bytes(53, rows * columns)
        numbers = whole_numbers("float32")
        is_sum = parameters["kind"] == "sum"
        x, factors = backend.array(raw, (rows, columns)), [1.0] * rows
        if not is_sum:
            # The maximum of many random bytes is always 255, so each row gets its own factor.
            factors = decode(random_bytes(63, rows), "float32")
            x = backend.compile(
                lambda b, x, f: b.multiply(x, f), [x, backend.array(random_bytes(63, rows), (rows, 1))]
            )()
        run = backend.compile(lambda b, x: b.total(x) if is_sum else b.largest(x), [x])

        def expected(i: int) -> float:
            row = raw[i * columns : (i + 1) * columns]
            if is_sum:
                return float((numbers.step * sum(row) + numbers.start * columns) / numbers.denominator)
            return max(factors[i] * end for end in decode(bytes([min(row), max(row)]), "float32"))

        scale = math.sqrt(columns) * numbers.spread if is_sum else 1.0
        most = max(2, FINITE // columns)
        check = row_checker(backend, (rows,), lambda i: [expected(i)], scale, most)
        return Trial(run, check, ELEMENT_ERROR[backend.precision])


class Softmax(RowOperation):
    """Softmax of every row."""

    copies = 1.75
    name = "softmax"
    needs = ("softmax",)
    summary = "softmax of every row"
    corresponds = (
        "Triton's fused softmax tutorial (https://triton-lang.org/main/getting-started/tutorials/02-fused-softmax.html)"
    )
    flops_formula = "5 rows columns"
    bytes_formula = "2 item rows columns"
    operations = 5

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Compare rows; differences are relative to the uniform distribution."""
        shape = (parameters["rows"], parameters["columns"])
        raw = random_bytes(54, math.prod(shape))

        def expected(i: int) -> List[float]:
            powers = list(map(math.exp, decoded_row(raw, shape[1], i)))
            total = math.fsum(powers)
            return [power / total for power in powers]

        run = backend.compile(lambda b, x: b.softmax(x), [backend.array(raw, shape)])
        return Trial(run, row_checker(backend, shape, expected, 3.0 / shape[1]), ELEMENT_ERROR[backend.precision])


class Fft(RowOperation):
    """Discrete Fourier transform of every real row."""

    copies = 2.0
    name = "fft"
    needs = ("fft",)
    summary = "discrete Fourier transform of every real row"
    corresponds = "benchFFT (http://www.fftw.org/benchfft/)"
    flops_formula = "2.5 rows columns log2(columns)"
    bytes_formula = "item rows (columns + 2 (columns / 2 + 1))"
    source = "http://www.fftw.org/speed/method.html"
    dtypes = ("float32", "float64")

    def flops(self, parameters: Parameters) -> float:
        """Return half of the 5 n log2 n operations that benchFFT counts for a complex transform."""
        return float(2.5 * parameters["rows"] * parameters["columns"] * math.log2(parameters["columns"]))

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of the real rows, read, and of half of the complex spectrum, written."""
        columns = parameters["columns"]
        return float(ITEM_BYTES[dtype] * parameters["rows"] * (columns + 2 * (columns // 2 + 1)))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Compare a signed sum of rows with the transform of the signed sum of inputs (the transform is linear)."""
        rows, columns = parameters["rows"], parameters["columns"]
        raw = random_bytes(58, rows * columns)
        run = backend.compile(lambda b, x: b.fft(x), [backend.array(raw, (rows, columns))])
        numbers = whole_numbers("float32")

        def errors(elements: Result) -> Iterator[float]:
            places = pick(rows, max(2, EVERY // columns))
            signs = random_signs(len(places))
            signed_input = signed_sum((numbers.row(raw[i * columns : (i + 1) * columns]) for i in places), signs)
            actual = signed_sum((elements.row((i,)) for i in places), signs)
            scale = math.sqrt(columns * len(places)) * numbers.spread
            yield difference(actual, _transform([x / numbers.denominator for x in signed_input]), scale)
            yield elements.error_of_others(len(places) == rows)

        return Trial(run, checker(backend, (rows, columns // 2 + 1), errors), _FFT_TOLERANCE[backend.precision])


# No framework uses TensorFloat-32 here; round-off grows with the logarithm of the length. The reference has round-off,
# too, in each of its angles.
_FFT_TOLERANCE = {"float64": 1e-11, "float32": 2.0**-13}


def _transform(row: Sequence[float]) -> List[complex]:
    """Return the discrete Fourier transform of a real row, non-negative frequencies, by its definition."""
    n = len(row)
    cosines = [math.cos(2 * math.pi * t / n) for t in range(n)]
    sines = [-math.sin(2 * math.pi * t / n) for t in range(n)]
    transformed = []
    for k in range(n // 2 + 1):
        turns = [k * t % n for t in range(n)]
        real = sum(map(mul, row, map(cosines.__getitem__, turns)))
        transformed.append(complex(real, sum(map(mul, row, map(sines.__getitem__, turns)))))
    return transformed


class Sort(RowOperation):
    """Sort every row."""

    copies = 3.0
    name = "sort"
    needs = ("sort",)
    summary = "sort every row in ascending order (PyTorch also computes the permutation; ONNX Runtime: TopK)"
    corresponds = "PyTorch's operator benchmark, sort (benchmarks/operator_benchmark)"
    flops_formula = "0: comparisons are no floating-point operations"
    bytes_formula = "2 item rows columns"
    operations = 0
    sets = {  # noqa: RUF012
        "small": ({"rows": 64, "columns": 1024},),
        "medium": ({"rows": 512, "columns": 4096},),
        "large": ({"rows": 4096, "columns": 16384},),
    }

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Compare rows; elements are made of two bytes, so that few are equal."""
        shape = (parameters["rows"], parameters["columns"])
        high, low = random_bytes(59, math.prod(shape)), random_bytes(60, math.prod(shape))
        mixed = backend.compile(
            lambda b, x, y: b.add(x, y), [backend.array(high, shape), backend.array(low, shape, 0.004)]
        )()
        run = backend.compile(lambda b, x: b.sort(x), [mixed])

        def expected(i: int) -> List[float]:
            row = zip(decoded_row(high, shape[1], i), decoded_row(low, shape[1], i))
            return sorted(x + 0.004 * y for x, y in row)

        return Trial(run, row_checker(backend, shape, expected), 4 * UNIT[backend.dtype])


class Embedding(Operation):
    """Gathers rows of a table by random indices."""

    name = "embedding"
    needs = ("gather",)
    summary = "gather random rows of a table"
    corresponds = "the embeddings of DLRM (https://github.com/facebookresearch/dlrm), without the sum"
    flops_formula = "0"
    bytes_formula = "2 item lookups width + 8 lookups"
    source = "counted from the definition"
    parameters = {  # noqa: RUF012
        "rows": Parameter("rows of the table"),
        "width": Parameter("columns of the table"),
        "lookups": Parameter("rows to gather"),
    }
    sets = {  # noqa: RUF012
        "small": ({"rows": 20000, "width": 64, "lookups": 8192},),
        "medium": ({"rows": 200000, "width": 64, "lookups": 65536},),
        "large": ({"rows": 10000000, "width": 128, "lookups": 1048576},),
    }

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of the gathered rows, read and written, and of the indices, read."""
        return float(parameters["lookups"] * (2 * ITEM_BYTES[dtype] * parameters["width"] + 8))

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of the table, its random bytes, the gathered rows and the indices."""
        table = parameters["rows"] * parameters["width"] * (1 + ITEM_BYTES[dtype])
        return PROCESS_BYTES + float(table + parameters["lookups"] * (2 * parameters["width"] * ITEM_BYTES[dtype] + 60))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        rows, width, lookups = parameters["rows"], parameters["width"], parameters["lookups"]
        raw = random_bytes(61, rows * width)
        numbers = struct.unpack("<{}I".format(lookups), random_bytes(62, 4 * lookups))
        indices = array("q", (number % rows for number in numbers))
        arrays: List[Array] = [backend.array(raw, (rows, width)), backend.integers(indices, (lookups,))]
        run = backend.compile(lambda b, table, which: b.gather(table, which), arrays)

        check = row_checker(backend, (lookups, width), lambda i: decoded_row(raw, width, indices[i]))
        return Trial(run, check, 2 * UNIT[backend.dtype])

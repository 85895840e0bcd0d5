"""Operations along the rows of an array: elementwise, reduction, softmax, normalisation, fft, sort, embedding.

All of these are bound by memory bandwidth where the framework spells them well.
"""

from __future__ import annotations

import cmath
import math
from typing import Any, Callable, Dict, List, Tuple

from pi_runners.harness.contract import Array, Backend, Parameters, Trial, decode, product, random_bytes
from pi_runners.indicators.indicator import ITEM_BYTES, ROUND_OFF, Operation, Parameter, corners

_ROWS = {"rows": Parameter("rows"), "columns": Parameter("columns, along which is computed")}
_SETS: Dict[str, Tuple[Parameters, ...]] = {
    "small": ({"rows": 512, "columns": 1024},),
    "medium": ({"rows": 4096, "columns": 2048},),
    "large": ({"rows": 65536, "columns": 4096},),
}
_TOLERANCE = {name: 8 * error for name, error in ROUND_OFF.items()}


def _with_kinds(*kinds: str) -> Any:
    return {size: tuple(dict(case[0], kind=kind) for kind in kinds) for size, case in _SETS.items()}


class _Rows(Operation):
    """An operation on random rows."""

    source = "counted from the definition"
    parameters = _ROWS
    sets = _SETS
    operations = 1

    def flops(self, parameters: Parameters) -> float:
        """Operations of one element times the elements."""
        return float(self.operations * parameters["rows"] * parameters["columns"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Read once, written once."""
        return float(2 * ITEM_BYTES[dtype] * parameters["rows"] * parameters["columns"])


def _row(raw: bytes, columns: int, i: int) -> List[float]:
    return decode(raw[i * columns : (i + 1) * columns], "float32")


class Elementwise(_Rows):
    """Sum, product, and a chain that a compiler can fuse."""

    name = "elementwise"
    summary = "x + y, x y, tanh(x), and the chain tanh(x y + x) that a compiler can fuse"
    corresponds = (
        "tf_cnn_benchmarks has none; PyTorch's operator benchmark, binary and unary (benchmarks/operator_benchmark)"
    )
    flops_formula = "rows columns (add, multiply, tanh), 3 rows columns (chain)"
    bytes_formula = "item rows columns (arrays read + 1)"
    parameters = {**_ROWS, "kind": Parameter("operation", choices=("add", "multiply", "tanh", "chain"))}  # noqa: RUF012
    sets = _with_kinds("add", "tanh", "chain")

    def flops(self, parameters: Parameters) -> float:
        """A tanh counts as one operation."""
        return float((3 if parameters["kind"] == "chain" else 1) * parameters["rows"] * parameters["columns"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Every array read once, the result written once; a fused chain reads two arrays."""
        arrays = 2 if parameters["kind"] == "tanh" else 3
        return float(arrays * ITEM_BYTES[dtype] * parameters["rows"] * parameters["columns"])

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check 16 elements."""
        shape = (parameters["rows"], parameters["columns"])
        raws = [random_bytes(51 + i, product(shape)) for i in range(2)]
        function, exact = _ELEMENTWISE[parameters["kind"]]
        arrays = [backend.array(raw, shape) for raw in raws[: 1 if parameters["kind"] == "tanh" else 2]]

        def check(result: Any) -> float:
            worst = 0.0
            for i, j in corners(shape, 16):
                x, y = (_row(raw, shape[1], i)[j] for raw in raws)
                worst = max(worst, abs(backend.read(result, (i, j)) - exact(x, y)))
            return worst

        return Trial(backend.compile(function, arrays), check, _TOLERANCE[backend.precision])


_ELEMENTWISE: Any = {
    "add": (lambda b, x, y: b.add(x, y), lambda x, y: x + y),
    "multiply": (lambda b, x, y: b.multiply(x, y), lambda x, y: x * y),
    "tanh": (lambda b, x: b.tanh(x), lambda x, y: math.tanh(x)),
    "chain": (lambda b, x, y: b.tanh(b.add(b.multiply(x, y), x)), lambda x, y: math.tanh(x * y + x)),
}


class Reduction(_Rows):
    """Sum and maximum of every row."""

    name = "reduction"
    summary = "sum and maximum of every row"
    corresponds = "PyTorch's operator benchmark, reductions (benchmarks/operator_benchmark)"
    flops_formula = "rows columns"
    bytes_formula = "item rows (columns + 1)"
    parameters = {**_ROWS, "kind": Parameter("operation", choices=("sum", "max"))}  # noqa: RUF012
    sets = _with_kinds("sum", "max")

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Read once; one result a row."""
        return float(ITEM_BYTES[dtype] * parameters["rows"] * (parameters["columns"] + 1))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check four rows."""
        rows, columns = parameters["rows"], parameters["columns"]
        raw = random_bytes(53, rows * columns)
        is_sum = parameters["kind"] == "sum"
        run = backend.compile(
            lambda b, x: b.total(x) if is_sum else b.largest(x), [backend.array(raw, (rows, columns))]
        )

        def check(result: Any) -> float:
            worst = 0.0
            for (i,) in corners((rows,), 4):
                row = _row(raw, columns, i)
                expected = math.fsum(row) if is_sum else max(row)
                scale = math.sqrt(math.fsum(x * x for x in row)) if is_sum else 1.0
                worst = max(worst, abs(backend.read(result, (i,)) - expected) / scale)
            return worst

        return Trial(run, check, _TOLERANCE[backend.precision])


def _compare_rows(
    backend: Backend, raw: bytes, shape: Tuple[int, int], exact: Callable[[List[float]], List[float]], scale: float
) -> Callable[[Any], float]:
    """Return a check of whole rows against what a function makes of them."""

    def check(result: Any) -> float:
        worst = 0.0
        for (i,) in corners((shape[0],), 4):
            expected = exact(_row(raw, shape[1], i))
            found = backend.read_all(result, (i,))
            worst = max(worst, max(abs(a - b) for a, b in zip(found, expected)) / scale)
        return worst

    return check


class Softmax(_Rows):
    """Softmax of every row."""

    name = "softmax"
    summary = "softmax of every row"
    corresponds = (
        "Triton's fused softmax tutorial (https://triton-lang.org/main/getting-started/tutorials/02-fused-softmax.html)"
    )
    flops_formula = "5 rows columns"
    bytes_formula = "2 item rows columns"
    operations = 5

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check four rows, relative to an even distribution."""
        shape = (parameters["rows"], parameters["columns"])
        raw = random_bytes(54, product(shape))

        def exact(row: List[float]) -> List[float]:
            powers = [math.exp(x) for x in row]
            total = math.fsum(powers)
            return [e / total for e in powers]

        run = backend.compile(lambda b, x: b.softmax(x), [backend.array(raw, shape)])
        return Trial(run, _compare_rows(backend, raw, shape, exact, 3.0 / shape[1]), _TOLERANCE[backend.precision])


class Normalisation(Operation):
    """Layer normalisation of rows, batch normalisation of images."""

    name = "normalisation"
    summary = "layer normalisation of rows, batch normalisation of images by the batch's statistics"
    corresponds = (
        "Triton's layer norm tutorial (https://triton-lang.org/main/getting-started/tutorials/05-layer-norm.html)"
    )
    flops_formula = "7 rows columns"
    bytes_formula = "2 item rows columns"
    source = "counted from the definition"
    parameters = {  # noqa: RUF012
        "kind": Parameter("what is normalised", choices=("layer", "batch")),
        "rows": Parameter("rows; or images times their pixels"),
        "columns": Parameter("columns; or channels"),
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

    def flops(self, parameters: Parameters) -> float:
        """Two sums, a difference, a square, a product with the inverse deviation, gain and offset."""
        return float(7 * parameters["rows"] * parameters["columns"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Read once, written once."""
        return float(2 * ITEM_BYTES[dtype] * parameters["rows"] * parameters["columns"])

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check rows, or channels, against the definition."""
        rows, columns = parameters["rows"], parameters["columns"]
        raw = random_bytes(55, rows * columns)
        gain = backend.array(random_bytes(56, columns), (columns,), 0.5, 1.0)
        offset = backend.array(random_bytes(57, columns), (columns,), 0.5)
        gains, offsets = decode(random_bytes(56, columns), "float32"), decode(random_bytes(57, columns), "float32")

        def affine(x: float, column: int) -> float:
            return x * (1.0 + 0.5 * gains[column]) + 0.5 * offsets[column]

        if parameters["kind"] == "layer":

            def exact(row: List[float]) -> List[float]:
                return [affine(x, j) for j, x in enumerate(_standardised(row))]

            run = backend.compile(
                lambda b, x, g, o: b.layer_norm(x, g, o), [backend.array(raw, (rows, columns)), gain, offset]
            )
            check = _compare_rows(backend, raw, (rows, columns), exact, 4.0)
            return Trial(run, check, _TOLERANCE[backend.precision])

        # (1, channels, rows, 1): the statistics of a channel do not depend on how rows are spread over images.
        shape = (1, columns, rows, 1)

        def check_channels(result: Any) -> float:
            worst = 0.0
            for (channel,) in corners((columns,), 3):
                expected = _standardised(_row(raw, rows, channel))
                for (i,) in corners((rows,), 8):
                    found = backend.read(result, backend.image_index((0, channel, i, 0)))
                    worst = max(worst, abs(found - affine(expected[i], channel)))
            return worst

        run = backend.compile(
            lambda b, x, g, o: b.batch_norm(x, g, o, True), [backend.images(raw, shape), gain, offset]
        )
        return Trial(run, check_channels, 4 * _TOLERANCE[backend.precision])


def _standardised(row: List[float]) -> List[float]:
    mean = math.fsum(row) / len(row)
    variance = math.fsum((x - mean) ** 2 for x in row) / len(row)
    return [(x - mean) / math.sqrt(variance + 1e-5) for x in row]


class Fft(_Rows):
    """Fourier transform of every real row."""

    name = "fft"
    summary = "discrete Fourier transform of every real row"
    corresponds = "benchFFT (http://www.fftw.org/benchfft/)"
    flops_formula = "2.5 rows columns log2(columns)"
    bytes_formula = "item rows (columns + 2 (columns / 2 + 1))"
    source = "http://www.fftw.org/speed/method.html"
    dtypes = ("float32", "float64")

    def flops(self, parameters: Parameters) -> float:
        """Half of the 5 n log2 n that benchFFT counts for a complex transform."""
        return float(2.5 * parameters["rows"] * parameters["columns"] * math.log2(parameters["columns"]))

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Real rows read, complex halves written."""
        columns = parameters["columns"]
        return float(ITEM_BYTES[dtype] * parameters["rows"] * (columns + 2 * (columns // 2 + 1)))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check four frequencies."""
        rows, columns = parameters["rows"], parameters["columns"]
        raw = random_bytes(58, rows * columns)
        run = backend.compile(lambda b, x: b.fft(x), [backend.array(raw, (rows, columns))])

        def check(result: Any) -> float:
            worst = 0.0
            for i, k in corners((rows, columns // 2 + 1), 4):
                row = _row(raw, columns, i)
                turn = -2j * cmath.pi * k / columns
                terms = [x * cmath.exp(turn * t) for t, x in enumerate(row)]
                expected = complex(math.fsum(t.real for t in terms), math.fsum(t.imag for t in terms))
                scale = math.sqrt(math.fsum(x * x for x in row))
                worst = max(worst, abs(complex(backend.read(result, (i, k))) - expected) / scale)
            return worst

        # The reference itself is rounded: each of its angles is.
        return Trial(run, check, max(1e-11, _TOLERANCE[backend.precision]))


class Sort(_Rows):
    """Sort every row."""

    name = "sort"
    summary = "sort every row, smallest first (PyTorch also computes the permutation; ONNX Runtime: TopK)"
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
        """Check four rows; two bytes an element, so that few are equal."""
        shape = (parameters["rows"], parameters["columns"])
        high, low = random_bytes(59, product(shape)), random_bytes(60, product(shape))
        mixed = backend.compile(
            lambda b, x, y: b.add(x, y), [backend.array(high, shape), backend.array(low, shape, 0.004)]
        )()
        run = backend.compile(lambda b, x: b.sort(x), [mixed])

        def check(result: Any) -> float:
            worst = 0.0
            for (i,) in corners((shape[0],), 4):
                row = zip(_row(high, shape[1], i), _row(low, shape[1], i))
                expected = sorted(x + 0.004 * y for x, y in row)
                found = backend.read_all(result, (i,))
                worst = max(worst, max(abs(a - b) for a, b in zip(found, expected)))
            return worst

        return Trial(run, check, _TOLERANCE[backend.precision])


class Embedding(Operation):
    """Rows of a table by random index."""

    name = "embedding"
    summary = "gather random rows of a table"
    corresponds = "the embeddings of DLRM (https://github.com/facebookresearch/dlrm), without the sum"
    flops_formula = "0"
    bytes_formula = "2 item lookups width + 8 lookups"
    source = "counted from the definition"
    parameters = {  # noqa: RUF012
        "rows": Parameter("rows of the table"),
        "width": Parameter("columns of the table"),
        "lookups": Parameter("rows gathered"),
    }
    sets = {  # noqa: RUF012
        "small": ({"rows": 20000, "width": 64, "lookups": 8192},),
        "medium": ({"rows": 200000, "width": 64, "lookups": 65536},),
        "large": ({"rows": 10000000, "width": 128, "lookups": 1048576},),
    }

    def flops(self, parameters: Parameters) -> float:
        """None."""
        return 0.0

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Gathered rows read and written, indices read."""
        return float(parameters["lookups"] * (2 * ITEM_BYTES[dtype] * parameters["width"] + 8))

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """The table."""
        return float(parameters["rows"] * parameters["width"] * (9 + 2 * ITEM_BYTES[dtype]))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check four gathered rows."""
        rows, width, lookups = parameters["rows"], parameters["width"], parameters["lookups"]
        raw = random_bytes(61, rows * width)
        chosen = random_bytes(62, 4 * lookups)
        indices = [int.from_bytes(chosen[4 * i : 4 * i + 4], "little") % rows for i in range(lookups)]
        arrays: List[Array] = [backend.array(raw, (rows, width)), backend.integers(indices, (lookups,))]
        run = backend.compile(lambda b, table, which: b.gather(table, which), arrays)

        def check(result: Any) -> float:
            worst = 0.0
            for (i,) in corners((lookups,), 4):
                found = backend.read_all(result, (i,))
                worst = max(worst, max(abs(a - b) for a, b in zip(found, _row(raw, width, indices[i]))))
            return worst

        return Trial(run, check, _TOLERANCE[backend.precision])

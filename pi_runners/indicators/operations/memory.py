"""Memory bandwidth, transfers between host and device, and the machine's roofline."""

from __future__ import annotations

from operator import add
from typing import Any, Callable, Dict, Iterator, List, Tuple

from pi_runners.harness.contract import Backend, Parameter, Parameters, SamplingPlan, Trial
from pi_runners.harness.random_inputs import decode, random_bytes
from pi_runners.indicators.checks.results import EVERY, FINITE, Result, checker, difference, pick
from pi_runners.indicators.indicator import ELEMENT_ERROR, ITEM_BYTES, PROCESS_BYTES, Indicator, Operation, time_trial
from pi_runners.indicators.operations.matmul import Matmul

_BLOCK = 2**12
"""Elements that are compared in one step."""
_FACTOR = 0.5
_KERNELS: Dict[str, Any] = {
    "copy": (1, 0, lambda b, x: b.copy(x), lambda x: x),
    "scale": (1, 1, lambda b, x: b.scale(x, _FACTOR), lambda x: _FACTOR * x),
    "add": (2, 1, lambda b, x, y: b.add(x, y), add),
    "triad": (2, 2, lambda b, x, y: b.add(x, b.scale(y, _FACTOR)), lambda x, y: x + _FACTOR * y),
}
"""Arrays read, operations per element, the computation, and its definition for one element."""


class Memory(Operation):
    """STREAM's four kernels; every call writes to memory that the framework allocates."""

    name = "memory"
    summary = "copy, scale, add and triad over arrays larger than the caches, results allocated by the framework"
    corresponds = "STREAM (https://www.cs.virginia.edu/stream/), with allocation"
    flops_formula = "0 (copy), elements (scale, add), 2 elements (triad)"
    bytes_formula = "item elements (arrays read + 1)"
    source = "https://www.cs.virginia.edu/stream/ref.html (bytes are counted as STREAM does, without write-allocate)"
    parameters = {  # noqa: RUF012
        "kernel": Parameter("what is computed", choices=tuple(_KERNELS)),
        "elements": Parameter("elements of an array", most=2**34),
    }
    sets = {  # noqa: RUF012
        "small": tuple({"kernel": k, "elements": 2**24} for k in ("copy", "triad")),
        "medium": tuple({"kernel": k, "elements": 2**25} for k in _KERNELS),
        "large": tuple({"kernel": k, "elements": 2**29} for k in _KERNELS),
    }

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        kernel = parameters.get("kernel", "add")
        return ("add", "scale") if kernel == "triad" else (kernel,)

    def flops(self, parameters: Parameters) -> float:
        return float(_KERNELS[parameters["kernel"]][1] * parameters["elements"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        return float(ITEM_BYTES[dtype] * (_KERNELS[parameters["kernel"]][0] + 1) * parameters["elements"])

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Compare elements in blocks: all, or some of a large result, whose other elements must be finite."""
        elements = parameters["elements"]
        count, _, function, exact = _KERNELS[parameters["kernel"]]
        raws = [random_bytes(71 + i, elements) for i in range(count)]
        run = backend.compile(function, [backend.array(raw, (elements,)) for raw in raws])

        def errors(loaded: Result) -> Iterator[float]:
            blocks = pick(-(-elements // _BLOCK), EVERY // _BLOCK)
            yield loaded.error_of_others(False)
            for start in [i * _BLOCK for i in blocks]:
                place = slice(start, min(elements, start + _BLOCK))
                expected = list(map(exact, *(decode(raw[place], "float32") for raw in raws)))
                yield difference(loaded.part(place), expected)

        return Trial(run, checker(backend, (elements,), errors), ELEMENT_ERROR[backend.precision])


class Transfer(Indicator):
    """Copies from host to device and back."""

    name = "transfer"
    summary = "copy from host to device or back, through page-locked memory where the framework has it"
    corresponds = "bandwidthTest of NVIDIA's CUDA samples (https://github.com/NVIDIA/cuda-samples)"
    flops_formula = "0"
    bytes_formula = "bytes"
    source = "counted from the definition"
    parameters = {  # noqa: RUF012
        "direction": Parameter("direction of the copy", choices=("to_device", "to_host")),
        "bytes": Parameter("bytes copied", most=2**34),
    }
    sets = {  # noqa: RUF012
        size: tuple({"direction": d, "bytes": n} for d in ("to_device", "to_host"))
        for size, n in (("small", 2**20), ("medium", 2**26), ("large", 2**30))
    }
    needs = ("transfers",)
    devices = ("cuda",)
    dtypes = ("float32",)

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        return float(parameters["bytes"])

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of the random bytes, a page-locked copy, and the destination of each direction."""
        return PROCESS_BYTES + float(4 * parameters["bytes"])

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Time one direction, and check the copied bytes."""
        raw = random_bytes(75, parameters["bytes"])
        calls = backend.to_device(raw)
        run: Callable[[], Any] = calls[0 if parameters["direction"] == "to_device" else 1]

        def errors(loaded: Result) -> Iterator[float]:
            parts = pick(-(-len(raw) // EVERY), FINITE // EVERY)
            places = [slice(i * EVERY, min(len(raw), (i + 1) * EVERY)) for i in parts]
            return (difference(loaded.part(place), raw[place]) for place in places)

        def check(result: Any) -> float:
            backend.synchronise(result)
            return checker(backend, (len(raw),), errors)(result)

        return time_trial(Trial(run, check, 0.0), backend, plan)


class Roofline(Operation):
    """The machine's roofline: the highest rates of operations and of bytes that the framework reaches."""

    name = "roofline"
    summary = "peak FLOP/s (square matrix products) and peak bytes/s (triad): the roof that fractions refer to"
    corresponds = "the roofline model, Williams et al. 2009 (https://doi.org/10.1145/1498765.1498785)"
    flops_formula = "2 n^3 (flops); 2 n (bandwidth)"
    bytes_formula = "3 item n^2 (flops); 3 item n (bandwidth)"
    source = "https://doi.org/10.1145/1498765.1498785"
    parameters = {  # noqa: RUF012
        "roof": Parameter("rate to measure", choices=("flops", "bandwidth")),
        "n": Parameter("rows and columns of a matrix, or elements of an array", most=2**34),
    }
    sets = {  # noqa: RUF012
        "small": (
            {"roof": "flops", "n": 1024},
            {"roof": "flops", "n": 2048},
            {"roof": "bandwidth", "n": 2**24},
        ),
        "medium": ({"roof": "flops", "n": 2048}, {"roof": "flops", "n": 4096}, {"roof": "bandwidth", "n": 2**26}),
        "large": ({"roof": "flops", "n": 8192}, {"roof": "flops", "n": 16384}, {"roof": "bandwidth", "n": 2**30}),
    }

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        return ("add", "scale") if parameters.get("roof") == "bandwidth" else ("matmul",)

    def _measured_indicator(self, parameters: Parameters) -> Any:
        n = parameters["n"]
        if parameters["roof"] == "flops":
            return Matmul(), {"m": n, "n": n, "k": n}
        return Memory(), {"kernel": "triad", "elements": n}

    def flops(self, parameters: Parameters) -> float:
        indicator, p = self._measured_indicator(parameters)
        return float(indicator.flops(p))

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        indicator, p = self._measured_indicator(parameters)
        return float(indicator.bytes_moved(p, dtype))

    def memory(self, parameters: Parameters, dtype: str) -> float:
        indicator, p = self._measured_indicator(parameters)
        return float(indicator.memory(p, dtype))

    def complaints(self, parameters: Parameters) -> List[str]:
        messages = super().complaints(parameters)
        if messages:
            return messages
        indicator, p = self._measured_indicator(parameters)
        return list(indicator.complaints(p))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        indicator, p = self._measured_indicator(parameters)
        trial: Trial = indicator.prepare(backend, indicator.complete(p))
        return trial

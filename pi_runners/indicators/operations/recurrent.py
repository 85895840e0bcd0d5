"""Recurrent layers: vanilla, LSTM, GRU."""

from __future__ import annotations

import math
from operator import mul
from typing import Any, Dict, Iterator, List, Sequence

from pi_runners.harness.contract import GATES, Backend, Parameter, Parameters, Trial
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators.checks.exact import pack, unpack, whole_numbers
from pi_runners.indicators.checks.results import Result, checker, difference, pick
from pi_runners.indicators.indicator import ITEM_BYTES, Operation

# Absolute, for one timestep from the framework's own previous states. States have a size of 0.05 (LSTM) to 0.3
# (vanilla); the error of PyTorch on a CPU is 6e-4 in float16 and 5e-3 in bfloat16.
_TOLERANCE = {"float64": 1e-10, "float32": 2e-3, "float16": 5e-3, "bfloat16": 3e-2}
_WORK = 2**26
"""Maximum number of products for a check of all states: about half a second."""
_UNITS, _SAMPLES = 16, 4
"""Number of units and samples that are checked above that, at every timestep."""


class Recurrent(Operation):
    """One recurrent layer over a sequence, forward, without biases."""

    name = "recurrent"
    needs = ("recurrent",)
    summary = "one recurrent layer (vanilla, LSTM, GRU) over a sequence, forward"
    corresponds = "DeepBench recurrent layers (https://github.com/baidu-research/DeepBench), with the input's product"
    flops_formula = "2 gates hidden (inputs + hidden) batch timesteps"
    bytes_formula = "item (timesteps batch (inputs + hidden) + gates hidden (inputs + hidden))"
    source = "https://docs.nvidia.com/deeplearning/performance/dl-performance-recurrent/"
    parameters = {  # noqa: RUF012
        "cell": Parameter("kind of cell", choices=tuple(GATES)),
        "hidden": Parameter("hidden units"),
        "batch": Parameter("sequences"),
        "timesteps": Parameter("length of a sequence"),
        "inputs": Parameter("width of the input; 0 for the number of hidden units", least=0, default=0),
    }
    sets = {  # noqa: RUF012
        "small": tuple({"cell": c, "hidden": 128, "batch": 16, "timesteps": 16} for c in GATES),
        "medium": tuple({"cell": c, "hidden": 512, "batch": 32, "timesteps": 50} for c in GATES),
        "large": tuple({"cell": c, "hidden": 1792, "batch": 64, "timesteps": 100} for c in GATES),
    }

    def flops(self, parameters: Parameters) -> float:
        """Return the operations of the products with input and state, as DeepBench counts."""
        p = self.complete(parameters)
        inputs = p["inputs"] or p["hidden"]
        return float(2 * GATES[p["cell"]] * p["hidden"] * (inputs + p["hidden"]) * p["batch"] * p["timesteps"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of inputs and weights, read once, and states, written once."""
        p = self.complete(parameters)
        inputs = p["inputs"] or p["hidden"]
        weights = GATES[p["cell"]] * p["hidden"] * (inputs + p["hidden"])
        return float(ITEM_BYTES[dtype] * (p["timesteps"] * p["batch"] * (inputs + p["hidden"]) + weights))

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Also include the products of the inputs with the weights of every gate."""
        p = self.complete(parameters)
        products = GATES[p["cell"]] * p["hidden"] * p["batch"] * p["timesteps"]
        return float(super().memory(parameters, dtype) + ITEM_BYTES[dtype] * products)

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check that each state follows from the previous one by the cell's definition."""
        p = parameters
        hidden, inputs, gates = p["hidden"], p["inputs"] or p["hidden"], GATES[p["cell"]]
        shape = (p["timesteps"], p["batch"], inputs)
        raw_x = random_bytes(31, math.prod(shape))
        raw_w = [random_bytes(32, gates * hidden * inputs), random_bytes(33, gates * hidden * hidden)]
        scale = (3.0 / hidden) ** 0.5 / 2
        numbers = whole_numbers("float32")
        # A field has 63 bits: 8 for the weights, one more than this for the states, the rest for the sum over columns.
        one = 2 ** min(40 if backend.dtype == "float64" else 28, 53 - hidden.bit_length())
        x = backend.array(raw_x, shape)
        run = backend.compile(backend.recurrent(p["cell"], x, raw_w, (inputs, hidden), scale), [x])

        def errors(elements: Result) -> Iterator[float]:
            whole = elements.whole and p["timesteps"] * p["batch"] * gates * hidden * (inputs + hidden) <= _WORK
            units = pick(hidden, hidden if whole else _UNITS)
            samples = pick(p["batch"], p["batch"] if whole else _SAMPLES)
            layers = [_Products(raw, gates, hidden, units, scale) for raw in raw_w]
            yield elements.error_of_others(whole)
            for sample in samples:
                state, memory = [0.0] * hidden, [0.0] * len(units)
                for t in range(p["timesteps"]):
                    place = (t * p["batch"] + sample) * inputs
                    from_input = layers[0].apply(numbers.row(raw_x[place : place + inputs]), numbers.denominator)
                    from_state = layers[1].apply(_rounded(state, one), one)
                    sums = [[(from_input[g][u], from_state[g][u]) for g in range(gates)] for u in range(len(units))]
                    after = [_CELLS[p["cell"]](s, state[u], m) for s, u, m in zip(sums, units, memory)]
                    memory = [m for _, m in after]
                    state = elements.row((t, sample))
                    if len(state) != hidden or not all(map(math.isfinite, state)):
                        yield math.inf
                        return
                    yield difference([state[u] for u in units], [expected for expected, _ in after])

        return Trial(run, checker(backend, (p["timesteps"], p["batch"], hidden), errors), _TOLERANCE[backend.precision])


class _Products:
    """Products of some rows of a weight matrix (gates, hidden, columns) with vectors whose elements are in [-1, 1]."""

    def __init__(self, raw: bytes, gates: int, hidden: int, units: Sequence[int], scale: float) -> None:
        width = len(raw) // (gates * hidden)
        self._gates, self._units, self._scale = gates, len(units), scale / 255
        places = [(gate * hidden + unit) * width for gate in range(gates) for unit in units]
        self._columns = [
            pack(bytes([raw[place + j] for place in places]), 8, whole_numbers("float32")) for j in range(width)
        ]

    def apply(self, vector: Sequence[int], one: int) -> List[List[float]]:
        """Return the sums of each gate and unit for a vector of integers over ``one``."""
        sums = unpack(sum(map(mul, vector, self._columns)), self._gates * self._units, 8)
        factor = self._scale / one
        return [[x * factor for x in sums[g * self._units :][: self._units]] for g in range(self._gates)]


def _rounded(state: Sequence[float], one: int) -> List[int]:
    """Return a state as integers over ``one``; correct states are in [-1, 1], others fail the check anyway."""
    return [round(max(-2.0, min(2.0, x)) * one) for x in state]


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def _vanilla(sums: Any, state: float, memory: float) -> Any:
    return math.tanh(sum(sums[0])), memory


def _lstm(sums: Any, state: float, memory: float) -> Any:
    entering, forgetting, fresh, leaving = (sum(pair) for pair in sums)
    memory = _sigmoid(forgetting) * memory + _sigmoid(entering) * math.tanh(fresh)
    return _sigmoid(leaving) * math.tanh(memory), memory


def _gru(sums: Any, state: float, memory: float) -> Any:
    reset, update = _sigmoid(sum(sums[0])), _sigmoid(sum(sums[1]))
    candidate = math.tanh(sums[2][0] + reset * sums[2][1])
    return (1 - update) * candidate + update * state, memory


_CELLS: Dict[str, Any] = {"vanilla": _vanilla, "lstm": _lstm, "gru": _gru}

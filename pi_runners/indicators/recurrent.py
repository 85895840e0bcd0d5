"""Recurrent layers: vanilla, LSTM, GRU."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Sequence

from pi_runners.harness.contract import Backend, Parameters, Trial, decode, random_bytes
from pi_runners.indicators.indicator import ITEM_BYTES, Operation, Parameter

_GATES = {"vanilla": 1, "lstm": 4, "gru": 3}
_TOLERANCE = {"float64": 1e-10, "float32": 2e-3, "float16": 2e-2, "bfloat16": 1e-1}
_CHECKED_STEPS, _CHECKED_UNITS = 8, 3


class Recurrent(Operation):
    """One recurrent layer over a sequence, forward, without biases."""

    name = "recurrent"
    summary = "one recurrent layer (vanilla, LSTM, GRU) over a sequence, forward"
    corresponds = "DeepBench recurrent layers (https://github.com/baidu-research/DeepBench), with the input's product"
    flops_formula = "2 gates hidden (inputs + hidden) batch timesteps"
    bytes_formula = "item (timesteps batch (inputs + hidden) + gates hidden (inputs + hidden))"
    source = "https://docs.nvidia.com/deeplearning/performance/dl-performance-recurrent/"
    parameters = {  # noqa: RUF012
        "cell": Parameter("kind of cell", choices=tuple(_GATES)),
        "hidden": Parameter("hidden units"),
        "batch": Parameter("sequences"),
        "timesteps": Parameter("length of a sequence"),
        "inputs": Parameter("width of the input; as many as hidden units where it is 0", least=0, default=0),
    }
    sets = {  # noqa: RUF012
        "small": tuple({"cell": c, "hidden": 128, "batch": 16, "timesteps": 16} for c in _GATES),
        "medium": tuple({"cell": c, "hidden": 512, "batch": 32, "timesteps": 50} for c in _GATES),
        "large": tuple({"cell": c, "hidden": 1792, "batch": 64, "timesteps": 100} for c in _GATES),
    }

    def flops(self, parameters: Parameters) -> float:
        """The products with input and state; the elementwise rest is not counted, as in DeepBench."""
        p = self.complete(parameters)
        inputs = p["inputs"] or p["hidden"]
        return float(2 * _GATES[p["cell"]] * p["hidden"] * (inputs + p["hidden"]) * p["batch"] * p["timesteps"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Inputs and weights read once, states written once."""
        p = self.complete(parameters)
        inputs = p["inputs"] or p["hidden"]
        weights = _GATES[p["cell"]] * p["hidden"] * (inputs + p["hidden"])
        return float(ITEM_BYTES[dtype] * (p["timesteps"] * p["batch"] * (inputs + p["hidden"]) + weights))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check that each state of some units follows from the states before it, as the cell defines."""
        p = parameters
        hidden, inputs, gates = p["hidden"], p["inputs"] or p["hidden"], _GATES[p["cell"]]
        shape = (p["timesteps"], p["batch"], inputs)
        raw_x = random_bytes(31, shape[0] * shape[1] * inputs)
        raw_w = [random_bytes(32, gates * hidden * inputs), random_bytes(33, gates * hidden * hidden)]
        scale = (3.0 / hidden) ** 0.5 / 2
        x = backend.array(raw_x, shape)
        run = backend.compile(backend.recurrent(p["cell"], x, raw_w, (inputs, hidden), scale), [x])

        def row(which: int, gate: int, unit: int, width: int) -> List[float]:
            start = (gate * hidden + unit) * width
            return [value * scale for value in decode(raw_w[which][start : start + width], "float32")]

        def check(result: Any) -> float:
            worst = 0.0
            steps = min(_CHECKED_STEPS, p["timesteps"])
            sample = p["batch"] - 1
            states = [[0.0] * hidden] + [backend.read_all(result, (t, sample)) for t in range(steps)]
            given = [decode(raw_x[(t * p["batch"] + sample) * inputs :][:inputs], "float32") for t in range(steps)]
            for unit in {i * (hidden - 1) // (_CHECKED_UNITS - 1) for i in range(_CHECKED_UNITS)}:
                weights = [(row(0, g, unit, inputs), row(1, g, unit, hidden)) for g in range(gates)]
                memory = 0.0
                for t in range(steps):
                    sums = [(_dot(u, given[t]), _dot(v, states[t])) for u, v in weights]
                    expected, memory = _CELLS[p["cell"]](sums, states[t][unit], memory)
                    worst = max(worst, abs(states[t + 1][unit] - expected))
            return worst

        return Trial(run, check, _TOLERANCE[backend.precision])


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b))


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

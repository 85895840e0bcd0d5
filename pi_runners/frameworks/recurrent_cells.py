"""One timestep of a recurrent cell, for frameworks without recurrent layers."""

from __future__ import annotations

from typing import Any, Callable, Tuple


def advance(
    module: Any, sigmoid: Callable[[Any], Any], cell: str, from_input: Any, from_state: Any, state: Any, memory: Any
) -> Tuple[Any, Any]:
    """Return state and memory (batch, hidden) after one timestep.

    Args:
        module: `numpy` or `jax.numpy`.
        sigmoid: The logistic function.
        cell: ``vanilla``, ``lstm`` or ``gru``.
        from_input: Product of the input and the input weights, (batch, gates x hidden).
        from_state: Product of the hidden state and the recurrent weights, (batch, gates x hidden).
        state: Hidden state before the timestep, (batch, hidden).
        memory: Cell state before the timestep, (batch, hidden); only an LSTM changes it.
    """
    if cell == "vanilla":
        return module.tanh(from_input + from_state), memory
    if cell == "lstm":
        input_gate, forget_gate, candidate, output_gate = module.split(from_input + from_state, 4, axis=-1)
        memory = sigmoid(forget_gate) * memory + sigmoid(input_gate) * module.tanh(candidate)
        return sigmoid(output_gate) * module.tanh(memory), memory
    input_reset, input_update, input_new = module.split(from_input, 3, axis=-1)
    state_reset, state_update, state_new = module.split(from_state, 3, axis=-1)
    update = sigmoid(input_update + state_update)
    candidate = module.tanh(input_new + sigmoid(input_reset + state_reset) * state_new)
    return (1 - update) * candidate + update * state, memory


GATES = {"vanilla": 1, "lstm": 4, "gru": 3}
"""Number of gates of each cell."""

"""One timestep of a recurrent cell, for frameworks that spell it out."""

from __future__ import annotations

from typing import Any, Callable, Tuple


def advance(
    module: Any, sigmoid: Callable[[Any], Any], cell: str, given: Any, kept: Any, state: Any, memory: Any
) -> Tuple[Any, Any]:
    """Return state and memory (batch, hidden) after one timestep.

    Args:
        module: `numpy` or `jax.numpy`.
        sigmoid: The logistic function.
        cell: ``vanilla``, ``lstm`` or ``gru``.
        given: Products of the input with the input weights, (batch, gates x hidden).
        kept: Products of the state with the recurrent weights, (batch, gates x hidden).
        state: Hidden state before, (batch, hidden).
        memory: Cell state before, (batch, hidden); only an LSTM changes it.
    """
    if cell == "vanilla":
        return module.tanh(given + kept), memory
    if cell == "lstm":
        entering, forgetting, fresh, leaving = module.split(given + kept, 4, axis=-1)
        memory = sigmoid(forgetting) * memory + sigmoid(entering) * module.tanh(fresh)
        return sigmoid(leaving) * module.tanh(memory), memory
    reset, update, fresh = module.split(given, 3, axis=-1)
    kept_reset, kept_update, kept_fresh = module.split(kept, 3, axis=-1)
    update = sigmoid(update + kept_update)
    candidate = module.tanh(fresh + sigmoid(reset + kept_reset) * kept_fresh)
    return (1 - update) * candidate + update * state, memory


GATES = {"vanilla": 1, "lstm": 4, "gru": 3}
"""Gates of each cell."""

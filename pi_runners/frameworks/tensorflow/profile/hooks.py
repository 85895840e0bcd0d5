"""Steps of TensorFlow without Keras: calls of the `tf.function` that took longest to trace.

Traces of TensorFlow hold no shapes of its operations: the hooks write the shapes in the program's graphs.
"""

import json
import os
import re
import sys
import weakref
from typing import Any, Dict, Iterable, List

from ....profile.hooks.session import CallCounter, Profiler, Session

GRAPHS = "graphs.json"
"""File with the shapes of operations."""
_MAX_OPERATIONS = 50_000
_IGNORED = re.compile(r"^(Const|Placeholder|NoOp|ReadVariableOp|Assign\w*|Identity\w*|Shape|VarHandleOp|.*Call)$")
_ATTRIBUTES = ("transpose_a", "transpose_b", "adj_x", "adj_y", "strides", "padding", "data_format", "equation")
_CALL = 1
_NOT_STEPS = ("adapt_step",)
_FUNCTIONS: Any = weakref.WeakSet()
"""Functions that were called."""


class TensorflowProfiler(Profiler):
    """tf.profiler."""

    framework = "tensorflow"

    def __init__(self, session: Session) -> None:
        self._path = session.path("tensorflow")

    def start(self, result: Any) -> None:
        """Start."""
        import tensorflow as tf

        tf.profiler.experimental.start(
            self._path, options=tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
        )

    def stop(self, result: Any) -> List[str]:
        """Stop, and write the trace and the shapes of the operations."""
        import tensorflow as tf

        tf.profiler.experimental.stop()
        try:
            write_graphs(_FUNCTIONS, os.path.join(self._path, GRAPHS))
        except Exception as error:
            sys.stderr.write("advisor: the shapes of the operations are unknown: {}\n".format(error))
        return [self._path]


def install(tensorflow: Any, session: Session) -> None:
    """Count the calls of functions; their class is private, so newer versions may count only steps of Keras."""
    counter = CallCounter(session, _CALL, lambda: TensorflowProfiler(session))
    function = type(tensorflow.function(lambda: None))
    call = function.__call__

    def counted_call(self: Any, *arguments: Any, **named: Any) -> Any:
        _FUNCTIONS.add(self)
        if getattr(self, "__name__", "") in _NOT_STEPS:
            return call(self, *arguments, **named)
        return counter.call(id(self), call, self, *arguments, **named)

    function.__call__ = counted_call


def write_graphs(functions: Iterable[Any], path: str) -> None:
    """Write the operations with known shapes of the traced graphs of functions.

    Args:
        functions: Objects that `tf.function` made.
        path: File to write.
    """
    operations: Dict[str, Any] = {}
    for function in functions:
        for concrete in function._list_all_concrete_functions():
            for operation in concrete.graph.get_operations():
                if len(operations) < _MAX_OPERATIONS and not _IGNORED.match(operation.type):
                    described = _described(operation)
                    if described is not None:
                        operations[operation.name] = described
    with open(path, "w", encoding="utf-8") as file:
        json.dump(operations, file)


def _described(operation: Any) -> Any:
    inputs, outputs = list(operation.inputs), list(operation.outputs)
    shapes = [tensor.shape.as_list() if tensor.shape.rank is not None else None for tensor in inputs + outputs[:1]]
    if not outputs or any(shape is None or None in shape for shape in shapes):
        return None
    attributes = {}
    for name in _ATTRIBUTES:
        if name in operation.node_def.attr:
            value = operation.get_attr(name)
            if isinstance(value, (list, tuple)):
                attributes[name] = " ".join(str(number) for number in value)
            else:
                attributes[name] = value.decode() if isinstance(value, bytes) else str(value)
    return {
        "operator": operation.type,
        "inputs": shapes[: len(inputs)],
        "outputs": shapes[len(inputs) :],
        "element_type": outputs[0].dtype.name,
        "producer": inputs[0].op.name if inputs else "",
        "attributes": attributes,
    }

"""Writes the shapes of the operations in the graphs of a program, which the traces of TensorFlow do not hold."""

import json
import re
from typing import Any, Dict, Iterable

FILE = "graphs.json"
_MAX_OPERATIONS = 50_000
_IGNORED = re.compile(r"^(Const|Placeholder|NoOp|ReadVariableOp|Assign\w*|Identity\w*|Shape|VarHandleOp|.*Call)$")
_ATTRIBUTES = ("transpose_a", "transpose_b", "adj_x", "adj_y", "strides", "padding", "data_format", "equation")


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

"""Full names of imports and calls in Python code, if the imports show them. Nothing is executed.

Code that is not valid Python, or is nested too deeply, raises what :func:`ast.parse` raises: `SyntaxError`,
`ValueError`, `RecursionError` or `MemoryError`.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from knowledge.domain.frameworks import frameworks

NAMED = ("timm.create_model", "timm.models.create_model", "torchvision.models.get_model")
"""Functions whose first argument is the name of a model."""
PARSE_ERRORS = (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, OSError, MemoryError)
"""What reading and parsing a source file may raise."""
_NAME_PARAMETERS = ("model_name", "name", "pretrained_model_name_or_path")


class SourceNames(NamedTuple):
    """Names in a source file.

    Attributes:
        imports: Top-level packages that it imports.
        calls: Full name and line of each call and of each base class, such as ``torch.nn.Conv2d``, sorted; of a method
            of a result, ``.`` and its name; of :data:`NAMED`, and ``from_pretrained`` of transformers, with the literal
            name of the model, such as ``timm.create_model("resnet50")``.
    """

    imports: frozenset[str]
    calls: tuple[tuple[str, int], ...]


@cache
def code_documents() -> Mapping[str, Mapping[str, Any]]:
    """Return the names in code of each framework: the content of `code.toml` in its folder."""
    return {framework.name: framework.document("code") for framework in frameworks().values()}


def parse_code(code: str) -> ast.Module:
    """Return the tree of code."""
    with warnings.catch_warnings():
        # Ignore warnings about invalid escape sequences in the code.
        warnings.simplefilter("ignore")
        return ast.parse(code)


def parse_problem(error: BaseException) -> str:
    """Return why a source file cannot be parsed."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def names_of(code: str) -> SourceNames:
    """Return the names in code."""
    return names_in(parse_code(code))


def names_in(tree: ast.Module) -> SourceNames:
    """Return the names in parsed code."""
    nodes = list(ast.walk(tree))
    objects = list(imported_objects(nodes))
    imports, aliases = {full.partition(".")[0] for _, full in objects}, dict(objects)
    calls: list[tuple[str, int]] = []
    for node in nodes:
        if isinstance(node, ast.Call):
            calls.append((_with_model(full_name(node.func, aliases), node), node.lineno))
        elif isinstance(node, ast.ClassDef):
            calls += [(full_name(base, aliases), node.lineno) for base in node.bases]
    return SourceNames(imports=frozenset(imports), calls=tuple(sorted((name, line) for name, line in calls if name)))


def _with_model(name: str, call: ast.Call) -> str:
    """Return the name of a call, with the model that it names, if it names one by a literal."""
    if name not in NAMED and not (name.startswith("transformers.") and name.endswith(".from_pretrained")):
        return name
    arguments = [*call.args[:1], *(k.value for k in call.keywords if k.arg in _NAME_PARAMETERS)]
    literals = (a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str))
    model = next(literals, "")
    return f'{name}("{model}")' if model else name


def full_name(node: ast.expr, aliases: Mapping[str, str]) -> str:
    """Return the name of an expression, whose first part an import binds; of a method of a result, ``.`` and its name.

    It is empty for other expressions. The aliases are those of :func:`imported_objects`.
    """
    root, point, rest = dotted_name(node).partition(".")
    if not root:
        # A method of the result of a call: only the name of the method is known.
        return f".{node.attr}" if isinstance(node, ast.Attribute) else ""
    name = f"{aliases.get(root, root)}{point}{rest}"
    # Keras has two names: `keras` and `tensorflow.keras`.
    return name.removeprefix("tensorflow.") if name.startswith("tensorflow.keras.") else name


def imported_objects(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the names that absolute imports bind, each with the full name of the module or the object."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or name, name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def dotted_name(node: ast.expr) -> str:
    """Return the dotted name of an expression of names and attributes; empty if it is another expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""

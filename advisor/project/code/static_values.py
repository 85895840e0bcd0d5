"""Values in Python source code that are known without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

_MOST_DEPTH = 50
_MOST_WORK = 1_000_000
"""Maximum number of expressions that are evaluated, and of items and characters in their values, of one file."""
_MUTATORS = frozenset(
    {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "sort", "reverse", "add"}
)
_TEXT_METHODS = frozenset({"split", "splitlines", "strip", "lstrip", "rstrip", "lower", "upper"})
_NO_LOCALS: Mapping[str, Any] = MappingProxyType({})


class NotStaticError(ValueError):
    """Raised for a value that is known only when the code runs."""


class StaticModule:
    """The top level of a Python file.

    A name has a value if it is bound once, at the top level, to an expression of literals and such names, and if no
    statement changes its value.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._bound: dict[str, list[ast.expr]] = {}
        self._top = {target.id: value for statement in tree.body for target, value in _bindings(statement)}
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self._changed: set[str] = set()
        self._known: dict[str, Any] = {}
        self._local = _NO_LOCALS
        self._work = 0
        for node in ast.walk(tree):
            self._record(node)

    def value(self, node: ast.expr, local: Mapping[str, Any] = _NO_LOCALS) -> Any:
        """Return the value of an expression.

        Args:
            node: The expression.
            local: Values of names that are bound where it is, such as the names of a loop.

        Raises:
            NotStaticError: If it is known only when the code runs.
        """
        try:
            return self._value_with(local, node, 0)
        except (TypeError, KeyError, IndexError, ValueError, MemoryError) as error:
            raise NotStaticError(str(error)) from None

    def rounds(
        self, target: ast.expr, items: ast.expr, local: Mapping[str, Any] = _NO_LOCALS
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the local names of each round of a loop, with their values.

        Args:
            target: The variable of the loop, or a tuple of variables.
            items: What the loop runs over.
            local: Values of names that are bound around the loop.

        Raises:
            NotStaticError: If they are known only when the code runs.
        """
        value = self.value(items, local)
        if not isinstance(value, (list, dict)):
            raise NotStaticError(f"line {target.lineno}")
        for item in value:
            self._spend(1 + len(local))
            yield {**local, **_unpacked(target, item)}

    def definition(self, name: str) -> ast.expr | None:
        """Return the expression that a name stands for; `None` if it is bound more than once, or if it is changed."""
        is_constant = name in self._top and len(self._bound[name]) == 1 and name not in self._changed
        return self._top[name] if is_constant else None

    def texts_behind(self, node: ast.expr) -> Iterator[str]:
        """Yield the texts in an expression, in the functions that it calls, and in the values of its names.

        The texts of one call are also joined with `/`, as `os.path.join` does.
        """
        pending: list[ast.AST] = [node]
        visited: set[str] = set()
        while pending:
            for part in ast.walk(pending.pop()):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value
                elif isinstance(part, ast.Call):
                    yield "/".join(
                        a.value for a in part.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
                    )
                elif isinstance(part, ast.Name) and part.id not in visited:
                    visited.add(part.id)
                    pending += self._bound.get(part.id, ())
                    pending += [self._functions[part.id]] if part.id in self._functions else []

    def _record(self, node: ast.AST) -> None:
        """Record which names a node binds or changes."""
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for name, value in _bindings(node):
                self._bound.setdefault(name.id, []).append(value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if not isinstance(target, ast.Name):
                    self._changed |= _changed_by(target)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.comprehension)):
            self._changed |= {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
            if isinstance(node, (ast.For, ast.AugAssign)) and isinstance(node.target, ast.Name):
                source = node.iter if isinstance(node, ast.For) else node.value
                self._bound.setdefault(node.target.id, []).append(source)
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            self._bound.setdefault(node.optional_vars.id, []).append(node.context_expr)
            self._changed.add(node.optional_vars.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self._changed |= set(node.names)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            self._changed.add(node.name)
        elif isinstance(node, ast.Delete):
            self._changed |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.NamedExpr):
            self._changed.add(node.target.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._changed |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)):
            self._changed |= {node.name} if node.name else set()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self._functions:
            # The function may change a list that it receives.
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            self._changed |= {name.id for value in values for name in ast.walk(value) if isinstance(name, ast.Name)}
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _MUTATORS
            and (names := [name.id for name in ast.walk(node.func.value) if isinstance(name, ast.Name)])
        ):
            self._changed |= set(names)

    def _value_with(self, local: Mapping[str, Any], node: ast.expr, depth: int) -> Any:
        around, self._local = self._local, local
        try:
            return self._value(node, depth)
        finally:
            self._local = around

    def _value(self, node: ast.expr, depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise NotStaticError("too deeply nested")
        self._spend(1)

        def value(part: ast.expr) -> Any:
            return self._value(part, depth + 1)

        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple() | ast.Set():
                return self._items(node.elts, depth)
            case ast.Dict():
                return self._table(node, depth)
            case ast.DictComp() | ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self._comprehension(node, depth)
            case ast.Name() if node.id in self._local:
                return self._local[node.id]
            case ast.Name() if (definition := self.definition(node.id)) is not None:
                if node.id not in self._known:
                    # The names of a loop have no values where the name is bound.
                    self._known[node.id] = self._value_with(_NO_LOCALS, definition, depth + 1)
                return self._known[node.id]
            case ast.BinOp(op=ast.Add()):
                left, right = value(node.left), value(node.right)
                if not isinstance(left, (int, float)):
                    self._spend(len(left) + len(right))
                return left + right
            case ast.Subscript():
                return value(node.value)[value(node.slice)]
            case ast.JoinedStr():
                parts = [value(part) for part in node.values]
                self._spend(sum(map(len, parts)))
                return "".join(parts)
            case ast.FormattedValue(format_spec=None):
                inserted = value(node.value)
                # The text of a list of lists may be exponentially long.
                if isinstance(inserted, (str, int, float)):
                    return str(inserted)
            case ast.Call(func=ast.Name(id="list" | "sorted" | "dict" as kind)) if kind not in self._changed:
                return self._constructed(kind, node, depth)
            case ast.Call(func=ast.Name(id="str"), args=[part], keywords=[]) if "str" not in self._changed:
                written = value(part)
                if isinstance(written, (str, int, float)):
                    return str(written)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="dict"), attr="fromkeys"), args=[keys, item]):
                return dict.fromkeys(value(keys), value(item))
            case ast.Call(func=ast.Attribute(attr="items" | "keys" | "values" as view), args=[], keywords=[]):
                table = value(node.func.value)  # type: ignore[attr-defined]
                self._spend(len(table))
                return [list(part) if view == "items" else part for part in getattr(table, view)()]
            case ast.Call(func=ast.Attribute(attr=method)) if method in _TEXT_METHODS and not node.keywords:
                text = value(node.func.value)  # type: ignore[attr-defined]
                if isinstance(text, str):
                    self._spend(len(text))
                    return getattr(text, method)(*map(value, node.args))
        raise NotStaticError(f"line {getattr(node, 'lineno', 0)}")

    def _comprehension(
        self, node: ast.DictComp | ast.ListComp | ast.SetComp | ast.GeneratorExp, depth: int
    ) -> dict[Any, Any] | list[Any]:
        match node.generators:
            case [ast.comprehension(ifs=[], is_async=0) as loop]:
                rounds = list(self.rounds(loop.target, loop.iter, self._local))
            case _:
                raise NotStaticError(f"line {node.lineno}")
        if isinstance(node, ast.DictComp):
            key, item = node.key, node.value
            return {self._value_with(r, key, depth + 1): self._value_with(r, item, depth + 1) for r in rounds}
        return [self._value_with(r, node.elt, depth + 1) for r in rounds]

    def _items(self, nodes: list[ast.expr], depth: int) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            is_starred = isinstance(node, ast.Starred)
            item = self._value(node.value if isinstance(node, ast.Starred) else node, depth + 1)
            self._spend(len(item) if is_starred else 1)
            items += item if is_starred else [item]
        return items

    def _spend(self, work: int) -> None:
        """Count work, because code may define values whose size grows exponentially with its length."""
        self._work += work
        if self._work > _MOST_WORK:
            raise NotStaticError("too large")

    def _table(self, node: ast.Dict, depth: int) -> dict[Any, Any]:
        table: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self._value(item, depth + 1)
            self._spend(len(value) if key is None else 1)
            table |= value if key is None else {self._value(key, depth + 1): value}
        return table

    def _constructed(self, kind: str, node: ast.Call, depth: int) -> Any:
        """Return the value of a call of `list`, `sorted` or `dict`."""
        values = self._items(node.args, depth)
        self._spend(sum(map(len, values)))
        if kind == "dict":
            table = dict(*values)
            for keyword in node.keywords:
                value = self._value(keyword.value, depth + 1)
                self._spend(len(value) if keyword.arg is None else 1)
                table |= value if keyword.arg is None else {keyword.arg: value}
            return table
        if node.keywords:
            raise NotStaticError(f"line {node.lineno}")
        return list(*values) if kind == "list" else sorted(*values)


def _changed_by(target: ast.expr) -> set[str]:
    """Return the names whose values an assignment changes; an index keeps its value."""
    match target:
        case ast.Subscript(value=part) | ast.Attribute(value=part) | ast.Starred(value=part):
            return _changed_by(part)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return {name for part in parts for name in _changed_by(part)}
    return {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}


def _unpacked(target: ast.expr, item: Any) -> dict[str, Any]:
    """Return the names that an item of a loop is assigned to, with their values."""
    match target:
        case ast.Name():
            return {target.id: item}
        case ast.Tuple() | ast.List() if isinstance(item, list) and len(item) == len(target.elts):
            pairs = zip(target.elts, item, strict=True)
            return {name: value for part, own in pairs for name, value in _unpacked(part, own).items()}
    raise NotStaticError(f"line {target.lineno}")


def _bindings(statement: ast.stmt) -> list[tuple[ast.Name, ast.expr]]:
    """Return the names that an assignment binds directly, each with the expression of its value."""
    match statement:
        case ast.Assign():
            return [(target, statement.value) for target in statement.targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
            return [(target, value)]
    return []

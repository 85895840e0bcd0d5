"""Values in Python source code that are known without running it."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

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
    statement changes its value. A :class:`NotStaticError` is raised for a value that is known only when the code runs.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        assignments = (statement for statement in tree.body if isinstance(statement, (ast.Assign, ast.AnnAssign)))
        self._top = dict(binding for statement in assignments for binding in _bindings(statement))
        self._sources: dict[str, list[ast.expr]] = defaultdict(list)
        self._bound: Counter[str] = Counter()
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self._changed: set[str] = set()
        self._known: dict[str, Any] = {}
        self._local = _NO_LOCALS
        self._work = 0
        for node in ast.walk(tree):
            self._record(node)

    def value(self, node: ast.expr, local: Mapping[str, Any] = _NO_LOCALS) -> Any:
        """Return the value of an expression, with values of names that are local to it, such as those of a loop."""
        try:
            return self._value_with(local, node)
        except (TypeError, KeyError, IndexError, ValueError, MemoryError, RecursionError) as error:
            raise NotStaticError(str(error)) from None

    def rounds(
        self, target: ast.expr, items: ast.expr, local: Mapping[str, Any] = _NO_LOCALS
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the names of each round of a loop over items, with their values; the target is a name, or several."""
        value = self.value(items, local)
        if not isinstance(value, (list, dict)):
            raise NotStaticError(f"line {target.lineno}")
        for item in value:
            self._spend(1 + len(local))
            yield {**local, **_unpacked(target, item)}

    def definition(self, name: str) -> ast.expr | None:
        """Return the expression that a name stands for; `None` if it is bound more than once, or if it is changed."""
        is_constant = name in self._top and self._bound[name] == 1 and name not in self._changed
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
                    pending += self._sources.get(part.id, ())
                    pending += [self._functions[part.id]] if part.id in self._functions else []

    def _record(self, node: ast.AST) -> None:
        """Record which names a node binds or changes."""
        for name, source in _bindings(node):
            self._sources[name].append(source)
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                self._bound[node.id] += 1
            case ast.AnnAssign(target=ast.Name() as target, value=None):
                self._bound[target.id] -= 1
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                # An index keeps its value.
                part: ast.expr = node
                while isinstance(part, (ast.Subscript, ast.Attribute)):
                    part = part.value
                self._changed |= _names_in(part)
            case ast.Global() | ast.Nonlocal():
                self._changed |= set(node.names)
            case ast.Import() | ast.ImportFrom():
                self._changed |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._changed.add(node.name)
            case ast.MatchAs() | ast.MatchStar() | ast.ExceptHandler():
                self._changed |= {node.name} if node.name else set()
            case ast.Call(func=ast.Name(id=function)) if function in self._functions:
                # The function may change a list that it receives.
                self._changed |= _names_in(*node.args, *(keyword.value for keyword in node.keywords))
            case ast.Call(func=ast.Attribute(attr=method, value=changed)) if method in _MUTATORS:
                self._changed |= _names_in(changed)

    def _value_with(self, local: Mapping[str, Any], node: ast.expr) -> Any:
        around, self._local = self._local, local
        try:
            return self._value(node)
        finally:
            self._local = around

    def _value(self, node: ast.expr) -> Any:
        self._spend(1)
        value = self._value

        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple() | ast.Set():
                return self._items(node.elts)
            case ast.Dict():
                return self._table(zip(node.keys, node.values, strict=True))
            case ast.DictComp() | ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self._comprehension(node)
            case ast.Name() if node.id in self._local:
                return self._local[node.id]
            case ast.Name() if (definition := self.definition(node.id)) is not None:
                if node.id not in self._known:
                    # The names of a loop have no values where the name is bound.
                    self._known[node.id] = self._value_with(_NO_LOCALS, definition)
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
                return self._constructed(kind, node)
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
        self, node: ast.DictComp | ast.ListComp | ast.SetComp | ast.GeneratorExp
    ) -> dict[Any, Any] | list[Any]:
        match node.generators:
            case [ast.comprehension(ifs=[], is_async=0) as loop]:
                rounds = list(self.rounds(loop.target, loop.iter, self._local))
            case _:
                raise NotStaticError(f"line {node.lineno}")
        if isinstance(node, ast.DictComp):
            key, item = node.key, node.value
            return {self._value_with(r, key): self._value_with(r, item) for r in rounds}
        return [self._value_with(r, node.elt) for r in rounds]

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            is_starred = isinstance(node, ast.Starred)
            item = self._value(node.value if isinstance(node, ast.Starred) else node)
            self._spend(len(item) if is_starred else 1)
            items += item if is_starred else [item]
        return items

    def _spend(self, work: int) -> None:
        """Count work, because code may define values whose size grows exponentially with its length."""
        self._work += work
        if self._work > _MOST_WORK:
            raise NotStaticError("too large")

    def _table(self, entries: Iterable[tuple[ast.expr | None, ast.expr]]) -> dict[Any, Any]:
        """Return the table of expressions of keys and values; the value of an absent key is a table."""
        table: dict[Any, Any] = {}
        for key, item in entries:
            value = self._value(item)
            self._spend(len(value) if key is None else 1)
            table |= value if key is None else {self._value(key): value}
        return table

    def _constructed(self, kind: str, node: ast.Call) -> Any:
        """Return the value of a call of `list`, `sorted` or `dict`."""
        values = self._items(node.args)
        self._spend(sum(map(len, values)))
        if kind == "dict":
            keywords = ((ast.Constant(k.arg) if k.arg else None, k.value) for k in node.keywords)
            return dict(*values) | self._table(keywords)
        if node.keywords:
            raise NotStaticError(f"line {node.lineno}")
        return list(*values) if kind == "list" else sorted(*values)


def _names_in(*nodes: ast.AST) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _unpacked(target: ast.expr, item: Any) -> dict[str, Any]:
    """Return the names that an item of a loop is assigned to, with their values."""
    match target:
        case ast.Name():
            return {target.id: item}
        case ast.Tuple() | ast.List() if isinstance(item, list) and len(item) == len(target.elts):
            pairs = zip(target.elts, item, strict=True)
            return {name: value for part, own in pairs for name, value in _unpacked(part, own).items()}
    raise NotStaticError(f"line {target.lineno}")


def _bindings(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Return the names that a node binds directly, each with the expression that their values come from."""
    match node:
        case ast.Assign():
            return [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
        case (
            ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as source)
            | ast.AugAssign(target=ast.Name(id=name), value=source)
            | ast.For(target=ast.Name(id=name), iter=source)
            | ast.withitem(optional_vars=ast.Name(id=name), context_expr=source)
        ):
            return [(name, source)]
    return []

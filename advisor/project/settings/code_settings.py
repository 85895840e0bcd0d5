"""Run-time settings that Python code makes; none of the code is executed."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import islice
from types import MappingProxyType

from advisor.project.code.files import imported_names
from advisor.project.code.names import dotted_name, imported_objects, parse_code
from advisor.project.code.static_values import NotStaticError, StaticModule
from advisor.project.settings.code_patterns import (
    ANYTHING,
    CodePattern,
    Dotted,
    arguments_of,
    code_patterns,
    normalised,
)
from advisor.project.settings.interface import ProjectSetting
from advisor.project.settings.variable_settings import setting_variables, settings_of_variable
from knowledge.catalogue.settings import ANY, setting_error
from knowledge.domain.frameworks import frameworks

_OFF = {"enabled": False, "disable": True}
"""Arguments that switch off what a call does, and their values."""
_VERSION = ".".join(map(str, sys.version_info[:2]))
_ENVIRONMENT_METHODS = ("setdefault", "update", "__setitem__")
_Local = Mapping[str, object]
"""Values of names that are bound by loops."""
_NO_NAMES: _Local = MappingProxyType({})
_MOST_ROUNDS = 1000
"""Maximum number of rounds of all loops of a file that are followed."""
_DEVICE_ARGUMENTS = ("device_type", "device", "0")


class UnreadCodeError(Exception):
    """Raised for Python code that cannot be parsed.

    Attributes:
        line: The line of the problem, from 1; 0 if unknown.
    """

    def __init__(self, reason: str, *, line: int) -> None:
        super().__init__(reason)
        self.line = line


def may_import(content: bytes) -> bool:
    """Whether a file, such as a notebook, names a module with settings or the environment."""
    return b"environ" in content or _module_names().search(content) is not None


def may_set(content: bytes) -> bool:
    """Whether a Python file contains the words of a setting."""
    if (
        b"env" in content
        and (b"environ" in content or b"putenv" in content)
        and any(name.encode() in content for name in setting_variables())
    ):
        return True
    signs = code_patterns().signs
    return any(sign.is_in(content) for module in imported_names(content, _module_names()) for sign in signs[module])


@lru_cache(maxsize=1)
def _module_names() -> re.Pattern[bytes]:
    return re.compile(rb"\b(?:%s)\b" % b"|".join(sorted(code_patterns().signs)))


def settings_in_code(text: str) -> tuple[ProjectSetting, ...]:
    """Return the settings that Python code makes, by line.

    Raises:
        UnreadCodeError: If it cannot be parsed.
    """
    try:
        tree = parse_code(text)
    except (RecursionError, MemoryError):
        raise UnreadCodeError("an expression is nested too deeply", line=0) from None
    except SyntaxError as error:
        raise UnreadCodeError(f"it is not Python {_VERSION}: {error.msg}", line=error.lineno or 0) from None
    except ValueError as error:
        raise UnreadCodeError(f"it is not Python {_VERSION}: {error}", line=0) from None
    return tuple(sorted(set(_Reader(tree).settings()), key=lambda s: (s.line, s.name, s.value)))


class _Reader:
    """Finds settings in the tree of a file."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        # In reverse order: of several imports with one name, the first counts.
        self._statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)][::-1]
        self._imported = dict(imported_objects(self._statements))
        while aliases := self._aliases():
            self._imported |= aliases
        self._rounds = 0
        self._modules = {name.partition(".")[0] for name in self._imported.values()}

    def _aliases(self) -> dict[str, str]:
        """Return the names that are assigned imported objects and nothing else, such as ``t`` in ``t = torch``."""
        assigned: dict[str, list[ast.expr]] = defaultdict(list)
        for node in self._statements:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id not in self._imported:
                        assigned[target.id].append(node.value)
        aliases: dict[str, str] = {}
        for name, values in assigned.items():
            objects = {self._resolved(value) for value in values}
            if len(objects) == 1 and "" not in objects:
                aliases[name] = min(objects)
        return aliases

    @cached_property
    def _static(self) -> StaticModule:
        return StaticModule(self._tree)

    def settings(self) -> Iterator[ProjectSetting]:
        """Yield the settings, in any order."""
        pending: list[tuple[ast.AST, bool, _Local]] = [(self._tree, False, {})]
        while pending:
            node, is_conditional, local = pending.pop()
            yield from (replace(s, is_conditional=is_conditional) for s in self._of_node(node, local))
            under_condition = {id(child) for child in _conditional_parts(node)}
            children = list(ast.iter_child_nodes(node))
            for names in self._rounds_of(node, local):
                pending += [(child, is_conditional or id(child) in under_condition, names) for child in children]

    def _rounds_of(self, node: ast.AST, local: _Local) -> Iterator[_Local]:
        """Yield the names with known values in each round of a loop; for another node, yield the present ones once."""
        match node:
            case ast.For(target=target, iter=items) if self._names_environment(node):
                pass
            case ast.ListComp(generators=[loop]) | ast.SetComp(generators=[loop]) if self._names_environment(node):
                target, items = loop.target, loop.iter
            case _:
                yield local
                return
        remaining = max(0, _MOST_ROUNDS - self._rounds)
        try:
            rounds = list(islice(self._static.rounds(target, items, local), remaining + 1))
        except NotStaticError:
            rounds = [{}]
        if len(rounds) > remaining:
            # The values of the names are not known, and the rest of the loop is read.
            rounds = [{}]
        self._rounds += len(rounds)
        yield from rounds

    def _of_node(self, node: ast.AST, local: _Local) -> Iterator[ProjectSetting]:
        """Yield the settings that a node makes itself."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for decorator in node.decorator_list:
                if not isinstance(decorator, ast.Call):
                    call = ast.Call(func=decorator, args=[], keywords=[])
                    yield from _at(decorator.lineno, self._of_call(call))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and self._is_environment(target.value):
                    yield from _at(node.lineno, self._of_variable(target.slice, node.value, local))
                elif isinstance(target, ast.Attribute):
                    settings = self._of_arguments(code_patterns().assignments, target, {"": node.value})
                    yield from _at(node.lineno, settings)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr):
            if self._is_environment(node.target):
                yield from self._of_table(node.value, node.lineno, local)
        elif isinstance(node, ast.Call):
            method = self._environment_method(node.func)
            if method == "update":
                table = ast.Call(func=ast.Name(id="dict"), args=node.args, keywords=node.keywords)
                yield from self._of_table(table, node.lineno, local)
            elif method and len(node.args) == 2:
                variable, value = node.args
                assigned = self._of_variable(variable, value, local)
                yield from _at(node.lineno, assigned, is_default=method == "setdefault")
            else:
                yield from _at(node.lineno, self._of_call(node))

    def _is_environment(self, node: ast.expr) -> bool:
        return self._resolved(node) == "os.environ" or dotted_name(node) == "os.environ"

    def _names_environment(self, node: ast.AST) -> bool:
        names = (self._resolved(part) or dotted_name(part) for part in ast.walk(node) if isinstance(part, ast.expr))
        return any(name.startswith(("os.environ", "os.putenv")) for name in names)

    def _environment_method(self, function: ast.expr) -> str:
        """Return the name of a method that sets variables of the environment; empty if it is another function."""
        if isinstance(function, ast.Attribute) and self._is_environment(function.value):
            return function.attr if function.attr in _ENVIRONMENT_METHODS else ""
        name = self._resolved(function)
        method = name.removeprefix("os.environ.")
        return "putenv" if name == "os.putenv" else method if name != method in _ENVIRONMENT_METHODS else ""

    def _of_table(self, table: ast.expr, line: int, local: _Local) -> Iterator[ProjectSetting]:
        """Yield the settings in a table of environment variables: a dictionary, or something that `dict` accepts."""
        pending = [table]
        visited: set[str] = set()
        while pending:
            match pending.pop():
                case ast.Dict(keys=keys, values=values):
                    for key, value in zip(keys, values, strict=True):
                        if key is None:
                            pending.append(value)
                        else:
                            yield from _at(key.lineno, self._of_variable(key, value, local))
                case ast.Call(func=ast.Name(id="dict"), args=tables, keywords=keywords):
                    pending += [*tables, *(keyword.value for keyword in keywords if keyword.arg is None)]
                    for keyword in (keyword for keyword in keywords if keyword.arg is not None):
                        name = ast.Constant(keyword.arg)
                        yield from _at(line, self._of_variable(name, keyword.value, local))
                case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                    pending += [left, right]
                case ast.Name(id=own) if own not in visited and (definition := self._static.definition(own)):
                    visited.add(own)
                    pending.append(definition)
                case other:
                    yield from _at(line, self._of_pairs(other, local))

    def _of_pairs(self, table: ast.expr, local: _Local) -> Iterator[ProjectSetting]:
        pairs = self._value(table, local)
        for pair in pairs.items() if isinstance(pairs, dict) else pairs if isinstance(pairs, list) else ():
            match tuple(pair):
                case (str() as variable, str() as text):
                    yield from settings_of_variable(variable, text)

    def _of_variable(self, variable: ast.expr, value: ast.expr, local: _Local) -> tuple[ProjectSetting, ...]:
        name = self._value(variable, local)
        # A loop over values of one variable sets it to many; a loop over variables sets each once.
        text = self._value(value, _NO_NAMES if isinstance(variable, ast.Constant) else local)
        return settings_of_variable(name, text if isinstance(text, str) else None) if isinstance(name, str) else ()

    def _of_call(self, call: ast.Call) -> Iterator[ProjectSetting]:
        patterns, function = code_patterns(), self._resolved(call.func)
        arguments = arguments_of(call, patterns.parameters.get(function, ()))
        for setting in self._of_arguments(patterns.calls, call.func, arguments):
            yield replace(setting, device=self._device(function, arguments))

    def _device(self, function: str, arguments: Mapping[str, ast.expr]) -> str:
        """Return the device that a call is for; empty if it names none, or if only the program knows it."""
        # Such as `torch.cuda.amp.autocast`.
        module = ".".join(function.split(".")[1:2])
        values = (self._value(arguments[name]) for name in _DEVICE_ARGUMENTS if name in arguments)
        devices = (text.partition(":")[0] for text in (module, *values) if isinstance(text, str))
        supported = {device for framework in frameworks().values() for device in framework.devices}
        return next((device for device in devices if device in supported), "")

    def _of_arguments(
        self, patterns: Mapping[str, tuple[CodePattern, ...]], target: ast.expr, arguments: Mapping[str, ast.expr]
    ) -> Iterator[ProjectSetting]:
        """Yield the settings that a call or an assignment makes: one for each setting of a framework at most."""
        by_name = patterns.get(self._resolved(target), ())
        bound = patterns.get(f".{target.attr}", ()) if isinstance(target, ast.Attribute) else ()
        listed: dict[tuple[str, str], list[CodePattern]] = defaultdict(list)
        for pattern in (*by_name, *(p for p in bound if not self._modules.isdisjoint(p.modules))):
            listed[pattern.setting, pattern.backend].append(pattern)
        for (setting, backend), alike in listed.items():
            value = self._setting_value(alike, arguments)
            if value is not None:
                yield ProjectSetting(name=setting, value=value, backends=(backend,))

    def _setting_value(self, patterns: list[CodePattern], arguments: Mapping[str, ast.expr]) -> str | None:
        """Return the value that a call or an assignment gives a setting, empty if unknown; `None` without one."""
        for name, off in _OFF.items():
            if name in arguments and (value := self._value(arguments[name])) is not (not off):
                return None if value is off else ""
        # Of two calls, the one with fewer expected arguments describes what happens without the others.
        for pattern in sorted(patterns, key=lambda p: -len(p.arguments)):
            matches = [self._matches(arguments.get(name), expected) for name, expected in pattern.arguments.items()]
            if all(match is True for match in matches):
                if pattern.value != ANY:
                    return pattern.value
                name = next(name for name, expected in pattern.arguments.items() if expected is ANYTHING)
                number = self._value(arguments[name])
                is_number = isinstance(number, int) and not isinstance(number, bool)
                # Values that mean something else, such as 0 for the default, are not values of the setting.
                return str(number) if is_number and setting_error(pattern.setting, number) is None else ""
            if all(match is not False for match in matches):
                return ""
        return None

    def _matches(self, node: ast.expr | None, expected: object) -> bool | None:
        """Whether an argument is what a pattern expects; `None` if it is known only when the code runs."""
        if node is None or expected is None:
            return node is expected or (isinstance(node, ast.Constant) and node.value is expected)
        if expected is ANYTHING:
            return True
        if isinstance(expected, Dotted):
            name = self._resolved(node)
            return name == expected.name if name else None
        value = self._value(node)
        return None if value is NotStaticError else type(value) is type(expected) and value == expected

    def _value(self, node: ast.expr, local: _Local = _NO_NAMES) -> object:
        """Return the value of an expression; :class:`NotStaticError` if it is known only when the code runs."""
        if isinstance(node, ast.Constant):
            return node.value
        try:
            return self._static.value(node, local)
        except NotStaticError:
            return NotStaticError

    def _resolved(self, node: ast.expr) -> str:
        """Return the name of an imported object, with its module; empty if it is another expression."""
        root, _, rest = dotted_name(node).partition(".")
        if root not in self._imported:
            return ""
        return normalised(f"{self._imported[root]}.{rest}" if rest else self._imported[root])


def _at(line: int, settings: Iterable[ProjectSetting], *, is_default: bool = False) -> Iterator[ProjectSetting]:
    """Yield settings with the line of the code that makes them."""
    return (replace(setting, line=line, origin="code", is_default=is_default) for setting in settings)


def _conditional_parts(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node that run under a condition."""
    match node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return list(node.orelse)
        case ast.If():
            return [*node.body, *node.orelse]
        case ast.IfExp():
            return [node.body, node.orelse]
        case ast.Try():
            return list(node.handlers)
        case ast.Match():
            return list(node.cases)
        case ast.BoolOp():
            return list(node.values[1:])
    return []

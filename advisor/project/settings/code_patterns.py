"""Lines of Python that apply settings, as patterns: the lines of the catalogue, and other forms of them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from advisor.project.code.files import lines_with
from advisor.project.code.names import code_documents, dotted_name
from knowledge.catalogue.settings import shipped_settings

_PLACEHOLDER = "VALUE_OF_SETTING"
_MODULE = re.compile(rb"(\w+)\s*\.\s*\Z")
_IMPORTED = re.compile(rb"\s*(?:,|\)|as\b|\r?\Z)")
_ALIAS = re.compile(rb"\bas (\w+)|^[ \t]*(\w+)[ \t]*=[ \t]*[A-Za-z_][\w.]*[ \t]*(?:[#;\r]|$)", re.MULTILINE)
_MOST_NAME = 50
"""Maximum number of bytes before a name in which the name of its module is searched."""


ANYTHING: Final = object()
"""Expected value of an argument that is the value of the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dotted:
    """A name with its module, such as ``torch.bfloat16``."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePattern:
    """A call or an assignment that applies a value of a setting.

    Attributes:
        setting: Name of the setting.
        value: Value of the setting, or :data:`knowledge.catalogue.settings.ANY`: the argument is the value.
        backend: The framework.
        target: The function or the attribute; it begins with a point if it belongs to any object.
        arguments: What arguments must be, by their names or positions, `None` for an absent argument; of an assignment,
            by an empty name.
        modules: Modules; a file must import one of them.
    """

    setting: str
    value: str
    backend: str
    target: str
    arguments: Mapping[str, object]
    modules: tuple[str, ...]


@lru_cache(maxsize=1)
def _given_names(content: bytes) -> frozenset[bytes]:
    """Return the names that a file gives to anything with `as`, or to another name with `=`."""
    return frozenset(name for names in _ALIAS.findall(content) for name in names if name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSign:
    """A word of every line that some patterns match.

    Attributes:
        word: The word.
        parents: Usual names of its module; `None` for a method or an argument.
    """

    word: bytes
    parents: frozenset[bytes]

    def is_in(self, content: bytes) -> bool:
        """Whether a line of a Python file contains the word as the patterns do."""
        return any(self.is_in_line(line, content) for line in lines_with(content, self.word))

    def is_in_line(self, line: bytes, content: bytes) -> bool:
        """Whether a line of a file, which contains the word, has it as the patterns do."""
        if line.lstrip().startswith((b"#", b">>>")):
            return False
        if not self.parents or b"import" in line:
            return True
        place = line.find(self.word)
        while place >= 0:
            before = _MODULE.search(line, max(0, place - _MOST_NAME), place)
            if before is not None and (before[1] in self.parents or before[1] in _given_names(content)):
                return True
            # It may also be imported by itself, in one of several lines.
            if not line[:place].strip() and _IMPORTED.match(line, place + len(self.word)) is not None:
                return True
            place = line.find(self.word, place + 1)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePatterns:
    """All patterns.

    Attributes:
        calls: Patterns of calls, by function.
        assignments: Patterns of assignments, by attribute.
        parameters: Names of the parameters of functions, in order.
        signs: Signs by module; a file without one of them matches no pattern of the module.
    """

    calls: Mapping[str, tuple[CodePattern, ...]]
    assignments: Mapping[str, tuple[CodePattern, ...]]
    parameters: Mapping[str, tuple[str, ...]]
    signs: Mapping[bytes, tuple[CodeSign, ...]]


def normalised(name: str) -> str:
    """Return a dotted name under the usual name of its module: Keras also is `tensorflow.keras`."""
    for module, usual in _spellings().items():
        name = f"{usual}.{name.removeprefix(f'{module}.')}" if name.startswith(f"{module}.") else name
    return name


@cache
def code_patterns() -> CodePatterns:
    """Return the patterns of all lines that apply settings."""
    documents = code_documents().values()
    parameters = {name: tuple(names) for d in documents for name, names in d.get("parameters", {}).items()}
    ignored = {line for d in documents for line in d.get("not_read", ())}
    calls: dict[str, list[CodePattern]] = defaultdict(list)
    assignments: dict[str, list[CodePattern]] = defaultdict(list)
    signs: dict[str, set[CodeSign]] = defaultdict(set)
    for setting, value, backend, line in _lines():
        parsed = None if line in ignored else _parse(line, parameters)
        if parsed is None:
            continue
        is_call, target, arguments = parsed
        is_bound = target.startswith(".")
        if is_bound and is_call and not arguments:
            continue  # A method without arguments, of any object, says nothing.
        root = target.partition(".")[0]
        modules = tuple(code_documents().get(backend, {}).get("modules", ())) if is_bound else (root,)
        pattern = CodePattern(
            setting=setting, value=value, backend=backend, target=target, arguments=arguments, modules=modules
        )
        (calls if is_call else assignments)[target].append(pattern)
        for module in modules:
            signs[module].add(_sign(pattern, is_call=is_call))
    return CodePatterns(
        calls={name: tuple(listed) for name, listed in calls.items()},
        assignments={name: tuple(listed) for name, listed in assignments.items()},
        parameters=parameters,
        signs={module.encode(): tuple(sorted(found, key=lambda s: s.word)) for module, found in signs.items()},
    )


def _sign(pattern: CodePattern, *, is_call: bool) -> CodeSign:
    parent, _, word = pattern.target.rpartition(".")
    if parent:
        module = parent.rpartition(".")[2]
        aliases = (alias for alias, name in _aliases().items() if name == module)
        return CodeSign(word=word.encode(), parents=frozenset(name.encode() for name in (module, *aliases)))
    # The name of a method, such as `to`, is in most files; the name of its argument is not.
    keyword = next((name for name in pattern.arguments if name.isidentifier()), word) if is_call else word
    return CodeSign(word=keyword.encode(), parents=frozenset())


@cache
def _aliases() -> Mapping[str, str]:
    """Return the modules by their usual names, such as ``tf``."""
    return {alias: module for d in code_documents().values() for alias, module in d.get("aliases", {}).items()}


@cache
def _spellings() -> Mapping[str, str]:
    """Return the usual names of modules by their other names; one of these may result from an earlier one."""
    return {other: usual for d in code_documents().values() for other, usual in d.get("spellings", {}).items()}


@cache
def _roots() -> frozenset[str]:
    """Return the modules whose functions and attributes may apply settings."""
    return frozenset(
        name for d in code_documents().values() for key in ("modules", "extensions") for name in d.get(key, ())
    )


def _lines() -> Iterator[tuple[str, str, str, str]]:
    """Yield lines with their setting, value and framework: the first of each value, those like it, and other forms."""
    for setting in shipped_settings().values():
        for framework in setting.frameworks:
            for choice in framework.choices:
                for line in (line for line in choice.code if not line.startswith("#")):
                    if _target_of(line) == _target_of(choice.code[0]):
                        yield setting.name, choice.value, framework.backend, line
    for backend, document in code_documents().items():
        for entry in document.get("forms", ()):
            for line, value in entry["lines"].items():
                yield entry["setting"], value, backend, line


def _target_of(line: str) -> str:
    parsed = _parse(line, {})
    return parsed[1] if parsed else ""


def _parse(line: str, parameters: Mapping[str, tuple[str, ...]]) -> tuple[bool, str, dict[str, object]] | None:
    """Return whether a line is a call, its target, and its arguments; `None` if it is neither call nor assignment."""
    try:
        statement = ast.parse(line.replace("{value}", _PLACEHOLDER)).body[0]
    except SyntaxError:
        return None
    match statement:
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)]) | ast.Expr(value=ast.Call() as call):
            pass
        case ast.Assign(value=ast.Call() as call):
            pass
        case ast.Assign(targets=[ast.Attribute() as target], value=value):
            return False, _target(target), {"": _expected(value)}
        case _:
            return None
    name = _target(call.func)
    arguments = {
        parameter: expected
        for parameter, node in arguments_of(call, parameters.get(name, ())).items()
        if (expected := _expected(node)) is not ...
    }
    return True, name, arguments


def arguments_of(call: ast.Call, parameters: tuple[str, ...]) -> dict[str, ast.expr]:
    """Return the arguments of a call by the names of its first parameters, or else by their positions."""
    names = (*parameters, *map(str, range(len(parameters), len(call.args))))
    positional = dict(zip(names, call.args, strict=False))
    return {**positional, **{keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}}


def _target(node: ast.expr) -> str:
    name = dotted_name(node)
    root, _, rest = name.partition(".")
    root = _aliases().get(root, root)
    return normalised(f"{root}.{rest}") if root in _roots() else f".{name.rpartition('.')[2]}"


def _expected(node: ast.expr) -> object:
    """Return what an argument of a pattern must be; an ellipsis if it may be anything."""
    name = dotted_name(node)
    if name == _PLACEHOLDER:
        return ANYTHING
    if name:
        target = _target(node)
        return ... if target.startswith(".") else Dotted(name=target)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...

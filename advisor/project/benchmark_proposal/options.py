"""Reads the options of a program from its code: argparse, click, typer, Fire, absl, Hydra, and parsers of dataclasses.

Nothing is executed. A value that only running the program would show is unknown, and the option is listed without it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from advisor.project.benchmark_proposal.interface import Interface, ProgramOption, names
from advisor.project.code.names import full_name, imported_objects
from advisor.project.code.static_values import NotStaticError, StaticModule
from knowledge.records import parse_yaml

_DATACLASS_PARSERS = ("tyro.cli", "transformers.HfArgumentParser", "simple_parsing.parse", "HfArgumentParser")
_FUNCTION_PARSERS = ("fire.Fire", "typer.run")
_MOST_CONFIGURATIONS = 100
_MOST_KEYS = 2000
_REQUIRED = object()


@dataclass(frozen=True, slots=True)
class _Code:
    """A parsed file, with what its names stand for."""

    name: str
    module: StaticModule
    aliases: Mapping[str, str]

    def value(self, node: ast.expr | None) -> Any:
        """Return the value of an expression; `None` if only running the program shows it."""
        try:
            return None if node is None else self.module.value(node)
        except NotStaticError:
            return None

    def place(self, node: ast.AST) -> str:
        return f"{self.name}:{getattr(node, 'lineno', 0)}"

    def full_name(self, node: ast.expr) -> str:
        return full_name(node, self.aliases)

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        for node in ast.walk(self.module.tree):
            if isinstance(node, ast.Call):
                yield self.full_name(node.func), node

    def definitions(self) -> dict[str, ast.FunctionDef | ast.ClassDef]:
        tree = self.module.tree
        return {n.name: n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


def read_interface(directory: Path, name: str, tree: ast.Module, *, is_program: bool = True) -> Interface:
    """Return the command line that a file of a project declares, be it the program or a file that it imports."""
    code = _Code(name, StaticModule(tree), dict(imported_objects(ast.walk(tree))))
    options = [*_argparse(code), *_click(code), *_functions(code), *_dataclasses(code), *_absl(code)]
    options += _library(code) if is_program else ()
    hydra_options, further = _hydra(code, directory)
    unique = {option.flag: option for option in reversed([*options, *hydra_options])}
    return Interface(
        options=tuple(sorted(unique.values(), key=lambda o: [*options, *hydra_options].index(o))),
        obstacle=_obstacle(code),
        further_files=further,
    )


def _obstacle(code: _Code) -> str:
    for name, call in code.calls():
        if name.endswith(".add_subparsers"):
            return f"has subcommands ({code.place(call)})"
        if name.rpartition(".")[2] in ("LightningCLI",):
            return f"is a command line of Lightning ({code.place(call)}), which needs a subcommand"
        if name in ("click.group", "typer.Typer") and len(_commands(code)) != 1:
            return f"has subcommands ({code.place(call)})"
    return ""


def _argparse(code: _Code) -> Iterator[ProgramOption]:
    for name, call in code.calls():
        if name.rpartition(".")[2] != "add_argument":
            continue
        flags = [flag for argument in call.args if isinstance(flag := code.value(argument), str)]
        values = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        if not flags:
            continue
        is_argument = not flags[0].startswith("-")
        action, default, count = (code.value(values.get(key)) for key in ("action", "default", "nargs"))
        is_switch = isinstance(action, str) and action.startswith(("store_true", "store_false", "count", "store_const"))
        yield ProgramOption(
            flag=max(flags, key=lambda flag: (flag.startswith("--"), len(flag))),
            place=code.place(call),
            form="argument" if is_argument else "switch" if is_switch else "space",
            default=default,
            required=(is_argument and count not in ("?", "*") and "default" not in values)
            or code.value(values.get("required")) is True,
            choices=_texts(code.value(values.get("choices"))),
        )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, (list, tuple, dict)) else ()


def _commands(code: _Code) -> list[ast.FunctionDef]:
    """Return the functions that click or typer makes commands."""
    functions = []
    for node in code.definitions().values():
        decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
        if isinstance(node, ast.FunctionDef) and any(_last(code.full_name(d)) == "command" for d in decorators):
            functions.append(node)
    return functions


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _click(code: _Code) -> Iterator[ProgramOption]:
    for function in code.definitions().values():
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call) or code.full_name(decorator.func) not in _CLICK:
                continue
            values = {keyword.arg: code.value(keyword.value) for keyword in decorator.keywords if keyword.arg}
            flags = [flag for argument in decorator.args if isinstance(flag := code.value(argument), str)]
            is_argument = code.full_name(decorator.func) == "click.argument"
            dashed = [flag for flag in flags if flag.startswith("-")] or flags[:1]
            if not dashed:
                continue
            flag = max(dashed, key=len)
            is_switch = values.get("is_flag") is True or "/" in flag
            yield ProgramOption(
                flag=flag.partition("/")[0].strip(),
                place=code.place(decorator),
                form="argument" if is_argument else "switch" if is_switch else "space",
                default=values.get("default"),
                required=values.get("required", is_argument and "default" not in values) is True,
            )


_CLICK = ("click.option", "click.argument", "rich_click.option", "rich_click.argument")


def _functions(code: _Code) -> Iterator[ProgramOption]:
    """Yield the parameters of the functions that Fire and typer run."""
    definitions = code.definitions()
    for name, call in code.calls():
        target = definitions.get(call.args[0].id) if call.args and isinstance(call.args[0], ast.Name) else None
        if name in _FUNCTION_PARSERS and isinstance(target, ast.FunctionDef):
            yield from _parameters(code, target, is_typer=name == "typer.run")
    if any(name.partition(".")[0] == "typer" for name in code.aliases.values()):
        for function in _commands(code):
            yield from _parameters(code, function, is_typer=True)


def _parameters(code: _Code, function: ast.FunctionDef, *, is_typer: bool) -> Iterator[ProgramOption]:
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = [*[_REQUIRED] * (len(arguments) - len(function.args.defaults)), *function.args.defaults]
    keywords = [d if d is not None else _REQUIRED for d in function.args.kw_defaults]
    for argument, node in [
        *zip(arguments, defaults, strict=True),
        *zip(function.args.kwonlyargs, keywords, strict=True),
    ]:
        flags, default, required = [], None, node is _REQUIRED
        if isinstance(node, ast.Call) and code.full_name(node.func) in ("typer.Option", "typer.Argument"):
            literals = [code.value(a) for a in node.args]
            flags = [text for text in literals[1:] if isinstance(text, str) and text.startswith("--")]
            default, required = (literals[0] if literals else None), bool(literals[:1] == [...])
        elif isinstance(node, ast.expr):
            default = code.value(node)
        dashed = argument.arg.replace("_", "-") if is_typer else argument.arg
        yield ProgramOption(
            flag=flags[0].partition("/")[0]
            if flags
            else f"--{dashed}"
            if not (is_typer and required)
            else argument.arg,
            place=code.place(argument),
            form="argument" if is_typer and required else "switch" if is_typer and default is False else "space",
            default=default,
            required=required,
        )


def _dataclasses(code: _Code) -> Iterator[ProgramOption]:
    """Yield the fields of dataclasses that a parser reads."""
    definitions = code.definitions()
    for name, call in code.calls():
        if name not in _DATACLASS_PARSERS:
            continue
        dashes = name.startswith("tyro")
        for node in (n for argument in call.args for n in ast.walk(argument) if isinstance(n, ast.Name)):
            target = definitions.get(node.id)
            if isinstance(target, ast.ClassDef):
                yield from _fields(code, target, dashes=dashes)
            elif isinstance(target, ast.FunctionDef):
                yield from _parameters(code, target, is_typer=dashes)


def _fields(code: _Code, target: ast.ClassDef, *, dashes: bool) -> Iterator[ProgramOption]:
    for statement in target.body:
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        name, node = statement.target.id, statement.value
        required = node is None
        if isinstance(node, ast.Call):
            values = {k.arg: k.value for k in node.keywords if k.arg}
            required = _last(code.full_name(node.func)) == "field" and not {"default", "default_factory"} & set(values)
            node = values.get("default")
        yield ProgramOption(
            flag=f"--{name.replace('_', '-') if dashes else name}",
            place=code.place(statement),
            form="switch" if dashes and code.value(node) is False else "space",
            default=code.value(node),
            required=required,
        )


def _absl(code: _Code) -> Iterator[ProgramOption]:
    for name, call in code.calls():
        if not _last(name).startswith("DEFINE_") or not call.args:
            continue
        if isinstance(flag := code.value(call.args[0]), str):
            default = code.value(call.args[1]) if len(call.args) > 1 else None
            values = {k.arg: code.value(k.value) for k in call.keywords if k.arg}
            yield ProgramOption(
                flag=f"--{flag}",
                place=code.place(call),
                form="switch" if _last(name) in ("DEFINE_bool", "DEFINE_boolean") else "equals",
                default=values.get("default", default),
                required=values.get("required") is True,
            )


def _library(code: _Code) -> Iterator[ProgramOption]:
    """Yield the options that libraries add to the parser of a program."""
    used = [(code.full_name(node), node) for node in ast.walk(code.module.tree) if isinstance(node, ast.expr)]
    for added, options in names()["library_options"].items():
        place = next((code.place(node) for name, node in used if name and name.endswith(added)), "")
        for name, default in options.items() if place else ():
            is_required = default == "required"
            yield ProgramOption(
                flag=f"--{name}", place=place, default=None if is_required else default, required=is_required
            )


def _hydra(code: _Code, directory: Path) -> tuple[list[ProgramOption], tuple[str, ...]]:
    """Return the keys of the configuration of a program that Hydra configures, and its files."""
    for function in code.definitions().values():
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and code.full_name(decorator.func) == "hydra.main":
                values = {k.arg: code.value(k.value) for k in decorator.keywords if k.arg}
                folder = (directory / code.name).parent / str(values.get("config_path") or "")
                stem = str(values.get("config_name") or "config").removesuffix(".yaml")
                return _configuration(directory, folder, stem)
    return [], ()


def _configuration(directory: Path, folder: Path, stem: str) -> tuple[list[ProgramOption], tuple[str, ...]]:
    """Return the keys of a configuration and of the groups that its defaults name, and the files."""
    options: list[ProgramOption] = []
    texts: dict[str, str] = {}
    pending = [(stem, "")]
    while pending and len(texts) < _MOST_CONFIGURATIONS:
        name, prefix = pending.pop(0)
        path = folder / f"{name}.yaml"
        try:
            place = path.resolve().relative_to(directory.resolve()).as_posix()
            text = path.read_text(encoding="utf-8", errors="replace")
            document = parse_yaml(text)
        except (OSError, ValueError, RecursionError):
            # There is no such file in the project, or it is no YAML.
            continue
        if place in texts or not isinstance(document, dict):
            continue
        texts[place] = text
        options += islice(_keys(document, prefix, place, text.splitlines(), set()), _MOST_KEYS)
        for entry in document.get("defaults") or ():
            for group, member in entry.items() if isinstance(entry, dict) else ():
                if isinstance(member, str):
                    group = str(group).removeprefix("override ").strip("/")
                    pending.append((f"{group}/{member.removesuffix('.yaml')}", f"{group.replace('/', '.')}."))
    return options, tuple(texts)


def _keys(
    table: Mapping[Any, Any], prefix: str, place: str, lines: Sequence[str], visited: set[int]
) -> Iterator[ProgramOption]:
    """Yield the keys of a table and of the tables in it; a table that several aliases stand for is visited once."""
    visited.add(id(table))
    for key, value in table.items():
        if isinstance(value, dict) and id(value) not in visited:
            yield from _keys(value, f"{prefix}{key}.", place, lines, visited)
        elif key not in ("defaults", "_target_") and isinstance(value, (str, int, float, type(None))):
            line = next((n for n, line in enumerate(lines, start=1) if line.strip().startswith(f"{key}:")), 0)
            yield ProgramOption(
                flag=f"{prefix}{key}",
                place=f"{place}:{line}",
                form="assignment",
                default=value,
                required=value == "???",
            )


def merged(interfaces: Iterable[Interface]) -> Interface:
    """Return one interface with the options of several; the first declaration of an option counts."""
    interfaces = list(interfaces)
    options = {option.flag: option for interface in reversed(interfaces) for option in reversed(interface.options)}
    return Interface(
        options=tuple(reversed(options.values())),
        obstacle=next((i.obstacle for i in interfaces if i.obstacle), ""),
        further_files=tuple(dict.fromkeys(file for i in interfaces for file in i.further_files)),
    )

"""Reads the options of a program from its code: argparse, click, typer, Fire, absl, Hydra, and parsers of dataclasses.

Nothing is executed. A value that only running the program would show is unknown, and the option is listed without it.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from advisor.project.code.names import full_name, imported_objects
from advisor.project.code.static_values import NotStaticError, StaticModule
from knowledge.records import parse_yaml

_PARSERS = ("fire.Fire", "typer.run", "tyro.cli", "transformers.HfArgumentParser")
"""Functions whose arguments are functions or dataclasses, of which they make a command line."""
_SWITCHES = ("store_true", "store_false", "store_const", "count")
_MOST_CONFIGURATIONS = 100
_MOST_KEYS = 2000


@cache
def names() -> Mapping[str, Any]:
    """Return the names of options and programs that the file ``names.toml`` lists."""
    return tomllib.loads(files(__package__).joinpath("names.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOption:
    """An option of a program.

    Attributes:
        flag: What is written on the command line, such as ``--max-steps``; the name of an argument without a flag.
        place: File and line that declare it, such as ``train.py:12``.
        form: How a value is written: ``--steps 5``, ``--steps=5``, ``steps=5`` (Hydra), the value alone, or, for a
            switch, no value.
        default: Its default; ``None`` if it has none, or only running the program shows it.
        required: Whether the program does not start without it.
        choices: Values that it admits; empty if the code does not list them.
    """

    flag: str
    place: str
    form: Literal["space", "equals", "assignment", "argument", "switch"] = "space"
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name as `names.toml` writes it."""
        return self.flag.lstrip("-").rpartition(".")[2].replace("-", "_").lower()

    @property
    def kind(self) -> str:
        """The list of ``names.toml`` that has its name; empty if none has."""
        return next((kind for kind, listed in names()["options"].items() if self.name in listed), "")

    def words(self, value: object) -> list[str]:
        """Return the words of a command that give it a value."""
        if self.form == "switch":
            return [self.flag]
        if self.form == "argument":
            return [str(value)]
        return [self.flag, str(value)] if self.form == "space" else [f"{self.flag}={value}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The command line of a program, as its code declares it.

    Attributes:
        options: Options and arguments, in the order of their declaration.
        obstacle: Why a command cannot be completed by its options alone, such as subcommands; empty if it can.
        configurations: Files with the values of its options, such as those of Hydra.
    """

    options: tuple[ProgramOption, ...] = ()
    obstacle: str = ""
    configurations: tuple[str, ...] = ()


def read_interface(directory: Path, files: Mapping[str, ast.Module]) -> Interface:
    """Return the command line that files of a project declare: a program, and files that it imports."""
    options: dict[str, ProgramOption] = {}
    obstacle, configurations, required = "", list[str](), set[str]()
    for code in (_Code(name, tree) for name, tree in files.items()):
        keys, read = _hydra(code, directory)
        for option in (*_argparse_and_click(code), *_passed(code), *_typer_commands(code), *_absl(code), *keys):
            options.setdefault(option.flag, option)
        obstacle = obstacle or _obstacle(code)
        configurations += read
        required.update(_required_by_absl(code))
    read_options = tuple(
        replace(o, required=True) if o.flag in required and o.default is None else o for o in options.values()
    )
    return Interface(options=read_options, obstacle=obstacle, configurations=tuple(configurations))


class _Code:
    """A parsed file.

    Attributes:
        name: Its path in the project.
        calls: Its calls, each with the full name of the function.
        definitions: Its functions and classes.
        assigned: The value of each variable.
    """

    def __init__(self, name: str, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self._module = StaticModule(tree)
        self._aliases = dict(imported_objects(nodes))
        self.name = name
        self.calls = [(self.full_name(node.func), node) for node in nodes if isinstance(node, ast.Call)]
        self.definitions = {n.name: n for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        self.assigned = {
            target.id: node.value
            for node in nodes
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def full_name(self, node: ast.expr) -> str:
        return full_name(node, self._aliases)

    def imports(self, library: str) -> bool:
        return any(name.partition(".")[0] == library for name in self._aliases.values())

    def place(self, node: ast.AST) -> str:
        return f"{self.name}:{getattr(node, 'lineno', 0)}"

    def value(self, node: ast.expr | None) -> Any:
        """Return the value of an expression; `None` if only running the program shows it."""
        try:
            return None if node is None else self._module.value(node)
        except NotStaticError:
            return None

    def values(self, call: ast.Call) -> list[Any]:
        """Return the values of the positional arguments of a call."""
        return [self.value(argument) for argument in call.args]

    def keywords(self, call: ast.Call) -> dict[str, Any]:
        """Return the values of the keyword arguments of a call."""
        return {keyword.arg: self.value(keyword.value) for keyword in call.keywords if keyword.arg}

    def commands(self) -> list[ast.FunctionDef]:
        """Return the functions that click or typer makes commands."""
        functions = (node for node in self.definitions.values() if isinstance(node, ast.FunctionDef))
        return [f for f in functions if any(_last(self.full_name(_function(d))) == "command" for d in f.decorator_list)]


def _function(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _obstacle(code: _Code) -> str:
    decorators = [(code.full_name(d), d) for node in code.definitions.values() for d in node.decorator_list]
    for name, node in (*code.calls, *decorators):
        if _last(name) == "LightningCLI":
            return f"is a command line of Lightning ({code.place(node)}), which needs a subcommand"
        # A Typer application with one command needs no subcommand; a group of click always does.
        if _last(name) == "add_subparsers" or name.endswith("click.group"):
            return f"has subcommands ({code.place(node)})"
        if name == "typer.Typer" and len(code.commands()) != 1:
            return f"has subcommands ({code.place(node)})"
    return ""


def _argparse_and_click(code: _Code) -> Iterator[ProgramOption]:
    for name, call in code.calls:
        if _last(name) != "add_argument" and not name.endswith(("click.option", "click.argument")):
            continue
        texts = [text for text in code.values(call) if isinstance(text, str)]
        flags = [text for text in texts if text.startswith("-")]
        if not texts:
            continue
        keywords = code.keywords(call)
        flag, slash, _ = max(flags, key=lambda flag: (flag.startswith("--"), len(flag)), default=texts[0]).partition(
            "/"
        )
        is_switch = slash or keywords.get("is_flag") is True or keywords.get("action") in _SWITCHES
        is_optional = flags or keywords.get("nargs") in ("?", "*", -1) or "default" in keywords
        choices = keywords.get("choices")
        yield ProgramOption(
            flag=flag.strip(),
            place=code.place(call),
            form="argument" if not flags else "switch" if is_switch else "space",
            default=keywords.get("default"),
            required=keywords.get("required", not is_optional) is True,
            choices=tuple(map(str, choices)) if isinstance(choices, (list, tuple, dict)) else (),
        )


def _absl(code: _Code) -> Iterator[ProgramOption]:
    for name, call in code.calls:
        if not _last(name).startswith("DEFINE_"):
            continue
        (flag, default, *_), keywords = [*code.values(call), None, None], code.keywords(call)
        if isinstance(flag, str):
            yield ProgramOption(
                flag=f"--{flag}",
                place=code.place(call),
                form="switch" if _last(name) in ("DEFINE_bool", "DEFINE_boolean") else "equals",
                default=keywords.get("default", default),
                required=keywords.get("required") is True,
            )


def _required_by_absl(code: _Code) -> Iterator[str]:
    """Yield the flags that must have a value, by their names or the variables that hold them."""
    for name, call in code.calls:
        if _last(name) not in ("mark_flag_as_required", "mark_flags_as_required"):
            continue
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        for node in (n for a in arguments for n in (a.elts if isinstance(a, (ast.Tuple, ast.List)) else [a])):
            holder = node.value if isinstance(node, ast.Attribute) and node.attr == "name" else node
            definition = code.assigned.get(holder.id) if isinstance(holder, ast.Name) else None
            # `_DATA = flags.DEFINE_string("data", ...)` holds the flag `data`.
            flag = definition.args[0] if isinstance(definition, ast.Call) and definition.args else node
            yield f"--{code.value(flag)}"


def _passed(code: _Code) -> Iterator[ProgramOption]:
    """Yield the parameters of the functions, and the fields of the dataclasses, of which a library makes options."""
    for name, call in code.calls:
        if name not in _PARSERS:
            continue
        for node in (n for a in call.args for n in (a.elts if isinstance(a, (ast.Tuple, ast.List)) else [a])):
            target = code.definitions.get(node.id) if isinstance(node, ast.Name) else None
            if isinstance(target, ast.FunctionDef):
                yield from _parameters(code, target, name)
            elif isinstance(target, ast.ClassDef):
                yield from _fields(code, target, name)
            else:
                yield from _training_arguments(code, node)


def _typer_commands(code: _Code) -> Iterator[ProgramOption]:
    for function in code.commands() if code.imports("typer") else ():
        yield from _parameters(code, function, "typer.run")


def _flag(name: str, parser: str) -> str:
    return f"--{name.replace('_', '-') if parser.startswith(('typer', 'tyro')) else name}"


def _parameters(code: _Code, function: ast.FunctionDef, parser: str) -> Iterator[ProgramOption]:
    signature = function.args
    parameters = [*signature.posonlyargs, *signature.args]
    defaults = [*[None] * (len(parameters) - len(signature.defaults)), *signature.defaults, *signature.kw_defaults]
    for parameter, node in zip([*parameters, *signature.kwonlyargs], defaults, strict=True):
        flag, default, required = _flag(parameter.arg, parser), code.value(node), node is None
        is_argument = parser == "typer.run" and required
        if isinstance(node, ast.Call) and (kind := code.full_name(node.func)) in ("typer.Option", "typer.Argument"):
            default, *texts = code.values(node) or [None]
            required, is_argument = default is ..., kind == "typer.Argument"
            flag = next((t.partition("/")[0] for t in texts if isinstance(t, str) and t.startswith("--")), flag)
        yield ProgramOption(
            flag=parameter.arg if is_argument else flag,
            place=code.place(parameter),
            form="argument" if is_argument else "switch" if parser != "fire.Fire" and default is False else "space",
            default=None if required else default,
            required=required,
        )


def _fields(code: _Code, target: ast.ClassDef, parser: str) -> Iterator[ProgramOption]:
    for statement in target.body:
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        default, required = code.value(statement.value), statement.value is None
        if isinstance(statement.value, ast.Call) and _last(code.full_name(statement.value.func)) == "field":
            keywords = code.keywords(statement.value)
            default, required = keywords.get("default"), not {"default", "default_factory"} & keywords.keys()
        yield ProgramOption(
            flag=_flag(statement.target.id, parser),
            place=code.place(statement),
            form="switch" if parser == "tyro.cli" and default is False else "space",
            default=default,
            required=required,
        )
    for base in target.bases:
        yield from _training_arguments(code, base)


def _training_arguments(code: _Code, node: ast.expr) -> Iterator[ProgramOption]:
    """Yield options of the class of transformers that most of its programs pass to a parser."""
    if code.full_name(node) in ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"):
        for name, default in names()["training_arguments"].items():
            yield ProgramOption(
                flag=f"--{name}", place=code.place(node), default=default or None, required=default == ""
            )


def _hydra(code: _Code, directory: Path) -> tuple[list[ProgramOption], tuple[str, ...]]:
    """Return the keys of the configuration of a program that Hydra configures, and its files."""
    for name, call in code.calls:
        if name == "hydra.main":
            keywords = code.keywords(call)
            folder = (directory / code.name).parent / str(keywords.get("config_path") or "")
            return _configuration(directory, folder, str(keywords.get("config_name") or "config"))
    return [], ()


def _configuration(directory: Path, folder: Path, name: str) -> tuple[list[ProgramOption], tuple[str, ...]]:
    """Return the keys of a configuration and of the groups that its defaults name, and the files."""
    options: list[ProgramOption] = []
    places: list[str] = []
    pending = [(name, "")]
    while pending and len(places) < _MOST_CONFIGURATIONS:
        name, prefix = pending.pop(0)
        path = folder / f"{name.removesuffix('.yaml')}.yaml"
        try:
            place = path.resolve().relative_to(directory.resolve()).as_posix()
            text = path.read_text(encoding="utf-8", errors="replace")
            document = parse_yaml(text)
        except (OSError, ValueError, RecursionError):
            # There is no such file in the project, or it is no YAML.
            continue
        if place in places or not isinstance(document, dict):
            continue
        places.append(place)
        options += islice(_keys(document, prefix, place, text.splitlines(), set()), _MOST_KEYS)
        defaults = document.get("defaults")
        for entry in defaults if isinstance(defaults, list) else ():
            for group, member in entry.items() if isinstance(entry, dict) else ():
                if isinstance(member, str):
                    group = str(group).removeprefix("override ").strip("/")
                    pending.append((f"{group}/{member}", f"{group.replace('/', '.')}."))
    return options, tuple(places)


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

"""Options of commands: one for each declared field of an option group, and those that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from advisor.api.option import Option, OptionField, option_fields
from advisor.api.options import HARDWARE, KNOWLEDGE, IndexOptions, ProjectOptions
from advisor.cli.console import show_information
from knowledge.domain.errors import InputError


class Only(tuple[str, ...]):
    """Names of the options of a group that a command has: ``Annotated[Group, Only(("name",))]``."""


IndexPlaces = Annotated[
    IndexOptions, Only(("index_url", "extra_index_urls", "find_links", "cache_directory", "offline"))
]
"""The package indexes of a command that locks stacks to measure."""
_VERBOSE = OptionField("verbose", bool, False, Option("--verbose -v", help="Print the number of index requests."))


def typer_option(option: Option) -> Any:
    """Return an option as typer wants it."""
    if not option.flags:
        return typer.Argument(metavar=option.metavar, help=option.help)
    return typer.Option(
        *option.names,
        metavar=option.metavar or option.names[0].removeprefix("--").replace("-", "_").upper(),
        envvar=option.variable or None,
        rich_help_panel=option.panel or None,
        help=option.help,
        min=option.minimum,
        show_default=option.default_text or True,
    )


@dataclass(frozen=True)
class _Group:
    """A parameter of a command that is an option group."""

    type: Any
    only: Sequence[str] = ()

    @property
    def fields(self) -> tuple[OptionField, ...]:
        """The options of the group itself."""
        return tuple(f for f in option_fields(self.type) if not self.only or f.name in self.only)

    @property
    def parts(self) -> dict[str, _Group]:
        """The option groups that the group consists of."""
        hints = typing.get_type_hints(self.type)
        return {name: _Group(hint) for name, hint in hints.items() if dataclasses.is_dataclass(hint)}

    def all_fields(self) -> Iterator[OptionField]:
        """Yield the options of the group and of its parts."""
        yield from self.fields
        for part in self.parts.values():
            yield from part.all_fields()

    def take(self, values: dict[str, Any]) -> Any:
        """Take the group's values out of the values of a command, and return the group.

        Raises:
            InputError: If a text cannot be read.
        """
        present = {f.name: value for f in self.fields if (value := values.pop(f.name)) not in (None, [], ())}
        read = {f.name: _read(f, present[f.name]) for f in self.fields if f.name in present}
        return self.type(**read, **{name: part.take(values) for name, part in self.parts.items()})


def _read(field: OptionField, value: Any) -> Any:
    if field.option.parse is not None:
        return field.option.parse(value)
    return tuple(value) if field.kind == "list" else value


def _parameter(field: OptionField) -> inspect.Parameter:
    """Return an option as a parameter of a function that typer reads."""
    hint: Any = field.type
    default = field.default
    if field.option.parse is not None:
        hint, default = field.option.reads, None
    elif field.kind == "list":
        hint, default = types.GenericAlias(list, typing.get_args(field.type)[:1]), None
    if default is dataclasses.MISSING:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[hint | None if default is None else hint, typer_option(field.option)],
    )


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with one option for each declared field of the option groups among its parameters.

    A command about a project also has `--verbose`.

    Args:
        command: A function whose parameters are arguments and options of typer, or option groups.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, _Group] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        group, *metadata = typing.get_args(hint) or (hint,)
        if dataclasses.is_dataclass(group):
            only = next((m for m in metadata if isinstance(m, Only)), Only())
            groups[parameter.name] = _Group(group, only)
            parameters += map(_parameter, groups[parameter.name].all_fields())
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint))
    has_project = any(group.type is ProjectOptions for group in groups.values())
    if has_project:
        parameters.append(_parameter(_VERBOSE))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        if has_project and values.pop(_VERBOSE.name):
            show_information()
        values.update({name: group.take(values) for name, group in groups.items()})
        command(**values)

    # A required argument comes before optional ones, such as the directory.
    parameters.sort(key=lambda p: p.default is not inspect.Parameter.empty)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


HardwareOption = Annotated[str | None, typer_option(HARDWARE)]
KnowledgeOption = Annotated[str | None, typer_option(KNOWLEDGE)]


def check_format(choice: str, *, among: Sequence[str] = ("text", "json"), what: str = "format") -> None:
    """Refuse an unknown output format, or another word of a few.

    Raises:
        InputError: If it is none of those.
    """
    if choice not in among:
        raise InputError(f"there is no {what} `{choice}`", hint=f"take one of {', '.join(f'`{f}`' for f in among)}")


def _text_or_json(choice: str) -> str:
    check_format(choice)
    return choice


FormatOption = Annotated[str, typer.Option("--format", metavar="FORMAT", help="text or json.", callback=_text_or_json)]


def print_json(document: object) -> None:
    """Print a document to standard output as indented JSON."""
    typer.echo(json.dumps(document, indent=2))


def print_either(format: str, document: object, text: str) -> None:
    """Print a document as JSON, or its text."""
    if format == "json":
        print_json(document)
    else:
        typer.echo(text)


def print_list(format: str, name: str, records: Iterable[object], lines: Iterable[str], *, empty: str = "") -> None:
    """Print records as JSON below a name, or a line of text for each; without any, the line for an empty list."""
    text = "\n".join(lines) or empty
    if format == "json" or text:
        print_either(format, {"schema_version": 1, name: list(records)}, text)

"""Help of commands: options in groups, one line for each, and the same metavars as in the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
import typer.core

from advisor.api.option import OUTPUT, PANELS, PROJECT

_NAMES = 25
"""Columns of the names of options, unless all names of a command are shorter."""


class HelpCommand(typer.core.TyperCommand):
    """A command whose help groups options by their panel.

    An option has one line: the first line of its help, and its default. The reference has all lines, and variables.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options of each group."""
        listed = [p for p in self.get_params(ctx) if not getattr(p, "hidden", False)]
        others = OUTPUT if any(getattr(p, "rich_help_panel", None) == PROJECT for p in listed) else "Options"
        panels: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Arguments", "Options", *PANELS)}
        for parameter in listed:
            panel = getattr(parameter, "rich_help_panel", None) or others
            is_argument = parameter.param_type_name == "argument"
            panels["Arguments" if is_argument else panel].append(help_row(parameter))
        width = min(_NAMES, max(len(names) for rows in panels.values() for names, _ in rows))
        for panel, rows in panels.items():
            if rows:
                with formatter.section(panel):
                    # Sections have a common column: a short one would begin its texts further to the left.
                    formatter.write_dl([(names.ljust(width), text) for names, text in rows], col_max=_NAMES + 2)
        if variable := next((p.envvar for p in listed if getattr(p, "envvar", None)), None):
            formatter.write(f"\nVariables set options, too, such as {variable}: see the reference.\n")


class CommandGroup(typer.Typer):
    """Commands with the help of :class:`HelpCommand`."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**{"no_args_is_help": True, "rich_markup_mode": None, **values})

    def command(self, name: str | None = None, **values: Any) -> Callable[[Any], Any]:
        """Register a command; see :meth:`typer.Typer.command`."""
        return super().command(name, **{"cls": HelpCommand, **values})


def help_row(parameter: Any) -> tuple[str, str]:
    """Return the names of an argument or option with its value, and its meaning in one line."""
    meaning = (parameter.help or "").partition("\n")[0].rstrip(".")
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.name.upper(), meaning
    names = ", ".join(sorted(parameter.opts, key=len))
    if parameter.secondary_opts:
        names = f"--[no-]{parameter.opts[0].removeprefix('--')}"
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    default = "" if parameter.is_flag or "default" in meaning else _default(parameter)
    return f"{names}{value}", f"{meaning}{default}"


def _default(parameter: Any) -> str:
    """Return the default of an option; empty if it has none."""
    value = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f" (default: {text})" if isinstance(value, str | int | float) and text else ""


_PLAIN: dict[Any, tuple[Any, Any]] = {
    str: (str, str),
    list[str]: (str, str),
    Path: (str | Path, Path),
    list[Path]: (str | Path, Path),
    # Texts of numbers are left to typer.
    int: (int, int),
    float: (int | float, float),
    bool: (bool, bool),
}
"""By the type of a parameter: types of values that need no check, and what converts them."""


class PlainCommand(HelpCommand):
    """A command that reads names, paths and defaults itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in self.params:
            annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
            if annotation in _PLAIN:
                _read_plainly(parameter, *_PLAIN[annotation])

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        return with_plain_absence(super().get_help_option(ctx))


def with_plain_absence(option: Any) -> Any:
    """Let an option leave only its presence to typer."""
    if option is not None:
        process = type(option).process_value
        option.process_value = lambda context, value: process(option, context, value) if value else value
    return option


def _read_plainly(parameter: Any, plain: Any, read: Any) -> None:
    """Let a parameter of a command convert values of plain types itself; other values are left to typer."""
    process = parameter.process_value

    def process_value(context: Any, value: Any) -> Any:
        texts = value if isinstance(value, list | tuple) else (value,)
        is_plain = parameter.callback is None and not parameter.required
        if not is_plain or not all(text is None or isinstance(text, plain) for text in texts):
            return process(context, value)
        if parameter.multiple or parameter.nargs == -1:
            return () if value is None else [read(text) for text in texts]
        return None if value is None else read(value)

    parameter.process_value = process_value

"""Values of options that need no check: typer reads each with pydantic, which takes longer than a remembered answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor.cli.command_help import HelpCommand

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

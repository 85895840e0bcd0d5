"""A command that runs a program with few steps, and one with still fewer, by the options that the program has."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.project.benchmark_proposal.interface import ProgramOption, names
from advisor.project.benchmark_proposal.programs import ProjectProgram
from advisor.project.benchmark_proposal.readme import is_placeholder

STEPS = 25
"""Steps of a proposed command, if the program takes more by default."""
_LIMIT = 1000
_START = 5
"""A start-up command has this fraction of the steps: `advisor workload profile` also skips 5 and measures 20."""
_OUTPUT = "benchmark-output"
_STEP_KINDS = ("timesteps", "steps", "epoch_steps", "epochs", "limits")
"""Kinds of options that limit the steps, in the order in which they are preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChoice:
    """An option of a proposed command.

    Attributes:
        option: The option.
        value: Its value; empty for a switch.
        purpose: What the value is for.
    """

    option: ProgramOption
    value: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A proposed command.

    Attributes:
        words: ProjectProgram and arguments.
        startup: The same with fewer steps; empty if no option limits the steps.
        steps: Option that limits the steps, with its value; ``None`` if there is none.
        startup_steps: Value of this option in ``startup``.
        choices: The options that were added, each with its value.
        documented: Place of a documented command that the arguments come from; empty without one.
        open_values: Why the command cannot run yet: values that only the user knows; empty if it can.
    """

    words: tuple[str, ...]
    startup: tuple[str, ...] = ()
    steps: OptionChoice | None = None
    startup_steps: int = 0
    choices: tuple[OptionChoice, ...] = ()
    documented: str = ""
    open_values: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The command as it is written in a shell."""
        return shlex.join(self.words)

    @property
    def startup_text(self) -> str:
        """The start-up command as it is written in a shell."""
        return shlex.join(self.startup)


def propose_command(program: ProjectProgram) -> Command:
    """Return a command that runs a program with few steps."""
    if program.interface.obstacle and program.readme is None:
        return Command(words=program.words, open_values=(program.interface.obstacle,))
    options = program.interface.options
    choices = [*_step_choices(options), *_data_choices(options)]
    flags = {choice.option.flag for choice in choices}
    required = [option for option in options if option.required and option.flag not in flags]
    unknown = [option for option in required if not _own_value(option)]
    arguments, open_values, documented = [], [], ""
    if program.readme is not None and (unknown or program.interface.obstacle):
        arguments, documented = list(program.readme.arguments), program.readme.place
        for choice in choices:
            arguments = _without(arguments, choice.option)
        open_values = [f"`{word}` ({documented})" for word in arguments if is_placeholder(word)]
    else:
        for option in required:
            arguments += option.words(_own_value(option) or _name_of(option).lstrip("-").upper())
        open_values = [f"`{_name_of(option)}` ({option.place})" for option in unknown]
    arguments += [word for choice in choices for word in choice.option.words(choice.value)]
    if not documented:
        own = [option for option in required if option not in unknown]
        choices += [OptionChoice(option=o, value=_own_value(o), purpose="the program requires it") for o in own]
    command = Command(
        words=(*program.words, *arguments),
        choices=tuple(choices),
        documented=documented,
        open_values=tuple(open_values),
    )
    return _with_startup(command, options)


def given_command(words: Sequence[str], program: ProjectProgram | None) -> Command:
    """Return a command that the user wrote, with the same command with fewer steps if the program's options show it."""
    command = Command(words=tuple(words))
    return command if program is None else _with_startup(command, program.interface.options)


def with_steps(command: Command, number: int, purpose: str = "") -> Command:
    """Return a command that has an option for its steps with another number of them, and what this is for."""
    assert command.steps is not None
    steps = replace(command.steps, value=str(number), purpose=purpose or command.steps.purpose)
    fewer = max(1, number // _START)
    return replace(
        command,
        words=_with_value(command.words, steps.option, number),
        startup=_with_value(command.words, steps.option, fewer) if number > fewer else (),
        steps=steps,
        startup_steps=fewer,
        choices=tuple(steps if choice.option == steps.option else choice for choice in command.choices),
    )


def _with_startup(command: Command, options: Sequence[ProgramOption]) -> Command:
    """Return a command with its start-up command: the same one with a fifth of the steps, and at least one."""
    for option in sorted((o for o in options if o.kind() in _STEP_KINDS), key=_preference):
        index = _index(command.words, option)
        number = _number(_value_at(command.words, index)) if index is not None else None
        if number is not None and number >= 2:
            own = next((choice for choice in command.choices if choice.option == option), None)
            steps = own or OptionChoice(option=option, value=str(int(number)), purpose="the steps of your command")
            return with_steps(replace(command, steps=steps), int(number))
    return command


def _preference(option: ProgramOption) -> tuple[int, int]:
    return _STEP_KINDS.index(option.kind()), names()["options"][option.kind()].index(option.name)


def _step_choices(options: Sequence[ProgramOption]) -> list[OptionChoice]:
    """Return values of the options that limit the steps: of the preferred one, and one epoch if it has both."""
    ranked = sorted(
        (o for o in options if o.kind() in _STEP_KINDS and o.form not in ("switch", "argument")), key=_preference
    )
    first: dict[str, ProgramOption] = {}
    for option in ranked:
        first.setdefault(option.kind(), option)
    kind = next((kind for kind in _STEP_KINDS if kind in first), "")
    if not kind:
        return []
    option = first[kind]
    choices = [OptionChoice(option=option, value=str(_few(option)), purpose="few steps")]
    if kind in ("steps", "epoch_steps") and "epochs" in first:
        choices.append(OptionChoice(option=first["epochs"], value="1", purpose="one epoch"))
    elif kind == "epochs" and "limits" in first:
        limit = first["limits"]
        default = _number(limit.default)
        value = _LIMIT if default is None or default < 1 else min(_LIMIT, int(default))
        choices.append(OptionChoice(option=limit, value=str(value), purpose="little data"))
    return choices


def _few(option: ProgramOption) -> int:
    """Return a small number for an option that limits the steps."""
    default, kind = _number(option.default), option.kind()
    if kind == "timesteps":
        return max(1000, int(default or 100_000) // 100)
    if kind == "epochs":
        return 2
    most = _LIMIT if kind == "limits" else STEPS
    return most if default is None or default < 2 else min(most, int(default))


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _data_choices(options: Sequence[ProgramOption]) -> list[OptionChoice]:
    """Return values of the options that select data which the program makes itself; at most one option."""
    values: Mapping[str, Any] = names()["options"]
    for option in options:
        if option.name in values["synthetic"]:
            if option.form == "switch" and option.default is not True:
                return [OptionChoice(option=option, value="", purpose="data that the program makes itself")]
            if option.form != "switch" and option.default in (False, "False", "false"):
                return [OptionChoice(option=option, value="True", purpose="data that the program makes itself")]
        synthetic = [choice for choice in option.choices if choice.lower() in values["synthetic_values"]]
        if synthetic and "data" in option.name:
            return [OptionChoice(option=option, value=synthetic[0], purpose="data that the program makes itself")]
    return []


def _own_value(option: ProgramOption) -> str:
    """Return the value of a required option that needs no knowledge of the user; empty if it does."""
    if option.kind() == "outputs":
        return _OUTPUT
    return option.choices[0] if option.choices else ""


def _name_of(option: ProgramOption) -> str:
    return option.name if option.form == "argument" else option.flag


def _index(words: Sequence[str], option: ProgramOption) -> int | None:
    """Return the place of an option in a command; ``None`` if the command does not have it."""
    for number, word in enumerate(words):
        if word == option.flag or word.startswith(f"{option.flag}="):
            return number
    return None


def _value_at(words: Sequence[str], index: int) -> str:
    _, equals, value = words[index].partition("=")
    return value if equals else words[index + 1] if index + 1 < len(words) else ""


def _with_value(words: Sequence[str], option: ProgramOption, value: int) -> tuple[str, ...]:
    """Return a command that has an option, with another value of it."""
    index = _index(words, option)
    assert index is not None
    if "=" in words[index]:
        return (*words[:index], f"{option.flag}={value}", *words[index + 1 :])
    return (*words[: index + 1], str(value), *words[index + 2 :])


def _without(words: list[str], option: ProgramOption) -> list[str]:
    """Return the words of a command without an option and its value."""
    index = _index(words, option)
    if index is None:
        return words
    length = 1 if option.form == "switch" or "=" in words[index] else 2
    return [*words[:index], *words[index + length :]]

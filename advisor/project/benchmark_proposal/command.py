"""A command that runs a program with few steps, and one with still fewer, by the options that the program has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.project.benchmark_proposal.options import ProgramOption, names
from advisor.project.benchmark_proposal.programs import ProjectProgram
from advisor.project.benchmark_proposal.readme import ReadmeCommand

STEPS = 25
"""Steps of a proposed command, if the program takes more by default."""
_LIMIT = 1000
_START = 5
"""A start-up command has this fraction of the steps: `advisor workload profile` also skips 5 and measures 20."""
_STEP_KINDS = ("timesteps", "steps", "epoch_steps", "epochs", "limits")
"""Kinds of options that limit the steps, in the order in which they are preferred."""
_COMPANIONS = {"steps": "epochs", "epoch_steps": "epochs", "epochs": "limits"}
"""Kind of the option that is limited, too, by the kind of the one that limits the steps."""
_PURPOSES = {"epochs": "one epoch", "limits": "little data"}
_NUMBER = re.compile(r"[0-9]{1,15}")


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
        words: Program and arguments.
        steps: Option that limits the steps, with its value, which is at least 2; ``None`` if there is none.
        choices: The options that were added, each with its value.
        documented: Place of a documented command that the arguments come from; empty without one.
        open_values: Why the command cannot run yet: values that only the user knows; empty if it can.
    """

    words: tuple[str, ...]
    steps: OptionChoice | None = None
    choices: tuple[OptionChoice, ...] = ()
    documented: str = ""
    open_values: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The command as it is written in a shell."""
        return shlex.join(self.words)

    @property
    def startup_steps(self) -> int:
        """Steps of the start-up command; 0 without one."""
        return max(1, int(self.steps.value) // _START) if self.steps is not None else 0

    @property
    def startup_text(self) -> str:
        """The same command with fewer steps, as it is written in a shell; empty if no option limits the steps."""
        return shlex.join(_with(self.words, self.steps.option, self.startup_steps)) if self.steps is not None else ""


def propose_command(program: ProjectProgram) -> Command:
    """Return a command that runs a program with few steps."""
    options, obstacle = program.interface.options, program.interface.obstacle
    limits = [*_step_choices(options), *_data_choices(options)]
    limited = [choice.option for choice in limits]
    required = [(option, _own_value(option)) for option in options if option.required and option not in limited]
    unknown = [option for option, value in required if not value]
    if program.readme is not None and (unknown or obstacle):
        command = _documented_command(program.words, program.readme, limits)
    elif obstacle:
        return Command(words=program.words, open_values=(obstacle,))
    else:
        arguments = [word for o, value in required for word in o.words(value or o.name.upper())]
        own = [OptionChoice(option=o, value=v, purpose="the program requires it") for o, v in required if v]
        command = Command(
            words=_with_choices((*program.words, *arguments), limits),
            choices=(*own, *limits),
            open_values=tuple(map(_open_value, unknown)),
        )
    return _with_startup(command, options)


def _documented_command(program: Sequence[str], readme: ReadmeCommand, limits: Sequence[OptionChoice]) -> Command:
    """Return a command with the arguments that a README file shows, and few steps."""
    words = _with_choices((*program, *readme.arguments), limits)
    return Command(
        words=words,
        choices=tuple(limits),
        documented=readme.place,
        open_values=tuple(f"`{word}` ({readme.place})" for word in readme.placeholders if word in words),
    )


def given_command(words: Sequence[str], program: ProjectProgram | None) -> Command:
    """Return a command that the user wrote, with the same command with fewer steps if the program's options show it."""
    command = Command(words=tuple(words))
    return command if program is None else _with_startup(command, program.interface.options)


def with_steps(command: Command, number: int) -> Command:
    """Return a command that has an option for its steps with the number of them that the user named."""
    assert command.steps is not None
    steps = replace(command.steps, value=str(number), purpose="as you named it")
    return replace(
        command,
        words=_with(command.words, steps.option, number),
        steps=steps,
        choices=tuple(steps if choice.option == steps.option else choice for choice in command.choices),
    )


def _with_startup(command: Command, options: Sequence[ProgramOption]) -> Command:
    """Return a command with the option that limits its steps, if it has at least two."""
    for option in _step_options(options):
        _, value = _find(command.words, option)
        if _NUMBER.fullmatch(value) and int(value) >= 2:
            own = next((choice for choice in command.choices if choice.option == option), None)
            return replace(command, steps=own or OptionChoice(option=option, value=value, purpose="your steps"))
    return command


def _step_options(options: Sequence[ProgramOption]) -> list[ProgramOption]:
    """Return the options that limit the steps, the preferred one first."""
    limiting = [o for o in options if o.kind in _STEP_KINDS and o.form not in ("switch", "argument")]
    return sorted(limiting, key=lambda o: (_STEP_KINDS.index(o.kind), names()["options"][o.kind].index(o.name)))


def _step_choices(options: Sequence[ProgramOption]) -> list[OptionChoice]:
    """Return values of the preferred option that limits the steps, and of one that limits its epochs or data."""
    first, *others = [*_step_options(options), None]
    if first is None:
        return []
    choices = [OptionChoice(option=first, value=str(_few(first)), purpose="few steps")]
    companion = next((o for o in others if o is not None and o.kind == _COMPANIONS.get(first.kind)), None)
    if companion is not None:
        value = 1 if companion.kind == "epochs" else _few(companion)
        choices.append(OptionChoice(option=companion, value=str(value), purpose=_PURPOSES[companion.kind]))
    return choices


def _few(option: ProgramOption) -> int:
    """Return a small number for an option that limits the steps."""
    default = option.default if type(option.default) in (int, float) and option.default >= 2 else None
    if option.kind == "timesteps":
        return max(1000, int(min(10**9, default or 0)) // 100)
    if option.kind == "epochs":
        return 2
    most = _LIMIT if option.kind == "limits" else STEPS
    return int(min(most, default or most))


def _data_choices(options: Sequence[ProgramOption]) -> list[OptionChoice]:
    """Return values of the options that select data which the program makes itself; at most one option."""
    listed: dict[str, Any] = names()["options"]
    for option in options:
        if option.kind == "synthetic" and (option.form == "switch" or option.default is False):
            values = ["" if option.form == "switch" else "True"]
        else:
            values = [c for c in option.choices if "data" in option.name and c.lower() in listed["synthetic_values"]]
        if values:
            return [OptionChoice(option=option, value=values[0], purpose="data that the program makes itself")]
    return []


def _own_value(option: ProgramOption) -> str:
    """Return the value of a required option that needs no knowledge of the user; empty if it does."""
    if option.kind == "outputs":
        return "benchmark-output"
    # One of several values may do something else than the work, such as deleting files.
    return option.choices[0] if len(option.choices) == 1 else ""


def _open_value(option: ProgramOption) -> str:
    one_of = f": one of {', '.join(f'`{choice}`' for choice in option.choices)}" if option.choices else ""
    return f"`{option.flag}` ({option.place}{one_of})"


def _find(words: Sequence[str], option: ProgramOption) -> tuple[slice, str]:
    """Return where a command has an option, and its value; the end of the command if it does not have it."""
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == option.flag and (equals or option.form == "switch"):
            return slice(number, number + 1), value
        if flag == option.flag:
            return slice(number, number + 2), "".join(words[number + 1 : number + 2])
    return slice(len(words), len(words)), ""


def _with(words: Sequence[str], option: ProgramOption, value: int | str) -> tuple[str, ...]:
    """Return a command with a value of an option, in the place and the form that the option has in it."""
    place, _ = _find(words, option)
    has_equals = "=" in "".join(words[place.start : place.start + 1])
    written = [f"{option.flag}={value}"] if has_equals else option.words(value)
    return (*words[: place.start], *written, *words[place.stop :])


def _with_choices(words: Sequence[str], choices: Sequence[OptionChoice]) -> tuple[str, ...]:
    for choice in choices:
        words = _with(words, choice.option, choice.value)
    return tuple(words)

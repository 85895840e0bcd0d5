"""Run-time settings as environment variables for shells, containers and batch systems, and as lines of Python."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from advisor.api.run_plan import RunMachine, add_variables, conflict, in_order, obstacle, variables_of, with_present
from advisor.locks.setting_value import AppliedSetting
from advisor.locks.settings_table import locked_settings
from knowledge.catalogue.settings import ANY, Numerics

SHELLS: Mapping[str, str] = {
    **dict.fromkeys(("bash", "sh", "dash", "ksh", "zsh"), "bash"),
    "fish": "fish",
    **dict.fromkeys(("powershell", "pwsh"), "powershell"),
}
"""Names of shells, each with the one whose language it has."""

_DOCKER_SPECIAL, _FISH_SPECIAL = '\\"$', "\\'"
_QUOTES = "'\u2018\u2019\u201a\u201b"
"""What PowerShell takes for a single quotation mark."""


def shell_text(
    settings: Sequence[AppliedSetting], shell: str, *, present: Mapping[str, str], machine: RunMachine | None = None
) -> str:
    """Return the commands of a shell that set the environment variables of settings.

    Settings that the machine cannot have, and libraries that exclude one that the shell loads already, become comments
    with the reason, as :func:`advisor.api.run_plan.plan_run` skips them. Other variables get the value of the setting.

    Args:
        settings: The settings.
        shell: A name of :data:`SHELLS`.
        present: The environment of the shell: lists such as ``XLA_FLAGS`` keep what they contain.
        machine: The machine; by default this one.
    """
    machine = machine or RunMachine()
    skipped, usable = [], []
    for setting in settings:
        skip = obstacle(setting, machine)
        if skip is None and setting.choice.library:
            skip = conflict(setting, present, machine)
        if skip is None:
            usable.append(setting)
        else:
            skipped.append(f"{setting.label} is left out: {skip.reason}")
    variables = _variables(usable, libraries=machine.libraries, present=present)
    line = _SHELL_LINES[SHELLS[shell]]
    return "\n".join([*_comments(usable, skipped), *(line(name, text) for name, text in variables.items())])


def dotenv_text(settings: Sequence[AppliedSetting]) -> str:
    """Return a `.env` file. Values are not quoted: Docker takes quotation marks as a part of the value."""
    lines = (f"{name}={text}" for name, text in _variables(settings).items())
    return "\n".join([*_comments(settings, _library_notes(settings)), *lines])


def docker_text(settings: Sequence[AppliedSetting]) -> str:
    """Return the `ENV` lines of a Dockerfile."""
    notes, number = _library_notes(settings), _processors(settings)
    if number is not None:
        processors = "0" if number == 1 else f"0-{number - 1}"
        notes.append(f"run the image with `docker run --cpuset-cpus={processors}`")
    lines = (f'ENV {name}="{_escaped(text, _DOCKER_SPECIAL)}"' for name, text in _variables(settings).items())
    return "\n".join([*_comments(settings, notes), *lines])


def kubernetes_text(settings: Sequence[AppliedSetting]) -> str:
    """Return the `env` list of a container in Kubernetes, as YAML."""
    lines = []
    for name, text in _variables(settings).items():
        # Kubernetes replaces `$(NAME)`; a text in JSON is one in YAML.
        lines += [f"  - name: {name}", f"    value: {json.dumps(text.replace('$(', '$$('))}"]
    notes, number = _library_notes(settings), _processors(settings)
    if number is not None:
        container = f"give the container `cpu: {number}` as request and limit"
        notes.append(f"{container}, on nodes with the static CPU manager policy")
    return "\n".join([*_comments(settings, notes), *(["env:", *lines] if lines else ["env: []"])])


def slurm_text(settings: Sequence[AppliedSetting]) -> str:
    """Return a batch script of Slurm that runs its arguments with the settings."""
    lines = ["#!/bin/bash"]
    numbers = [int(s.value) for s in settings if s.name == "threads"]
    if numbers:
        lines.append(f"#SBATCH --cpus-per-task={max(numbers)}")
    lines += _comments(settings, _library_notes(settings))
    lines += [_bash_line(name, text) for name, text in _variables(settings).items()]
    options = [f"--cpus-per-task={max(numbers)}"] if numbers else []
    node = next((s.value for s in settings if s.processors == "node"), None)
    if node is not None:
        options += [f"--cpu-bind=map_ldom:{node}", "--mem-bind=local"]
    elif numbers:
        options.append("--cpu-bind=cores")
    return "\n".join([*lines, " ".join(["srun", *options, '"$@"'])])


WRITERS: Mapping[str, Callable[[Sequence[AppliedSetting]], str]] = {
    "dotenv": dotenv_text,
    "docker": docker_text,
    "slurm": slurm_text,
    "kubernetes": kubernetes_text,
}
"""Formats of environment variables, besides the commands of a shell, each with its function."""


def _variables(
    settings: Sequence[AppliedSetting],
    *,
    libraries: Callable[[Sequence[str]], Mapping[str, Path]] | None = None,
    present: Mapping[str, str] | None = None,
) -> dict[str, str]:
    variables: dict[str, str] = {}
    for setting in in_order(settings):
        variables = add_variables(variables, variables_of(setting, libraries))
    if present:
        variables = {name: with_present(name, text, present) for name, text in variables.items()}
    return dict(sorted(variables.items()))


def _comments(settings: Sequence[AppliedSetting], notes: Sequence[str]) -> Iterator[str]:
    """Yield comments: the settings, what cannot be set from outside, and notes."""
    for setting in settings:
        if setting.environment:
            yield f"# {setting.label}, {NUMERICS[setting.numerics]}: {', '.join(sorted(setting.environment))}"
    for setting in settings:
        if setting.code:
            how = "`advisor run` applies it, or this code" if setting.statements else "needs code"
            yield f"# {how}: {setting.label}, {NUMERICS[setting.numerics]}"
            yield from (f"#   {line}" for line in setting.code)
        elif setting.hint:
            yield f"# not an environment variable: {setting.label}: {setting.hint}"
        elif setting.processors:
            yield f"# not an environment variable: {setting.label}; `advisor run` binds the program to processors"
    yield from (f"# {note}" for note in notes)


def _library_notes(settings: Sequence[AppliedSetting]) -> list[str]:
    needed = [(setting.choice.library[0], setting.label) for setting in settings if setting.choice.library]
    return [f"the machine needs the library `{library}` for {label}" for library, label in needed]


def _processors(settings: Sequence[AppliedSetting]) -> int | None:
    """Return the number of processors that settings bind the program to; `None` if they do not."""
    return next((int(s.value) for s in settings if s.processors == "count"), None)


def _bash_line(name: str, text: str) -> str:
    return f"export {name}={shlex.quote(text)}"


_SHELL_LINES: Mapping[str, Callable[[str, str], str]] = {
    "bash": _bash_line,
    "fish": lambda name, text: f"set -gx {name} '{_escaped(text, _FISH_SPECIAL)}'",
    "powershell": lambda name, text: f"$env:{name} = '{''.join(2 * c if c in _QUOTES else c for c in text)}'",
}


def _escaped(text: str, special: str) -> str:
    return "".join(f"\\{c}" if c in special else c for c in text)


NUMERICS: Mapping[Numerics, str] = {
    "exact": "same results",
    "reordered": "results differ by rounding",
    "reduced": "reduced precision",
}
"""What a setting does to results, for people."""


def settings_code(values: Mapping[str, Mapping[str, int | str]]) -> str:
    """Return the lines of code for settings, by framework, each with a comment; a sentence if none needs code.

    Raises:
        InputError: If the catalogue does not have a framework, setting or value.
    """
    settings = [setting for setting in locked_settings(values) if setting.code]
    lines: list[str] = []
    for framework in dict.fromkeys(setting.framework for setting in settings):
        lines += ["", f"# {'All frameworks' if framework == ANY else framework}"]
        for setting in settings:
            if setting.framework == framework:
                lines.append(f"# {setting.text}: {setting.setting.meaning} ({NUMERICS[setting.numerics]})")
                lines += setting.code
    return "\n".join(lines[1:]) if lines else "No recommended setting needs code."

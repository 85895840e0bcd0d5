"""`advisor run` and `advisor env`: apply the run-time settings of a lock to a program."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from advisor import api
from advisor.api.option import Option, read_pairs
from advisor.cli.console import say, warn
from advisor.cli.options import check_format, expand_options
from advisor.domain.words import quoted, visible
from advisor.report import environment
from knowledge.domain.errors import AdvisorError, InputError

_NUMBER = re.compile(r"-?[0-9]{1,20}")


@dataclass(frozen=True, kw_only=True)
class SettingsOptions:
    """Options that name run-time settings."""

    lock: Annotated[
        Path | None,
        Option(
            "--lock",
            metavar="FILE",
            help="Lock or settings file.\nBy default `pylock.toml` or `advisor-settings.toml` in this directory.",
        ),
    ] = None
    settings: Annotated[
        tuple[str, ...],
        Option(
            "--settings",
            metavar="NAME=VALUE",
            help="Settings; they replace the settings of `--lock`.\nWithout `--lock`, only these (repeatable).",
        ),
    ] = ()
    framework: Annotated[
        tuple[str, ...],
        Option("--framework", metavar="NAME", help="Only the settings of this framework (repeatable)."),
    ] = ()

    def read(self) -> api.run_settings.AppliedSettings:
        """Return the settings; settings whose record differs from the catalogue are reported.

        Raises:
            InputError: If there are no settings, a setting is not valid, or settings contradict each other.
        """
        pairs = read_pairs(
            [text for texts in self.settings for text in texts.split(",")], "--settings", example="threads=2"
        )
        result = api.run_settings.read_run_settings(
            lock=self.lock,
            values=[(name, int(value) if _NUMBER.fullmatch(value) else value) for name, value in pairs],
            frameworks=self.framework,
        )
        if result.changed:
            warn(
                f"`{result.source}` records other variables or lines for {quoted(result.changed)} than this program "
                "applies",
                hint="write it again with `advisor advise`",
            )
        return result


@expand_options
def run(
    options: SettingsOptions,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="Program and its arguments, after `--`.")],
) -> None:
    """Run a program with the run-time settings of a lock, and with nothing else changed.

    The exit code is the one of the program; 127 if it does not exist, 126 if it cannot be executed.
    """
    settings = options.read()
    present = caller_environment()
    path = find_program(command[0], present)
    plan = api.run_plan.plan_run(settings.settings, present=present)
    for skipped in plan.skipped:
        warn(f"`{skipped.setting.label}` is not applied: {skipped.reason}", hint=skipped.hint)
    for setting, used in api.run_settings.overridden_settings(command, plan.applied):
        value = f"`{used.value}`" if used.value else "another value"
        condition = " under a condition" if used.is_conditional else ""
        place = f"{used.file}:{used.line}"
        warn(f"`{place}` sets `{used.name}` to {value}{condition}, so `{setting.text}` has no effect")
    if plan.statements and api.run_settings.ignores_variables(command):
        labels = ", ".join(s.label for s in plan.applied if s.statements)
        warn(
            f"Python with `-I`, `-E` or `-S` runs no code at its start, so {labels} has no effect",
            hint="run it without these options",
        )
    say(_summary(plan))
    replace_by_program(path, command, plan.environment(present), plan.processors)


def _summary(plan: api.run_plan.RunPlan) -> str:
    """Return one line: what is applied, and what needs code."""
    parts = [", ".join(s.label for s in plan.applied) or "no setting"]
    assignments = [f"{name}={text}" for name, text in plan.variables.items()]
    if plan.processors:
        assignments.append(f"processors {','.join(map(str, plan.processors))}")
    modules = dict.fromkeys(part.module for part in plan.statements)
    assignments += [f"code after `import {module}`" for module in modules]
    if assignments:
        parts[0] += f" [{' '.join(assignments)}]"
    if plan.defaults:
        parts.append(f"the default: {', '.join(s.label for s in plan.defaults)}")
    if plan.code:
        labels = ", ".join(s.label for s in plan.code)
        parts.append(f"not applied, needs code: {labels} (`advisor env` prints it)")
    return f"applied: {'; '.join(parts)}"


@expand_options
def env(
    options: SettingsOptions,
    shell: Annotated[
        str | None,
        typer.Option("--shell", metavar="NAME", help="bash, fish or powershell (default: `$SHELL`)."),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="shell, dotenv, docker, slurm, kubernetes.\n"
            "Commands of a shell, a `.env` file, lines of a Dockerfile, a batch script, or a list of a "
            "container.",
        ),
    ] = "shell",
) -> None:
    """Print the environment variables of the run-time settings of a lock."""
    check_format(format, among=("shell", *environment.WRITERS))
    name = _shell(shell, format)
    settings = options.read().settings
    if format == "shell":
        text = environment.shell_text(settings, name, present=os.environ)
    else:
        text = environment.WRITERS[format](settings)
    typer.echo(visible(text))


def _shell(shell: str | None, format: str) -> str:
    """Return the name of the shell that reads the output."""
    if shell is not None and format != "shell":
        raise InputError(f"`--shell` and `--format {format}` contradict each other", hint="name one of them")
    default = "powershell" if os.name == "nt" else "bash"
    name = shell or Path(os.environ.get("SHELL", "") or default).name
    if format == "shell" and name not in environment.SHELLS:
        source = "" if shell else " in `$SHELL`"
        raise InputError(
            f"the shell `{name}`{source} is not known", hint="name one with `--shell bash|fish|powershell`"
        )
    return name


_INITIAL_ENVIRONMENT = Path("/proc/self/environ")
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")
"""Signals that Python ignores when it starts, and that a program would keep ignoring."""


class ProgramNotFoundError(AdvisorError):
    """Raised when the program to run does not exist."""

    code = "program-not-found"
    exit_code = 127


class ProgramNotExecutableError(AdvisorError):
    """Raised when the program to run exists but cannot be executed."""

    code = "program-not-executable"
    exit_code = 126


def caller_environment() -> dict[str, str]:
    """Return the environment that the caller gave to this process.

    Without a locale, Python sets `LC_CTYPE` when it starts (PEP 538); other programs would see that.
    """
    environment = dict(os.environ)
    try:
        initial = _INITIAL_ENVIRONMENT.read_bytes().split(b"\0")
    except OSError:
        return environment
    if not any(entry.startswith(b"LC_CTYPE=") for entry in initial):
        environment.pop("LC_CTYPE", None)
    return environment


def find_program(name: str, environment: Mapping[str, str]) -> str:
    """Return the path of a program, which is searched for as a shell does.

    Raises:
        ProgramNotFoundError: If it does not exist.
        ProgramNotExecutableError: If it is a directory, or not executable.
    """
    search_path = environment.get("PATH", os.defpath)
    if path := shutil.which(name, path=search_path):
        return path
    folders = [""] if os.path.dirname(name) else search_path.split(os.pathsep)
    if name and any(Path(folder, name).exists() for folder in folders):
        raise ProgramNotExecutableError(
            f"`{name}` cannot be executed", hint="make it executable, or run it with its interpreter: `python FILE`"
        )
    raise ProgramNotFoundError(f"the program `{name}` does not exist", hint="write the command as in a shell")


def replace_by_program(
    path: str, command: Sequence[str], environment: Mapping[str, str], processors: Sequence[int]
) -> NoReturn:
    """Replace this process by a program, or, on Windows, run it and exit with its exit code.

    The program has the same process, terminal, directory and open files, so that it gets all signals itself. It is
    bound to the processors, unless there are none.

    Raises:
        ProgramNotFoundError: If its interpreter does not exist.
        ProgramNotExecutableError: If the system cannot execute it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        sys.exit(subprocess.run([path, *command[1:]], env=environment, check=False).returncode)
    if processors:
        os.sched_setaffinity(0, processors)
    for name in _IGNORED_BY_PYTHON:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execve(path, list(command), environment)
    except FileNotFoundError:
        raise ProgramNotFoundError(
            f"the interpreter of `{path}` does not exist", hint="correct the first line of the file"
        ) from None
    except OSError as error:
        raise ProgramNotExecutableError(f"`{path}` cannot be executed: {error.strerror or error}") from None

"""Starts a program in place of this one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from knowledge.domain.errors import AdvisorError

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

    The program has the same process, terminal, directory and open files, so that it gets all signals itself.

    Args:
        path: The program.
        command: Its name and its arguments.
        environment: Its environment variables.
        processors: Processors to bind it to; empty for no change.

    Raises:
        ProgramNotFoundError: If its interpreter does not exist.
        ProgramNotExecutableError: If the system cannot execute it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        import subprocess

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

"""An isolated environment with the build requirements of one source tree."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement

from advisor.index.limits import BUILD_SECONDS
from advisor.index.metadata.confinement import started
from knowledge.domain.documents import requirement_from
from knowledge.domain.errors import UnavailableError


class BuildError(UnavailableError):
    """Raised when the metadata of a source tree cannot be built.

    Attributes:
        missing_module: The module that the build imports and does not find; empty if it failed for another reason.
    """

    code = "sdist-build"

    def __init__(self, message: str, *, hint: str = "", missing_module: str = "") -> None:
        super().__init__(message, hint=hint)
        self.missing_module = missing_module


class BuildEnvironment:
    """A virtual environment of this program's interpreter; build requirements are installed from wheels only.

    It satisfies the protocol ``build.env.IsolatedEnv``.
    """

    def __init__(self, folder: Path) -> None:
        """Create the environment in a folder that does not exist.

        Raises:
            BuildError: If it cannot be created.
        """
        self._scripts = folder / ("Scripts" if os.name == "nt" else "bin")
        # `-P`: modules in the present directory, such as a `logging.py`, are not imported.
        _run([sys.executable, "-P", "-m", "venv", "--without-pip", str(folder)], "the environment of the build")

    @property
    def python_executable(self) -> str:
        """Interpreter of the environment."""
        return str(self._scripts / ("python.exe" if os.name == "nt" else "python"))

    def make_extra_environ(self) -> Mapping[str, str]:
        """Return the environment variables that activate the environment."""
        return {"PATH": os.pathsep.join((str(self._scripts), os.environ.get("PATH", os.defpath)))}

    def install(self, requirements: Iterable[str]) -> None:
        """Install requirements (PEP 508) from the indexes that pip is configured with.

        Raises:
            BuildError: If one is malformed or names an address, or they cannot be installed from wheels.
        """
        lines = sorted({_checked(text) for text in requirements})
        if lines:
            _run([*_installer(self.python_executable), *lines], "its build requirements")


def _installer(python: str) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        options = ["--only-binary=:all:", "--no-compile", "--disable-pip-version-check", "--quiet", "--no-input"]
        return [sys.executable, "-P", "-m", "pip", "--python", python, "install", *options, "--"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", python, "--only-binary", ":all:", "--quiet", "--"]
    raise BuildError("a build needs `pip` or `uv`, and neither is installed", hint="run `python -m ensurepip`")


def _checked(text: str) -> str:
    """Return a build requirement as one argument that is not an option and names no address."""
    try:
        requirement = requirement_from(text)
    except InvalidRequirement as error:
        raise BuildError(f"its build requirement `{text[:80]}` is malformed: {str(error).splitlines()[0]}") from None
    if requirement.url:
        raise BuildError(f"its build requirement `{text[:80]}` is an address")
    return str(requirement)


def _run(command: list[str], what: str) -> None:
    """Run a program of this machine with the environment of the user, which may contain credentials for the index."""
    try:
        with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            _, output = process.communicate(timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        raise BuildError(f"installing {what} took more than {BUILD_SECONDS} seconds") from None
    except OSError as error:
        raise BuildError(f"installing {what} failed: {error}") from None
    if process.returncode:
        raise BuildError(f"installing {what} failed: {last_line(output) or f'exit status {process.returncode}'}")


def last_line(output: bytes) -> str:
    """Return the last line with a word of a program's output, at most 200 characters."""
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if any(map(str.isalnum, line))]
    return lines[-1].strip()[:200] if lines else ""

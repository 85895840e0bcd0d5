"""Isolated environments built by uv from an exact lock, and compared with it before anything is timed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from knowledge.domain.errors import UnavailableError
from knowledge.domain.extras import MissingExtraError
from knowledge.domain.stack import PackageVersion, Stack, make_stack


class FullDiskError(UnavailableError):
    """Raised when there is no room for an environment: that says nothing about its stack."""

    code = "full-disk"


class DownloadError(UnavailableError):
    """Raised when a wheel cannot be fetched: that says nothing about its stack."""

    code = "download"


class InterpreterError(UnavailableError):
    """Raised when a machine has not the interpreter that a lock is for: that says nothing about its stack."""

    code = "no-interpreter"


class EnvironmentBuildError(UnavailableError):
    """Raised when an environment cannot be built, or does not hold what its lock says."""

    code = "environment-build"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One distribution to install: exactly this file.

    Attributes:
        package: Name, version and index.
        url: Address of the wheel.
        sha256: Hexadecimal SHA-256 of the wheel.
        size: Of the wheel, bytes; none where it is not known.
    """

    package: PackageVersion
    url: str
    sha256: str
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackLock:
    """An environment to build.

    Attributes:
        requested: The requirements that the lock was resolved from, for people.
        packages: Sorted by name.
        python: Interpreter to build it with: a path or a version.
        platform: Platform tag it was resolved for.
    """

    requested: tuple[str, ...]
    packages: tuple[LockedPackage, ...]
    python: str
    platform: str

    @property
    def label(self) -> str:
        """Readable name of the stack."""
        return " ".join(self.requested)

    @property
    def key(self) -> str:
        """Name of its environment's folder: equal exactly when the environments are."""
        return hashlib.sha256(f"{self.python}\n{self.requirements}".encode()).hexdigest()[:20]

    @property
    def requirements(self) -> str:
        """The lock as a requirements file with addresses and hashes."""
        return "".join(f"{p.package.name} @ {p.url} --hash=sha256:{p.sha256}\n" for p in self.packages)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEnvironment:
    """An environment that holds exactly its lock.

    Attributes:
        python: Path of its interpreter.
        stack: What is installed.
    """

    python: Path
    stack: Stack


def locked_stack(lock: StackLock, python: str) -> Stack:
    """Return the stack that a lock stands for, on an interpreter of this full version."""
    return make_stack((p.package for p in lock.packages), python=python, platform=lock.platform)


def build_environment(lock: StackLock, directory: Path) -> BuiltEnvironment:
    """Build, or take again, the environment of a lock.

    Args:
        lock: What to install; nothing else is.
        directory: Where environments are kept, one folder a lock.

    Raises:
        EnvironmentBuildError: If uv fails, or the environment does not hold what the lock says.
    """
    home = directory / lock.key
    if not (home / "pyvenv.cfg").exists():
        _build(lock, home)
    interpreter = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    version, found = read_interpreter(interpreter)
    installed = {name: Version(v) for name, v in found.items()}
    expected = {str(p.package.name): Version(p.package.version) for p in lock.packages}
    if installed != expected:
        shutil.rmtree(home, ignore_errors=True)
        raise EnvironmentBuildError(
            f"the environment of `{lock.label}` does not hold what its lock says: {_difference(expected, installed)}",
            hint="run again: the environment was removed and will be built anew",
        )
    return BuiltEnvironment(python=interpreter, stack=locked_stack(lock, version))


def remove_environment(lock: StackLock, directory: Path) -> None:
    """Remove the environment of a lock; uv's cache keeps the files that it was linked to."""
    shutil.rmtree(directory / lock.key, ignore_errors=True)


def build_instruments(lock: StackLock, directory: Path) -> Path:
    """Install a lock into a folder of its own, outside every environment.

    For what measures and is not measured, such as MLCommons' LoadGen: the measured environment holds exactly its own
    lock; the folder comes behind it on the search path.

    Raises:
        EnvironmentBuildError: If uv fails.
    """
    home = directory / f"instruments-{lock.key}"
    if not home.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix="building-") as scratch:
            place = Path(scratch) / "instruments"
            _install(lock, Path(scratch), ["--python", lock.python, "--target", str(place)])
            _move(place, home)
    return home


def _move(place: Path, home: Path) -> None:
    """Move what was built to its place; where another process was first, that one's stays."""
    try:
        os.replace(place, home)
    except OSError:
        if not home.exists():
            raise


def find_uv() -> str:
    """Return the path of the uv program.

    Raises:
        MissingExtraError: If there is none. This says nothing about a stack, so it is not stored as a failure.
    """
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        path = shutil.which("uv")
        if path is None:
            raise MissingExtraError(
                "measuring needs the program `uv`, which is not installed",
                hint="install it with `pip install 'seshat-advisor[measure]'`",
            ) from None
        return path


def _build(lock: StackLock, home: Path) -> None:
    """Build into a folder beside and move it into place, so that an interrupted build leaves nothing to take."""
    home.parent.mkdir(parents=True, exist_ok=True)
    # The interpreter's path is written into the environment: it is built relocatable, then renamed.
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="building-") as scratch:
        place = Path(scratch) / "environment"
        _run_uv(["venv", "--relocatable", "--no-python-downloads", "--python", lock.python, str(place)], lock)
        _install(lock, Path(scratch), ["--python", str(place)])
        _move(place, home)


def _install(lock: StackLock, scratch: Path, where: Sequence[str]) -> None:
    requirements = scratch / "requirements.txt"
    requirements.write_text(lock.requirements, encoding="utf-8")
    _run_uv(
        ["pip", "install", *where, "--no-deps", "--no-config", "--require-hashes", "-r", str(requirements)],
        lock,
    )


def _run_uv(arguments: Sequence[str], lock: StackLock) -> None:
    done = subprocess.run(
        [find_uv(), "--quiet", *arguments], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        reason = " ".join(done.stderr.split())[-500:]
        if "no space left on device" in reason.lower() or "os error 28" in reason.lower():
            raise FullDiskError(
                f"the disk is full: uv could not build the environment of `{lock.label}`",
                hint="make room, or name another place with `--cache-dir`; the same command goes on where it stopped",
            )
        if "no interpreter found" in reason.lower():
            raise InterpreterError(
                f"this machine has no Python `{lock.python}` for `{lock.label}`: {reason}",
                hint="install it, or name a version that every node has with `--python 3.12`",
            )
        if "error sending request" in reason.lower() or "network was disabled" in reason.lower():
            raise DownloadError(
                f"uv could not fetch the wheels of `{lock.label}`: {reason}",
                hint="check that uv reaches the index (its proxy and certificates); the same command goes on",
            )
        raise EnvironmentBuildError(f"uv could not build the environment of `{lock.label}`: {reason}")


def read_interpreter(interpreter: Path) -> tuple[str, dict[str, str]]:
    """Ask an interpreter for its version and for the versions of its distributions, by normalised name.

    Raises:
        EnvironmentBuildError: If it does not run.
    """
    program = (
        "import json, platform\nfrom importlib.metadata import distributions\n"
        "found = [[d.metadata['Name'], d.version] for d in distributions() if d.metadata['Name'] and d.version]\n"
        "print(json.dumps([platform.python_version(), found]))"
    )
    try:
        # `-I`: neither the working directory nor PYTHONPATH may add distributions.
        done = subprocess.run(
            [interpreter, "-I", "-c", program], capture_output=True, encoding="utf-8", errors="replace", check=True
        )
        version, found = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise EnvironmentBuildError(f"the environment's interpreter `{interpreter}` does not run: {error}") from None
    # The first on the search path is the one that is imported.
    return version, {str(canonicalize_name(name)): v for name, v in reversed(found)}


def _difference(expected: dict[str, Version], installed: dict[str, Version]) -> str:
    names = sorted(set(expected) | set(installed))
    return ", ".join(
        f"{n} is {installed.get(n, 'absent')} instead of {expected.get(n, 'absent')}"
        for n in names
        if expected.get(n) != installed.get(n)
    )

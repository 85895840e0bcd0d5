"""Builds isolated environments with uv from an exact lock, and checks that they contain exactly that lock."""

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
    """Raised when the disk is too full for an environment; this is not a failure of the stack."""

    code = "full-disk"


class DownloadError(UnavailableError):
    """Raised when a wheel cannot be downloaded; this is not a failure of the stack."""

    code = "download"


class InterpreterError(UnavailableError):
    """Raised when a machine does not have the interpreter of a lock; this is not a failure of the stack."""

    code = "no-interpreter"


class EnvironmentBuildError(UnavailableError):
    """Raised when an environment cannot be built, or its content differs from its lock."""

    code = "environment-build"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """A wheel to install.

    Attributes:
        package: Name, version and index.
        url: URL of the wheel.
        sha256: Hexadecimal SHA-256 of the wheel.
        size: Size of the wheel in bytes; ``None`` if the index does not report it.
    """

    package: PackageVersion
    url: str
    sha256: str
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackLock:
    """Exact content of an environment.

    Attributes:
        requested: Requirements from which the lock was resolved.
        packages: Packages to install, sorted by name.
        python: Interpreter of the environment: a path or a version.
        platform: Platform tag for which the lock was resolved.
    """

    requested: tuple[str, ...]
    packages: tuple[LockedPackage, ...]
    python: str
    platform: str

    @property
    def label(self) -> str:
        """The requirements as text."""
        return " ".join(self.requested)

    @property
    def key(self) -> str:
        """Name of the environment's directory; equal environments have equal keys."""
        return hashlib.sha256(f"{self.python}\n{self.requirements}".encode()).hexdigest()[:20]

    @property
    def requirements(self) -> str:
        """The lock as a requirements file with URLs and hashes."""
        return "".join(f"{p.package.name} @ {p.url} --hash=sha256:{p.sha256}\n" for p in self.packages)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEnvironment:
    """An environment whose content was checked, with its interpreter."""

    python: Path
    stack: Stack


def locked_stack(lock: StackLock, python: str) -> Stack:
    """Return the stack of a lock with an interpreter of this full version."""
    return make_stack((p.package for p in lock.packages), python=python, platform=lock.platform)


def build_environment(lock: StackLock, directory: Path) -> BuiltEnvironment:
    """Return the environment of a lock in a directory of environments; build it unless it exists.

    Raises:
        EnvironmentBuildError: If uv fails, or the content of the environment differs from the lock.
        DownloadError: If a wheel cannot be downloaded.
        FullDiskError: If the disk is full.
        InterpreterError: If the machine does not have the interpreter.
    """
    folder = directory / lock.key
    if not (folder / "pyvenv.cfg").exists():
        _build(lock, folder)
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    version, versions = read_interpreter(interpreter)
    installed = {name: Version(v) for name, v in versions.items()}
    expected = {str(p.package.name): Version(p.package.version) for p in lock.packages}
    if installed != expected:
        shutil.rmtree(folder, ignore_errors=True)
        raise EnvironmentBuildError(
            f"the environment of `{lock.label}` differs from its lock: {_difference(expected, installed)}",
            hint="repeat the command: the environment was removed and will be rebuilt",
        )
    return BuiltEnvironment(python=interpreter, stack=locked_stack(lock, version))


def remove_environment(lock: StackLock, directory: Path) -> None:
    """Remove the environment of a lock; the files stay in uv's cache."""
    shutil.rmtree(directory / lock.key, ignore_errors=True)


def build_instruments(lock: StackLock, directory: Path) -> Path:
    """Install measuring libraries, such as MLCommons' LoadGen, into a directory of their own, and return it.

    They are not part of the measured stack, so the environment contains exactly its own lock. The directory comes after
    the environment on the search path.

    Raises:
        UnavailableError: As :func:`build_environment`.
    """
    folder = directory / f"instruments-{lock.key}"
    if not folder.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix="building-") as scratch:
            target = Path(scratch) / "instruments"
            _install(lock, Path(scratch), ["--python", lock.python, "--target", str(target)])
            _move(target, folder)
    return folder


def _move(source: Path, target: Path) -> None:
    """Move a finished directory to its final path, unless another process has already put one there."""
    try:
        os.replace(source, target)
    except OSError:
        if not target.exists():
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
            raise MissingExtraError("measure", "measuring needs the program `uv`, which is not installed") from None
        return path


def run_uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run uv to its end; for errors see :func:`find_uv`."""
    return subprocess.run([find_uv(), *arguments], capture_output=True, encoding="utf-8", errors="replace", check=False)


def _build(lock: StackLock, folder: Path) -> None:
    """Build in a temporary directory and rename it, so that an interrupted build leaves no incomplete environment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Relocatable: otherwise its scripts would contain the temporary path.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as scratch:
        target = Path(scratch) / "environment"
        _build_with_uv(["venv", "--relocatable", "--no-python-downloads", "--python", lock.python, str(target)], lock)
        _install(lock, Path(scratch), ["--python", str(target)])
        _move(target, folder)


def _install(lock: StackLock, scratch: Path, where: Sequence[str]) -> None:
    requirements = scratch / "requirements.txt"
    requirements.write_text(lock.requirements, encoding="utf-8")
    options = ("--no-deps", "--no-config", "--require-hashes", "-r", str(requirements))
    _build_with_uv(["pip", "install", *where, *options], lock)


def _build_with_uv(arguments: Sequence[str], lock: StackLock) -> None:
    process = run_uv("--quiet", *arguments)
    if process.returncode:
        reason = " ".join(process.stderr.split())[-500:]
        if is_full_disk(reason):
            raise FullDiskError(
                f"the disk is full: uv could not build the environment of `{lock.label}`",
                hint="free disk space or choose another `--cache-dir`, then repeat the command to continue",
            )
        if "no interpreter found" in reason.lower():
            raise InterpreterError(
                f"this machine has no Python `{lock.python}` for `{lock.label}`: {reason}",
                hint="install it, or choose a version that every node has, such as `--python 3.12`",
            )
        if "error sending request" in reason.lower() or "network was disabled" in reason.lower():
            raise DownloadError(
                f"uv could not download the wheels of `{lock.label}`: {reason}",
                hint="check uv's access to the index (proxy, certificates), then repeat the command to continue",
            )
        raise EnvironmentBuildError(f"uv could not build the environment of `{lock.label}`: {reason}")


def is_full_disk(text: str) -> bool:
    """Return whether an error output says that a disk, or the user's part of it, is full."""
    return any(words in text.lower() for words in ("no space left on device", "os error 28", "disk quota exceeded"))


def read_interpreter(interpreter: Path) -> tuple[str, dict[str, str]]:
    """Return the version of an interpreter, and the versions of its distributions by normalised name.

    Raises:
        EnvironmentBuildError: If the interpreter cannot be run.
    """
    program = (
        "import json, platform\nfrom importlib.metadata import distributions\n"
        "found = [[d.metadata['Name'], d.version] for d in distributions() if d.metadata['Name'] and d.version]\n"
        "print(json.dumps([platform.python_version(), found]))"
    )
    try:
        # `-I`: neither the working directory nor PYTHONPATH may add distributions.
        process = subprocess.run(
            [str(interpreter), "-I", "-c", program], capture_output=True, encoding="utf-8", errors="replace", check=True
        )
        version, versions = json.loads(process.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise EnvironmentBuildError(f"the interpreter `{interpreter}` cannot be run: {error}") from None
    # Of several versions, Python imports the first on the search path.
    return version, {str(canonicalize_name(name)): v for name, v in reversed(versions)}


def _difference(expected: dict[str, Version], installed: dict[str, Version]) -> str:
    names = sorted(set(expected) | set(installed))
    return ", ".join(
        f"{n} is {installed.get(n, 'absent')} instead of {expected.get(n, 'absent')}"
        for n in names
        if expected.get(n) != installed.get(n)
    )

"""Builds the metadata of source trees in isolated environments (`--build-sdists`), which runs their code.

A `BuildError` is raised if a backend or an installation fails, and another `UnavailableError` for an sdist that is no
archive, or too large.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import pyproject_hooks
from build import BuildBackendException, BuildException, ProjectBuilder
from packaging.requirements import InvalidRequirement
from pyproject_hooks import BackendUnavailable

from advisor.domain.progress import progress
from advisor.index.limits import BUILD_SECONDS, METADATA_BYTES, UNPACKED_BYTES, TooLargeError, bytes_text
from advisor.index.metadata.archive import check_members, members_of, open_tar, open_zip
from advisor.index.metadata.confinement import run_confined, started
from knowledge.domain.documents import requirement_from
from knowledge.domain.errors import UnavailableError

_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '(\w+)")
_LINK_DEPTH = 40
"""Maximum length of a chain of symbolic links, as in Linux."""


class BuildError(UnavailableError):
    """Raised when the metadata of a source tree cannot be built.

    Attributes:
        missing_module: The module that the build imports and does not find; empty if it failed for another reason.
    """

    code = "sdist-build"

    def __init__(self, message: str, *, hint: str = "", missing_module: str = "") -> None:
        super().__init__(message, hint=hint)
        self.missing_module = missing_module


def build_metadata(sdist: BinaryIO, filename: str) -> str:
    """Return the core metadata that the build backend of an sdist generates (PEP 517)."""
    with tempfile.TemporaryDirectory(prefix="seshat-sdist-", ignore_cleanup_errors=True) as folder:
        tree = unpack(sdist, filename, Path(folder, "source"))
        return build_tree_metadata(tree, f"`{filename}`", Path(folder))


def unpack(sdist: BinaryIO, filename: str, folder: Path) -> Path:
    """Unpack an sdist to a new folder; return its top-level directory, or the folder if there is no single one."""
    folder.mkdir()
    try:
        _unpack(sdist, filename, folder)
    except OSError as error:
        raise BuildError(f"`{filename}` cannot be unpacked: {error}") from None
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder


def build_tree_metadata(source: Path, name: str, folder: Path) -> str:
    """Return the core metadata that the build backend of a source tree generates (PEP 517).

    The build may change the tree and the folder that contains it; the name is for messages.
    """
    progress("building %s", name)
    if category := getattr(pyproject_hooks, "BuildBackendWarning", None):
        # They are for the authors of the package.
        warnings.filterwarnings("ignore", category=category)
    try:
        return _built_metadata(source, folder)
    except BuildError as error:
        raise BuildError(f"building the metadata of {name} failed: {error.message}", hint=error.hint) from None
    except (BuildBackendException, BuildException, BackendUnavailable, subprocess.SubprocessError) as error:
        reason = _reason(error)
        missing = _MISSING_MODULE.search(reason)
        raise BuildError(
            f"building the metadata of {name} failed: {reason}", missing_module=missing[1] if missing else ""
        ) from None
    except OSError as error:
        raise BuildError(f"building the metadata of {name} generated none: {error}") from None


def _built_metadata(source: Path, folder: Path) -> str:
    """Return the ``METADATA`` file of the build backend, unchanged.

    It is not parsed here, because :mod:`email` cannot write a header with several lines back to text, as older build
    backends write the description.
    """
    output, home = folder / "metadata", folder / "home"
    output.mkdir()
    home.mkdir()

    def run(cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
        # The last argument of a hook is the folder for its input and result.
        control = [Path(cmd[-1])] if Path(cmd[-1]).is_dir() else []
        run_confined(
            cmd,
            directory=Path(cwd or source),
            writable=[folder, *control],
            home=home,
            variables=extra_environ,
            seconds=BUILD_SECONDS,
        )

    environment = _Environment(folder / "environment")
    builder = ProjectBuilder.from_isolated_env(environment, source, runner=run)
    environment.install(builder.build_system_requires)
    environment.install(builder.get_requires_for_build("wheel"))
    with Path(builder.metadata_path(output), "METADATA").open("rb") as file:
        content = file.read(METADATA_BYTES + 1)
    if len(content) > METADATA_BYTES:
        raise BuildError(f"the built metadata exceeds {bytes_text(METADATA_BYTES)}")
    return content.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    """Return the last line of the output of a build backend; the error if there is no output."""
    cause = getattr(error, "exception", error)
    if isinstance(cause, subprocess.TimeoutExpired):
        return f"it took more than {BUILD_SECONDS} seconds"
    # A backend that cannot be imported has a traceback instead of output.
    output = getattr(cause, "output", None) or str(getattr(cause, "traceback", "")).encode()
    return (_last_line(output) if isinstance(output, bytes) else "") or str(error)[:200]


def _unpack(sdist: BinaryIO, filename: str, folder: Path) -> None:
    if filename.endswith(".zip"):
        with open_zip(sdist, filename) as archive:
            check_members(len(archive.infolist()), filename)
            if sum(entry.file_size for entry in archive.infolist()) > UNPACKED_BYTES:
                raise TooLargeError(f"`{filename}` unpacks to more than {bytes_text(UNPACKED_BYTES)}")
            archive.extractall(folder)
        return
    with open_tar(sdist, filename) as tar:
        links: dict[Path, str] = {}
        for member in members_of(tar, filename):
            path = _path_in(folder, member.name)
            if member.issym():
                links[path] = member.linkname
            else:
                _write_member(tar, member, path, folder)
        _write_links(links, folder)


def _path_in(folder: Path, name: str) -> Path:
    """Return the path of a member in a folder that has no links yet; a path outside of it is an error."""
    path = os.path.normpath(name.lstrip("/"))
    if path.partition("/")[0] == ".." or "\0" in name:
        raise tarfile.TarError(f"the member `{name[:200]}` is outside of it")
    return folder / path


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, folder: Path) -> None:
    """Write a directory, a regular file or a hard link, without special permissions; a device is an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        path.mkdir(exist_ok=True)
        return
    path.unlink(missing_ok=True)
    if member.islnk():
        path.hardlink_to(_path_in(folder, member.linkname))
        return
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        raise tarfile.TarError(f"the member `{member.name[:200]}` is neither a file nor a directory")
    with path.open("wb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _write_links(links: Mapping[Path, str], folder: Path) -> None:
    """Write symbolic links; it is an error if one leads out of the folder. Links that lead to nothing are left out.

    The filter for this in `tarfile` is missing before Python 3.11.4, and can be bypassed before 3.11.13 (CVE-2025-4517,
    https://docs.python.org/3.11/whatsnew/changelog.html#python-3-11-13-final). Here, nothing is written through a
    link, because links come last. A link is written once its target exists, so no later link changes where it leads.
    """
    root, pending = folder.resolve(), dict(links)
    for _ in range(_LINK_DEPTH):
        for path, target in list(pending.items()):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                destination = path.parent.joinpath(target).resolve(strict=True)
            except (OSError, RuntimeError):
                continue
            if not destination.is_relative_to(root) or os.path.isabs(target):
                raise tarfile.TarError(f"the link `{path.relative_to(folder)}` leads out of it")
            path.symlink_to(target)
            del pending[path]


class _Environment:
    """A virtual environment of this program's interpreter; build requirements are installed from wheels only.

    It satisfies the protocol ``build.env.IsolatedEnv``.
    """

    def __init__(self, folder: Path) -> None:
        """Create the environment in a folder that does not exist."""
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
        """Install requirements (PEP 508) from the indexes that pip is configured with."""
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
        raise BuildError(f"installing {what} failed: {_last_line(output) or f'exit status {process.returncode}'}")


def _last_line(output: bytes) -> str:
    """Return the last line with a word of a program's output, at most 200 characters."""
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if any(map(str.isalnum, line))]
    return lines[-1].strip()[:200] if lines else ""

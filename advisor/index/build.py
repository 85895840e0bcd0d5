"""Builds the metadata of an sdist in an isolated environment (`--build-sdists`), which runs the code of the sdist."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from advisor.index.archive import check_members, open_tar, open_zip
from advisor.index.limits import METADATA_BYTES, UNPACKED_BYTES, TooLargeError, bytes_text
from knowledge.domain.errors import UnavailableError
from knowledge.domain.extras import needs_extra


class BuildError(UnavailableError):
    """Raised when the metadata of an sdist cannot be built."""

    code = "sdist-build"


def build_metadata(sdist: BinaryIO, filename: str) -> str:
    """Return the core metadata that the build backend of an sdist generates (PEP 517).

    Args:
        sdist: The sdist.
        filename: File name of the sdist.

    Raises:
        BuildError: If the backend fails or generates no metadata.
        UnavailableError: If the sdist cannot be unpacked.
    """
    import subprocess

    with needs_extra("sdists", "`--build-sdists`"):
        from build import BuildBackendException, BuildException
        from pyproject_hooks import BackendUnavailable

    with tempfile.TemporaryDirectory(prefix="seshat-sdist-") as folder:
        source, output = Path(folder, "source"), Path(folder, "metadata")
        source.mkdir()
        output.mkdir()
        try:
            _unpack(sdist, filename, source)
        except OSError as error:
            raise BuildError(f"`{filename}` cannot be unpacked: {error}") from None
        directories = [path for path in source.iterdir() if path.is_dir()]
        if len(directories) != 1:
            raise BuildError(f"`{filename}` contains {len(directories)} top-level directories, not one")
        try:
            return _built_metadata(directories[0], output)
        except (BuildBackendException, BuildException, BackendUnavailable, subprocess.CalledProcessError) as error:
            raise BuildError(f"building the metadata of `{filename}` failed: {_reason(error)}") from None
        except OSError as error:
            raise BuildError(f"building the metadata of `{filename}` generated none: {error}") from None


def _built_metadata(source: Path, output: Path) -> str:
    """Return the ``METADATA`` file of the build backend, unchanged.

    It is not parsed here, because :mod:`email` cannot write a header with several lines back to text, as older build
    backends write the description.
    """
    from build import ProjectBuilder
    from build.env import DefaultIsolatedEnv

    with DefaultIsolatedEnv() as environment:
        builder = ProjectBuilder.from_isolated_env(environment, source, runner=_run)
        environment.install(builder.build_system_requires)
        environment.install(builder.get_requires_for_build("wheel"))
        with Path(builder.metadata_path(output), "METADATA").open("rb") as file:
            content = file.read(METADATA_BYTES + 1)
    if len(content) > METADATA_BYTES:
        raise BuildError(f"the built metadata exceeds {bytes_text(METADATA_BYTES)}")
    return content.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    """Return the last line of the output of a build backend; the error if there is no output."""
    output = getattr(getattr(error, "exception", error), "output", None) or b""
    lines = output.decode("utf-8", "replace").strip().split("\n") if isinstance(output, bytes) else []
    return (lines[-1] if any(lines) else str(error))[:200]


def _run(cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
    """Run a step of the build without output; an error contains the output."""
    from pyproject_hooks import quiet_subprocess_runner

    quiet_subprocess_runner(cmd, cwd, extra_environ)


def _unpack(sdist: BinaryIO, filename: str, folder: Path) -> None:
    if filename.endswith(".zip"):
        with open_zip(sdist, filename) as archive:
            entries = archive.infolist()
            _check(sum(entry.file_size for entry in entries), len(entries), filename)
            archive.extractall(folder)
        return
    with open_tar(sdist, filename) as tar:
        # The filter rejects members outside of the folder and devices, and removes special permissions (PEP 706).
        tar.extractall(folder, members=_limited_members(tar, filename), filter="data")


def _limited_members(tar: tarfile.TarFile, filename: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive, and raise an error beyond the limits."""
    total = 0
    for count, member in enumerate(tar, start=1):
        total += member.size
        _check(total, count, filename)
        yield member


def _check(total: int, count: int, filename: str) -> None:
    if total > UNPACKED_BYTES:
        raise TooLargeError(f"`{filename}` unpacks to more than {bytes_text(UNPACKED_BYTES)}")
    check_members(count, filename)

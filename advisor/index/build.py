"""Builds an sdist's metadata, in an environment of its own. This runs the sdist's code: only on the user's word."""

from __future__ import annotations

import email.message
import io
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from knowledge.domain.errors import UnavailableError


class BuildError(UnavailableError):
    """Raised when an sdist does not tell its metadata, even by a build."""

    code = "sdist-build"


def build_metadata(body: bytes, filename: str) -> str:
    """Return the core metadata that an sdist's own build backend gives (PEP 517).

    Args:
        body: The sdist.
        filename: Its name.

    Raises:
        BuildError: If it cannot be unpacked, or its backend fails.
    """
    import subprocess

    from build import BuildBackendException, BuildException
    from build.util import project_wheel_metadata
    from pyproject_hooks import BackendUnavailable

    with tempfile.TemporaryDirectory(prefix="seshat-sdist-") as folder:
        try:
            _unpack(body, filename, Path(folder))
            (source,) = [path for path in Path(folder).iterdir() if path.is_dir()]
            found = project_wheel_metadata(source, isolated=True, runner=_run)
            assert isinstance(found, email.message.Message)
            return found.as_bytes().decode("utf-8", "replace")
        except (BuildBackendException, BuildException, BackendUnavailable, subprocess.CalledProcessError) as error:
            output = getattr(getattr(error, "exception", error), "output", None) or b""
            lines = output.decode("utf-8", "replace").strip().splitlines() if isinstance(output, bytes) else []
            reason = (lines[-1] if lines else str(error))[:200]
            raise BuildError(f"building the metadata of `{filename}` failed: {reason}") from None
        except (tarfile.TarError, zipfile.BadZipFile, OSError, ValueError) as error:
            raise BuildError(f"`{filename}` cannot be unpacked: {error}") from None


def _run(cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
    """Run a step of the build silently; its output is in the error."""
    from pyproject_hooks import quiet_subprocess_runner

    quiet_subprocess_runner(cmd, cwd, extra_environ)


def _unpack(body: bytes, filename: str, folder: Path) -> None:
    if filename.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            archive.extractall(folder)
        return
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as tar:
        # No member may leave the folder, be a device or keep special rights (PEP 706).
        tar.extractall(folder, filter="data")

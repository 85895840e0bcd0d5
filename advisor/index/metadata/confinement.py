"""Runs the programs of a build: without credentials, with limits, and without write access to other folders.

Write access is taken away with `bwrap` or `unshare`, where one of them is installed and may be used. Time and memory
are always limited.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from advisor.index.limits import BUILD_MEMORY_BYTES, BUILD_OUTPUT_BYTES, KIB

logger = logging.getLogger(__name__)

_VARIABLES = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "SOURCE_DATE_EPOCH"),
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDA_HOME", "CUDA_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
"""Environment variables that a build sees; others may contain credentials."""

# Arguments: number of writable folders, these folders, the program with its arguments. Every other file system becomes
# read-only; options that an unprivileged user may not change (nosuid, ...) are repeated.
_READ_ONLY = r"""
mount --make-rprivate / || exit 97
count=$1; shift; writable='|'
while [ "$count" -gt 0 ]; do
    mount --bind "$1" "$1" || exit 97
    writable="$writable$1|"; shift; count=$((count - 1))
done
while read -r _ _ _ _ point options _; do
    case "$point/" in /proc/*|/sys/*) continue;; esac
    case "$writable" in *"|$point|"*) continue;; esac
    mount -o "remount,bind,ro${options#r[ow]}" "$point" 2>/dev/null || exit 97
done < /proc/self/mountinfo
# The working directory is still on the file system below the writable folder.
cd "$PWD" || exit 97
exec "$@"
"""
# A shell sets the limit, because running Python code between `fork` and `exec` is not safe in a program with threads.
_LIMITED = 'ulimit -v "$1" 2>/dev/null; shift; exec "$@"'


def run_confined(
    command: Sequence[str],
    *,
    directory: Path,
    writable: Sequence[Path],
    home: Path,
    variables: Mapping[str, str] | None = None,
    seconds: float,
) -> None:
    """Run a program that may write only to some folders, where this can be enforced.

    Args:
        command: The program and its arguments.
        directory: Working directory.
        writable: Folders that the program may change.
        home: Empty folder that is its home directory and holds its temporary files; one of ``writable``.
        variables: Further environment variables.
        seconds: Time limit.

    Raises:
        subprocess.CalledProcessError: If it fails; its output is the last part of what it printed.
        subprocess.TimeoutExpired: If it exceeds the time limit.
        OSError: If it cannot be started.
    """
    inherited = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    environment = {**inherited, **(variables or {}), "HOME": str(home), "TMPDIR": str(home), "PYTHONNOUSERSITE": "1"}
    with tempfile.TemporaryFile() as output:
        limit = ["sh", "-c", _LIMITED, "sh", str(BUILD_MEMORY_BYTES // KIB)] if shutil.which("sh") else []
        prefix = _confined(confinement(), [path.resolve() for path in writable])
        with started(
            [*prefix, *limit, *command], cwd=directory, env=environment, stdout=output, stderr=output
        ) as process:
            status = process.wait(timeout=seconds)
        if status:
            output.seek(max(0, output.seek(0, os.SEEK_END) - BUILD_OUTPUT_BYTES))
            raise subprocess.CalledProcessError(status, list(command), output=output.read())


class StoppableProcesses:
    """Processes of builds that end together, when nobody needs the builds any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    @contextlib.contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """Count the processes that this thread starts meanwhile among these."""
        token = _PROCESSES.set(self)
        try:
            yield
        finally:
            _PROCESSES.reset(token)

    @contextlib.contextmanager
    def started(self, command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process in a session of its own, as :func:`started` does."""
        with self._lock:
            if self._is_stopped:
                raise subprocess.SubprocessError("it was stopped, because nobody needs it any more")
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
            self._running.add(process)
        try:
            yield process
        finally:
            with self._lock:
                self._running.discard(process)
            _kill(process)
            process.wait()

    def stop(self) -> None:
        """Kill all processes with those that they started, and start no more."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                _kill(process)


_PROCESSES: ContextVar[StoppableProcesses | None] = ContextVar("processes", default=None)
"""Among which processes those of this thread count, if any."""


def started(command: Sequence[str], **options: Any) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Start a program with options of `Popen`, and kill it at the end with the processes that it started.

    Raises:
        subprocess.SubprocessError: If the builds of this thread were stopped.
        OSError: If it cannot be started.
    """
    return (_PROCESSES.get() or StoppableProcesses()).started(command, **options)


@cache
def confinement() -> str:
    """Return the program that takes away write access to other folders on this machine; `none` if there is none."""
    with tempfile.TemporaryDirectory(prefix="seshat-try-") as folder:
        for kind in ("bwrap", "unshare"):
            command = [*_confined(kind, [Path(folder)]), "true"]
            if shutil.which(command[0]) is None:
                continue
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                if subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0:
                    return kind
    logger.warning("builds are not confined here, because neither `bwrap` nor `unshare` works: they may write anywhere")
    return "none"


def _confined(kind: str, writable: Sequence[Path]) -> list[str]:
    folders = list(map(str, writable))
    if kind == "bwrap":
        binds = [word for folder in folders for word in ("--bind", folder, folder)]
        return ["bwrap", "--die-with-parent", "--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev", *binds, "--"]
    if kind == "unshare":
        namespaces = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
        # Without capabilities, the program cannot undo the read-only mounts.
        weaken = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--"]
        return ["unshare", *namespaces, "--", "sh", "-c", _READ_ONLY, "sh", str(len(folders)), *folders, *weaken]
    return []


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the processes that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()

"""Runs of the command line in processes that are forked from one that has imported it.

A short command spends most of its time in imports. Forked processes share only the imported modules: each has its own
working directory, environment variables, output and exit status, like a process that is started.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.forked_modules"])


def run_forked(
    arguments: tuple[str, ...], *, cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run the command line; return its output and its exit status.

    Raises:
        TimeoutExpired: If it does not end in time; it is killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = (Path(folder, "stdout"), Path(folder, "stderr"))
        process = _SERVER.Process(target=_main, args=(arguments, cwd, dict(environment), paths))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(["advisor", *arguments], timeout)
        output, errors = (path.read_text(encoding="utf-8") for path in paths)
        return subprocess.CompletedProcess(arguments, process.exitcode, output, errors)


def _main(arguments: tuple[str, ...], cwd: Path, environment: dict[str, str], paths: tuple[Path, Path]) -> None:
    from advisor.cli.app import main

    for number, path in enumerate(paths, start=1):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["advisor", *arguments]
    try:
        main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()

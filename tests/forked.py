"""Runs of the command line in processes that are forked from one that has imported it.

A short command spends most of its time in imports. Forked processes share only the imported modules: each has its own
working directory, environment variables, output and exit status, like a process that is started.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shlex
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.forked_modules"])


def run_forked(
    arguments: tuple[str, ...], *, cwd: Path, environment: Mapping[str, str], timeout: float, standard_input: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command line; return its output and its exit status, or those of the program that it becomes.

    Raises:
        TimeoutExpired: If it does not end in time; it is killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = tuple(Path(folder, name) for name in ("stdin", "stdout", "stderr"))
        paths[0].write_text(standard_input, encoding="utf-8")
        process = _SERVER.Process(target=_main, args=(arguments, cwd, dict(environment), paths))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(["advisor", *arguments], timeout)
        output, errors = (path.read_text(encoding="utf-8") for path in paths[1:])
        return subprocess.CompletedProcess(arguments, process.exitcode, output, errors)


_CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    connection.sendall(json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode())
    connection.shutdown(socket.SHUT_WR)
    code, output, errors = json.load(connection.makefile())
sys.stdout.write(output)
sys.stderr.write(errors)
sys.exit(code)
"""


@contextlib.contextmanager
def forked_command() -> Iterator[str]:
    """Yield a command for other programs to call, which runs the command line with :func:`run_forked`."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            arguments, cwd, environment = json.load(self.rfile)
            done = run_forked(tuple(arguments), cwd=Path(cwd), environment=environment, timeout=600)
            self.wfile.write(json.dumps([done.returncode, done.stdout, done.stderr]).encode())

    # Addresses of sockets have at most 108 characters.
    with tempfile.TemporaryDirectory() as folder:
        client = Path(folder, "client.py")
        client.write_text(_CLIENT, encoding="utf-8")
        with socketserver.UnixStreamServer(f"{folder}/socket", Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
            thread.start()
            yield shlex.join([sys.executable, "-I", "-S", str(client), f"{folder}/socket"])
            server.shutdown()
            thread.join()


def _main(arguments: tuple[str, ...], cwd: Path, environment: dict[str, str], paths: tuple[Path, ...]) -> None:
    from advisor.cli.app import main

    for number, path in enumerate(paths):
        with path.open("wb" if number else "rb") as file:
            os.dup2(file.fileno(), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
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

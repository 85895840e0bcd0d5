"""What tests ask of processes of other programs, and of the command line in the background."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil


def descendants_with(argument: str, *, seconds: float) -> list[int]:
    """Return the descendants of this process that have an argument, once there are any; none if time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [process.pid] if argument in process.cmdline() else []
        if found:
            return found
        time.sleep(0.02)
    return []


def ends_within(pid: int, *, seconds: float) -> bool:
    """Return whether a process that is not ours ends in time. One that nobody waits for stays a zombie."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def start(*arguments: str, cwd: Path, knowledge: Path, **more: str) -> subprocess.Popen[str]:
    """Start the command line with a knowledge base, a cache next to it, and further variables."""
    own = {"ADVISOR_KNOWLEDGE": f"sqlite:///{knowledge}", "ADVISOR_CACHE_DIR": str(knowledge.parent / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", "advisor", *arguments],
        cwd=cwd,
        env={**os.environ, **own, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # commands in the background ignore it
    )

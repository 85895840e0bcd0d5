"""What tests ask of processes of other programs."""

from __future__ import annotations

import time

import psutil


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

"""The file of a SQLite knowledge base: how its journal is kept, and how it is opened where it cannot be written.

In write-ahead logging (WAL) mode readers and the writer do not wait for each other. A write goes to ``FILE-wal``, an
index of that in shared memory is ``FILE-shm``, and a checkpoint copies the log into the file. Sources:
https://sqlite.org/wal.html, https://sqlite.org/uri.html (``immutable``), https://sqlite.org/walformat.html.

- The index is shared by processes of one machine only. On a file system that may be a network's, the rollback journal
  stays: there, a reader and a writer wait for each other.
- A file that cannot be written has neither log nor index beside it unless a writer has it open. It is then read as
  ``immutable``, without locks, so whoever reads it checks afterwards that it did not change.
- SQLite before 3.51.3 may damage a file when a checkpoint and a commit coincide
  (https://sqlite.org/wal.html#walresetbug). So SQLite's own checkpoints are off, and ours run under the writer's lock.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from knowledge.store.base import KnowledgeBaseError

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

PATIENCE_MS = 2000
"""Longest wait for the moment at which nobody has the file open, which a change of the journal mode takes."""
BUSY_MS = 60_000
"""Longest wait for another writer."""
MOST_JOURNAL_BYTES = 4 * 1024 * 1024
"""Size of the write-ahead log from which a write is followed by a checkpoint."""

_PAUSE_SECONDS = (0.001, 0.01)
"""Between two attempts to get the writing lock."""
_MOUNTS = Path("/proc/self/mountinfo")
_LOCAL = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay", "ramfs", "reiserfs", "tmpfs"}
    | {"xfs", "zfs"}
)
"""File systems on which all processes that open a file share its machine's memory."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What changes when somebody writes a file that is read as ``immutable``."""

    path: Path
    inode: int
    size: int
    changed_ns: int
    has_log: bool

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the state of a file now."""
        status = path.stat()
        return cls(path, status.st_ino, status.st_size, status.st_mtime_ns, _size(_log(path)) > 0)

    def check(self) -> None:
        """Look whether the file is still as it was.

        Raises:
            KnowledgeBaseError: If somebody has written it since.
        """
        if not self.path.exists() or FileState.of(self.path) != self:
            raise KnowledgeBaseError(
                f"the knowledge base `{self.path}` was changed while it was read", hint="run the command again"
            )


def path_of(url: URL) -> Path | None:
    """Return the file of a SQLite address, or none where it is in memory."""
    database = url.database or ""
    if database.startswith("file:"):
        database = unquote(database.removeprefix("file:").partition("?")[0])
    return None if database in ("", ":memory:") or url.query.get("mode") == "memory" else Path(database)


def may_write(path: Path) -> bool:
    """Whether a file that exists, and its log beside it, can be written here."""
    return os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)


def connect_read_only(path: Path) -> tuple[sqlite3.Connection, FileState | None]:
    """Open a file for reading, also on a read-only medium.

    Args:
        path: The file.

    Returns:
        The connection, and the state of the file where it is read without locks: check it after reading.

    Raises:
        KnowledgeBaseError: If the file has a log whose transactions cannot be read here.
        sqlite3.Error: If it cannot be opened.
    """
    state = None
    options = "mode=ro"
    if path.exists() and not may_write(path) and not path.with_name(f"{path.name}-shm").exists():
        state = FileState.of(path)
        if state.has_log:
            raise KnowledgeBaseError(
                f"the knowledge base `{path}` cannot be read here: its last writer was killed, and `{_log(path).name}` "
                "beside it holds transactions that have to be written into it first",
                hint="copy both files to a folder that can be written, and name the copy with `--knowledge`",
            )
        options += "&immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{options}"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False), state


def set_journal_mode(engine: Engine, path: Path) -> None:
    """Keep a write-ahead log where the file system allows it, and a rollback journal elsewhere.

    A file that another process has open in the other mode stays as it is; its next opening tries again.
    """
    wanted = "wal" if file_system_of(path) in _LOCAL else "delete"
    with closing(engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA journal_mode")
        if cursor.fetchone() == (wanted,):
            return
        cursor.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
        with suppress(sqlite3.OperationalError):
            cursor.execute(f"PRAGMA journal_mode={wanted}")
        cursor.execute(f"PRAGMA busy_timeout={BUSY_MS}")


def begin_writing(connection: sqlite3.Connection) -> None:
    """Begin a transaction with the file's writing lock, waiting for those who have it.

    SQLite's own waiting sleeps longer from attempt to attempt, up to 0.1 s
    (https://sqlite.org/src/file?name=src/main.c, ``sqliteDefaultBusyCallback``): whoever came last is quickest, and one
    of eight busy writers waited for 18 s. Here all try equally often.

    Raises:
        sqlite3.OperationalError: If the lock is not free for a minute, or the file cannot be written.
    """
    deadline = time.monotonic() + BUSY_MS / 1000
    with closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA busy_timeout=0")
        try:
            while True:
                try:
                    cursor.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                        raise
                time.sleep(random.uniform(*_PAUSE_SECONDS))
        finally:
            cursor.execute(f"PRAGMA busy_timeout={BUSY_MS}")


def checkpoint(engine: Engine, path: Path) -> None:
    """Copy the write-ahead log into the file once it is long; readers neither wait nor are waited for.

    What was committed is safe already: nothing is raised where the file is busy or the disk is full.
    """
    if _size(_log(path)) <= MOST_JOURNAL_BYTES:
        return
    with (
        suppress(sqlite3.Error),
        closing(engine.raw_connection()) as locked,
        closing(engine.raw_connection()) as other,
        closing(locked.cursor()) as lock,
        closing(other.cursor()) as cursor,
    ):
        # Where another one has the lock already, it is that one's turn to do this.
        lock.execute("PRAGMA busy_timeout=0")
        try:
            # Keeps commits out: a checkpoint cannot be made within a transaction of its own.
            lock.execute("BEGIN IMMEDIATE")
            try:
                cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
            finally:
                lock.execute("ROLLBACK")
        finally:
            lock.execute(f"PRAGMA busy_timeout={BUSY_MS}")


def file_system_of(path: Path) -> str:
    """Return the type of the file system that a file is or would be on; empty where that is not known."""
    place = path.absolute().resolve()
    above = [(len(mount), kind) for mount, kind in _mounts() if place.is_relative_to(mount)]
    # Of two mounts on one place, the later one covers the other.
    return max(enumerate(above), key=lambda found: (found[1][0], found[0]))[1][1] if above else ""


def _mounts() -> list[tuple[str, str]]:
    """Return mount points and types, oldest first (proc_pid_mountinfo(5))."""
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).split("\n")
    except OSError:
        return []
    found = []
    for line in lines:
        place, separator, kind = line.partition(" - ")
        if separator:
            mount = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place.split(" ")[4])
            found.append((mount, kind.split(" ")[0]))
    return found


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

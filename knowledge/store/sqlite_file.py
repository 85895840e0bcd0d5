"""The file of a SQLite knowledge base: its journal mode, its locks, and read-only access.

In write-ahead logging (WAL) mode, readers and the writer do not wait for each other. Writes go to ``FILE-wal``,
``FILE-shm`` is an index of it in shared memory, and a checkpoint copies the log into the file. Sources:
https://sqlite.org/wal.html, https://sqlite.org/uri.html (``immutable``), https://sqlite.org/walformat.html.

- Only processes of one machine share the index. On a file system that may be a network file system, the rollback
  journal is used: a reader and a writer wait for each other.
- A read-only file has no log and no index unless a writer has it open. It is then read as ``immutable``, without locks,
  and the reader checks afterwards that the file did not change.
- SQLite before 3.51.3 may damage a file if a checkpoint and a commit happen at the same time
  (https://sqlite.org/wal.html#walresetbug). SQLite's automatic checkpoints are therefore disabled, and this program
  runs its own checkpoints under the write lock.
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
"""Longest wait, in milliseconds, until no other process has the file open, to change the journal mode."""
BUSY_MS = 60_000
"""Longest wait for another writer, in milliseconds."""
MOST_JOURNAL_BYTES = 4 * 1024 * 1024
"""Size of the write-ahead log above which a checkpoint follows a write."""

_PAUSE_SECONDS = (0.001, 0.01)
"""Shortest and longest pause between two attempts to get the write lock."""
_MOUNTS = Path("/proc/self/mountinfo")
_LOCAL = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay", "ramfs", "reiserfs", "tmpfs"}
    | {"xfs", "zfs"}
)
"""Local file systems: all processes that open a file run on the same machine."""


@dataclass(frozen=True, slots=True)
class FileState:
    """State of a file that is read as ``immutable``: it changes when another process writes the file."""

    path: Path
    inode: int
    size: int
    changed_ns: int
    has_log: bool

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the state of a file now."""
        status = path.stat()
        unfinished = any(_size(log) > 0 for log in _logs(path))
        return cls(path, status.st_ino, status.st_size, status.st_mtime_ns, unfinished)

    def check(self) -> None:
        """Check that the file has not changed.

        Raises:
            KnowledgeBaseError: If another process has written it.
        """
        if not self.path.exists() or FileState.of(self.path) != self:
            raise KnowledgeBaseError(
                f"the knowledge base `{self.path}` was changed while it was read", hint="run the command again"
            )


def path_of(url: URL) -> Path | None:
    """Return the file of a SQLite address, or ``None`` if the database is in memory."""
    database = url.database or ""
    if database.startswith("file:"):
        database = unquote(database.removeprefix("file:").partition("?")[0])
    return None if database in ("", ":memory:") or url.query.get("mode") == "memory" else Path(database)


def may_write(path: Path) -> bool:
    """Whether an existing file and its log can be written."""
    return os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)


def connect_read_only(path: Path) -> tuple[sqlite3.Connection, FileState | None]:
    """Open a file for reading, also on a read-only medium.

    Returns:
        The connection, and the state of the file if it is read without locks: check it after reading.

    Raises:
        KnowledgeBaseError: If the file has a log whose transactions cannot be read here.
        sqlite3.Error: If it cannot be opened.
    """
    state = None
    options = "mode=ro"
    if path.exists() and not may_write(path) and not path.with_name(f"{path.name}-shm").exists():
        state = FileState.of(path)
        if state.has_log:
            log = next(log for log in _logs(path) if _size(log) > 0)
            raise KnowledgeBaseError(
                f"the knowledge base `{path}` cannot be read here: its last writer was killed, and `{log.name}` holds "
                "data that must be written into it first",
                hint="copy both files to a folder where you can write, and name the copy with `--knowledge`",
            )
        options += "&immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{options}"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False), state


def set_journal_mode(engine: Engine, path: Path) -> None:
    """Use a write-ahead log on local file systems, and a rollback journal elsewhere.

    If another process has the file open in the other mode, the mode stays; the next opening tries again.
    """
    mode = "wal" if file_system_of(path) in _LOCAL else "delete"
    with closing(engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA journal_mode")
        if cursor.fetchone() == (mode,):
            return
        cursor.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
        with suppress(sqlite3.OperationalError):
            cursor.execute(f"PRAGMA journal_mode={mode}")
        cursor.execute(f"PRAGMA busy_timeout={BUSY_MS}")


def begin_writing(connection: sqlite3.Connection) -> None:
    """Begin a transaction that holds the write lock of the file, and wait for other writers.

    SQLite's own busy handler waits longer after each attempt, up to 0.1 s
    (https://sqlite.org/src/file?name=src/main.c, ``sqliteDefaultBusyCallback``), so the newest waiter gets the lock
    first: one of eight busy writers waited for 18 s. Here all writers try equally often.

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
    """Copy a long write-ahead log into the file, without waiting for readers.

    Commits are safe without it: nothing is raised if the file is busy or the disk is full.
    """
    log, _ = _logs(path)
    if _size(log) <= MOST_JOURNAL_BYTES:
        return
    with (
        suppress(sqlite3.Error),
        closing(engine.raw_connection()) as locked,
        closing(engine.raw_connection()) as other,
        closing(locked.cursor()) as lock,
        closing(other.cursor()) as cursor,
    ):
        # Do not wait: the process that holds the lock makes the checkpoint after its own write.
        lock.execute("PRAGMA busy_timeout=0")
        try:
            # The lock prevents commits; the checkpoint itself needs a second connection, outside this transaction.
            lock.execute("BEGIN IMMEDIATE")
            try:
                cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
            finally:
                lock.execute("ROLLBACK")
        finally:
            lock.execute(f"PRAGMA busy_timeout={BUSY_MS}")


def file_system_of(path: Path) -> str:
    """Return the type of the file system of an existing or future file; empty if unknown."""
    place = path.absolute().resolve()
    above = [(len(mount), kind) for mount, kind in _mounts() if place.is_relative_to(mount)]
    # Of two mounts at the same mount point, the later one hides the other.
    return max(enumerate(above), key=lambda entry: (entry[1][0], entry[0]))[1][1] if above else ""


def _mounts() -> list[tuple[str, str]]:
    """Return mount points and types, oldest first (proc_pid_mountinfo(5))."""
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).split("\n")
    except OSError:
        return []
    mounts = []
    for line in lines:
        place, separator, kind = line.partition(" - ")
        if separator:
            mount = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place.split(" ")[4])
            mounts.append((mount, kind.split(" ")[0]))
    return mounts


def _logs(path: Path) -> tuple[Path, Path]:
    """Return the write-ahead log and the rollback journal of a file."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

"""A disk cache of downloads; damaged entries are detected and ignored."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path

from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import write_atomically

SOURCE_FORMAT = 3
"""Version of the cached metadata of sdists, repositories and directories; raise it when other files of them are read.

It belongs to their keys, because reading them again needs the network, or a build. Other computed values are answers,
which need no such number (:mod:`advisor.index.memo`).
"""
_DIGEST_CHARACTERS = 64
_DAY_SECONDS = 86_400


class DiskCache:
    """A directory of entries, each with a checksum of its content.

    Safe for several threads and processes: entries are replaced atomically.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.damaged: list[Path] = []
        """Damaged entries so far; they are treated as absent."""

    def path_of(self, bucket: str, key: str) -> Path:
        """Return the file of the entry for ``key``."""
        return self.directory / bucket / hashlib.sha256(key.encode()).hexdigest()

    def read(self, bucket: str, key: str) -> bytes | None:
        """Return the entry for ``key``; `None` if it is absent or damaged."""
        path = self.path_of(bucket, key)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        content = stored[_DIGEST_CHARACTERS:]
        if hashlib.sha256(content).hexdigest().encode() != stored[:_DIGEST_CHARACTERS]:
            if path not in self.damaged:
                self.damaged.append(path)
            return None
        return content

    def write(self, bucket: str, key: str, content: bytes) -> None:
        """Store an entry; errors of a full or read-only disk are ignored."""
        path = self.path_of(bucket, key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A power failure may damage an entry; the checksum detects this.
            write_atomically(path, hashlib.sha256(content).hexdigest().encode() + content, durable=False)
        except (OSError, InputError):
            return

    def prune(self, bucket: str, days: int) -> None:
        """Remove entries of a bucket that are older than some days; once a day, because this looks at every entry."""
        mark, now = self.path_of("pruned", bucket), time.time()
        try:
            if mark.exists() and now - mark.stat().st_mtime < _DAY_SECONDS:
                return
            self.write("pruned", bucket, b"")
            for path in (self.directory / bucket).iterdir():
                # Another process may remove the same entries.
                with suppress(FileNotFoundError):
                    if now - path.stat().st_mtime > days * _DAY_SECONDS:
                        path.unlink()
        except OSError:
            # The disk is read-only.
            return

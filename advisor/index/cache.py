"""What was fetched once, kept on disk; a damaged entry is noticed and never used."""

from __future__ import annotations

import hashlib
from pathlib import Path

from knowledge.domain.atomic_file import write_atomically
from knowledge.domain.errors import InputError

_DIGEST = 64


class DiskCache:
    """A directory of entries, each stored under its own checksum.

    Safe for several threads and processes: entries are replaced atomically.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.damaged: list[Path] = []
        """Entries found damaged so far; they count as absent."""

    def path_of(self, bucket: str, key: str) -> Path:
        """Return the file that holds the entry for ``key``."""
        return self.directory / bucket / hashlib.sha256(key.encode()).hexdigest()

    def read(self, bucket: str, key: str) -> bytes | None:
        """Return the entry for ``key``, or none where it is absent or damaged."""
        path = self.path_of(bucket, key)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        content = stored[_DIGEST:]
        if hashlib.sha256(content).hexdigest().encode() != stored[:_DIGEST]:
            if path not in self.damaged:
                self.damaged.append(path)
            return None
        return content

    def write(self, bucket: str, key: str, content: bytes) -> None:
        """Store an entry; a full or read-only disk only costs the next run its speed."""
        path = self.path_of(bucket, key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A loss of power may damage an entry; the digest then makes it count as absent.
            write_atomically(path, hashlib.sha256(content).hexdigest().encode() + content, durable=False)
        except (OSError, InputError):
            return

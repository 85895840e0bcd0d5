"""The observation files that ship with the program, and their version."""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import json
import zlib
from dataclasses import dataclass

from knowledge.domain.documents import lines_of
from knowledge.store.base import KnowledgeBaseError

VERSION_FILE = "version.json"
"""Name of the file in ``knowledge/data`` with the version of the shipped data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedFile:
    """An observation file that is a part of the program.

    Attributes:
        name: Name of the file in ``knowledge/data``.
        sha256: Hash of its content.
        content: Its content, compressed if the name ends with ``.gz``.
    """

    name: str
    sha256: str
    content: bytes

    def lines(self) -> list[str]:
        """Return the lines of the file.

        Raises:
            KnowledgeBaseError: If the file is damaged.
        """
        try:
            content = gzip.decompress(self.content) if self.name.endswith(".gz") else self.content
        except (OSError, EOFError, zlib.error) as error:
            raise KnowledgeBaseError(
                f"the file `{self.name}` of the program is damaged: {error}", hint="install `seshat-advisor` again"
            ) from None
        return lines_of(content.decode("utf-8"))


def shipped_files() -> tuple[ShippedFile, ...]:
    """Return all observation files that ship with the program, ordered by name."""
    files = sorted(importlib.resources.files("knowledge.data").iterdir(), key=lambda file: file.name)
    contents = [(file.name, file.read_bytes()) for file in files if file.name.endswith((".jsonl", ".jsonl.gz"))]
    return tuple(
        ShippedFile(name=name, sha256=hashlib.sha256(content).hexdigest(), content=content)
        for name, content in contents
    )


def shipped_version() -> int:
    """Return the version of the shipped data: a later one has a higher number."""
    return int(json.loads((importlib.resources.files("knowledge.data") / VERSION_FILE).read_text("utf-8"))["version"])

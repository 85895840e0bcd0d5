"""Answers of the program, remembered until anything that they depend on changes.

The cache of the indexes holds two kinds of entries. Downloads are valid for every version of the program
(:class:`~advisor.index.cache.DiskCache`). Answers are what the program computes from downloads, files and
observations: they are valid only for the program that computed them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.index.cache import DiskCache
from knowledge.domain.identity import canonical_json, content_hash, hash_of_text, plain

_PACKAGES = ("advisor", "knowledge", "pi_runners")
_DAYS = 30
"""How long an answer is kept. Most answers are never read again, because files, pages and the program change."""


class Memo:
    """Answers of one kind, each to a question that names everything that the answer depends on.

    A question has values of any type of :func:`knowledge.domain.identity.plain`, an answer has JSON-ready values.
    The program itself belongs to every question. Another version of the program does not find the answers of this one,
    so that it cannot misread them, and no answer needs a version number of its own.
    """

    def __init__(self, cache: DiskCache, kind: str) -> None:
        """Create a memo; this reads nothing.

        Args:
            cache: The cache that holds the answers.
            kind: What the answers are, such as ``predictions``; equal questions of two kinds have two answers.
        """
        self._cache = cache
        self._kind = kind

    def read(self, question: Any) -> Any:
        """Return the answer to a question, or `None` if it is not known."""
        content = self._cache.read(self._kind, self._key(question))
        return None if content is None else json.loads(content)

    def write(self, question: Any, answer: Any) -> None:
        """Remember the answer to a question."""
        self._write(self._key(question), json.dumps(answer).encode())

    def knows(self, question: Any) -> bool:
        """Whether the answer to a question is known; it is not read."""
        return self._cache.path_of(self._kind, self._key(question)).exists()

    def answer(self, question: Any, compute: Callable[[], Any]) -> Any:
        """Return the remembered answer to a question, or compute and remember it.

        It is always read from JSON, also the first time: tuples are lists.
        """
        key = self._key(question)
        content = self._cache.read(self._kind, key)
        if content is None:
            content = json.dumps(compute()).encode()
            self._write(key, content)
        return json.loads(content)

    def _write(self, key: str, content: bytes) -> None:
        self._cache.write(self._kind, key, content)
        self._cache.prune(self._kind, _DAYS)

    def _key(self, question: Any) -> str:
        return canonical_json([program_digest(), plain(question)])


@lru_cache(maxsize=1)
def program_digest() -> str:
    """Return a hash of the files of the program, with what ships in them."""
    return files_digest(Path(__file__).parents[2])


def files_digest(folder: Path) -> str:
    """Return a hash of the program's files in a folder.

    Installers record the hash of each file that they install. If these records exist, the digest is the same on every
    machine, and a cache that is copied from another machine, as in CI, stays valid. Otherwise it consists of sizes and
    times, which change when the program is edited.
    """
    packages = tuple(f"{package}/" for package in _PACKAGES)
    recorded = [
        line
        for record in folder.glob("seshat_advisor-*.dist-info/RECORD")
        for line in record.read_text(encoding="utf-8").splitlines()
        if line.startswith(packages) and ",sha256=" in line
    ]
    if recorded:
        return hash_of_text("\n".join(sorted(recorded)))
    return content_hash([state for package in _PACKAGES for state in _states(str(folder / package))])


def _states(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of each file below a folder, without compiled files."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _states(entry.path)
            else:
                state = entry.stat()
                yield entry.path, state.st_size, state.st_mtime_ns

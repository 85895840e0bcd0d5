"""What wheels require on a target, remembered: most of what their metadata says is for extras and other machines."""

from __future__ import annotations

import json
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement

from advisor.domain.target import Target
from advisor.index.cache import DiskCache
from advisor.index.page import DistributionFile

_BUCKET = "requires"
_FORMAT = 1
"""To be raised when what is remembered changes its meaning."""


class KeptRequirements:
    """Requirements of files that were read and found usable, for one target."""

    def __init__(self, target: Target, cache: DiskCache) -> None:
        self._cache = cache
        self._target = f"{_FORMAT} {target.python} {target.platform}"

    def holds(self, file: DistributionFile) -> bool:
        """Whether what a file requires by itself is kept."""
        return file.sha256 is not None and self._cache.path_of(_BUCKET, self._key(file, None)).exists()

    def read(self, file: DistributionFile, extra: str | None) -> tuple[Requirement, ...] | None:
        """Return what a file requires, or requires more with an extra; none where that is not kept."""
        content = self._cache.read(_BUCKET, self._key(file, extra)) if file.sha256 else None
        if content is None:
            return None
        try:
            return tuple(Requirement(text) for text in json.loads(content))
        except (ValueError, TypeError, InvalidRequirement):
            return None  # Written by another version of the program.

    def write(self, file: DistributionFile, extra: str | None, requirements: Iterable[Requirement]) -> None:
        """Keep what a file requires, where its hash is known: the file of another one's name may be another."""
        if file.sha256:
            self._cache.write(_BUCKET, self._key(file, extra), json.dumps([str(r) for r in requirements]).encode())

    def _key(self, file: DistributionFile, extra: str | None) -> str:
        return f"{self._target} {extra or ''} {file.identity}"

"""Cache of the requirements of wheels on a target; most of a wheel's metadata is for extras and other targets."""

from __future__ import annotations

import json
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement

from advisor.domain.target import Target
from advisor.index.cache import DiskCache
from advisor.index.pages.page import DistributionFile

_BUCKET = "requires"
_FORMAT = 1
"""Version of the cached values; raise it when their meaning changes."""


class RequirementsCache:
    """Cached requirements of files whose metadata is usable, for one target."""

    def __init__(self, target: Target, cache: DiskCache) -> None:
        self._cache = cache
        self._target = f"{_FORMAT} {target.python} {target.platform}"

    def holds(self, file: DistributionFile) -> bool:
        """Whether the requirements of a file, without extras, are cached."""
        return file.sha256 is not None and self._cache.path_of(_BUCKET, self._key(file, None)).exists()

    def read(self, file: DistributionFile, extra: str | None) -> tuple[Requirement, ...] | None:
        """Return the requirements of a file, or the additional ones of an extra; none if they are not cached."""
        content = self._cache.read(_BUCKET, self._key(file, extra)) if file.sha256 else None
        if content is None:
            return None
        try:
            return tuple(Requirement(text) for text in json.loads(content))
        except (ValueError, TypeError, InvalidRequirement):
            return None  # Written by another version of the program.

    def write(self, file: DistributionFile, extra: str | None, requirements: Iterable[Requirement]) -> None:
        """Cache the requirements of a file if its hash is known; files of the same name may differ."""
        if file.sha256:
            self._cache.write(_BUCKET, self._key(file, extra), json.dumps([str(r) for r in requirements]).encode())

    def _key(self, file: DistributionFile, extra: str | None) -> str:
        return f"{self._target} {extra or ''} {file.identity}"

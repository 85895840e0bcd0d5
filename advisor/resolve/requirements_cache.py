"""Cache of the requirements of wheels on a target; most of a wheel's metadata is for extras and other targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from packaging.requirements import Requirement

from advisor.domain.target import Target
from advisor.index.cache import DiskCache
from advisor.index.memo import Memo
from advisor.index.pages.page import DistributionFile


class RequirementsCache:
    """Cached requirements of files whose metadata is usable, for one target."""

    def __init__(self, target: Target, cache: DiskCache) -> None:
        self._memo = Memo(cache, "requires")
        self._target = target

    def holds(self, file: DistributionFile) -> bool:
        """Whether the requirements of a file, without extras, are cached."""
        return file.sha256 is not None and self._memo.knows(self._question(file, None))

    def read(self, file: DistributionFile, extra: str | None) -> tuple[Requirement, ...] | None:
        """Return the requirements of a file, or the additional ones of an extra; none if they are not cached."""
        texts = self._memo.read(self._question(file, extra)) if file.sha256 else None
        return None if texts is None else tuple(map(Requirement, texts))

    def write(self, file: DistributionFile, extra: str | None, requirements: Iterable[Requirement]) -> None:
        """Cache the requirements of a file if its hash is known; files of the same name may differ."""
        if file.sha256:
            self._memo.write(self._question(file, extra), [str(r) for r in requirements])

    def _question(self, file: DistributionFile, extra: str | None) -> list[Any]:
        return [self._target.python, self._target.platform, extra, file.identity]

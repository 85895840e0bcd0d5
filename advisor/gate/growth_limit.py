"""The allowed growth of the download: a size or a percentage."""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.domain.words import parse_size, size_text

_PERCENTAGE = re.compile(r"\s*(?P<number>\d{1,12}(?:\.\d{1,12})?)\s*%\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthLimit:
    """The allowed growth of the download; one of the two is none.

    Attributes:
        size: Size in bytes.
        fraction: Fraction of the download of the base.
    """

    size: int | None = None
    fraction: float | None = None

    @classmethod
    def parse(cls, text: str) -> GrowthLimit | None:
        """Return the limit that a text such as ``200 MB`` or ``10 %`` states; none if it states none."""
        if match := _PERCENTAGE.fullmatch(text):
            return cls(fraction=float(match["number"]) / 100)
        size = parse_size(text)
        return None if size is None else cls(size=size)

    def allows(self, growth: int, *, base: int) -> bool:
        """Whether a download may grow.

        Args:
            growth: The growth in bytes.
            base: The download of the base in bytes.
        """
        return growth <= (self.size if self.size is not None else (self.fraction or 0.0) * base)

    def __str__(self) -> str:
        return size_text(self.size) if self.size is not None else f"{100 * (self.fraction or 0.0):g} %"

"""The allowed growth of the download: a size or a percentage."""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.domain.words import size_text

_LIMIT = re.compile(r"\s*(?P<number>\d{1,12}(?:\.\d{1,12})?)\s*(?P<unit>%|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*")
_DECIMAL = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


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
        match = _LIMIT.fullmatch(text)
        if match is None:
            return None
        number = float(match["number"])
        if match["unit"] == "%":
            return cls(fraction=number / 100)
        return cls(size=round(number * (_DECIMAL | _BINARY)[match["unit"]]))

    def allows(self, growth: int, *, base: int) -> bool:
        """Whether a download may grow.

        Args:
            growth: The growth in bytes.
            base: The download of the base in bytes.
        """
        return growth <= (self.size if self.size is not None else (self.fraction or 0.0) * base)

    def __str__(self) -> str:
        return size_text(self.size) if self.size is not None else f"{100 * (self.fraction or 0.0):g} %"

"""Parameters of indicators."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple


class Parameter(NamedTuple):
    """A parameter of an indicator.

    Attributes:
        meaning: Description for people.
        least: Smallest valid number.
        most: Largest valid number.
        default: Default value; none if the parameter is required.
        choices: Valid words; empty if the parameter is a number.
    """

    meaning: str
    least: int = 1
    most: int = 2**27
    default: Any = None
    choices: Tuple[str, ...] = ()

    def complaint(self, value: Any) -> Optional[str]:
        """Return why a value is not valid, or none."""
        if self.choices:
            return None if value in self.choices else "must be one of {}".format(", ".join(self.choices))
        if isinstance(value, bool) or not isinstance(value, int):
            return "must be an integer"
        if not self.least <= value <= self.most:
            return "must be from {} to {}".format(self.least, self.most)
        return None

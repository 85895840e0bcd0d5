"""Number of examples of property tests: a part of them in each run, all in `.ci/slow`."""

from __future__ import annotations

import os

_PART = 8
_FEWEST = 10


def examples(number: int) -> int:
    """Return how many examples of a property are tried: all if the variable `ALL_EXAMPLES` is set, else an eighth.

    Args:
        number: Number of all of them.
    """
    return number if os.environ.get("ALL_EXAMPLES") else max(_FEWEST, number // _PART)

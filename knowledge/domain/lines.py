"""Splitting of a text into lines that are records."""

from __future__ import annotations


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text, which end only with ``\n`` or ``\r\n``.

    ``str.splitlines`` also splits at characters that a message may contain, such as U+2028 and U+0085.
    """
    if not text:
        return []
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]

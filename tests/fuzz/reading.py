"""Reads a document with a parser, and accepts only documented errors."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.fuzz.harness import watchdog
from tests.fuzz.parsers import PARSERS, Documented


def read(name: str, content: bytes) -> bool:
    """Read a document; return whether it was refused as documented."""
    with tempfile.TemporaryDirectory() as folder, watchdog():
        try:
            PARSERS[name].read(content, Path(folder))
        except Documented as error:
            # A single line that any terminal and log can show.
            assert str(error).strip()
            return True
    return False

"""Tables of timm: the small ones of the repository, and the real ones where they are present."""

from __future__ import annotations

from pathlib import Path

TABLES = Path(__file__).parents[1] / "fixtures" / "timm"


REAL = Path(__file__).parents[3] / "shared" / "data" / "timm"

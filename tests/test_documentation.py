"""What is generated is current, and what is shown can be typed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_generated_pages_are_current() -> None:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    stale = [path.name for path, text in module.pages().items() if path.read_text(encoding="utf-8") != text]

    assert stale == [], "run `python docs/generate.py`"
    assert {p.name for p in (DOCS / "reference" / "indicators").glob("*.md")} == {
        path.name for path in module.pages() if path.parent.name == "indicators"
    }

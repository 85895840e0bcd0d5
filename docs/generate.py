"""Writes the reference pages of indicators and settings: `python docs/generate.py`. A test says they are current."""

from __future__ import annotations

from pathlib import Path

from advisor.report.indicators import indicator_page, settings_page
from pi_runners.indicators import INDICATORS

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[Path, str]:
    """Return every generated page by its path."""
    folder = REFERENCE / "indicators"
    found = {folder / f"{name}.md": indicator_page(indicator) for name, indicator in INDICATORS.items()}
    listed = [f"- [{name}]({name}.md): {indicator.summary}" for name, indicator in INDICATORS.items()]
    found[folder / "README.md"] = "\n".join(["# Performance indicators", "", *listed, ""])
    found[REFERENCE / "settings.md"] = settings_page()
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

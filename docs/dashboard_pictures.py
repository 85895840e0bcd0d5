"""Takes the pictures of the dashboard, in light and dark: `python docs/dashboard_pictures.py [FOLDER]`.

It needs what `docs/screenshots.py` needs, and uv: a small campaign is measured for the page of campaigns. With a
folder, it also takes narrow pictures, which are not part of the documentation.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from docs.screenshots import FOLDER

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTH, HEIGHT, NARROW = 1200, 760, 390
PROJECT = {
    "pyproject.toml": (
        '[project]\nname = "classifier"\nrequires-python = ">=3.12"\n'
        'dependencies = ["torch", "numpy<2", "pandas<2.2"]\n'
        '[tool.advisor]\nhardware = "v100"\npython = "3.12"\n'
    ),
    "matrix.toml": (
        'name = "sorting"\nrounds = 2\nsamples = 2\nmin-time = 0.001\n'
        'indicators = [{ name = "sort", parameters = { rows = 4, columns = 16 } }]\n'
        '[[stack]]\nframework = "numpy>=2.2,<2.5"\n'
    ),
}
PAGES = {
    "advice": "advice",
    "overview": "overview",
    "compare": "compare",
    "arm": "compare",
    "history": "history?framework=torch",
    "hardware": "hardware?machines=a100+h100+h200&workload=transformer-training",
    "campaigns": "campaigns",
    "administration": "administration",
}
"""Name of each picture, and the address of its page."""


@contextmanager
def dashboard() -> Iterator[str]:
    """Run `advisor dashboard` in a project, after a small campaign; yield its address with the token."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in PROJECT.items():
            (Path(folder) / name).write_text(content, encoding="utf-8")
        variables = {**os.environ, "ADVISOR_KNOWLEDGE": f"sqlite:///{folder}/data/knowledge.sqlite"}
        (Path(folder) / "data").mkdir()
        command = [sys.executable, "-m", "advisor"]
        subprocess.run([*command, "pi", "campaign", "matrix.toml"], cwd=folder, env=variables, check=True)
        for role, source in (("runner", "cluster"), ("reader", "a colleague")):
            token = [*command, "knowledge", "token", "create", source, "--role", role]
            subprocess.run(token, env=variables, check=True, stdout=subprocess.DEVNULL)
        process = subprocess.Popen(
            [*command, "dashboard", "--no-browser"], cwd=folder, env=variables, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait()


def wait_for(page: Page, name: str) -> None:
    """Wait until a page shows what the picture is about."""
    selectors = {
        "advice": "#what-if:not([hx-get])",
        "hardware": ".pareto",
        "history": "table",
        "arm": "#detail article",
    }
    if name == "arm":
        page.locator(".row .label a").nth(3).click()
    if name == "campaigns":
        page.locator("td a").first.click()
    page.wait_for_load_state()
    if name in selectors:
        page.wait_for_selector(selectors[name], timeout=180_000, state="attached")
    time.sleep(0.5)
    page.evaluate("document.querySelector('#detail').scrollIntoView()" if name == "arm" else "scrollTo(0, 0)")


def main(folder: Path | None = None) -> None:
    """Take all pictures.

    Args:
        folder: Where narrow pictures are written, too.
    """
    with dashboard() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        origin = address.partition("/?")[0]
        for width, target in ((WIDTH, FOLDER), *([(NARROW, folder)] if folder else [])):
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
                page = context.new_page()
                page.goto(address)
                for name, path in PAGES.items():
                    page.goto(f"{origin}/{path}")
                    if name == "history":
                        # The first visit reads the histories.
                        page.wait_for_selector("table", timeout=180_000)
                    wait_for(page, name)
                    page.screenshot(path=target / f"dashboard-{name}-{scheme}.png")
                context.close()
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

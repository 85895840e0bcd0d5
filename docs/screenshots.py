"""Takes the screenshots of the HTML reports, in light and dark: `python docs/screenshots.py [FOLDER]`.

It needs the configured package index, playwright (`pip install -e '.[test]'`), and Chromium: the environment variable
`CHROMIUM` names another one than `/usr/bin/chromium`.
What was uploaded after :data:`UNTIL` is ignored, and only the observations that ship are used, so that the pictures
change only with the program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent / "images"
UNTIL = "2026-11-01"
WIDTH, HEIGHT = 1000, 780

PROJECTS = {
    "advice": (
        {"requirements.txt": "torch\nnumpy<2\npandas<2.2\n"},
        ["advise", "--dry-run", "--hardware", "v100", "--python", "3.12"],
    ),
    "check": (
        {
            "requirements.txt": "tensorflow-cpu==2.12.1\nnumpy==2.0.2\n",
            "before.txt": "tensorflow-cpu==2.20.0\nnumpy==2.0.2\n",
        },
        ["check", "--base", "before.txt", "--hardware", "cpu-zen4", "--python", "3.11", "--workload", "cnn-training"],
    ),
}
"""For each report the files of a project, and the command that makes it."""


def report(files: dict[str, str], command: list[str]) -> str:
    """Return the HTML report of a command in a project.

    Args:
        files: Content of the project's files, by name.
        command: Words of the command, without the format.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_text(content, encoding="utf-8")
        process = subprocess.run(
            [sys.executable, "-m", "advisor", *command, "--exclude-newer", UNTIL, "--format", "html"],
            cwd=folder,
            env={**os.environ, "ADVISOR_KNOWLEDGE": f"sqlite:///{folder}/knowledge.sqlite"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    # Exit code 1 of the gate is what the picture is to show; a crash has it, too, and no report.
    if process.returncode not in (0, 1) or not process.stdout:
        sys.exit(f"error: `advisor {' '.join(command)}` ended with exit code {process.returncode}")
    return process.stdout


def main(folder: Path = FOLDER) -> None:
    """Take all screenshots.

    Args:
        folder: Where the pictures are written.
    """
    folder.mkdir(exist_ok=True)
    pages = {name: report(*project) for name, project in PROJECTS.items()}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
            page = context.new_page()
            for name, content in pages.items():
                page.set_content(content)
                page.screenshot(path=folder / f"{name}-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

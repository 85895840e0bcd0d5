"""Builds the documentation site: `python -m docs [FOLDER]`, by default into `docs/_build`."""

from __future__ import annotations

import sys
from pathlib import Path

PAGES = Path(__file__).parent


def build(pages: Path, folder: Path, *, builder: str = "html") -> int:
    """Build the site; a warning, such as a link to a heading that does not exist, is an error.

    Args:
        pages: The folder of the pages.
        folder: The folder to build into.
        builder: Sphinx's builder: `html`, or `dummy`, which reads the pages and resolves their links only.

    Returns:
        The exit status: 0 if the site was built without a warning.
    """
    from sphinx.cmd.build import build_main

    options = ["--builder", builder, "--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", str(PAGES)]
    return int(build_main([*options, "--doctree-dir", str(folder / ".doctrees"), str(pages), str(folder)]))


def main(arguments: list[str]) -> int:
    """Build the site and print where it is.

    Args:
        arguments: The folder to build into, or nothing.

    Returns:
        The exit status: that of the build, or 2 if Sphinx is not installed.
    """
    folder = Path(arguments[0]) if arguments else PAGES / "_build"
    try:
        status = build(PAGES, folder)
    except ModuleNotFoundError as error:
        print(f"error: `{error.name}` is not installed\nhint: run `pip install -e '.[docs]'`", file=sys.stderr)
        return 2
    if not status:
        print(f"built `{folder / 'index.html'}`")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

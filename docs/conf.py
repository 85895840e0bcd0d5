"""Configuration of the documentation site, which `python -m docs` builds."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Seshat"
author = "The Seshat developers"
copyright = author
release = importlib.metadata.version("seshat-advisor")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
# A link to something that does not exist is a warning, and `python -m docs` makes warnings errors.
nitpicky = True
# Types in signatures are names of Python and of other packages, which have no page here.
nitpick_ignore_regex = [("py:.*", ".*")]
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
# Headings get the anchors that GitHub gives them, so that the same link works in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = "Seshat"
html_copy_source = False
html_show_sphinx = False

TABLES_OF_CONTENTS = {"reference/indicators/README": "*"}
"""Pages that list other pages for a reader on GitHub, and the pages below them on the site."""


def add_table_of_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the table of contents of a page that is also read on GitHub, where the directive would show as code."""
    if page in TABLES_OF_CONTENTS:
        source[0] += f"\n```{{toctree}}\n:glob:\n:hidden:\n\n{TABLES_OF_CONTENTS[page]}\n```\n"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension that this file is.

    Args:
        app: Sphinx.

    Returns:
        What Sphinx asks of an extension.
    """
    app.connect("source-read", add_table_of_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

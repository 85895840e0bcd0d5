"""Parts of docstrings, for reference pages that are generated from the program."""

from __future__ import annotations

import inspect
import re


def summary_of(documented: type) -> str:
    """Return the first paragraph of the docstring of a class."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def attribute_meanings(documented: type) -> dict[str, str]:
    """Return the meanings of the attributes of a class, from its docstring, in Markdown."""
    documentation = inspect.getdoc(documented) or ""
    attributes = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", documentation, re.MULTILINE)
    return {name: " ".join(meaning.replace("``", "`").split()) for name, meaning in attributes}

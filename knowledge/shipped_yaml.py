"""YAML files that ship with the program, in the packages that read them."""

from __future__ import annotations

import importlib.resources
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any


@cache
def shipped_yaml(package: str, *names: str) -> Any:
    """Return the content of a file.

    Args:
        package: Package with the file.
        names: Folders in the package, and the name of the file.
    """
    return parse_yaml(importlib.resources.files(package).joinpath(*names).read_text(encoding="utf-8"))


def yaml_files(folder: Traversable) -> list[Traversable]:
    """Return the YAML files in a folder, ordered by name."""
    return sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)


def parse_yaml(text: str) -> Any:
    """Parse a text.

    Raises:
        ValueError: If it is not YAML.
    """
    # PyYAML is slow to import, and many commands read no such file.
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None

"""The catalogue of builds that ships with the program."""

from __future__ import annotations

import importlib.resources
from functools import lru_cache
from typing import Annotated, Any

from knowledge.builds.model import CatalogueEntry


@lru_cache(maxsize=1)
def shipped_builds() -> tuple[CatalogueEntry, ...]:
    """Return every entry of the catalogue, sorted by identity."""
    import yaml
    from pydantic import Field, TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[CatalogueEntry, Field(discriminator="kind")])
    folder = importlib.resources.files("knowledge.builds") / "catalogue"
    entries = []
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        for entry in yaml.safe_load(file.read_text()):
            entries.append(adapter.validate_python(entry))
    return tuple(entries)

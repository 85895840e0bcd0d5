"""Preview features: drafts of standards that the program follows only if the user asks for it."""

from __future__ import annotations

from collections.abc import Iterable

from knowledge.domain.errors import InputError
from knowledge.domain.suggestions import suggest

VARIANTS = "variants"
"""Wheel variants (PEP 825)."""
PREVIEWS = (VARIANTS,)
"""Names of all preview features."""


def check_previews(names: Iterable[str], *, where: str = "") -> frozenset[str]:
    """Return the names of preview features as a set.

    Args:
        names: The names.
        where: File that contains them; empty for the command line and the environment.

    Raises:
        InputError: If there is no feature of a name.
    """
    for name in names:
        if name not in PREVIEWS:
            features = ", ".join(f"`{preview}`" for preview in PREVIEWS)
            place = f"`{where}`: " if where else ""
            raise InputError(
                f"{place}there is no preview feature `{name}`; the known ones are: {features}",
                hint=suggest(name, PREVIEWS),
            )
    return frozenset(names)

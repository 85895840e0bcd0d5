"""`advisor docs`: where the documentation is."""

from __future__ import annotations

import typer

_LABEL = "documentation"
"""Well-known label of the address in the metadata of a distribution (PEP 753)."""


def docs() -> None:
    """Print the address of the documentation."""
    typer.echo(documentation_address())


def documentation_address() -> str:
    """Return the address of the documentation, which is defined only in `project.urls` of `pyproject.toml`.

    Raises:
        InputError: If the metadata of the installed program does not hold it.
    """
    from importlib.metadata import metadata

    from knowledge.domain.errors import InputError

    for text in metadata("seshat-advisor").get_all("Project-URL") or ():
        label, _, address = text.partition(",")
        if label.strip().lower() == _LABEL:
            return str(address.strip())
    raise InputError(
        "the metadata of the installed program does not name the address of the documentation",
        hint="install the program again",
    )

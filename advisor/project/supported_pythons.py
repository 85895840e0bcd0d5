"""The interpreters that a project supports."""

from __future__ import annotations

import platform as this_machine

from packaging.specifiers import SpecifierSet

from advisor.domain.target import NEWEST_PYTHON
from advisor.project.interface import ProjectRequirements
from knowledge.domain.errors import InputError

_OLDEST = 6
"""Minor version of the oldest CPython 3 that is tried."""
_MOST_PATCHES = 30


def supported_pythons(required: str | None) -> tuple[str, ...]:
    """Return the released versions of CPython that a specifier admits, newest first, one for each minor version.

    Args:
        required: The specifier; none admits every version.
    """
    specifier = SpecifierSet(required or "")
    versions = []
    for minor in range(NEWEST_PYTHON - 1, _OLDEST - 1, -1):
        patches = (f"3.{minor}.{patch}" for patch in range(_MOST_PATCHES))
        admitted = next((text for text in patches if specifier.contains(text)), None)
        if admitted is not None:
            versions.append(admitted.removesuffix(".0"))
    return tuple(versions)


def supports_own_python(project: ProjectRequirements) -> bool:
    """Whether a project supports the interpreter of this program."""
    required = project.requires_python
    return not required or SpecifierSet(required).contains(this_machine.python_version(), prereleases=True)


def pythons_to_try(project: ProjectRequirements) -> tuple[str, ...]:
    """Return the interpreters that a project supports if it does not support that of this program; else none."""
    return () if supports_own_python(project) else supported_pythons(project.requires_python)


def pythons_to_compare(project: ProjectRequirements) -> tuple[str, ...]:
    """Return the interpreters that a project supports, newest first.

    Raises:
        InputError: If it supports none.
    """
    pythons = supported_pythons(project.requires_python)
    if not pythons:
        raise InputError(
            f"no released Python satisfies `{project.requires_python}`, which the project requires",
            hint="correct `requires-python`, or choose an interpreter with `--python`",
        )
    return pythons

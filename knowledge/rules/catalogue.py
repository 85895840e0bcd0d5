"""The catalogue of rules that ship with the program."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from knowledge.entry_lists import read_entries, shipped_entries
from knowledge.rules.model import Rule, UndeclaredRequirementRule

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@lru_cache(maxsize=1)
def shipped_rules() -> tuple[Rule, ...]:
    """Return every rule of the catalogue, sorted by identity.

    Raises:
        InputError: If an entry is malformed or two entries have the same identity.
    """
    return shipped_entries("knowledge.rules", lambda text, where: read_rules(text, where=where), noun="rule")


@lru_cache(maxsize=1)
def undeclared_requirements() -> tuple[UndeclaredRequirementRule, ...]:
    """Return the shipped rules about requirements that metadata does not state."""
    return tuple(rule for rule in shipped_rules() if isinstance(rule, UndeclaredRequirementRule))


def read_rules(text: str, *, where: str) -> tuple[Rule, ...]:
    """Read the rules of one YAML file.

    Raises:
        InputError: If it is not a list of rules; the message names the entry and the field.
    """
    return read_entries(text, where=where, noun="rule", adapter=_adapter())


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Rule]:
    """Return the parser of rules, cached because its construction is slow."""
    from pydantic import Field, TypeAdapter

    return TypeAdapter(Annotated[Rule, Field(discriminator="kind")])

"""The catalogue of rules that ship with the program."""

from __future__ import annotations

import importlib.resources
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from knowledge.domain.errors import InputError
from knowledge.domain.identity import content_hash
from knowledge.rules.model import Rule

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@lru_cache(maxsize=1)
def shipped_rules() -> tuple[Rule, ...]:
    """Return every rule of the catalogue, sorted by identity.

    Raises:
        InputError: If an entry is malformed or two entries have the same identity.
    """
    folder = importlib.resources.files("knowledge.rules") / "catalogue"
    rules: list[Rule] = []
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            rules += read_rules(file.read_text(encoding="utf-8"), where=file.name)
    identities = [rule.id for rule in rules]
    if duplicates := {i for i in identities if identities.count(i) > 1}:
        raise InputError(f"the rule catalogue contains `{min(duplicates)}` twice")
    return tuple(sorted(rules, key=lambda rule: rule.id))


def catalogue_digest() -> str:
    """Return a hash of the shipped rules."""
    return content_hash([asdict(rule) for rule in shipped_rules()])


def read_rules(text: str, *, where: str) -> tuple[Rule, ...]:
    """Read the rules of one YAML file.

    Raises:
        InputError: If it is not a list of rules; the message names the entry and the field.
    """
    import yaml
    from pydantic import ValidationError

    try:
        entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise InputError(f"the rule file `{where}` is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"the rule file `{where}` is not a list of rules")
    rules = []
    for number, entry in enumerate(entries, start=1):
        try:
            rules.append(_adapter().validate_python(entry))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InputError(
                f"the rule file `{where}`, entry {number} (`{entry.get('id', 'no id')}`): "
                f"field `{field}`: {first['msg'].lower()}"
            ) from None
    return tuple(rules)


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Rule]:
    """Return the parser of rules, cached because its construction is slow."""
    from pydantic import Field, TypeAdapter

    return TypeAdapter(Annotated[Rule, Field(discriminator="kind")])

"""Dataclasses as JSON-ready values, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from packaging.version import Version

from knowledge.domain.codec import decoded, encoded


@dataclass(frozen=True)
class Inner:
    version: Version
    share: float | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    by_pair: Mapping[tuple[str, Version | None], Inner]
    several: tuple[Inner, ...] = ()
    is_known: bool = False


INNER = Inner(Version("1.0+cu126"), 0.25)


@pytest.mark.parametrize(
    "value",
    [
        Outer("empty", {}),
        Outer("full", {("numpy", Version("2.1")): INNER, ("numpy", None): Inner(Version("2"))}, (INNER,), True),
    ],
)
def test_a_value_is_the_same_after_json(value: Outer) -> None:
    assert decoded(tuple[Outer, ...], json.loads(json.dumps(encoded([value])))) == (value,)


def test_a_record_with_another_number_of_fields_is_an_error() -> None:
    with pytest.raises(ValueError, match="argument"):
        decoded(Inner, ["1.0"])

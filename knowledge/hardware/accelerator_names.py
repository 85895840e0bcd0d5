"""Spellings of accelerators: which family and which variants of it a text names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol, TypeVar

_MIG_SLICE = re.compile(r"(?:\d+ ?x ?)?(?:\dc\.)?(?<!\d)\dg[. ]?\d+gb(?: mig)?")
_TRADE_MARK = re.compile(r"\((?:r|tm)\)|®|™")
_MEMORY = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d+)?) ?g(?:i?b|bytes)?(?![a-z0-9])|(?<![\d.])(\d{4,6}) ?mi?b(?![a-z])")
_POWER = re.compile(r"(?<!\d)(\d{2,4}) ?w(?![a-z0-9])")
_BEFORE = r"(?<![a-z0-9.])(?:\d+ ?x ?|x|dgx ?|hgx ?)*"
_OTHER_PRODUCTS = r"ti|super|laptop|mobile|notebook|max ?q|with max|d|xt|xtx|gre|m|ada|blackwell|nano|nx|ultra|max|pro"
_AFTER = rf"(?=x\d|[^a-z0-9.]|\.?$)(?! (?:{_OTHER_PRODUCTS})(?![a-z0-9]))"
_MEMORY_TOLERANCE = 0.07
"""Relative difference of nominal memory and what a driver reports: error correction takes a sixteenth of GDDR6."""


class Variant(Protocol):
    """Properties that distinguish the variants of a family."""

    @property
    def model(self) -> str:
        """Name as the driver reports it."""

    @property
    def form(self) -> str:
        """Form, such as ``sxm4`` or ``pcie``; empty if it does not distinguish variants."""

    @property
    def memory_gib(self) -> float | None:
        """Memory of one device in GiB."""

    @property
    def watts(self) -> float | None:
        """Power limit."""


V = TypeVar("V", bound=Variant)


def normalise(spelling: str) -> str:
    """Return a spelling in lower case with single spaces instead of other separators."""
    text = _TRADE_MARK.sub(" ", spelling.lower())
    return " ".join(re.sub(r"[^a-z0-9.]+", " ", text).split())


def family_match(pattern: str, spelling: str) -> int:
    """Return the number of characters of a spelling that name a family; 0 if it does not name the family.

    Args:
        pattern: Regular expression for the normalised name of the family.
        spelling: Normalised spelling.
    """
    match = _compiled(pattern).search(spelling)
    return len(match["name"]) if match else 0


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"{_BEFORE}(?P<name>{pattern}){_AFTER}")


def narrow(variants: Sequence[V], spellings: Iterable[str]) -> tuple[V, ...]:
    """Return the variants that agree with the form, the memory and the power that spellings state.

    A statement that no remaining variant agrees with is ignored.

    Args:
        variants: Variants of one family.
        spellings: Normalised spellings, the most trusted first.
    """
    remaining = tuple(variants)
    for spelling in spellings:
        text = _MIG_SLICE.sub(" ", spelling)
        for agreeing in (
            [v for v in remaining if _without_brand(normalise(v.model)) == _without_brand(text)],
            [v for v in remaining if v.form and _states_form(text, v.form)],
            [v for v in remaining if _states_memory(text, v.memory_gib)],
            [v for v in remaining if v.watts is not None and str(int(v.watts)) in _POWER.findall(text)],
        ):
            remaining = tuple(v for v in remaining if v in agreeing) or remaining
    return remaining


def _without_brand(text: str) -> str:
    return re.sub(r"^(?:(?:nvidia|amd|intel|tesla) )+", "", text)


def _states_form(text: str, form: str) -> bool:
    """Return whether a text states a form; `sxm` without a number, DGX and HGX stand for every SXM form."""
    kind = form.rstrip("0123456789")
    if kind == "sxm" and re.search(rf"(?<![a-z0-9])(?:{form}|sxm(?!\d)|[dh]gx)", text):
        return True
    return kind != "sxm" and re.search(rf"(?<![a-z0-9]){re.escape(form)}(?![a-z0-9])", text) is not None


def _states_memory(text: str, memory_gib: float | None) -> bool:
    if memory_gib is None:
        return False
    return any(
        float(gib) == memory_gib
        if gib
        else 1 - _MEMORY_TOLERANCE <= float(mib) / 1024 / memory_gib <= 1 + _MEMORY_TOLERANCE
        for gib, mib in _MEMORY.findall(text)
    )

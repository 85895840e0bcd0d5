"""Values of options and settings, read from their texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from advisor.api.options import ResolutionOptions

if TYPE_CHECKING:
    from advisor.resolve.problem import AllowedReplacements


def read_allowed_replacements(resolution: ResolutionOptions, settings: Mapping[str, Any]) -> AllowedReplacements:
    """Return which packages may replace others.

    Raises:
        InputError: If the options or the settings allow something that does not exist.
    """
    from packaging.utils import canonicalize_name

    from advisor.config import check_allowed
    from advisor.resolve.problem import AllowedReplacements

    allow = (*resolution.allow, *settings.get("allow", ()))
    check_allowed(allow)
    replacements = settings.get("replace-packages", {})
    if replacements:
        from advisor.resolve.package_choices import check_replacement

        for name, other in replacements.items():
            check_replacement(name, other)
    return AllowedReplacements(
        by_hardware="replace-packages" in allow,
        by_name={canonicalize_name(name): canonicalize_name(other) for name, other in replacements.items()},
    )


def allows_reduced_precision(resolution: ResolutionOptions, settings: Mapping[str, Any]) -> bool:
    """Return whether run-time settings with a lower precision may be chosen."""
    return "reduced-precision" in (*resolution.allow, *settings.get("allow", ()))


def recommends_settings(resolution: ResolutionOptions, settings: Mapping[str, Any]) -> bool:
    """Return whether run-time settings are recommended, and count when versions are compared."""
    option = resolution.recommend_settings
    return bool(settings.get("recommend-settings", True)) if option is None else option


def read_max_size(text: str | None) -> int | None:
    """Read the largest admissible download, in bytes; none if there is no limit.

    Raises:
        InputError: If it is not a size.
    """
    from advisor.domain.byte_size import parse_size
    from knowledge.domain.errors import InputError

    if text is None:
        return None
    size = parse_size(text)
    if size is None:
        raise InputError(f"`{text}` is not a size", hint="write it as `--max-size 2GB` or `500MB`")
    return size


def read_min_gain(text: str) -> float:
    """Read the smallest gain of speed that counts, a percentage or a fraction; return the fraction.

    Raises:
        InputError: If it is neither, negative, or 100 % or more.
    """
    from knowledge.domain.errors import InputError

    number, sign, _ = text.partition("%")
    try:
        gain = float(number) / (100 if sign else 1)
    except ValueError:
        gain = math.nan
    if not 0 <= gain < 1 or text not in (number, f"{number}%"):
        raise InputError(f"`{text}` is not a gain of speed", hint="write it as `--min-gain 3%` or `0.03`")
    return gain


def read_days(text: str) -> int:
    """Read a number of days.

    Raises:
        InputError: If it is not a whole number of days.
    """
    from knowledge.domain.errors import InputError

    if not (text.isascii() and text.isdigit()):
        raise InputError(f"`{text}` is not a number of days", hint="write it as `--min-age 14`")
    return int(text)

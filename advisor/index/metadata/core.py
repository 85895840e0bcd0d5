"""Core metadata of one distribution; a :class:`ValueError` names the field that is absent, malformed or too long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.index.limits import HEADER_BYTES, bytes_text
from advisor.index.variants.markers import VariantEnvironment, requirements_for, uses_variants
from knowledge.domain.documents import requirement_from, specifiers_from

_T = TypeVar("_T")
_MESSAGE_CHARACTERS = 300
"""Maximum length of a quoted error, which contains the field and may be as long as the header."""
_LICENSE_CHARACTERS = 200
_LICENSE_CLASSIFIER = "License ::"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreMetadata:
    """The fields of a distribution's core metadata that the program uses.

    Attributes:
        name: Normalised name.
        version: Version.
        requires: Requirements, markers not evaluated.
        extras: Normalised names of the extras it provides.
        requires_python: Specifier of supported interpreters, or `None`.
        dynamic: Whether its requirements are known only after a build (PEP 643).
        licenses: Its SPDX expression (``License-Expression``), else its ``License`` field if that is short, else the
            names in its licence classifiers; empty if it states none.
        variant_requires: Requirements whose markers depend on the variant of a wheel (PEP 825), as texts.
    """

    name: NormalizedName
    version: Version
    requires: tuple[Requirement, ...] = ()
    extras: frozenset[NormalizedName] = frozenset()
    requires_python: SpecifierSet | None = None
    dynamic: bool = False
    licenses: tuple[str, ...] = ()
    variant_requires: tuple[str, ...] = ()


def header_of(text: str) -> str:
    """Return the header of a metadata document, without the long description."""
    header = text.replace("\r\n", "\n").partition("\n\n")[0] + "\n"
    if len(header) > HEADER_BYTES:
        raise ValueError(f"its header exceeds {bytes_text(HEADER_BYTES)}")
    return header


def parse_metadata(header: str) -> CoreMetadata:
    """Read the header of a metadata document."""
    from packaging.metadata import parse_email  # It loads modules that a remembered answer does not need.

    raw, _ = parse_email(header)
    try:
        name, version = raw["name"], Version(_one_line("Version", raw["version"]))
    except KeyError as error:
        raise ValueError(f"field {error} is absent") from None
    except InvalidVersion as error:
        raise ValueError(f"field `Version`: {' '.join(str(error).split())[:_MESSAGE_CHARACTERS]}") from None
    lines = [_one_line("Requires-Dist", line) for line in raw.get("requires_dist", ())]
    variant_requires = tuple(filter(uses_variants, lines))
    for line in variant_requires:
        _parsed(lambda text: requirements_for([text], VariantEnvironment()), line)
    requires = tuple(_parsed(requirement_from, line) for line in lines if not uses_variants(line))
    try:
        python = _one_line("Requires-Python", raw.get("requires_python", ""))
        requires_python = specifiers_from(python) if python else None
    except InvalidSpecifier:
        # Like pip: a malformed field does not hide the file.
        requires_python = None
    dynamic = {field.lower() for field in raw.get("dynamic", ())}
    metadata_version = tuple(int(part) for part in raw.get("metadata_version", "1.0").split(".") if part.isdigit())
    return CoreMetadata(
        name=canonicalize_name(name),
        version=version,
        requires=requires,
        extras=frozenset(canonicalize_name(extra) for extra in raw.get("provides_extra", ())),
        requires_python=requires_python,
        # Before metadata 2.2 an sdist could not declare that a build does not change its requirements.
        dynamic=metadata_version < (2, 2) or bool(dynamic & {"requires-dist", "provides-extra", "requires-python"}),
        licenses=_licenses(raw),
        variant_requires=variant_requires,
    )


def _parsed(parse: Callable[[str], _T], line: str) -> _T:
    """Parse a requirement. uv repairs some malformed ones; pip does not, and it may be what installs the lock."""
    try:
        return parse(line)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0][:_MESSAGE_CHARACTERS]
        field = f"Requires-Dist: {line[:_MESSAGE_CHARACTERS]}"
        raise ValueError(f"its line `{field}` is malformed, and pip refuses it since 24.1: {reason}") from None


def _licenses(raw: Mapping[str, Any]) -> tuple[str, ...]:
    for text in (raw.get("license_expression", ""), raw.get("license", "")):
        line = " ".join(text.split())
        # Many distributions put the whole text of their licence into the field.
        if 0 < len(line) <= _LICENSE_CHARACTERS and line.isprintable() and line.upper() != "UNKNOWN":
            return (line,)
    names = {
        classifier.rpartition("::")[2].strip()
        for classifier in raw.get("classifiers", ())
        if classifier.startswith(_LICENSE_CLASSIFIER) and classifier.isprintable()
    }
    return tuple(sorted(names - {"", "OSI Approved"}))


def _one_line(field: str, value: str) -> str:
    """Return the value of a field on one line without control characters: locks, reports and messages have it."""
    line = " ".join(value.split())
    if not line.isprintable():
        raise ValueError(f"field `{field}` contains control characters")
    return line

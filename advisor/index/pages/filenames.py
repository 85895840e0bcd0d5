"""Information in the file names of wheels and sdists."""

from __future__ import annotations

import re
from collections.abc import Hashable

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    NormalizedName,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

_LABEL = re.compile(r"[0-9a-z_.]+", re.ASCII)
_VARIANTS_FILE = "-variants.json"


def split_variant_label(filename: str) -> tuple[str, str]:
    """Return the file name of a wheel without its variant label, and the label; an empty one for other files.

    The label is the last part of `NAME-VERSION[-BUILD]-PYTHON-ABI-PLATFORM-LABEL.whl` (PEP 825). A build number starts
    with a digit, and a Python tag does not.
    """
    stem, dot, _ = filename.rpartition(".whl")
    parts = stem.split("-")
    if not dot or not filename.endswith(".whl") or len(parts) not in (6, 7):
        return filename, ""
    has_build = parts[2][:1].isdigit()
    if len(parts) != 6 + has_build or _LABEL.fullmatch(parts[-1]) is None:
        return filename, ""
    return "-".join(parts[:-1]) + ".whl", parts[-1]


def is_variants_file(filename: str) -> bool:
    """Whether a file describes the variants of a version (PEP 825), by its name `NAME-VERSION-variants.json`."""
    return filename.endswith(_VARIANTS_FILE)


def parse_variants_filename(filename: str) -> tuple[NormalizedName, Version] | None:
    """Return the project and the version that such a file describes; `None` if its name is not valid."""
    name, separator, version = filename.removesuffix(_VARIANTS_FILE).partition("-")
    try:
        return (canonicalize_name(name, validate=True), Version(version)) if separator else None
    except ValueError:
        return None


def version_of(filename: str) -> Version | None:
    """Return the version in the file name of a wheel or sdist; `None` if the name is not valid."""
    parts = _parts(filename)
    return parts[1] if parts else None


def file_key(filename: str) -> Hashable:
    """Return a key that is equal for equivalent file names: uv writes `pysocks-1.7.1-...` for `PySocks-1.7.1-...`.

    An invalid name is equal only to itself.
    """
    return _parts(filename) or filename


def _parts(filename: str) -> tuple[NormalizedName, Version, Hashable] | None:
    """Return project, version and other parts of a file name; `None` if it is not valid."""
    plain, label = split_variant_label(filename)
    try:
        if plain.endswith(".whl"):
            name, version, *others = parse_wheel_filename(plain)
            return name, version, (*others, label)
        return *parse_sdist_filename(plain), filename.rpartition(".")[2]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None

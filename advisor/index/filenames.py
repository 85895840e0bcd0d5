"""What the name of a wheel or sdist says."""

from __future__ import annotations

from collections.abc import Hashable

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version


def version_of(filename: str) -> Version | None:
    """Return the version of a wheel or sdist by its name; none where that does not tell."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def file_key(filename: str) -> Hashable:
    """Return what is equal for the spellings of one file's name: uv writes `pysocks-1.7.1-...` of `PySocks-1.7.1-...`.

    A name that is not standard only equals itself.
    """
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)
        return (*parse_sdist_filename(filename), filename.rpartition(".")[2])
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return filename

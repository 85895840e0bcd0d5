"""Information in the file names of wheels and sdists."""

from __future__ import annotations

from collections.abc import Hashable

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version


def version_of(filename: str) -> Version | None:
    """Return the version in the file name of a wheel or sdist; none if the name is not valid."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def file_key(filename: str) -> Hashable:
    """Return a key that is equal for equivalent file names: uv writes `pysocks-1.7.1-...` for `PySocks-1.7.1-...`.

    An invalid name is equal only to itself.
    """
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)
        return (*parse_sdist_filename(filename), filename.rpartition(".")[2])
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return filename

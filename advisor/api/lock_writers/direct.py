"""How locks write packages that come from a repository, an archive or a directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path, PurePath

from advisor.domain.direct_reference import DirectReference
from advisor.index.configuration import without_credentials


def without_password(reference: DirectReference) -> DirectReference:
    """Return a reference without user name and password in an HTTP address; the user of an SSH address stays."""
    is_http = reference.url.startswith(("http://", "https://"))
    return replace(reference, url=without_credentials(reference.url)) if is_http else reference


def path_from(reference: DirectReference, folder: Path) -> str:
    """Return the path of a local reference relative to the folder of a lock, with slashes; ``.`` for the folder."""
    return PurePath(os.path.relpath(reference.url, folder.absolute())).as_posix()


def address_from(reference: DirectReference, folder: Path) -> str:
    """Return a reference for a requirements file in a folder: a relative path, or an address with the commit."""
    if not reference.is_local:
        return without_password(reference).address
    path = path_from(reference, folder)
    path = path if path.startswith("..") else f"./{path}"
    return f"{path}#subdirectory={reference.subdirectory}" if reference.subdirectory else path

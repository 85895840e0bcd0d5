"""Writes `Pipfile.lock`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import NormalizedName

from advisor.api.lock_writers.direct import address_from, without_password
from advisor.domain.direct_reference import DirectReference
from advisor.domain.target import Target
from advisor.index.configuration import IndexConfiguration
from advisor.index.pages.page import DistributionFile
from advisor.resolve.candidates.problem import Candidate
from knowledge.domain.errors import InputError

_SPECIFICATION = 6


def write_pipfile_lock(
    stack: Sequence[Candidate],
    files: Mapping[NormalizedName, DistributionFile],
    target: Target,
    configuration: IndexConfiguration,
    pipfile: Path,
) -> str:
    """Return the text of a `Pipfile.lock` for one target, with the hash of the Pipfile.

    Args:
        stack: The packages, sorted by name.
        files: By package, the file with its hash filled in; none for repositories and directories.
        target: The target of the lock.
        configuration: The indexes; those that packages come from are written to the lock.
        pipfile: The Pipfile; it need not exist.

    Raises:
        InputError: If the Pipfile cannot be read.
    """
    indexes = {file.index for file in files.values() if file.index.startswith(("http:", "https:"))}
    urls = sorted(indexes.difference(configuration.find_links))
    urls.sort(key=lambda url: url != configuration.default_url)
    names = {url: "pypi" if url == configuration.default_url else f"index{i}" for i, url in enumerate(urls)}
    document = {
        "_meta": {
            "hash": {"sha256": _hash(pipfile)},
            "pipfile-spec": _SPECIFICATION,
            "requires": {"python_version": target.python_minor},
            "sources": [{"name": names[url], "url": url, "verify_ssl": url.startswith("https:")} for url in urls],
        },
        "default": {
            candidate.name: _direct_entry(candidate.direct, files.get(candidate.name), pipfile.parent)
            if candidate.direct is not None
            else {
                "hashes": [f"sha256:{files[candidate.name].sha256}"],
                **({"index": names[file.index]} if (file := files[candidate.name]).index in names else {}),
                "version": f"=={candidate.version}",
            }
            for candidate in stack
        },
        "develop": {},
    }
    return json.dumps(document, indent=4, sort_keys=True) + "\n"


def _direct_entry(reference: DirectReference, file: DistributionFile | None, folder: Path) -> dict[str, Any]:
    """Return the entry of a package that comes from no index."""
    reference = without_password(reference)
    entry: dict[str, Any] = {"editable": True} if reference.editable else {}
    if reference.subdirectory:
        entry["subdirectory"] = reference.subdirectory
    if reference.kind == "vcs":
        return {**entry, reference.vcs: reference.url, "ref": reference.commit}
    if reference.kind == "directory":
        return {**entry, "path": address_from(replace(reference, subdirectory=""), folder)}
    place = address_from(replace(reference, subdirectory=""), folder)
    hashes = [f"sha256:{file.sha256}"] if file and file.sha256 else []
    return {**entry, ("path" if reference.is_local else "file"): place, "hashes": hashes}


def _hash(pipfile: Path) -> str:
    """Return the hash that Pipenv compares to check whether a lock is up to date; empty without a Pipfile."""
    from plette import Pipfile

    try:
        with pipfile.open(encoding="utf-8") as file:
            return str(Pipfile.load(file).get_hash().value)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"`{pipfile}` cannot be read: {' '.join(str(error).split())}") from None

"""Locks of the package `six` in the format of each tool, made from its entry in a `pylock.toml`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import tomli_w

EVIL = "e" * 64
WHEEL, SDIST, WINDOWS = "six-1.16.0-py3-none-any.whl", "six-1.16.0.tar.gz", "six-1.16.0-cp312-cp312-win_amd64.whl"
Document = dict[str, Any]
Found = set[tuple[str, str]]
Compare = Callable[..., Found]
"""Compares a lock with the index; returns code and subject of each finding except notes."""


def pylock(*packages: Document) -> str:
    return tomli_w.dumps({"lock-version": "1.0", "created-by": "test", "packages": list(packages)})


def uv_lock(six: Document, **source: str) -> str:
    def file(entry: Document) -> Document:
        fields = {"url": entry["url"], "hash": f"sha256:{entry['hashes']['sha256']}", "size": entry["size"]}
        return {key: value for key, value in fields.items() if value}

    own = {"name": "m", "version": "1", "source": {"virtual": "."}, "dependencies": [{"name": "six"}]}
    package = {
        "name": "six",
        "version": six["version"],
        "source": source or {"registry": six["index"]},
        "sdist": file(six["sdist"]),
        "wheels": [file(wheel) for wheel in six["wheels"]],
    }
    return tomli_w.dumps({"version": 1, "package": [own, package]})


def named_lock(six: Document, **more: Any) -> str:
    """Return a lock in the format of Poetry and PDM: files by name and hash."""
    files = [
        {"file": entry["name"], "hash": f"sha256:{entry['hashes']['sha256']}"}
        for entry in [*six["wheels"], six["sdist"]]
    ]
    package = {"name": "six", "version": six["version"], "groups": ["main", "default"], "files": files, **more}
    return tomli_w.dumps({"package": [package]})


def hashes_of(six: Document) -> list[str]:
    return [f"sha256:{entry['hashes']['sha256']}" for entry in [*six["wheels"], six["sdist"]]]


def requirements(six: Document, *hashes: str) -> str:
    return f"six=={six['version']} " + " ".join(f"--hash={h}" for h in (*hashes_of(six), *hashes)) + "\n"


def pipfile_lock(six: Document, *hashes: str, **more: Any) -> str:
    entry = {"version": f"=={six['version']}", "hashes": [*hashes_of(six), *hashes], **more}
    return json.dumps(
        {"_meta": {"sources": [{"name": "main", "url": six["index"]}]}, "default": {"six": entry}, "develop": {}}
    )


def foreign_wheel(six: Document) -> None:
    url = "https://packages.example.org/six-1.16.0-cp312-cp312-linux_x86_64.whl"
    six["wheels"].append({"name": url.rpartition("/")[2], "url": url, "hashes": {"sha256": EVIL}})

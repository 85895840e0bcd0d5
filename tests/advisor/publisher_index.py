"""A publisher's package index with hand-written pages."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

from tests.package_index import PackageIndex

PLATFORM = "manylinux_2_28_x86_64"


def wheel_of(index: PackageIndex, name: str, version: str, requires: tuple[str, ...] = ()) -> str:
    """Add a wheel to the files of an index, but to no page; return its name."""
    before = list(index.entries.get(name, ()))
    index.add(name, version, requires, tag=f"cp312-cp312-{PLATFORM}")
    filename = str(index.entries.pop(name)[-1]["filename"])
    if before:
        index.entries[name] = before
    return filename


def quoted(filename: str) -> str:
    return filename.replace("+", "%2B")


def digest(index: PackageIndex, filename: str) -> str:
    return hashlib.sha256(index.files[filename]).hexdigest()


def page(links: list[str]) -> bytes:
    return f"<!DOCTYPE html><html><body><h1>Links</h1>{''.join(links)}</body></html>".encode()


def serve(index: PackageIndex, path: str, body: bytes) -> None:
    """Answer a path with an HTML page."""
    index.raw[path] = (body, {})
    index.raw_types[path] = "text/html"


def base(index: PackageIndex, path: str) -> str:
    """Return the address of a path of an index."""
    return index.url.replace("/simple/", path)


def packages(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the packages of the lock in a folder."""
    return {p["name"]: p for p in tomllib.loads((folder / "pylock.toml").read_text())["packages"]}


CPU, OLD_GPU, NEW_GPU = (("--hardware", name, "--python", "3.12") for name in ("cpu-zen4", "v100", "h100"))


def messages(stdout: str, code: str) -> str:
    """Return the messages of the findings with a code, one on each line."""
    entries: list[dict[str, Any]] = json.loads(stdout)["findings"]
    return "\n".join(finding["message"] for finding in entries if finding["code"] == code)

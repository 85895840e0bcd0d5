"""Projects whose framework may be replaced by another package."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from tests.package_index import PackageIndex


def add_frameworks(index: PackageIndex) -> PackageIndex:
    """Add packages that exist for several kinds of hardware, under the names that the catalogue has."""
    index.add("jax", "0.8.0", ["cuda13-libraries; extra == 'cuda13'"], extras=["cuda13"])
    index.add("cuda13-libraries", "1.0")
    for version in ("2.19.0", "2.20.0"):
        libraries = ["cuda13-libraries; extra == 'and-cuda'"]
        index.add("tensorflow", version, libraries, extras=["and-cuda"], code="#" * 400_000)
        index.add("tensorflow-cpu", version, code="#" * 100_000)
    index.add("user-of-tensorflow", "1.0", ["tensorflow>=2"])
    return index


def write_project(folder: Path, *requirements: str, settings: str = "") -> Path:
    folder.mkdir()
    dependencies = json.dumps(requirements)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\ndependencies = {dependencies}\n[tool.advisor]\n{settings}\n'
    )
    return folder


def locked(folder: Path) -> dict[str, str]:
    return {p["name"]: p["version"] for p in tomllib.loads((folder / "pylock.toml").read_text())["packages"]}


def findings(result: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    entries: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return [(entry["code"], entry["message"]) for entry in entries]


GPU, CPU = ("--hardware", "h100", "--python", "3.12"), ("--hardware", "cpu-zen4", "--python", "3.12")

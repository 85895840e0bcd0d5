"""Two locks of a small project whose packages determine the seconds that its benchmark prints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.advisor.measured_project import make_project
from tests.package_index import PackageIndex

PROGRAM = """
import importlib.metadata, os, random, sys
seconds = random.gauss(1, 0.004)
for name in sorted(d.metadata["Name"] for d in importlib.metadata.distributions()):
    if name.startswith("p"):
        seconds *= __import__(name).FACTOR
if os.environ.get("OPENBLAS_CORETYPE") == "SkylakeX":
    seconds *= 1.08
print("seconds:", seconds)
"""
"""A program that prints the product of the factors of its packages, with noise."""


def add(index: PackageIndex, name: str, version: str, factor: float = 1.0, **fields: Any) -> None:
    """Add a release of a package with a factor."""
    fields.setdefault("code", f"FACTOR = {factor}\n")
    index.add(name, version, **fields)


def requirements(path: Path, versions: Mapping[str, str]) -> Path:
    """Write pinned requirements, and return their path."""
    path.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
    return path


def pylock(path: Path, index: PackageIndex, versions: Mapping[str, str]) -> Path:
    """Write a lock with the files of the index, and return its path."""
    lines = ['lock-version = "1.0"', 'created-by = "test"']
    for name, version in sorted(versions.items()):
        file = f"{name}-{version}-py3-none-any.whl"
        digest = hashlib.sha256(index.files[file]).hexdigest()
        url = index.url.replace("/simple/", f"/files/{file}")
        lines += ["[[packages]]", f'name = "{name}"', f'version = "{version}"', f'index = "{index.url}"']
        lines += [f'wheels = [{{ name = "{file}", url = "{url}", hashes = {{ sha256 = "{digest}" }} }}]']
    path.write_text("\n".join(lines) + "\n")
    return path


def packages(
    index: PackageIndex, tmp_path: Path, slow: Mapping[str, float], letters: str = "abcd"
) -> tuple[Path, str, str]:
    """Return a project with some packages of two releases, with its locks: of requirements, and a `pylock.toml`."""
    names = [f"p{letter}" for letter in letters]
    for name in names:
        add(index, name, "1.0")
        add(index, name, "2.0", slow.get(name, 1.0))
    project = make_project(tmp_path / "project", names, PROGRAM)
    good = requirements(project / "requirements.old.txt", dict.fromkeys(names, "1.0"))
    bad = pylock(project / "pylock.toml", index, dict.fromkeys(names, "2.0"))
    return project, good.name, bad.name

"""Packages that come from a repository, an archive or a folder, and advice for a project that requires them."""

from __future__ import annotations

import io
import json
import subprocess
import tomllib
import zipfile
from pathlib import Path

from tests.conftest import Advisor


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    process = subprocess.run(["git", *identity, "-C", str(folder), *arguments], capture_output=True, check=True)
    return process.stdout.decode().strip()


def write_package(folder: Path, name: str, *requires: str, version: str = "1.0", more: str = "") -> Path:
    """Write a source tree whose metadata is stated."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "{version}"\ndependencies = {json.dumps(requires)}\n{more}'
    )
    return folder


def write_repository(folder: Path, name: str, *requires: str, version: str = "1.0", more: str = "") -> str:
    """Create a repository with one commit and the tag `v1`, and return its address."""
    write_package(folder, name, *requires, version=version, more=more)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    git(folder, "tag", "v1")
    return folder.as_uri()


def archive_of(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return content.getvalue()


def advise(advisor: Advisor, project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return advisor("advise", str(project), "--python", "3.12", "--hardware", "cpu-zen4", *options)


def packages_of(project: Path) -> dict[str, dict[str, object]]:
    document = tomllib.loads((project / "pylock.toml").read_text())
    return {package["name"]: package for package in document["packages"]}


BACKEND = """
import os, sys
def prepare_metadata_for_build_wheel(directory, config_settings=None):
    requires = []
    {code}
    folder = os.path.join(directory, "a-1.0.dist-info")
    os.mkdir(folder)
    with open(os.path.join(folder, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: a\\nVersion: 1.0\\n")
        file.writelines(f"Requires-Dist: {{name}}\\n" for name in requires)
    return "a-1.0.dist-info"
def build_wheel(*_, **__):
    raise SystemExit("not needed")
"""


PYPROJECT = '[build-system]\nrequires = [{requires}]\nbuild-backend = "backend"\nbackend-path = ["."]\n'

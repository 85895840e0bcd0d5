"""Runs the main commands of a plain install of `advisor` on an index of its own; `.ci/run` does so for several Pythons.

Only the standard library and what a plain install contains are imported.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.package_index import PackageIndex

PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = """
import os
def prepare_metadata_for_build_wheel(directory, config_settings=None):
    os.mkdir(os.path.join(directory, "built-1.0.dist-info"))
    with open(os.path.join(directory, "built-1.0.dist-info", "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\nRequires-Dist: tool\\n")
    return "built-1.0.dist-info"
"""
COMMANDS = (
    ("advise", "--build-sdists", "-o", "pylock.toml", "-o", "requirements.txt", "-o", "Pipfile.lock"),
    ("advise", "--build-sdists", "--dry-run", "--offline", "--format", "html"),
    ("check", "--build-sdists"),
    ("explain", "--build-sdists", "tool"),
    ("prices", "--build-sdists", "--no-pythons"),
    ("hardware", "show"),
    ("run", "--settings", "threads=1", "--framework", "numpy", "--", sys.executable, "-c", "pass"),
)


def sdist() -> bytes:
    """Return a `.tar.gz` whose requirements are only known after a build."""
    texts = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: built\nVersion: 1.0\n",
        "pyproject.toml": PYPROJECT,
        "backend.py": BACKEND,
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"built-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def main() -> int:
    """Run the commands; return how many failed."""
    failed = 0
    with PackageIndex() as index, tempfile.TemporaryDirectory() as folder:
        index.add_file("built", "built-1.0.tar.gz", sdist())
        for version in ("1.0", "2.0"):
            index.add("tool", version, code="")
        (Path(folder) / "pyproject.toml").write_text(
            '[project]\nname = "p"\nversion = "1"\ndependencies = ["built", "tool<2"]\n'
        )
        paths = {name: f"{folder}/{name}" for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME")}
        environment = {**os.environ, **paths, "PIP_INDEX_URL": index.url, "UV_DEFAULT_INDEX": index.url}
        for command in COMMANDS:
            process = subprocess.run(
                [sys.executable, "-m", "advisor", *command], cwd=folder, env=environment, capture_output=True, text=True
            )
            if process.returncode:
                failed += 1
                print(f"`advisor {' '.join(command)}`: exit code {process.returncode}", file=sys.stderr)
                print(process.stderr, file=sys.stderr)
    print(f"Python {sys.version.split()[0]}: {len(COMMANDS) - failed} of {len(COMMANDS)} main commands work")
    return failed


if __name__ == "__main__":
    sys.exit(main())

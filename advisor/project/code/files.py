"""The source files of a project, and the code that they contain."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

DOCKERFILES = ("Dockerfile", "Dockerfile.*", "*.Dockerfile", "*.dockerfile", "Containerfile", "Containerfile.*")
DOTENV_FILES = (".env", ".env.*", "*.env")
YAML_FILES = ("*.yml", "*.yaml")
SHELL_SCRIPTS = ("*.sh", "*.bash", "*.slurm", "*.sbatch", "*.job", "*.pbs")
FILE_PATTERNS = (*DOCKERFILES, *DOTENV_FILES, *YAML_FILES, *SHELL_SCRIPTS)
"""Patterns of the names of files, other than source files, that may set run-time settings."""
MOST_FILES = 10_000
"""Maximum number of source files that are read."""
MOST_FILE_BYTES = 2_000_000
"""Larger files are not read."""
_MOST_DIRECTORIES = 5000
_DEEPEST = 100
"""Directories below this level are not searched; `os.walk` is recursive before Python 3.12."""
_HIDDEN_DIRECTORIES = frozenset({".github", ".gitlab", ".circleci", ".devcontainer"})
"""Hidden directories that are searched for other files than source files."""
_SUFFIXES = (".py", ".ipynb")
_SKIPPED_DIRECTORIES = frozenset(
    {"node_modules", "site-packages", "build", "dist", "__pycache__", "tests", "test", "docs"}
)


class SourceFile(NamedTuple):
    """A Python file, a notebook, or another file of a project.

    Attributes:
        name: Path relative to the project, with the separator of the system.
        path: Path.
        size: Size in bytes.
        modified: Time of the last change in nanoseconds.
    """

    name: str
    path: str
    size: int
    modified: int

    @property
    def is_code(self) -> bool:
        """Whether the file is a Python file or a notebook."""
        return self.name.endswith(_SUFFIXES)

    @property
    def is_notebook(self) -> bool:
        """Whether the file is a notebook."""
        return self.name.endswith(".ipynb")

    def read(self) -> bytes:
        """Return the content of the file.

        Raises:
            OSError: If it cannot be read.
        """
        with open(self.path, "rb", buffering=0) as file:
            return file.read()


def project_files(directory: Path, patterns: Sequence[str] = ()) -> Iterator[SourceFile]:
    """Yield the source files of a project, at most 10 000: the files of a directory before its subdirectories.

    Files of tests, documentation, builds, environments and hidden directories are left out. Patterns are of the names
    of other files; with any, the directories of CI systems are searched, too.
    """
    is_file = _file_names(tuple(patterns)).match
    hidden = _HIDDEN_DIRECTORIES if patterns else frozenset()
    top, count = os.path.join(directory, ""), 0
    for folder, folders, names in islice(os.walk(top), _MOST_DIRECTORIES):
        is_deep = folder.count(os.sep) - top.count(os.sep) >= _DEEPEST
        searched = (name for name in folders if not is_deep and _is_searched_name(name, hidden))
        folders[:] = sorted(name for name in searched if not os.path.exists(os.path.join(folder, name, "pyvenv.cfg")))
        for path in (os.path.join(folder, name) for name in sorted(filter(is_file, names))):
            try:
                status = os.stat(path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_size < MOST_FILE_BYTES:
                count += 1
                if count > MOST_FILES:
                    return
                name = path.removeprefix(top)
                yield SourceFile(name=name, path=path, size=status.st_size, modified=status.st_mtime_ns)


def is_project_file(name: str, patterns: Sequence[str]) -> bool:
    """Whether :func:`project_files` yields a file, by its path in the project with forward slashes."""
    *folders, last = name.split("/")
    hidden = _HIDDEN_DIRECTORIES if patterns else frozenset()
    is_file = _file_names(tuple(patterns)).match(last) is not None
    return is_file and all(_is_searched_name(folder, hidden) for folder in folders)


@lru_cache(maxsize=8)
def _file_names(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, (*(f"*{suffix}" for suffix in _SUFFIXES), *patterns))))


def _is_searched_name(name: str, hidden: Collection[str]) -> bool:
    return not (name.startswith(".") and name not in hidden) and name not in _SKIPPED_DIRECTORIES


def code_of(content: bytes, *, is_notebook: bool) -> str:
    """Return the code of a source file; for a notebook, the code of its cells without magics and shell commands.

    Raises:
        ValueError: If a notebook is not JSON.
        AttributeError, TypeError: If it is JSON of another kind.
    """
    text = content.decode("utf-8", "replace")
    if not is_notebook:
        return text
    sources = [cell.get("source", []) for cell in json.loads(text).get("cells", []) if cell.get("cell_type") == "code"]
    # The source of a cell is a text, or a list of its lines.
    lines = [line for source in sources for line in [*"".join(source).splitlines(keepends=True), "\n"]]
    return "".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def imported_names(content: bytes, names: re.Pattern[bytes]) -> set[bytes]:
    """Return the matches of a pattern on the lines of a Python file that contain ``import``."""
    libraries: set[bytes] = set()
    for line in lines_with(content, b"import"):
        if line.lstrip().startswith((b"import", b"from")) or b";" in line.partition(b"import")[0]:
            libraries.update(names.findall(line))
    return libraries


def lines_with(content: bytes, word: bytes) -> Iterator[bytes]:
    """Yield the lines of a file that contain a word."""
    end, place = 0, content.find(word)
    while place >= 0:
        start = content.rfind(b"\n", end, place) + 1 or end
        end = content.find(b"\n", place)
        end = len(content) if end < 0 else end
        yield content[start:end]
        place = content.find(word, end)

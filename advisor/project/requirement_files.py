"""Finds the requirements file of a project that has none with a usual name."""

from __future__ import annotations

from pathlib import Path

from advisor.domain.words import quoted
from knowledge.domain.errors import InputError

_PATTERNS = ("requirements*.txt", "*requirements.txt", "requirements/*.txt", "requirements/*.in")
_MAIN = ("requirements", "base", "main", "core", "common", "default", "install", "prod", "production", "runtime")
"""Names of the file of a directory `requirements` that lists what the program needs, in the order of preference."""


def find_requirement_file(directory: Path) -> tuple[Path, tuple[str, ...]] | None:
    """Return the requirements file of a project, and messages about the files that are not read; none without a file.

    Args:
        directory: The directory of the project.

    Raises:
        InputError: If there are several files, and no name says which one the program needs.
    """
    files = [path for pattern in _PATTERNS for path in sorted(directory.glob(pattern)) if path.is_file()]
    files = list(dict.fromkeys(files))
    if not files:
        return None
    by_name = {path.stem: path for path in reversed(files)}
    main = next((by_name[name] for name in _MAIN if name in by_name), files[0] if len(files) == 1 else None)
    names = [path.relative_to(directory).as_posix() for path in files]
    if main is None:
        raise InputError(
            f"`{directory}` has several requirements files, and none is the usual one: {quoted(names)}",
            hint=f"name one or more: `--requirements {names[0]}`",
        )
    others = [name for name, path in zip(names, files, strict=True) if path != main]
    name = main.relative_to(directory).as_posix()
    messages = [f"`{name}` was read: the project has no `pyproject.toml` or `requirements.txt` with requirements"]
    if others:
        messages.append(f"{quoted(others)} {'were' if len(others) > 1 else 'was'} not read: use `--requirements FILE`")
    return main, tuple(messages)

"""Requirements that people send to the dashboard: only names, versions, extras and markers are taken from them.

Nothing of an upload is stored, executed or opened as a path: a requirement with an address, an option of pip, or
anything that is not a requirement is refused. So an upload cannot read files of the server, make it connect to
other hosts, or build packages.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidName, canonicalize_name

from knowledge.domain.errors import InputError

MOST_BYTES = 1024 * 1024
"""Largest upload."""
_MOST_REQUIREMENTS = 1000
_LONGEST_REQUIREMENT = 1000
_MOST_READERS, _MOST_SECONDS = 2, 10
"""Processes that read uploads at a time, and seconds that one may take."""
_MOST_MEMORY_BYTES = 2**30
_KINDS = {".json": "JSON", ".toml": "TOML", ".lock": "TOML"}
_readers = threading.BoundedSemaphore(_MOST_READERS)
_HASHES = re.compile(r" --hash[= ]\S+")
_COMMENT = re.compile(r"(^| )#.*$")
_LONGEST_QUOTE = 60
_DIRECTORIES = ("virtual", "editable", "directory")
"""Kinds of sources of locked packages that are directories."""


class UploadError(InputError):
    """Raised when an upload is not a list of requirements."""

    code = "upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """What an upload requires.

    Attributes:
        requirements: Its requirements, each on one line, in their order.
        python: Versions of the interpreter that it admits; empty for all.
        is_lock: Whether it was a lock: then its packages are required without their versions.
        left_out: Parts of the file that the advice does not use.
    """

    requirements: tuple[str, ...]
    python: str = ""
    is_lock: bool = False
    left_out: tuple[str, ...] = ()


def read_upload_apart(content: bytes, name: str = "") -> Upload:
    """Read an upload as :func:`read_upload` does, in a process of its own with limits.

    A TOML of 1 MB with long keys takes minutes to read, and the server would not answer meanwhile.

    Raises:
        UploadError: If it has no requirements, or takes too long to read.
    """
    suffix = PurePath(name).suffix
    command = [sys.executable, "-P", "-m", __spec__.name, f"upload{suffix if suffix in _KINDS else ''}"]
    with _readers:
        try:
            process = subprocess.run(
                command, input=content[: MOST_BYTES + 1], capture_output=True, timeout=_MOST_SECONDS, check=True
            )
        except subprocess.SubprocessError:
            raise UploadError("the text takes too long to read", hint="send only the requirements") from None
    document = json.loads(process.stdout)
    if "error" in document:
        raise UploadError(document["error"], hint=document["hint"])
    lists = {name: tuple(document[name]) for name in ("requirements", "left_out")}
    return Upload(**{**document, **lists})


def main() -> None:
    """Read an upload from the standard input, and write it as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
    try:
        answer = asdict(read_upload(sys.stdin.buffer.read(), sys.argv[1]))
    except UploadError as error:
        answer = {"error": error.message, "hint": error.hint}
    json.dump(answer, sys.stdout)


def read_upload(content: bytes, name: str = "") -> Upload:
    """Read requirements, the dependencies of a ``pyproject.toml``, or a lock.

    Args:
        content: The text, in UTF-8.
        name: Name of the file, of which only the end counts.

    Raises:
        UploadError: If it is none of these.
    """
    if len(content) > MOST_BYTES:
        raise UploadError(f"the text is larger than {MOST_BYTES // 1024} kB", hint="send only the requirements")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UploadError("this is not a text file", hint="send `requirements.txt`, `pyproject.toml` or a lock")
    kind = _KINDS.get(PurePath(name).suffix)
    if kind == "JSON" or text.lstrip().startswith("{"):
        return _of_pipfile_lock(_parsed(json.loads, text, "JSON"))
    if kind == "TOML" or _looks_like_toml(text):
        return _of_toml(_parsed(tomllib.loads, text, "TOML"))
    return Upload(requirements=tuple(_of_lines(text)))


def _parsed(read: Any, text: str, kind: str) -> dict[str, Any]:
    try:
        document = read(text)
    except (ValueError, RecursionError) as error:
        raise UploadError(f"the text is not {kind}: {str(error)[:200]}") from None
    if not isinstance(document, dict):
        raise UploadError(f"the {kind} is not a table")
    return document


def _looks_like_toml(text: str) -> bool:
    return re.search(r"^(\[\[?[\w.\-\"]+\]\]?\s*$|lock-version\s*=)", text, re.MULTILINE) is not None


def _of_lines(text: str) -> Iterable[str]:
    """Yield the requirements of a requirements file without hashes."""
    number = 0
    for raw in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        # The patterns expect single spaces: a search for several takes time by the square of their number.
        line = _HASHES.sub("", _COMMENT.sub("", " ".join(raw.split()))).strip()
        if not line:
            continue
        number += 1
        if number > _MOST_REQUIREMENTS:
            raise UploadError(f"there are more than {_MOST_REQUIREMENTS} requirements")
        yield _requirement(line)
    if not number:
        raise UploadError("there are no requirements", hint="write one on each line, such as `torch>=2.4`")


def _requirement(text: str) -> str:
    """Return a requirement in its normal form."""
    quote = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
    if text.startswith("-"):
        raise UploadError(
            f"`{quote}` is an option of pip", hint="remove it: the dashboard uses its own package indexes"
        )
    try:
        if len(text) > _LONGEST_REQUIREMENT:
            raise ValueError("too long")
        requirement = Requirement(text)
    except (InvalidRequirement, ValueError, RecursionError):
        raise UploadError(f"`{quote}` is not a requirement", hint="write it as `torch>=2.4`") from None
    if requirement.url is not None:
        raise UploadError(
            f"`{quote}` has an address", hint="only packages of the index are advised on; name a version instead"
        )
    return str(requirement)


def _of_toml(document: dict[str, Any]) -> Upload:
    if "packages" in document or "package" in document:
        return _of_lock(document.get("packages", document.get("package")))
    project = document.get("project")
    dependencies = project.get("dependencies", []) if isinstance(project, dict) else None
    if not isinstance(dependencies, list) or not all(isinstance(text, str) for text in dependencies):
        raise UploadError(
            "the TOML has neither `[project]` with `dependencies` nor locked packages",
            hint="send `pyproject.toml`, `pylock.toml`, `uv.lock` or `poetry.lock`",
        )
    python = str(project.get("requires-python", "")) if isinstance(project, dict) else ""
    try:
        SpecifierSet(python)
    except InvalidSpecifier:
        raise UploadError(f"`requires-python = {_single_line(python)[:_LONGEST_QUOTE]}` is not valid") from None
    requirements = tuple(_of_lines("\n".join(map(_single_line, dependencies))))
    return Upload(requirements=requirements, python=python, left_out=tuple(_unused_parts(document)))


def _unused_parts(document: dict[str, Any]) -> Iterator[str]:
    """Yield the tables of a `pyproject.toml` that would change the advice, and are not used."""
    tool, project = document.get("tool"), document.get("project")
    if isinstance(tool, dict):
        yield from (f"[tool.{name}]" for name in ("advisor", "uv", "poetry", "pdm") if name in tool)
    if isinstance(project, dict) and project.get("optional-dependencies"):
        yield "[project.optional-dependencies]"
    if document.get("dependency-groups"):
        yield "[dependency-groups]"


def _single_line(text: str) -> str:
    return " ".join(text.split())


def _of_lock(packages: Any) -> Upload:
    listed = [p for p in packages if isinstance(p, dict)] if isinstance(packages, list) else []
    return _of_names(package.get("name") for package in listed if not _is_own(package.get("source")))


def _is_own(source: Any) -> bool:
    """Whether a package comes from a directory: the project itself is in some locks."""
    return isinstance(source, dict) and any(k in source or source.get("type") == k for k in _DIRECTORIES)


def _of_pipfile_lock(document: dict[str, Any]) -> Upload:
    packages = document.get("default")
    if not isinstance(packages, dict):
        raise UploadError("the JSON is not a lock of pipenv", hint="send `Pipfile.lock` or another lock")
    return _of_names(packages)


def _of_names(names: Iterable[Any]) -> Upload:
    try:
        listed = sorted({canonicalize_name(name, validate=True) for name in names if isinstance(name, str)})
    except InvalidName:
        raise UploadError("a package of the lock has no valid name") from None
    return Upload(requirements=tuple(_of_lines("\n".join(listed))), is_lock=True)


if __name__ == "__main__":
    main()

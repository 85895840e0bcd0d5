"""Reads requirements files with pip's parser: includes, constraints, hashes, index options, line numbers."""

from __future__ import annotations

import codecs
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.domain.direct_reference import is_direct_reference
from advisor.domain.requirement import RootRequirement
from advisor.project.interface import ProjectRequirements, direct_root, parse_root
from advisor.project.text_file import UnreadableFileError, check_size
from knowledge.domain.errors import InputError

PINNED = "requirements.txt"
"""Name of the requirements file that is a lock if every line has an exact version."""
_PLACE = re.compile(r"(?P<file>[^:`]+):(?P<line>\d+): (?:`(?P<package>[A-Za-z0-9][\w.-]*))?")
"""Start of a message about a line: the file, the line, and the first package of the line."""
# The parser's search for comments needs time that is quadratic in the number of spaces.
_SPACES = re.compile(rb"(?:[ \t\v\f\0]|\\\r?\n){1000}")

_CONTINUATION = re.compile(rb"\\\r?\n")
_INCLUDE = re.compile(rb"(?:^|\s)(?:-[rc]|--r\w*|--c\w*)[ \t=]*[\"']?([^\s\"'#]+)", re.MULTILINE)
_INCLUDED_PATH = re.compile(r"^(-[rc]\s*|--(?:requirement|constraint)[ =]\s*)(?![a-z]+:)(\S+)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)")
_LINE_OPTION = re.compile(r"\s--[a-z]|\s+#")
"""Start of the options of one requirement (`--hash`), or of a comment."""
_HASH = re.compile(r"\s--hash(?:=|\s+)[\"']?([\w-]+:\w+)")
_MARKER = re.compile(r"\s;|;\s")
"""Start of a marker; an address may contain a semicolon."""
_NAMED = re.compile(r"[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*@\s*\S")
_CONDA_EXPORT = re.compile(r"[\w.-]+=[^=\s]+=[^=\s]+$")
_NO_OPERATOR = re.compile(r"([A-Za-z0-9][\w.-]*(?:\[[\w,.-]*\])?)\s*[\s=:]\s*v?(\d[\w.+!]*)$")
"""A name and a version with a space, one `=` or a colon between them."""
_REVERSED = re.compile(r"=[<>]")
_MAX_LINES = 5000
"""Maximum number of requirements and options, with included files; the parser needs up to 0.5 ms for each."""


def read_requirements(path: Path, *, constraint: bool = False, directory: Path | None = None) -> ProjectRequirements:
    """Read a requirements file and the files that it includes (``-r``, ``-c``).

    Args:
        path: The file.
        constraint: Whether the file is a constraints file.
        directory: Directory that paths of packages start at, which for pip is where the command runs; by default that
            of the file.

    Raises:
        InputError: If the file does not exist.
        UnreadableFileError: If a file cannot be read, or a line is malformed or not supported.
    """
    if not path.is_file():
        reason = "it is a directory" if path.is_dir() else "there is no such file"
        raise InputError(f"`{path}` cannot be read: {reason}")
    check_size(path)
    state = path.stat()
    try:
        return _read(path, constraint, directory or path.parent, (state.st_mtime_ns, state.st_size))
    except InputError as error:
        place = _PLACE.match(error.message)
        file = path.parent / place["file"] if place else path
        raise UnreadableFileError(
            error.message,
            path=file if file.is_file() else path,
            line=int(place["line"]) if place else 1,
            package=place["package"] or "" if place else "",
            hint=error.hint,
        ) from None


def read_requirement_lines(path: Path, lines: Iterable[tuple[int, str]]) -> ProjectRequirements:
    """Read lines of a requirements file, each with its number, that are part of a file of another format.

    Raises:
        UnreadableFileError: If a line is malformed or not supported, or names a file that cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="seshat-lines-") as folder:
        # A copy with the same name and the same line numbers, for messages.
        copy = Path(folder, path.name)
        copy.write_text(_text_of(lines, path.parent), encoding="utf-8")
        try:
            project = read_requirements(copy, directory=path.parent)
        except UnreadableFileError as error:
            raise UnreadableFileError(
                error.message.replace(str(copy), str(path)),
                path=path if error.path == copy else error.path,
                line=error.line,
                package=error.package,
                hint=error.hint,
            ) from None
    roots = (replace(root, path=str(path)) if root.path == str(copy) else root for root in project.roots)
    return replace(project, roots=tuple(roots), files=(str(path),))


def _text_of(lines: Iterable[tuple[int, str]], folder: Path) -> str:
    """Return the text of a requirements file; paths of included files are completed with their folder."""
    text: list[str] = []
    for number, line in sorted(lines):
        text += [""] * (number - 1 - len(text))
        text.append(
            _INCLUDED_PATH.sub(lambda match: f"{match[1]}{folder.absolute() / match[2]}", " ".join(line.split()))
        )
    return "\n".join(text) + "\n"


def _parser() -> Any:
    # Slow to import, and a remembered answer does not need it.
    import pip_requirements_parser

    return pip_requirements_parser


@lru_cache(maxsize=8)
def _read(path: Path, constraint: bool, directory: Path, _: tuple[int, int]) -> ProjectRequirements:
    """Read a file once per command, although several functions need it."""
    parser = _parser()
    own_errors = (parser.InstallationError, parser.RequirementsFileParseError)
    try:
        _check(path, set())
        parsed = _parse(path)
    except (OSError, ValueError, LookupError, RecursionError, *own_errors) as error:
        raise InputError(f"`{path}` cannot be read: {' '.join(str(error).split())}") from None
    unusual: list[RootRequirement] = []
    malformed: list[Any] = []
    for line in parsed.invalid_lines:
        place = f"{Path(line.filename or path).name}:{line.line_number}"
        if _EDITABLE.match(line.line) or is_direct_reference(line.line):
            root = _direct_root(line.line, place, directory)
            unusual.append(replace(root, constraint=constraint, path=line.filename or str(path)))
        else:
            malformed.append(line)
    if malformed:
        raise _malformed_error(malformed, path, understood=len(parsed.requirements) + len(unusual))
    options: dict[str, Any] = {}
    for entry in parsed.options:
        for name, value in entry.options.items():
            if isinstance(value, list):
                options.setdefault(name, []).extend(value)
            else:
                options[name] = value
    return ProjectRequirements(
        roots=(*(_root(entry, path, directory, constraint) for entry in parsed.requirements), *unusual),
        index_url=options.get("index_url"),
        extra_index_urls=tuple(options.get("extra_index_urls", ())),
        find_links=tuple(options.get("find_links", ())),
        trusted_hosts=tuple(options.get("trusted_hosts", ())),
        only_binary=_names(options.get("only_binary")),
        no_binary=_names(options.get("no_binary")),
        prereleases=bool(options.get("pre")),
        files=(str(path),),
    )


def _check(path: Path, checked: set[Path]) -> None:
    """Check that the parser can read a file and the files that it includes in a reasonable time."""
    checked.add(path)
    if not path.is_file():
        raise InputError(f"`{path}` cannot be read: it is not a regular file")
    content = path.read_bytes()
    if _SPACES.search(content):
        raise InputError(f"`{path}` cannot be read: a line has 1000 spaces in a row")
    for name in included_files(content):
        included = path.parent / name
        if included.exists() and included not in checked:
            _check(included, checked)


def included_files(content: bytes) -> tuple[str, ...]:
    """Return the files that a requirements file includes (``-r``, ``-c``), as written; some may be no includes."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        content = decoded(content).encode()
    return tuple(os.fsdecode(name) for name in _INCLUDE.findall(_CONTINUATION.sub(b"", content)))


def _parse(path: Path) -> Any:
    """Parse a file and the files that it includes."""
    parser = _parser()

    class Limited(parser.RequirementsFile):  # type: ignore[misc, name-defined]
        """Stops at the limit: files that include each other several times may expand to very many lines."""

        @classmethod
        def parse(cls, *args: Any, **options: Any) -> Iterator[Any]:
            remaining = _MAX_LINES
            for line in super().parse(*args, **options):
                remaining -= not isinstance(line, parser.CommentRequirementLine)
                if remaining < 0:
                    raise InputError(
                        f"`{path}` cannot be read: it has more than {_MAX_LINES} lines, including other files",
                        hint="comments and hashes are not counted; is it a requirements file?",
                    )
                yield line

    return Limited.from_file(str(path), include_nested=True)


def decoded(content: bytes) -> str:
    """Return the text of a requirements file; as in pip, its first bytes determine the encoding.

    Raises:
        ValueError: If the content is not valid in that encoding.
    """
    try:
        return str(_parser().auto_decode(content))
    except LookupError as error:
        raise ValueError(str(error)) from None


def _root(entry: Any, path: Path, directory: Path, constraint: bool) -> RootRequirement:
    line = entry.requirement_line
    origin = f"{Path(line.filename or path).name}:{line.line_number}"
    if entry.is_editable or entry.req is None or entry.link is not None:
        root = _direct_root(line.line, origin, directory)
    else:
        root = parse_root(_text(entry, origin), origin, directory)
    hashes = frozenset(h.removeprefix("sha256:") for h in entry.hash_options if h.startswith("sha256:"))
    return replace(
        root,
        constraint=constraint or bool(entry.is_constraint),
        hashes=root.hashes or hashes,
        other_hashes=frozenset(h for h in entry.hash_options if not h.startswith("sha256:")),
        path=line.filename or str(path),
    )


def _text(entry: Any, origin: str) -> str:
    """Return a requirement with its marker."""
    try:
        text = str(entry.req)
    except ValueError as error:
        line = entry.requirement_line.line[:80]
        raise InputError(f"{origin}: `{line}` is not a requirement: {error}") from None
    return f"{text} ; {entry.marker}" if entry.marker and ";" not in text else text


def _malformed_error(lines: Sequence[Any], path: Path, *, understood: int) -> InputError:
    """Return the error about lines that are no requirements, which quotes the first of them."""
    first = lines[0]
    place = f"{Path(first.filename or path).name}:{first.line_number}"
    reason = next((text for text in (first.error_message or "").splitlines() if text.strip()), "invalid")
    others = len(lines) - 1
    more = f" (and {others} more line{'s' * (others > 1)}; {understood} could be read)" if others else ""
    return InputError(
        f"{place}: `{first.line}` is not a requirement: {reason.removeprefix('Invalid requirement: : ')}{more}",
        hint=_hint_about_line(first.line),
    )


def _hint_about_line(line: str) -> str:
    """Return what to write instead of a malformed line; empty if that is not known."""
    if _CONDA_EXPORT.match(line):
        return (
            "this is the output of `conda list --export`: `conda env export` writes an `environment.yml`, which can be "
            "read, and `pip list --format=freeze` the versions of all Python packages"
        )
    if match := _NO_OPERATOR.match(line):
        return f"write it as `{match[1]}=={match[2]}`"
    if match := _REVERSED.search(line):
        return f"write `{match[0][::-1]}` instead of `{match[0]}`"
    return "write the packages only, one on each line" if line.startswith(("pip ", "!pip ", "conda ")) else ""


def _direct_root(line: str, origin: str, directory: Path) -> RootRequirement:
    """Read a line with an address or a path (`-e`, `git+...`, `./name`, `name @ ...`)."""
    editable = _EDITABLE.match(line)
    text = line[editable.end() :] if editable else line
    option = _LINE_OPTION.search(text)
    text, options = (text[: option.start()].strip(), text[option.start() :]) if option else (text.strip(), "")
    if _NAMED.match(text) and not editable:
        return _with_hash(parse_root(text, origin, directory), options)
    address, *marker = _MARKER.split(text, maxsplit=1)
    root = direct_root(
        address.strip().strip("'\""),
        origin,
        directory,
        marker=marker[0].strip() if marker else "",
        editable=bool(editable),
    )
    return _with_hash(root, options)


def _with_hash(root: RootRequirement, options: str) -> RootRequirement:
    """Return a requirement on an address with the hash in the options of its line."""
    hashes = _HASH.findall(re.split(r"\s#", options, maxsplit=1)[0])
    if not hashes or root.direct is None:
        return root
    algorithm, _, digest = hashes[0].partition(":")
    if root.direct.kind != "archive":
        raise InputError(f"{root.origin}: only an archive has a hash, not a repository or a directory")
    if len(hashes) > 1 or algorithm != "sha256" or root.direct.sha256 not in ("", digest.lower()):
        raise InputError(f"{root.origin}: the hash of an address is one SHA-256", hint="write `--hash=sha256:...` once")
    direct = replace(root.direct, sha256=digest.lower())
    return replace(root, direct=direct, hashes=frozenset({direct.sha256}))


def _names(value: Any) -> tuple[str, ...]:
    if not value:
        return ()
    words = value if isinstance(value, (list, set, frozenset, tuple)) else [value]
    return tuple(sorted(name for word in words for name in str(word).split(",") if name))


def is_pinned(path: Path) -> bool:
    """Whether a requirements file has requirements, each with an exact version."""
    exact = pins(path)
    return bool(exact) and all(exact)


def pins(path: Path) -> list[bool]:
    """Return for each requirement of a file whether its version, or its address, is exact."""
    roots = (root for root in read_requirements(path).roots if not root.constraint)
    return [root.direct.is_exact if root.direct else bool(exact_versions(root)) for root in roots]


def exact_versions(root: RootRequirement) -> list[str]:
    """Return the versions that a requirement names with `==`."""
    return [s.version for s in root.requirement.specifier if s.operator in ("==", "===") and "*" not in s.version]

"""Words that this project does not use: `python -m tests.words [PATH...]` prints where they occur.

The list is `tests/words.toml`. Without paths, the command counts the occurrences in each folder of code.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "words.toml"
SUFFIXES = (".md", ".py", ".yaml", ".yml", ".toml", ".html", ".sh")
IGNORED = (
    "tests/fixtures/",
    "tests/fuzz/corpus/",
    "tests/repositories/",
    "tests/scenarios/",
    "knowledge/data/",
    "tests/words.toml",
    "tests/test_words.py",
)
"""Recorded data, inputs of tests, and the list itself."""
PACKAGES = ("advisor", "knowledge", "pi_runners", "docs", "benchmarks", "tests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """An unused word in a file.

    Attributes:
        path: The file, relative to the root of the repository.
        line: Number of the line.
        text: The words that were matched.
        suggestion: Words to use instead.
        kind: Table of the list: ``words`` or ``names``.
    """

    path: str
    line: int
    text: str
    suggestion: str
    kind: str

    def __str__(self) -> str:
        """Return the occurrence as a line of a report."""
        return f"{self.path}:{self.line}: `{self.text}`: write {self.suggestion}"


def tracked_files(*folders: str, suffixes: Sequence[str] = SUFFIXES) -> list[str]:
    """Return the files of the repository with the suffixes, without recorded data.

    Args:
        folders: Folders or files, relative to the root; by default all.
        suffixes: Suffixes of file names.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *folders]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, encoding="utf-8").stdout
    paths = [path for path in listing.split("\0") if path.endswith(tuple(suffixes)) and (ROOT / path).is_file()]
    return sorted(path for path in paths if not path.startswith(IGNORED))


def occurrences(paths: Sequence[str], kinds: Sequence[str] = ("words", "names")) -> Iterator[Occurrence]:
    """Yield the unused words in files.

    Args:
        paths: Files, relative to the root.
        kinds: Tables of the list; names are searched in Python files only.
    """
    for path in paths:
        text = (ROOT / path).read_text(encoding="utf-8")
        yield from occurrences_in(path, text, kinds)


def occurrences_in(path: str, text: str, kinds: Sequence[str]) -> Iterator[Occurrence]:
    """Yield the unused words in a text.

    Args:
        path: Name of the file; its suffix decides whether names are searched.
        text: Its content.
        kinds: Tables of the list.
    """
    for pattern in _patterns("allowed") if _any_pattern("allowed").search(text) else ():
        text = pattern.sub(lambda match: re.sub(r"\S", ".", match[0]), text)
    for kind in kinds:
        if kind == "names" and not path.endswith(".py"):
            continue
        searched = text if kind == "names" else text.replace("_", " ")
        # One search for all patterns takes a seventh of the time of one for each; most texts contain none of them.
        if not _any_pattern(kind).search(searched):
            continue
        for pattern, suggestion in _patterns(kind).items():
            for match in pattern.finditer(searched):
                line = searched.count("\n", 0, match.end()) + 1
                words = " ".join(match[0].split())
                yield Occurrence(path=path, line=line, text=words, suggestion=suggestion, kind=kind)


@cache
def _any_pattern(table: str) -> re.Pattern[str]:
    """Return a pattern that is in a text if one of a table is."""
    patterns = tuple(_patterns(table))
    return re.compile("|".join(f"(?:{pattern.pattern})" for pattern in patterns), patterns[0].flags)


@cache
def _patterns(table: str) -> dict[re.Pattern[str], str]:
    """Return the patterns of a table of the list with their suggestions; a space matches a line break, too."""
    flags = re.MULTILINE | (0 if table == "names" else re.IGNORECASE)
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))[table]
    return {
        re.compile(p if table == "names" else p.replace(" ", r"\s+"), flags): suggestion
        for p, suggestion in entries.items()
    }


def main(arguments: Sequence[str]) -> int:
    """Print the occurrences in the named paths, or their number in each folder of code.

    Args:
        arguments: Paths, relative to the root of the repository.

    Returns:
        The exit status: 1 if a named path has an occurrence.
    """
    if arguments:
        matches = list(occurrences(tracked_files(*arguments)))
        for match in matches:
            print(match)
        return 1 if matches else 0
    folders = sorted({"/".join(Path(path).parts[:2]) for path in tracked_files(*PACKAGES) if not path.endswith(".md")})
    for folder in folders:
        paths = [p for p in tracked_files(folder) if not p.endswith(".md")]
        counts = [sum(1 for _ in occurrences(paths, kinds=(kind,))) for kind in ("words", "names")]
        if any(counts):
            print(f"{folder}: {counts[0]} words, {counts[1]} names")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Texts and names use the words that the reader of other tools expects."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.words import ROOT, occurrences, occurrences_in, tracked_files

CODE = (
    ".github",
    "advisor",
    "benchmarks",
    "docs/*.py",
    "knowledge",
    "pi_runners",
    "pyproject.toml",
    "templates",
    "tests/advisor",
    "tests/fuzz",
)
"""Folders and files of code whose texts the list is applied to; `python -m tests.words` counts all occurrences."""
NAMES = (
    "advisor",
    "benchmarks",
    "docs/*.py",
    "knowledge",
    "pi_runners",
    "tests/advisor",
    "tests/fuzz",
)
"""Folders and files of code whose names of variables the list is applied to."""
MODULES_OF = ("advisor", "knowledge", "pi_runners", "docs", "benchmarks")
NOUNS = {
    "training": "the name of the indicator",
    "published": "the name of the indicator, which the benchmark tests",
    "timing": "a noun: one measured duration",
    "unindexed": "an adjective: packages that come from no index",
    "derived": "the name of a migration, which stays as it was released",
}
"""Last words of module names that look like gerunds or participles, with the reason why they stay."""


def test_pages_use_no_word_of_the_list() -> None:
    pages = tracked_files(suffixes=(".md",))

    assert len(pages) > 40
    assert [str(match) for match in occurrences(pages)] == []


def test_code_uses_no_word_of_the_list() -> None:
    texts, names = tracked_files(*CODE), tracked_files(*NAMES)

    matches = [*occurrences(texts, kinds=("words",)), *occurrences(names, kinds=("names",))]
    assert [str(match) for match in matches] == []


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("a.md", "The result is told\nto the user.", ["told"]),
        ("a.md", "Observations are kept\napart.", ["kept apart"]),
        ("a.py", "def report(told: str, twin_arm: int) -> None: ...", ["told", "twin"]),
        ("a.py", "@dataclass(slots=True)\nclass A:\n    slot = record['slot']", ["slot"]),
        ("a.py", "found = rows\nfoundation = rows\nif found == rows: ...", ["found ="]),
        ("a.md", "found = rows", []),
        ("a.md", "An advisory that was not withdrawn, and a withdrawn version", ["withdrawn"]),
    ],
)
def test_the_list_finds_words_in_texts_and_names(path: str, text: str, words: list[str]) -> None:
    matches = [match.text.rstrip(" r") for match in occurrences_in(path, text, ("words", "names"))]

    assert sorted(matches) == sorted(words)


def test_an_occurrence_names_file_line_word_and_suggestion() -> None:
    (match,) = occurrences_in("docs/a.md", "one\ntwo told\n", ("words",))

    assert str(match) == "docs/a.md:2: `told`: write reported, named; or name the value"


def test_module_names_are_nouns() -> None:
    modules = [Path(path) for path in tracked_files(*MODULES_OF, suffixes=(".py",))]

    assert len(modules) > 100
    verbs = [
        str(path)
        for path in modules
        if path.stem.rpartition("_")[2].endswith(("ing", "ed")) and path.stem.rpartition("_")[2] not in NOUNS
    ]
    assert verbs == []


def test_no_two_public_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in tracked_files("advisor", "knowledge", "pi_runners", suffixes=(".py",)):
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)

    assert len(places) > 200
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_every_folder_of_the_check_exists() -> None:
    assert [folder for folder in (*CODE, *NAMES) if not tracked_files(folder)] == []

"""Constraints of Poetry with several ranges, as one specifier."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version
from poetry.core.constraints.version import Version as PoetryVersion
from poetry.core.constraints.version import parse_constraint

from advisor.project.formats.poetry import read_poetry
from advisor.project.interface import NOTHING, ProjectRequirements
from advisor.project.text_file import TomlFile
from knowledge.domain.errors import InputError
from tests.examples import examples

releases = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))
ranges = st.tuples(st.sampled_from(["^", "~", ">=", "<", ">", "=="]), releases).map("".join) | releases.map(
    "{}.*".format
)


def read(constraint: str) -> ProjectRequirements:
    document = {"tool": {"poetry": {"dependencies": {"x": constraint}}}}
    return read_poetry(TomlFile(Path("pyproject.toml"), "", document), NOTHING)


@pytest.mark.parametrize(
    ("constraint", "specifier"),
    [
        ("^1.2 || ^3.0", "!=2.*,<4.0,>=1.2"),
        ("~1.2 || ~1.5", "!=1.3.*,!=1.4.*,<1.6,>=1.2"),
        ("^1 || ^3.1", "!=2.*,!=3.0.*,<4.0,>=1"),
        ("^1 || ^2", "<3,>=1"),
        ("1.* || 3.*", "!=2.*,<4,>=1"),
    ],
)
def test_gaps_are_excluded_by_their_prefixes(constraint: str, specifier: str) -> None:
    (root,) = read(constraint).roots

    assert str(root.requirement.specifier) == specifier


@pytest.mark.parametrize("constraint", ["~1.2 || ^2.0", "^1 || ^500", "1.0 || 3.0", "<2 || ^1!1.0"])
def test_a_gap_without_prefixes_is_refused(constraint: str) -> None:
    with pytest.raises(InputError, match="allows several ranges"):
        read(constraint)


@settings(max_examples=examples(300))
@given(parts=st.lists(ranges, min_size=2, max_size=3), versions=st.lists(releases, min_size=20, max_size=20))
def test_the_specifier_admits_the_versions_that_poetry_admits(parts: list[str], versions: list[str]) -> None:
    constraint = " || ".join(parts)
    try:
        (root,) = read(constraint).roots
    except InputError:
        return

    for version in versions:
        expected = parse_constraint(constraint).allows(PoetryVersion.parse(version))
        assert root.requirement.specifier.contains(Version(version), prereleases=True) == expected

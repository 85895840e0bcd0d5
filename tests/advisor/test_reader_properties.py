"""The readers of locks, requirements, metadata and projects accept or refuse any input, by property tests."""

from __future__ import annotations

import json
import shutil

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from advisor.api.configuration import check_table
from advisor.index.configuration import read_configuration
from advisor.index.metadata.core import parse_metadata
from advisor.locks.registry import read_lock
from advisor.project.interface import SelectedParts
from advisor.project.read import read_project
from knowledge.domain.errors import AdvisorError, InputError
from tests.advisor.inputs import target
from tests.examples import examples

junk = st.text(max_size=60) | st.sampled_from(
    ["a==1", "[[package]]", 'name = "a"', "version = 1", "{}", '{"default": {"a": {}}}']
)


@settings(max_examples=examples(300), deadline=None)
@given(
    lines=st.lists(junk, max_size=6),
    name=st.sampled_from(["uv.lock", "poetry.lock", "Pipfile.lock", "pylock.toml", "f.txt"]),
)
def test_lock_readers_accept_or_refuse_any_text(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], name: str
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")

    try:
        versions = read_lock(path, target()).versions
    except InputError as error:
        assert error.message
    else:
        assert all(isinstance(version, Version) for version in versions.values())
    shutil.rmtree(path.parent)


table = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["1.0", "==1", "a", "os_name == 'nt'"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["package", "name", "version", "default", "marker", "markers", "dependencies", "source", "groups"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(300), deadline=None)
@given(document=table)
def test_lock_readers_accept_or_refuse_any_document(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "Pipfile.lock").write_text(json.dumps(document))
    (folder / "bom.json").write_text(json.dumps(document))

    for path in (folder / "Pipfile.lock", folder / "bom.json"):
        try:
            read_lock(path, target())
        except InputError as error:
            assert error.message
    shutil.rmtree(folder)


@settings(max_examples=examples(300), deadline=None)
@given(
    lines=st.lists(
        junk | st.sampled_from(["-r other.txt", "-e .", "--hash=sha256:00", "a ; python_version<'3'", "\\"]), max_size=6
    )
)
def test_requirement_readers_accept_or_refuse_any_text(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for name in ("requirements.txt", "pyproject.toml", "Pipfile"):
        (folder / name).write_text("\n".join(lines), encoding="utf-8", errors="replace")
        try:
            read_project(folder)
        except AdvisorError as error:
            assert error.message
        (folder / name).unlink()
    shutil.rmtree(folder)


@settings(max_examples=examples(300), deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(
            ["Name: a", "Version: 1", "Version: x", "Requires-Dist: b (>1)", "Requires-Dist: b>>", "Dynamic: x", ""]
        )
        | st.text(max_size=30),
        max_size=8,
    )
)
def test_the_metadata_reader_accepts_or_refuses_any_text(lines: list[str]) -> None:
    try:
        metadata = parse_metadata("\n".join(lines) + "\n")
    except ValueError as error:
        assert str(error)
    else:
        assert metadata.name


KEYS = [
    "project",
    "tool",
    "poetry",
    "uv",
    "advisor",
    "dependencies",
    "optional-dependencies",
    "dependency-groups",
    "group",
    "dev",
    "source",
    "sources",
    "index",
    "packages",
    "requires",
    "python",
    "python_version",
    "name",
    "url",
    "version",
    "extras",
    "markers",
    "requires-python",
    "dynamic",
    "pip",
    "index-url",
]
parts = st.recursive(
    st.booleans()
    | st.integers(0, 3)
    | st.sampled_from(["a", "a>=1", "^1.2", "*", "||", "https://index.example/simple"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=examples(500), deadline=None)
@given(
    document=st.dictionaries(st.sampled_from(["project", "tool", "packages", "source", "dependency-groups"]), parts),
    tool=st.none() | st.dictionaries(st.sampled_from(["poetry", "uv", "advisor"]), parts, max_size=2),
)
def test_project_readers_accept_or_refuse_values_of_any_type(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object], tool: object
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    text = tomli_w.dumps(document if tool is None else {**document, "tool": tool})

    for name in ("pyproject.toml", "Pipfile"):
        (folder / name).write_text(text)
        for read in (
            lambda: check_table(read_project(folder, selection=SelectedParts(extras=("a",))).settings, "the project"),
            lambda: read_configuration(folder, environment={}, home=folder),
        ):
            try:
                read()
            except AdvisorError as error:
                assert error.message
        (folder / name).unlink()
    shutil.rmtree(folder)

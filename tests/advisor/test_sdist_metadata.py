"""Requirements of sdists that are known without a build."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from advisor.index.metadata.core import CoreMetadata, parse_metadata
from advisor.index.metadata.sdist import static_metadata
from tests.advisor.factories import build_client
from tests.conftest import Advisor
from tests.package_index import PackageIndex

PKG_INFO = """Metadata-Version: 2.1
Name: a
Version: 1.0
License: MIT
Requires-Dist: from-pkg-info
Requires-Python: >=3.1
Provides-Extra: old
 continued
Classifier: License :: OSI Approved :: MIT License
"""
PYPROJECT = """
[project]
name = "A"
dynamic = ["version", "readme"]
requires-python = ">=3.9"
dependencies = ["b>=2; python_version < '3.12'", "c @ https://example.org/c-1-py3-none-any.whl"]
[project.optional-dependencies]
More_Tests = ["d[x]==1", "e; sys_platform == 'linux' or sys_platform == 'darwin'"]
"""


def metadata(pkg_info: str = PKG_INFO, pyproject: str | None = PYPROJECT) -> CoreMetadata:
    return parse_metadata(static_metadata(pkg_info, pyproject))


def test_requirements_of_a_table_without_dynamic_fields_hold() -> None:
    core = metadata()

    assert not core.dynamic
    assert (core.name, str(core.version), str(core.requires_python)) == ("a", "1.0", ">=3.9")
    assert list(core.requires) == [
        Requirement('b>=2; python_version < "3.12"'),
        Requirement("c @ https://example.org/c-1-py3-none-any.whl"),
        Requirement('d[x]==1; extra == "more-tests"'),
        Requirement('e; (sys_platform == "linux" or sys_platform == "darwin") and extra == "more-tests"'),
    ]
    assert core.extras == {"more-tests"}
    assert core.licenses == ("MIT",)


def test_a_table_without_requirements_means_that_there_are_none() -> None:
    core = metadata(pyproject='[project]\nname = "a"\nversion = "1.0"\n')

    assert not core.dynamic
    assert (core.requires, core.extras, core.requires_python) == ((), frozenset(), None)


def test_static_metadata_is_not_replaced() -> None:
    core = metadata(PKG_INFO.replace("2.1", "2.2"))

    assert [str(r) for r in core.requires] == ["from-pkg-info"]


@pytest.mark.parametrize(
    "pyproject",
    [
        None,
        "",
        "not toml [",
        "a = " + "[" * 100_000,
        PYPROJECT + ".".join("a" * 20_000) + " = 1\n",
        "[project]\nversion = '1.0'",
        "project = 1",
        PYPROJECT.replace('"A"', '"other"'),
        PYPROJECT.replace('"version"', '"dependencies"'),
        PYPROJECT.replace('"version"', '"optional-dependencies"'),
        PYPROJECT.replace('"version"', '"Requires-Python"'),
        PYPROJECT.replace('"b>=2', '"b>=>2'),
        PYPROJECT.replace('"b>=2', '"b\\nRequires-Dist: x'),
        PYPROJECT.replace('">=3.9"', '">=3.9\\nName: b"'),
        PYPROJECT.replace('">=3.9"', "3.9"),
        PYPROJECT.replace('">=3.9"', '">=>3"'),
        PYPROJECT.replace('["version", "readme"]', '"dependencies"'),
        '[project]\nname = "a"\ndependencies = "b"',
        '[project]\nname = "a"\ndependencies = "b"\noptional-dependencies = ["c"]',
    ],
)
def test_a_table_that_is_dynamic_or_malformed_changes_nothing(pyproject: str | None) -> None:
    core = metadata(pyproject=pyproject)

    assert core.dynamic
    assert [str(r) for r in core.requires] == ["from-pkg-info"]


POETRY = """
[build-system]
build-backend = "poetry.core.masonry.api"
[tool.poetry]
name = "A"
[tool.poetry.dependencies]
python = "^3.8"
b = "^2.1"
c = { version = ">=1", optional = true, extras = ["x"] }
d = [{ version = "<2", python = "<3.10" }, { version = ">=2", python = ">=3.10" }]
unused = { version = "*", optional = true }
[tool.poetry.extras]
More_Tests = ["c"]
"""
FLIT = """
[build-system]
build-backend = "flit_core.buildapi"
[tool.flit.metadata]
module = "A"
requires-python = ">=3.8"
requires = ["b>=2.1"]
dev-requires = ["c"]
[tool.flit.metadata.requires-extra]
docs = ["d; python_version < '3.12'"]
"""


def test_requirements_in_the_tables_of_poetry_hold() -> None:
    core = metadata(pyproject=POETRY)

    assert not core.dynamic
    assert str(core.requires_python) in (">=3.8,<4.0", "<4.0,>=3.8")
    assert list(core.requires) == [
        Requirement("b<3.0,>=2.1"),
        Requirement('c[x]>=1; extra == "more-tests"'),
        Requirement('d<2; python_version < "3.10"'),
        Requirement('d>=2; python_version >= "3.10"'),
    ]
    assert core.extras == {"more-tests"}


def test_requirements_in_the_table_of_flit_hold() -> None:
    core = metadata(pyproject=FLIT)

    assert not core.dynamic
    assert str(core.requires_python) == ">=3.8"
    assert list(core.requires) == [
        Requirement("b>=2.1"),
        Requirement('c; extra == "dev"'),
        Requirement('d; python_version < "3.12" and extra == "docs"'),
    ]


@pytest.mark.parametrize(
    "pyproject",
    [
        POETRY.replace("poetry.core", "other"),
        POETRY.replace('name = "A"', 'name = "other"'),
        POETRY.replace('"^2.1"', '{ git = "https://example.org/b" }'),
        POETRY.replace('"^2.1"', '"^^"'),
        POETRY.replace('"^2.1"', '"1 || 3"'),
        POETRY.replace('"^2.1"', f'">=1{" " * 10_000}"'),
        POETRY.replace('"^3.8"', '"~2.7 || ^3.8"'),
        FLIT.replace('"b>=2.1"', '"b>=>2"'),
    ],
)
def test_tables_of_other_backends_and_malformed_ones_need_a_build(pyproject: str) -> None:
    assert metadata(pyproject=pyproject).dynamic


@pytest.mark.parametrize("order", [("PKG-INFO", "pyproject.toml"), ("pyproject.toml", "PKG-INFO")])
def test_both_files_of_a_zip_archive_are_found_in_any_order(
    index: PackageIndex, tmp_path: Path, order: tuple[str, str]
) -> None:
    texts = {"PKG-INFO": PKG_INFO, "pyproject.toml": PYPROJECT}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a-1.0/inside/pyproject.toml", "not this one")
        for name in order:
            archive.writestr(f"a-1.0/{name}", texts[name])
    index.add_file("a", "a-1.0.zip", content.getvalue())
    client = build_client(index, tmp_path)

    core = client.metadata(client.files(canonicalize_name("a"))[0])

    assert not core.dynamic
    assert len(core.requires) == 4


def test_an_sdist_with_a_static_table_is_part_of_a_stack_without_a_build(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add_sdist("a", "1.0", "2.1", pyproject='[project]\nname = "a"\nversion = "1.0"\ndependencies = ["b<2"]\n')
    for version in ("1.0", "2.0"):
        index.add("b", version)
    (tmp_path / "requirements.in").write_text("a\n")

    result = advisor("advise", "--index-url", index.url, "-o", "requirements.txt")

    assert result.returncode == 0, result.stderr
    locked = (tmp_path / "requirements.txt").read_text()
    assert "a==1.0" in locked
    assert "b==1.0" in locked

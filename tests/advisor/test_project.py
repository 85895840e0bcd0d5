from __future__ import annotations

from pathlib import Path

import pytest

from advisor.project.read import read_project
from knowledge.domain.errors import InputError


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("_toml", ".toml").replace("_txt", ".txt")).write_text(text)


PYPROJECT = """[project]
name = "mine"
requires-python = ">=3.10"
dependencies = [
    "numpy>=1.26",
    "pandas ; sys_platform == 'linux'",
]
[project.optional-dependencies]
gpu = ["torch>=2", "mine[plots]"]
plots = ["matplotlib"]
[dependency-groups]
test = ["pytest", {include-group = "lint"}]
lint = ["ruff"]
[tool.advisor]
hardware = "h200"
"""


def names(folder: Path, **options: object) -> list[str]:
    return [root.name for root in read_project(folder, **options).roots]  # type: ignore[arg-type]


def test_dependencies_are_read_with_their_lines(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=PYPROJECT)

    project = read_project(tmp_path)

    assert [(r.name, r.origin) for r in project.roots] == [
        ("numpy", "pyproject.toml:5"),
        ("pandas", "pyproject.toml:6"),
    ]
    assert (project.requires_python, project.settings) == (">=3.10", {"hardware": "h200"})


def test_extras_and_groups_are_added(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=PYPROJECT)

    assert names(tmp_path, extras=["gpu"]) == ["numpy", "pandas", "torch", "matplotlib"]
    assert names(tmp_path, groups=["test"]) == ["numpy", "pandas", "pytest", "ruff"]


def test_a_requirements_file_is_read_with_all_it_includes(tmp_path: Path) -> None:
    write(
        tmp_path,
        requirements_txt="--index-url https://i/simple\n-r more.txt\n-c limits.txt\n"
        "numpy[x]>=1 ; python_version > '3' \\\n"
        f"    --hash=sha256:{'a' * 64}\n",
        more_txt="pandas  # data\n",
        limits_txt="scipy<2\n",
    )

    project = read_project(tmp_path)

    found = {str(r.name): r for r in project.roots}
    assert project.index_url == "https://i/simple"
    assert set(found) == {"numpy", "pandas", "scipy"}
    assert found["scipy"].constraint
    assert found["numpy"].hashes == {"a" * 64}
    assert str(found["numpy"].requirement) == 'numpy[x]>=1; python_version > "3"'
    assert found["pandas"].origin == "more.txt:1"


def test_the_projects_table_counts_beside_named_requirements(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=PYPROJECT, requirements_txt="six\n")

    project = read_project(tmp_path, requirements=[tmp_path / "requirements.txt"])

    assert [r.name for r in project.roots] == ["six"]
    assert project.settings == {"hardware": "h200"}


def test_files_that_are_not_read_are_named(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=PYPROJECT, requirements_txt="numpy\n")

    assert "`requirements.txt` was not read" in read_project(tmp_path).skipped[0]


@pytest.mark.parametrize(
    "line",
    ["-e .", "./wheels/a-1.0-py3-none-any.whl", "a @ https://host/a-1.0-py3-none-any.whl", "git+https://h/a.git#egg=a"],
)
def test_an_address_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    write(tmp_path, requirements_txt=f"numpy\n{line}\n")

    with pytest.raises(InputError, match=r"requirements.txt:2: .*is not supported"):
        read_project(tmp_path)


def test_an_address_in_pyproject_is_refused_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml='[project]\nname = "m"\ndependencies = [\n"a @ git+https://h/a.git",\n]\n')

    with pytest.raises(InputError, match=r"pyproject.toml:4: .*is not supported"):
        read_project(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no `pyproject.toml`"),
        ({"pyproject_toml": "[project"}, "is not valid TOML"),
        ({"pyproject_toml": '[project]\ndependencies = "numpy"\n'}, "is not a list of requirements"),
        ({"pyproject_toml": '[project]\ndependencies = ["numpy>>1"]\n'}, r"pyproject.toml:2: `numpy>>1` is not a requ"),
        ({"pyproject_toml": '[project]\nrequires-python = "snake"\ndependencies = []\n'}, "requires-python"),
        ({"pyproject_toml": '[project]\nname = "m"\ndynamic = ["dependencies"]\n'}, "is dynamic"),
        ({"requirements_txt": "numpy\nbad!!\n"}, r"requirements.txt:2: `bad!!` is not a requirement"),
        ({"requirements_txt": "-r nowhere.txt\n"}, "nowhere.txt"),
    ],
)
def test_an_unreadable_project_is_one_sentence(tmp_path: Path, files: dict[str, str], message: str) -> None:
    write(tmp_path, **files)

    with pytest.raises(InputError, match=message) as caught:
        read_project(tmp_path)

    assert "\n" not in caught.value.message


def test_an_unknown_extra_and_group_name_those_that_exist(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=PYPROJECT)

    with pytest.raises(InputError, match="has no extra `cuda`") as extra:
        read_project(tmp_path, extras=["cuda"])
    with pytest.raises(InputError, match="dependency groups") as group:
        read_project(tmp_path, groups=["docs"])

    assert "`gpu`" in extra.value.hint
    assert "`lint`" in group.value.hint

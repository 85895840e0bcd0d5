from __future__ import annotations

from pathlib import Path

import pytest

from advisor.domain.target import make_target
from advisor.project.interface import SelectedParts
from advisor.project.read import read_project
from knowledge.domain.errors import InputError
from tests.advisor.factories import MACHINE


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

    assert names(tmp_path, selection=SelectedParts(extras=("gpu",))) == ["numpy", "pandas", "torch", "matplotlib"]
    assert names(tmp_path, selection=SelectedParts(groups=("test",))) == ["numpy", "pandas", "pytest", "ruff"]


def test_a_requirements_file_is_read_with_included_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        requirements_txt="--index-url https://i/simple\n-r more.txt\n-c limits.txt\n"
        "numpy[x]>=1 ; python_version > '3' \\\n"
        f"    --hash=sha256:{'a' * 64}\n",
        more_txt="pandas  # data\n",
        limits_txt="scipy<2\n",
    )

    project = read_project(tmp_path)

    roots = {str(r.name): r for r in project.roots}
    assert project.index_url == "https://i/simple"
    assert set(roots) == {"numpy", "pandas", "scipy"}
    assert roots["scipy"].constraint
    assert roots["numpy"].hashes == {"a" * 64}
    assert str(roots["numpy"].requirement) == 'numpy[x]>=1; python_version > "3"'
    assert roots["pandas"].origin == "more.txt:1"


def test_the_project_table_applies_to_requirements_files(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=PYPROJECT, requirements_txt="six\n")

    project = read_project(tmp_path, requirements=[tmp_path / "requirements.txt"])

    assert [r.name for r in project.roots] == ["six"]
    assert project.settings == {"hardware": "h200"}


def test_skipped_files_are_reported(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=PYPROJECT, requirements_txt="numpy\n")

    assert "`requirements.txt` was not read" in read_project(tmp_path).skipped[0]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no file with requirements"),
        ({"pyproject_toml": "[project"}, "is not valid TOML"),
        ({"pyproject_toml": '[project]\ndependencies = "numpy"\n'}, "is not a list of requirements"),
        ({"pyproject_toml": '[project]\ndependencies = ["numpy>>1"]\n'}, r"pyproject.toml:2: `numpy>>1` is not a requ"),
        ({"pyproject_toml": '[project]\nrequires-python = "snake"\ndependencies = []\n'}, "requires-python"),
        ({"pyproject_toml": '[project]\nname = "m"\ndynamic = ["dependencies"]\n'}, "is dynamic"),
        ({"requirements_txt": "numpy\nbad!!\n"}, r"requirements.txt:2: `bad!!` is not a requirement"),
        ({"requirements_txt": "-r nowhere.txt\n"}, "nowhere.txt"),
    ],
)
def test_an_unreadable_project_is_an_error(tmp_path: Path, files: dict[str, str], message: str) -> None:
    write(tmp_path, **files)

    with pytest.raises(InputError, match=message) as caught:
        read_project(tmp_path)

    assert "\n" not in caught.value.message


def test_the_error_of_an_unknown_extra_or_group_lists_the_existing_ones(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=PYPROJECT)

    with pytest.raises(InputError, match="has no extra `cuda`") as extra:
        read_project(tmp_path, selection=SelectedParts(extras=("cuda",)))
    with pytest.raises(InputError, match="dependency groups") as group:
        read_project(tmp_path, selection=SelectedParts(groups=("docs",)))

    assert "`gpu`" in extra.value.hint
    assert "`lint`" in group.value.hint


def required(*names: str) -> str:
    lines = "".join(f'  "{name}",\n' for name in names)
    return f'[project]\nname = "m"\ndependencies = [\n{lines}]\n'


def test_the_package_index_setting_replaces_a_conditional_index(tmp_path: Path) -> None:
    text = required("torch") + (
        '[[tool.uv.index]]\nname = "cu"\nurl = "https://cu.example.org/simple"\n'
        '[tool.uv.sources]\ntorch = [{ index = "cu", marker = "sys_platform == \'linux\'" }]\n'
        '[tool.advisor.package-index]\ntorch = "https://cuda.example.org/simple"\n'
    )
    write(tmp_path, pyproject_toml=text)
    target = make_target(python="3.12", platform="manylinux_2_28_x86_64", hardware=MACHINE)

    assert read_project(tmp_path).on_target(target).bindings == {}


def test_the_sources_of_a_uv_workspace_apply_to_its_members(tmp_path: Path) -> None:
    member = tmp_path / "packages" / "app"
    member.mkdir(parents=True)
    write(
        tmp_path,
        pyproject_toml='[tool.uv.workspace]\nmembers = ["packages/*"]\n[tool.uv.sources]\nmine = { index = "i" }\n'
        '[[tool.uv.index]]\nname = "i"\nurl = "https://i.example.org/simple"\n',
    )
    write(member, pyproject_toml=required("mine"))
    target = make_target(python="3.12", platform="manylinux_2_28_x86_64", hardware=MACHINE)

    assert read_project(member).on_target(target).bindings == {"mine": "https://i.example.org/simple"}


def test_a_source_of_poetry_that_is_not_defined_is_refused(tmp_path: Path) -> None:
    table = '[tool.poetry.dependencies]\nsix = { source = "private" }\n'
    write(tmp_path, pyproject_toml=required("six") + table)

    with pytest.raises(InputError, match=r"^pyproject.toml:7: .*six"):
        read_project(tmp_path)


@pytest.mark.parametrize(
    ("table", "overrides", "constraints"),
    [
        (
            '[tool.uv]\noverride-dependencies = ["a<2"]\nconstraint-dependencies = ["b<3"]\n',
            ["a<2"],
            ["b<3"],
        ),
        ('[tool.pdm.resolution.overrides]\na = "1.0"\nb = ">=2"\n', ["a==1.0", "b>=2"], []),
    ],
)
def test_constraints_and_overrides_of_other_tools_are_used(
    tmp_path: Path, table: str, overrides: list[str], constraints: list[str]
) -> None:
    write(tmp_path, pyproject_toml=required("six") + table)

    project = read_project(tmp_path)

    assert [str(root.requirement) for root in project.overrides] == overrides
    assert [str(root.requirement) for root in project.roots if root.constraint] == constraints


def test_poetry_tables_add_indexes_to_the_projects_dependencies(tmp_path: Path) -> None:
    text = required("six", "mine") + (
        '[[tool.poetry.source]]\nname = "private"\nurl = "https://private.example.org/simple"\npriority = "explicit"\n'
        '[tool.poetry.dependencies]\nmine = { source = "private" }\n'
    )
    write(tmp_path, pyproject_toml=text)

    project = read_project(tmp_path)

    assert project.bindings == {"mine": "https://private.example.org/simple"}
    assert project.index_url is None


@pytest.mark.parametrize(
    ("keys", "default", "further", "supplemental"),
    [
        ("", "https://one.example.org", ("https://two.example.org",), ()),
        ('priority = "supplemental"', None, (), ("https://one.example.org", "https://two.example.org")),
        ("secondary = true\ndefault = false", None, (), ("https://one.example.org", "https://two.example.org")),
        ("default = true", "https://one.example.org", ("https://two.example.org",), ()),
        ('priority = "explicit"', None, (), ()),
    ],
)
def test_the_priorities_of_poetrys_sources_decide_their_order(
    tmp_path: Path, keys: str, default: str | None, further: tuple[str, ...], supplemental: tuple[str, ...]
) -> None:
    sources = "".join(
        f'[[tool.poetry.source]]\nname = "{name}"\nurl = "https://{name}.example.org"\n{keys}\n'
        for name in ("one", "two")
    )
    write(tmp_path, pyproject_toml='[tool.poetry.dependencies]\nsix = "*"\n' + sources)

    project = read_project(tmp_path)

    assert project.index_url == default
    assert project.extra_index_urls == further
    assert project.supplemental_index_urls == supplemental


def test_releases_decide_a_comparison_of_poetry_with_a_local_version(tmp_path: Path) -> None:
    table = '[tool.poetry.dependencies]\ntorch = "^2.0.0+cu118"\nvision = "0.15.1+cu118"\n'
    write(tmp_path, pyproject_toml=table + '[tool.poetry.dev-dependencies]\npytest = "^7"\n')

    project = read_project(tmp_path, selection=SelectedParts(groups=("dev",)))

    assert [str(root.requirement) for root in project.roots] == [
        "torch<3.0.0,>=2.0.0",
        "vision==0.15.1+cu118",
        "pytest<8,>=7",
    ]


def test_pdms_indexes_are_used(tmp_path: Path) -> None:
    text = required("six", "mine") + (
        '[[tool.pdm.source]]\nname = "pypi"\nurl = "https://mirror.example.org/simple"\n'
        '[[tool.pdm.source]]\nname = "private"\nurl = "https://private.example.org/simple"\n'
        'include_packages = ["Mine"]\n'
        '[[tool.pdm.source]]\nname = "files"\ntype = "find_links"\nurl = "https://files.example.org/"\n'
    )
    write(tmp_path, pyproject_toml=text)

    project = read_project(tmp_path)

    assert (project.index_url, project.extra_index_urls) == ("https://mirror.example.org/simple", ())
    assert project.bindings == {"mine": "https://private.example.org/simple"}
    assert project.find_links == ("https://files.example.org/",)


@pytest.mark.parametrize(
    ("pipfile", "message"),
    [
        ('[packages]\nsix = {index = "private"}\n', r"Pipfile:2: .*`private`, which is not defined"),
        (
            '[[source]]\nname = "p"\nurl = "https://${NOT_SET_ANYWHERE}@p.example.org/simple"\n[packages]\nsix = "*"\n',
            r"Pipfile:3: .*variable `NOT_SET_ANYWHERE`, which is not set",
        ),
    ],
)
def test_a_pipfile_never_falls_back_to_another_index(tmp_path: Path, pipfile: str, message: str) -> None:
    (tmp_path / "Pipfile").write_text(pipfile)

    with pytest.raises(InputError, match=message):
        read_project(tmp_path)


def test_variables_in_addresses_of_a_pipfile_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_P", "secret")
    (tmp_path / "Pipfile").write_text(
        '[[source]]\nname = "p"\nurl = "https://${TOKEN_OF_P}@p.example.org/simple"\n[packages]\nsix = "*"\n'
    )

    assert read_project(tmp_path).index_url == "https://secret@p.example.org/simple"

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
def test_an_unreadable_project_is_an_error(tmp_path: Path, files: dict[str, str], message: str) -> None:
    write(tmp_path, **files)

    with pytest.raises(InputError, match=message) as caught:
        read_project(tmp_path)

    assert "\n" not in caught.value.message


def test_the_error_of_an_unknown_extra_or_group_lists_the_existing_ones(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=PYPROJECT)

    with pytest.raises(InputError, match="has no extra `cuda`") as extra:
        read_project(tmp_path, extras=["cuda"])
    with pytest.raises(InputError, match="dependency groups") as group:
        read_project(tmp_path, groups=["docs"])

    assert "`gpu`" in extra.value.hint
    assert "`lint`" in group.value.hint


def required(*names: str) -> str:
    lines = "".join(f'  "{name}",\n' for name in names)
    return f'[project]\nname = "m"\ndependencies = [\n{lines}]\n'


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('Mine = { path = "../mine" }', "path"),
        ('mine = { git = "https://git.example.org/mine" }', "git"),
        ('mine = { url = "https://example.org/mine.zip" }', "url"),
        ("mine = { workspace = true }", "workspace"),
        ('mine = [{ git = "https://git.example.org/mine", marker = "os_name == \'nt\'" }]', "git"),
        ('mine = { index = "cuda", marker = "os_name == \'nt\'" }', "with conditions"),
        ('mine = [{ index = "cuda", extra = "gpu" }, { index = "cpu", extra = "cpu" }]', "with conditions"),
    ],
)
def test_a_uv_source_that_is_not_an_index_is_refused_with_its_line(tmp_path: Path, source: str, kind: str) -> None:
    text = f'{required("six", "mine")}[tool.uv.sources]\nsix = {{ index = "i" }}\n{source}\n'
    write(tmp_path, pyproject_toml=text)

    with pytest.raises(InputError, match=rf"^pyproject.toml:9: .*{kind}.*not supported") as caught:
        read_project(tmp_path)

    assert "`mine`" in caught.value.message.lower()


def test_a_uv_source_in_its_own_table_is_refused_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=required("mine") + '[tool.uv.sources.mine]\ngit = "https://git.example.org/mine"\n')

    with pytest.raises(InputError, match=r"^pyproject.toml:6: `mine` has a source of kind `git`"):
        read_project(tmp_path)


def test_an_ignored_source_of_an_unselected_package_is_reported(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=required("six") + '[tool.uv.sources]\nmine = { path = "../mine" }\n')

    [reason] = read_project(tmp_path).skipped

    assert reason.startswith("pyproject.toml:7: `mine` has a source of kind `path`")


def test_the_package_index_setting_replaces_a_conditional_index(tmp_path: Path) -> None:
    text = required("torch") + (
        '[tool.uv.sources]\ntorch = [{ index = "cu", marker = "sys_platform == \'linux\'" }]\n'
        '[tool.advisor.package-index]\ntorch = "https://cuda.example.org/simple"\n'
    )
    write(tmp_path, pyproject_toml=text)

    assert names(tmp_path) == ["torch"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{ workspace = true }", "has a source of kind `workspace`"),
        ('{ index = "i" }', "comes from an index of its workspace"),
    ],
)
def test_the_sources_of_a_uv_workspace_bind_its_members(tmp_path: Path, source: str, message: str) -> None:
    member = tmp_path / "packages" / "app"
    member.mkdir(parents=True)
    root = f'[tool.uv.workspace]\nmembers = ["packages/*"]\n[tool.uv.sources]\nmine = {source}\n'
    write(tmp_path, pyproject_toml=root)
    write(member, pyproject_toml=required("mine"))

    with pytest.raises(InputError, match=rf"^pyproject.toml:4: `mine` {message}"):
        read_project(member)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ('[tool.uv]\noverride-dependencies = ["six @ https://example.org/six.zip"]\n', 7),
        ('[tool.pdm.resolution.overrides]\nother = "1.0"\nsix = "git+https://git.example.org/six"\n', 8),
        ('[tool.poetry.dependencies]\nsix = { path = "../six" }\n', 7),
        ('[tool.poetry.dependencies]\nsix = { source = "private" }\n', 7),
    ],
)
def test_sources_in_tables_of_other_tools_are_refused(tmp_path: Path, table: str, line: int) -> None:
    write(tmp_path, pyproject_toml=required("six") + table)

    with pytest.raises(InputError, match=rf"^pyproject.toml:{line}: .*six"):
        read_project(tmp_path)


def test_poetry_tables_add_indexes_to_the_projects_dependencies(tmp_path: Path) -> None:
    text = required("six", "mine") + (
        '[[tool.poetry.source]]\nname = "private"\nurl = "https://private.example.org/simple"\npriority = "explicit"\n'
        '[tool.poetry.dependencies]\nmine = { source = "private" }\n'
    )
    write(tmp_path, pyproject_toml=text)

    project = read_project(tmp_path)

    assert project.bindings == {"mine": "https://private.example.org/simple"}
    assert project.index_url is None


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
        ('[packages]\nsix = {path = "../six", editable = true}\n', r"Pipfile:2: .*not supported"),
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

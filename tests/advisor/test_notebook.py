"""Requirements that a notebook installs, and hints where a project has no usual file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.project.formats.notebook import read_notebook
from advisor.project.read import read_project
from advisor.project.text_file import UnreadableFileError
from knowledge.domain.errors import InputError


def write(path: Path, *sources: str | list[str], kind: str = "code") -> Path:
    """Write a notebook with one cell for each source."""
    cells: list[dict[str, object]] = [
        {"cell_type": kind, "metadata": {}, "outputs": [], "source": source} for source in sources
    ]
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}, indent=1))
    return path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%pip install torch", ["torch"]),
        ("!pip install -q 'numpy<2' \"scipy>=1.10\"", ["numpy<2", "scipy>=1.10"]),
        ("  !pip3 install --upgrade pandas && echo done", ["pandas"]),
        ("!python -m pip install jax[cpu]==0.4.38", ["jax[cpu]==0.4.38"]),
        ("!{sys.executable} -m pip install flax  # for the model", ["flax"]),
        ("!uv pip install --system torch", ["torch"]),
        ("%pip install tqdm > /dev/null 2>&1", ["tqdm"]),
        ("%%capture", []),
        ("# %pip install torch", []),
        ("print('%pip install torch')", []),
        ("%conda install torch", []),
    ],
)
def test_lines_that_install_packages_are_read(tmp_path: Path, line: str, expected: list[str]) -> None:
    project = read_notebook(write(tmp_path / "a.ipynb", f"import os\n{line}\nimport torch"))

    assert [str(root.requirement) for root in project.roots] == expected


def test_the_line_of_the_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", ["x = 1\n", "%pip install torch\n"], "%pip install numpy")

    project = read_notebook(path)

    lines = path.read_text().splitlines()
    for root in project.roots:
        assert f"pip install {root.name}" in lines[root.line - 1]
        assert root.path == str(path)


def test_the_last_requirement_on_a_package_counts(tmp_path: Path) -> None:
    project = read_notebook(write(tmp_path / "a.ipynb", "%pip install torch==2.0 numpy", "%pip install Torch>=2.2"))

    assert sorted(str(root.requirement) for root in project.roots) == ["Torch>=2.2", "numpy"]


def test_index_options_and_included_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("scipy\n")
    line = "%pip install torch -r more.txt --extra-index-url https://a.example/whl --pre"

    project = read_notebook(write(tmp_path / "a.ipynb", line))

    assert sorted(root.name for root in project.roots) == ["scipy", "torch"]
    assert project.extra_index_urls == ("https://a.example/whl",)
    assert project.prereleases


@pytest.mark.parametrize("line", ["!pip install $PACKAGE", "%pip install {name}", "!pip install --target x torch"])
def test_lines_with_variables_and_other_options_are_reported(tmp_path: Path, line: str) -> None:
    project = read_notebook(write(tmp_path / "a.ipynb", line, "%pip install numpy"))

    assert [root.name for root in project.roots] == ["numpy"]
    assert len(project.skipped) == 1
    assert "was not read: it has options or variables" in project.skipped[0]


def test_text_cells_install_nothing(tmp_path: Path) -> None:
    assert read_notebook(write(tmp_path / "a.ipynb", "%pip install torch", kind="markdown")).roots == ()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"cells": 3}', '{"cells": [{}]}', '{"cells": [[1]]}', "\x80"])
def test_another_file_is_no_notebook(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.ipynb").write_bytes(text.encode("latin-1"))

    with pytest.raises(UnreadableFileError, match="is not a notebook"):
        read_notebook(tmp_path / "a.ipynb")


def test_a_malformed_requirement_is_named_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", "%pip install 'torch>>1'")

    with pytest.raises(UnreadableFileError, match=r"a\.ipynb:\d+: `torch>>1`"):
        read_notebook(path)


def test_the_only_notebook_of_a_project_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb", "%pip install torch")
    write(tmp_path / "b.ipynb", "import torch")

    project = read_project(tmp_path)

    assert [root.name for root in project.roots] == ["torch"]
    assert "`a.ipynb` was read: no other file has requirements" in project.skipped


def test_a_notebook_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    path = write(tmp_path / "a.ipynb", "%pip install torch")

    assert [root.name for root in read_project(tmp_path, requirements=[path]).roots] == ["torch"]


def test_one_of_several_notebooks_has_to_be_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.ipynb", "%pip install torch")

    with pytest.raises(InputError, match="several notebooks") as caught:
        read_project(tmp_path)

    assert caught.value.hint == "name one or more: `--requirements a.ipynb`"


def test_files_in_other_folders_and_a_dockerfile_are_named(tmp_path: Path) -> None:
    (tmp_path / "official").mkdir()
    (tmp_path / "official" / "requirements.txt").write_text("torch\n")
    (tmp_path / "environment_gpu.yml").write_text("dependencies: []\n")
    (tmp_path / "Dockerfile").write_text(
        "FROM python:3.11\nRUN apt-get update && pip install torch==2.1 \\\n    numpy\n"
    )

    with pytest.raises(InputError) as caught:
        read_project(tmp_path)

    assert "there are `environment_gpu.yml`, `official/requirements.txt`" in caught.value.hint
    assert caught.value.hint.endswith("`Dockerfile`, line 2, installs `torch==2.1`: write it to `requirements.txt`")


def test_the_output_of_pip_freeze_is_read_if_there_is_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "pip_freeze.txt").write_text("torch==2.1.0\n")

    assert [root.name for root in read_project(tmp_path).roots] == ["torch"]

"""Locks and projects that were recorded from other tools; locks of this program, read back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version as version_of_distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.locks.current import read_current
from advisor.locks.formats.cyclonedx import FORMAT as CYCLONEDX
from advisor.locks.registry import read_lock
from advisor.project.interface import SelectedParts
from advisor.project.read import read_project
from knowledge.domain.errors import InputError
from pi_runners.execution.environment import find_uv
from tests.advisor.factories import build_problem, empty_stack
from tests.advisor.inputs import target
from tests.conftest import Advisor
from tests.package_index import PackageIndex

FIXTURES = Path(__file__).parents[1] / "fixtures" / "locks"
LOCKS = [FIXTURES / "uv" / "uv.lock", FIXTURES / "poetry" / "poetry.lock", FIXTURES / "pdm" / "pdm.lock"]


@pytest.mark.parametrize("lock", [*LOCKS, FIXTURES / "pipenv" / "Pipfile.lock"], ids=lambda path: path.name)
def test_the_locks_of_other_tools_are_read_for_a_target(lock: Path) -> None:
    versions = read_lock(lock, target()).versions

    assert {"pandas", "numpy", "requests", "pysocks", "urllib3"} <= set(versions)
    assert not {"colorama", "iniconfig", "sample"} & set(versions)
    assert versions["numpy"] < Version("2.3")


@pytest.mark.parametrize("lock", [*LOCKS, FIXTURES / "pipenv" / "Pipfile.lock"], ids=lambda path: path.name)
def test_each_package_of_a_lock_has_its_line_and_hashes(lock: Path) -> None:
    lines = lock.read_text().splitlines()

    locked = read_lock(lock, target())

    for name, package in locked.packages.items():
        assert str(package.version) in lines[package.line - 1], name
        assert package.hashes, name
    assert locked.records_hashes
    if lock.name in ("uv.lock", "Pipfile.lock"):
        assert {p.index for p in locked.packages.values()} == {"https://index.example/simple"}


def test_a_package_from_a_repository_has_a_direct_reference(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "m"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "a" }]\n[[package]]\nname = "a"\nversion = "2"\n'
        'source = { git = "https://git.example.org/a" }\n'
    )

    package = read_lock(tmp_path / "uv.lock", target()).packages[canonicalize_name("a")]

    assert (package.direct_reference, package.index, package.line) == ("https://git.example.org/a", None, 9)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_markers_of_a_lock_are_evaluated_for_the_target(lock: Path) -> None:
    assert "tomli" in read_lock(lock, target("3.10")).versions
    assert "tomli" not in read_lock(lock, target("3.12")).versions
    assert "colorama" in read_lock(lock, target(platform="win_amd64")).versions


def test_a_poetry_project_is_read() -> None:
    project = read_project(FIXTURES / "poetry", selection=SelectedParts(groups=("dev",)))

    lines = {str(root.requirement) for root in project.roots}
    assert {"pandas<3.0,>=2.2", "numpy<2.3", "requests[socks]<3.0,>=2.31", "iniconfig<3.0,>=2.0"} <= lines
    assert 'colorama; sys_platform == "win32"' in lines
    assert any("python_version" in line for line in lines if line.startswith("tomli"))
    assert project.requires_python == ">=3.10,<3.14"
    assert next(r.origin for r in project.roots if r.name == "pandas") == "pyproject.toml:10"


def test_a_pipfile_is_read_with_its_index_bindings(tmp_path: Path) -> None:
    (tmp_path / "Pipfile").write_text(
        '[[source]]\nname = "main"\nurl = "https://one.example/simple"\n'
        '[[source]]\nname = "cuda"\nurl = "https://two.example/simple"\n'
        '[packages]\ntorch = {version = ">=2", index = "cuda"}\nnumpy = "*"\n'
        'six = {version = "==1.16", extras = ["x"], markers = "os_name == \'nt\'"}\n'
        '[dev-packages]\npytest = "*"\n[requires]\npython_version = "3.12"\n'
    )

    project = read_project(tmp_path, selection=SelectedParts(groups=("dev-packages",)))

    assert [str(r.requirement) for r in project.roots] == [
        "torch>=2",
        "numpy",
        'six[x]==1.16; os_name == "nt"',
        "pytest",
    ]
    assert project.bindings == {"torch": "https://two.example/simple"}
    assert (project.index_url, project.requires_python) == ("https://one.example/simple", "==3.12.*")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("uv.lock", "x = [", "cannot be read"),
        ("uv.lock", "version = 1\n", "field 'package' is absent"),
        ("poetry.lock", '[[package]]\nname = "a"\nversion = "one"\n', "Invalid version"),
        ("Pipfile.lock", "[]", "contains no table"),
        ("Pipfile.lock", '{"default": 3}', "is malformed"),
        ("pylock.toml", 'lock-version = "1.0"\n', "created-by"),
        ("freeze.txt", "a>=1\n", "is not an exact version"),
        ("lock.yaml", "", "is not the name of a lock"),
        ("uv.lock", '[[package]]\nname = "a"\nresolution-markers = ["nonsense ==="]\n', "is malformed"),
    ],
)
def test_a_damaged_lock_is_an_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)

    with pytest.raises(InputError, match=message):
        read_lock(tmp_path / name, target())


def test_an_installed_environment_is_read() -> None:
    current = read_current(sys.executable, Path(), target())

    assert current is not None
    assert current.versions["packaging"] >= Version("26.3")


def test_a_project_without_a_lock_has_no_current_stack(tmp_path: Path) -> None:
    assert read_current(None, tmp_path, target()) is None


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project with packages on an index."""
    index.add("a", "1.0", ["b"])
    index.add("a", "2.0+cu126", ["b"])
    index.add("b", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pipfile").write_text(f'[[source]]\nname = "main"\nurl = "{index.url}"\n[packages]\na = "*"\n')
    return folder


NAMES = ("pylock.toml", "pylock.gpu.toml", "stack.txt", "Pipfile.lock", "stack.cdx.json")


def test_every_lock_format_is_read_back_and_written_again_unchanged(advisor: Advisor, project: Path) -> None:
    outputs = [word for name in NAMES for word in ("-o", str(project / name))]
    arguments = ("advise", str(project), "--python", "3.12", "--hardware", "cpu-zen4", "--format", "json", *outputs)
    result = advisor(*arguments)
    texts = {name: (project / name).read_bytes() for name in NAMES}
    again = advisor(*arguments)

    assert result.returncode == 0, result.stderr
    stack = {p["name"]: Version(p["version"]) for p in json.loads(result.stdout)["stack"]["packages"]}
    assert stack == {"a": Version("2.0+cu126"), "b": Version("1.0")}
    assert {name: read_lock(project / name, target()).versions for name in NAMES} == dict.fromkeys(NAMES, stack)
    assert {name: (project / name).read_bytes() for name in NAMES} == texts
    assert json.loads(again.stdout)["current"]["changes"] == []
    assert json.loads(result.stdout)["stack"]["cuda"] == "12.6"


def test_the_bill_of_materials_is_valid_and_contains_the_dependencies(advisor: Advisor, project: Path) -> None:
    document = write_bom(advisor, project)

    required = {d["ref"]: d.get("dependsOn", []) for d in document["dependencies"]}
    assert required["project:project"] == ["pkg:pypi/a@2.0%2Bcu126"]
    assert required["pkg:pypi/a@2.0%2Bcu126"] == ["pkg:pypi/b@1.0"]


def write_bom(advisor: Advisor, project: Path) -> dict[str, Any]:
    """Write the bill of materials of a project, validate it, and return it."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    result = advisor(
        "advise", str(project), "--hardware", "cpu-zen4", "--python", "3.12", "-o", str(project / "bom.json")
    )
    assert result.returncode == 0, result.stderr
    text = (project / "bom.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document: dict[str, Any] = json.loads(text)
    return document


def test_the_bill_of_materials_names_the_project_and_the_program(advisor: Advisor, project: Path) -> None:
    directory_name = write_bom(advisor, project)["metadata"]["component"]
    (project / "pyproject.toml").write_text('[project]\nname = "My-App"\nversion = "1.2"\n')
    metadata = write_bom(advisor, project)["metadata"]

    assert directory_name == {"bom-ref": "project:project", "name": "project", "type": "application"}
    assert (metadata["component"]["name"], metadata["component"]["version"]) == ("My-App", "1.2")
    (tool,) = metadata["tools"]["components"]
    assert (tool["name"], tool["version"]) == ("seshat-advisor", version_of_distribution("seshat-advisor"))


def test_the_bill_of_materials_has_the_licences_that_packages_state(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    head = "Metadata-Version: 2.4\nVersion: 1.0\n"
    fields = {
        "expression": "License-Expression: MIT OR Apache-2.0\nLicense: ignored\n",
        "identifier": "License: mit\nClassifier: License :: OSI Approved :: BSD License\n",
        "name": "License: Our own licence\n",
        "text": f"License: {'long text ' * 50}\nClassifier: License :: OSI Approved :: BSD License\n",
        "several": "Classifier: License :: OSI Approved :: MIT License\nClassifier: License :: Public Domain\n",
        "unknown": "License: UNKNOWN\nClassifier: License :: OSI Approved\n",
    }
    for name, text in fields.items():
        index.add(name, "1.0", metadata=f"{head}Name: {name}\n{text}\n")
    lines = "".join(f'{name} = "*"\n' for name in fields)
    (project / "Pipfile").write_text((project / "Pipfile").read_text() + lines)

    components = {c["name"]: c.get("licenses") for c in write_bom(advisor, project)["components"]}

    assert {name: components[name] for name in fields} == {
        "expression": [{"expression": "MIT OR Apache-2.0"}],
        "identifier": [{"license": {"id": "MIT"}}],
        "name": [{"license": {"name": "Our own licence"}}],
        "text": [{"license": {"name": "BSD License"}}],
        "several": [{"license": {"name": "MIT License"}}, {"license": {"name": "Public Domain"}}],
        "unknown": None,
    }


def test_the_time_of_a_bill_of_materials_changes_only_with_its_content(advisor: Advisor, project: Path) -> None:
    first = write_bom(advisor, project)
    text = (project / "bom.json").read_text()
    time = datetime.fromisoformat(first["metadata"]["timestamp"])
    (project / "bom.json").write_text(text.replace(first["metadata"]["timestamp"], "2020-01-02T03:04:05+00:00"))
    unchanged = write_bom(advisor, project)
    (project / "Pipfile").write_text((project / "Pipfile").read_text().replace('"*"', '"<2"'))
    changed = write_bom(advisor, project)

    assert abs(datetime.now(UTC) - time) < timedelta(days=1)
    assert unchanged["metadata"]["timestamp"] == "2020-01-02T03:04:05+00:00"
    assert unchanged["serialNumber"] == first["serialNumber"]
    assert changed["metadata"]["timestamp"] > "2021"
    assert changed["serialNumber"] != first["serialNumber"]


def test_source_date_epoch_sets_the_time_of_a_bill_of_materials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")

    text = CYCLONEDX.write(tmp_path / "bom.json", [empty_stack(tmp_path, build_problem())])

    assert json.loads(text)["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"


@pytest.mark.parametrize("epoch", ["", "yesterday", "1" * 30])
def test_an_invalid_source_date_epoch_is_an_error(epoch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)

    with pytest.raises(InputError, match="`SOURCE_DATE_EPOCH` is"):
        CYCLONEDX.write(tmp_path / "bom.json", [empty_stack(tmp_path, build_problem())])


def test_the_pipfile_lock_has_the_hash_of_its_pipfile(advisor: Advisor, project: Path) -> None:
    from plette import Lockfile, Pipfile

    advisor("advise", str(project), "--hardware", "cpu-zen4", "--python", "3.12", "-o", str(project / "Pipfile.lock"))

    with (project / "Pipfile.lock").open() as lock, (project / "Pipfile").open() as pipfile:
        assert Lockfile.load(lock).is_up_to_date(Pipfile.load(pipfile))


def test_a_lock_of_uv_is_compared_with_the_advice(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["a"]\n'
        f'[[tool.uv.index]]\nurl = "{index.url}"\ndefault = true\n'
    )
    subprocess.run(
        [find_uv(), "lock", "--no-cache", "--python", sys.executable], cwd=folder, check=True, capture_output=True
    )
    index.add("a", "2.0")

    result = advisor("advise", str(folder), "--hardware", "cpu-zen4", "--dry-run", "--format", "json", "--refresh")
    text = advisor("advise", str(folder), "--hardware", "cpu-zen4", "--dry-run")

    assert json.loads(result.stdout)["current"]["changes"] == [{"name": "a", "before": "1.0", "after": "2.0"}]
    assert "current   1 package: 1 change (a)" in text.stdout


@pytest.mark.shipped
def test_the_speed_over_the_current_lock_has_its_interval(
    advisor_here: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    for version in ("2.12.1", "2.21.0"):
        index.add("tensorflow-cpu", version)
    (tmp_path / "requirements.in").write_text("tensorflow-cpu\n")
    (tmp_path / "now.txt").write_text("tensorflow-cpu==2.12.1\n")

    result = advisor_here(
        *("advise", "--dry-run", "--index-url", index.url, "--hardware", "cpu-zen4"),
        *("--current", "now.txt", "--workload", "transformer-training"),
    )

    text = " ".join(result.stdout.split())
    assert re.search(r"the current lock:? [0-9.: ]*\[[0-9.]+, [0-9.]+\]", text), text


def test_constraints_and_overrides_of_the_project_table_apply(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("a", "1.0", ["b<2", "c"])
    for version in ("1.0", "2.0", "3.0"):
        index.add("b", version)
        index.add("c", version)
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = ["a"]\n[tool.uv]\nindex-url = "{index.url}"\n'
        '[tool.advisor]\nconstraints = ["c<3"]\noverrides = ["b>=2,<3"]\n'
    )

    result = advisor("advise", ".", "--hardware", "cpu-zen4", "--python", "3.12", "--dry-run", "--format", "json")

    stack = {p["name"]: p["version"] for p in json.loads(result.stdout)["stack"]["packages"]}
    assert stack == {"a": "1.0", "b": "2.0", "c": "2.0"}


def test_a_package_installed_from_a_directory_has_a_direct_reference() -> None:
    current = read_current(sys.executable, Path(), target())

    assert current is not None
    assert current.packages[canonicalize_name("packaging")].direct_reference == ""
    own = current.packages[canonicalize_name("seshat-advisor")].direct_reference
    assert own.startswith("file://")

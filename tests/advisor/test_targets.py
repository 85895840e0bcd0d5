"""`advisor advise` for the targets of a project, each with a lock of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from knowledge.hardware.profiles import find_profile
from knowledge.store.engine import open_knowledge_base
from tests.conftest import Advisor
from tests.knowledge.samples import InventedArm, invented_arms
from tests.package_index import PackageIndex

OLD = '[tool.advisor.targets.old]\nhardware = "cpu-zen4"\npython = "3.10"\n'
NEW = '[tool.advisor.targets.new]\nhardware = "cpu-zen4"\npython = "3.13"\n'


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project with two targets, whose newest dependency needs Python 3.12."""
    index.add("a", "1.0")
    index.add("a", "2.0", requires_python=">=3.12")
    folder = tmp_path / "project"
    folder.mkdir()
    write(folder, index, OLD + NEW)
    return folder


def write(folder: Path, index: PackageIndex, tables: str) -> None:
    """Write a project with targets."""
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = ["a"]\n[tool.uv]\nindex-url = "{index.url}"\n{tables}'
    )


def locked(path: Path) -> str:
    """Return the version of `a` in a lock."""
    return next(v for v in ("1.0", "2.0") if f'version = "{v}"' in path.read_text().partition('name = "a"')[2])


def test_every_target_is_locked_into_its_own_file(advisor: Advisor, project: Path) -> None:
    result = advisor("advise", cwd=project)

    assert result.returncode == 0, result.stderr
    assert locked(project / "pylock.old.toml") == "1.0"
    assert locked(project / "pylock.new.toml") == "2.0"
    assert not (project / "pylock.toml").exists()
    assert "target    old: " in result.stdout
    assert "; Python 3.13" in result.stdout.partition("target    new: ")[2]
    assert result.stdout.endswith("targets   2: wrote 2 locks; `--target NAME` prints the whole report of one\n")


def test_the_gate_checks_the_lock_of_each_target(advisor: Advisor, project: Path) -> None:
    assert advisor("advise", cwd=project).returncode == 0

    result = advisor("check", cwd=project)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "lock      pylock.old.toml" in result.stdout.partition("target    old, ")[2]
    assert "lock      pylock.new.toml" in result.stdout.partition("target    new, ")[2]


def test_one_named_target_is_locked_and_reported_as_a_whole(advisor: Advisor, project: Path) -> None:
    result = advisor("advise", "--target", "old", cwd=project)

    assert result.returncode == 0, result.stderr
    assert "proof     optimal for the score" in result.stdout
    assert [path.name for path in project.glob("pylock*.toml")] == ["pylock.old.toml"]


def test_a_lock_in_the_table_of_a_target_comes_before_its_name(
    advisor: Advisor, project: Path, index: PackageIndex
) -> None:
    write(project, index, OLD + 'lock = "requirements-old.txt"\n' + NEW)

    assert advisor("advise", cwd=project).returncode == 0

    assert "a==1.0" in (project / "requirements-old.txt").read_text()
    assert locked(project / "pylock.new.toml") == "2.0"
    assert not (project / "pylock.old.toml").exists()


def test_the_only_target_of_a_project_has_the_usual_lock(advisor: Advisor, project: Path, index: PackageIndex) -> None:
    write(project, index, OLD)

    result = advisor("advise", cwd=project)

    assert result.returncode == 0, result.stderr
    assert locked(project / "pylock.toml") == "1.0"
    assert "; Python 3.10" in result.stdout.splitlines()[0]


def test_another_target_may_be_described_by_options(advisor: Advisor, project: Path) -> None:
    result = advisor("advise", "--python", "3.14", "--hardware", "cpu-zen4", cwd=project)

    assert result.returncode == 0, result.stderr
    assert [path.name for path in project.glob("pylock*.toml")] == ["pylock.toml"]


def test_the_json_report_has_a_document_for_each_target(advisor: Advisor, project: Path) -> None:
    result = advisor("advise", "--format", "json", "--dry-run", cwd=project)

    document = json.loads(result.stdout)
    assert document["schema_version"] == 2
    assert [(t["name"], t["target"]["python"][:4], t["locks"]) for t in document["targets"]] == [
        ("old", "3.10", []),
        ("new", "3.13", []),
    ]
    assert list(project.glob("pylock*.toml")) == []


def test_no_lock_is_written_if_one_target_has_no_stack(advisor: Advisor, project: Path, index: PackageIndex) -> None:
    index.add("b", "1.0", requires_python=">=3.12")
    write(project, index, OLD + NEW)
    text = (project / "pyproject.toml").read_text().replace('["a"]', '["a", "b"]')
    (project / "pyproject.toml").write_text(text)

    result = advisor("advise", cwd=project)

    assert result.returncode == 3
    assert "error: target `old`: " in result.stderr
    assert list(project.glob("pylock*.toml")) == []


@pytest.mark.parametrize("option", [("--output", "x.txt"), ("--format", "html"), ("--pr-body", "body.md")])
def test_options_for_one_target_are_refused_for_several(
    advisor: Advisor, project: Path, option: tuple[str, str]
) -> None:
    result = advisor("advise", *option, cwd=project)

    assert result.returncode == 2
    assert "is for one target, and the project has `old`, `new`\nhint: name one `--target`" in result.stderr
    assert list(project.glob("pylock*.toml")) == []


def test_other_commands_are_for_one_target_at_a_time(advisor: Advisor, project: Path) -> None:
    result = advisor("tree", cwd=project)
    one = advisor("tree", "--target", "old", cwd=project)

    assert result.returncode == 2
    assert "this is for one target at a time, and the project has `old`, `new`" in result.stderr
    assert one.returncode == 0, one.stderr


@pytest.mark.shipped
@pytest.mark.parametrize("arguments", [(), ("--targets", "all")])
def test_the_settings_of_each_target_are_written_next_to_its_requirements(
    advisor: Advisor, index: PackageIndex, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    index.add("jax", "0.6.2")
    arms: list[InventedArm] = [("0.6.2", {}, 0.0), ("0.6.2", {"cpu_runtime": "legacy"}, 0.9)]
    model: dict[str, str | int] = {"model": "resnet50", "mode": "inference", "batch": 1, "size": 224}
    with open_knowledge_base(str(tmp_path / "home" / "knowledge.sqlite")) as store:
        store.add(invented_arms(arms, framework="jax", parameters=model, hardware=find_profile("cpu-zen2")))
    targets = [f'[tool.advisor.targets.{n}]\nlock = "{n}.txt"\npython = "{p}"\n' for n, p in (("a", 3.12), ("b", 3.13))]
    write(
        tmp_path, index, f'[tool.advisor]\nhardware = "cpu-zen2"\nworkload = "resnet50-inference"\n{"".join(targets)}'
    )
    (tmp_path / "pyproject.toml").write_text((tmp_path / "pyproject.toml").read_text().replace('["a"]', '["jax"]'))

    result = advisor("advise", *arguments, cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    for name in ("a", "b"):
        assert 'name = "cpu_runtime"' in (tmp_path / f"advisor-settings.{name}.toml").read_text()

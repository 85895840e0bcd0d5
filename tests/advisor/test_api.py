"""The Python API gives the same results as the command line, without printing or exiting."""

from __future__ import annotations

import inspect
import logging
import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

import advisor.api
from advisor.api import IndexOptions, ProjectFiles, ResolutionOptions, TargetOptions
from advisor.index.configuration import IndexConfiguration, read_configuration
from advisor.resolve.candidates.problem import NoStackError
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError
from knowledge.store.state_hash import default_path
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def options(index: PackageIndex, tmp_path: Path, first_knowledge: Path) -> dict[str, Any]:
    """Options for a project on a test index, with its own cache and knowledge base."""
    knowledge = tmp_path / "own.sqlite"
    knowledge.write_bytes(first_knowledge.read_bytes())
    return {
        "target": TargetOptions(hardware="cpu-zen4", python="3.12"),
        "indexes": IndexOptions(index_url=index.url, cache_directory=tmp_path / "cache"),
        "resolution": ResolutionOptions(knowledge=f"sqlite:///{knowledge}"),
    }


@pytest.fixture
def project(no_user_configuration: None, index: PackageIndex, tmp_path: Path) -> Path:
    """A project with a constraint on `b` that excludes the newest `a`."""
    for version in ("1.0", "2.0"):
        index.add("a", version, [f"b=={version}"])
        index.add("b", version)
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "requirements.in").write_text("a\nb<2\n")
    return directory


def test_the_configuration_of_the_user_is_not_read(no_user_configuration: None, tmp_path: Path) -> None:
    assert replace(read_configuration(tmp_path), certificate=None) == IndexConfiguration()
    assert cache_directory(None) == tmp_path / "cache"
    path = default_path()
    assert path is not None
    assert path.is_relative_to(os.environ["XDG_DATA_HOME"])


def test_a_stack_is_recommended_explained_and_priced(
    project: Path, options: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    lock = project / "pylock.toml"

    result = advisor.api.advise(project, outputs=[lock], **options)
    explanation = advisor.api.explain("A", project, **options)
    [price] = advisor.api.prices(str(project), other_pythons=(), **options)

    assert {c.name: c.version for c in result.advice.optimum.stack} == {"a": Version("1.0"), "b": Version("1.0")}
    assert result.advice.optimum.proven
    assert result.outputs == (str(lock),)
    assert 'name = "a"' in lock.read_text()
    assert (explanation.version, explanation.newest) == (Version("1.0"), Version("2.0"))
    assert (price.constraint, price.changes) == ("b<2", (("a", "1.0", "2.0"), ("b", "1.0", "2.0")))
    assert capfd.readouterr() == ("", "")


def test_the_gate_returns_findings_and_the_exit_code_of_the_command(
    project: Path, options: dict[str, Any], index: PackageIndex, advisor_here: Advisor
) -> None:
    advisor.api.advise(project, outputs=[project / "pylock.toml"], **options)
    passed = advisor.api.check(project, **options)
    (project / "requirements.in").write_text("a>=2\n")

    failed = advisor.api.check(project, **options)
    command = advisor_here(
        "check", str(project), "--index-url", index.url, "--hardware", "cpu-zen4", "--python", "3.12"
    )

    assert (passed.exit_code, [f for f in passed.findings if f.fails]) == (0, [])
    assert failed.exit_code == command.returncode == 1
    [finding] = [f for f in failed.findings if f.fails]
    assert finding.package == "a"
    assert finding.message in command.stdout


def test_errors_are_exceptions_with_a_hint_and_the_exit_code(project: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is not a directory"):
        advisor.api.advise(project / "missing", **options)
    with pytest.raises(InputError, match="there is no objective `fastest`") as objective_error:
        advisor.api.advise(project, **{**options, "resolution": ResolutionOptions(objective="fastest")})
    assert (objective_error.value.exit_code, objective_error.value.hint[:8]) == (2, "take one")

    (project / "requirements.in").write_text("a==2\nb<2\n")
    with pytest.raises(NoStackError) as conflict:
        advisor.api.advise(project, **options)
    assert conflict.value.exit_code == 3


def test_warnings_go_to_the_logger(project: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    (project / "requirements.txt").write_text("a\n")

    with caplog.at_level(logging.WARNING, logger="advisor"):
        advisor.api.advise(ProjectFiles(directory=project), **options)

    assert any("requirements.txt" in record.message for record in caplog.records)


def test_measured_stacks_are_compared_and_others_predicted(options: dict[str, Any]) -> None:
    knowledge = options["resolution"].knowledge

    standings = advisor.api.compare("sort", framework="numpy", knowledge=knowledge)
    predicted = advisor.api.estimate(
        "numpy==1.26.4", against="numpy==2.0.2", hardware="cpu-zen4", workload="numeric", knowledge=knowledge
    )

    assert standings.comparisons
    assert predicted.estimate.low < predicted.estimate.speedup < predicted.estimate.high
    assert predicted.against == {"numpy": Version("2.0.2")}
    with pytest.raises(InputError, match="there is no observation of indicator `sorting`"):
        advisor.api.compare("sorting", knowledge=knowledge)
    with pytest.raises(InputError, match="does not name a version"):
        advisor.api.estimate("numpy", knowledge=knowledge)


@pytest.mark.slow
def test_a_stack_is_measured(options: dict[str, Any], network: None, tmp_path: Path) -> None:
    from advisor.api.measurements.options import IndicatorOptions, SamplingOptions

    observations = advisor.api.measure(
        ["matmul"],
        ["numpy==2.2.6"],
        options=IndicatorOptions(dtypes=("float32",)),
        sampling=SamplingOptions(rounds=1, samples=2, min_seconds=0.001, controls=False),
        indexes=IndexOptions(cache_directory=tmp_path / "cache"),
        knowledge=options["resolution"].knowledge,
    )

    assert {o.status for o in observations} == {"ok"}
    assert {o.framework for o in observations} == {"numpy"}


def test_the_api_does_not_load_the_command_line() -> None:
    modules = ("typer", "advisor.cli", "sqlalchemy", "numpy")
    program = f"import advisor.api, sys; print([m for m in {modules} if m in sys.modules])"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "[]\n"


@pytest.mark.parametrize("name", [n for n in advisor.api.__all__ if n.islower()])
def test_each_function_documents_arguments_result_and_errors(name: str) -> None:
    function = getattr(advisor.api, name)
    text = inspect.getdoc(function) or ""

    assert "\nReturns:\n" in text
    assert "\nRaises:\n" in text
    for parameter in inspect.signature(function).parameters:
        assert f"\n    {parameter}: " in text


def test_files_outside_a_moved_project_stay() -> None:
    files = ProjectFiles(
        requirements=(Path("a.txt"), Path("sub/b.txt")), constraints=(Path("../c.txt"), Path("/d.txt"))
    )

    moved = files.moved_to(Path("/base"))

    assert moved.requirements == (Path("/base/a.txt"), Path("/base/sub/b.txt"))
    assert moved.constraints == (Path("../c.txt"), Path("/d.txt"))


def test_a_time_without_or_with_a_time_zone_is_compared_in_utc(
    project: Path, options: dict[str, Any], index: PackageIndex
) -> None:
    index.add("a", "3.0", uploaded="2026-03-01T12:00:00Z")
    (project / "requirements.in").write_text("a\n")

    def newest(moment: datetime) -> str:
        resolution = replace(options["resolution"], exclude_newer=moment)
        result = advisor.api.advise(project, **{**options, "resolution": resolution})
        return next(str(c.version) for c in result.advice.optimum.stack if c.name == "a")

    assert newest(datetime(2026, 3, 1, 21, 0, tzinfo=timezone(timedelta(hours=10)))) == "2.0"
    assert newest(datetime(2026, 3, 1, 3, 0, tzinfo=timezone(timedelta(hours=-10)))) == "3.0"
    assert newest(datetime(2026, 3, 1, 11, 0)) == "2.0"


def test_one_text_is_one_value(project: Path, options: dict[str, Any]) -> None:
    lock = project / "requirements.txt"

    result = advisor.api.advise(str(project), outputs=str(lock), **options)

    assert result.outputs == (str(lock),)
    assert ProjectFiles(requirements=("a.txt",)).requirements == (Path("a.txt"),)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="there is nothing to measure"):
        advisor.api.measure([], "numpy", knowledge=options["resolution"].knowledge)

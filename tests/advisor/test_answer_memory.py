"""Answers of `advise` are remembered while nothing that they depend on changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.api import IndexOptions, ProjectFiles, ResolutionOptions, TargetOptions
from advisor.api.answer_memory import AnswerMemory, RememberedAnswer
from advisor.api.context import AdviceInputs, TargetContext, load_project, prepare_target
from advisor.api.options import ProjectOptions
from advisor.api.session import AdviceSession, open_session
from advisor.project.interface import ProjectRequirements
from advisor.project.workload.proposal import Proposal
from advisor.resolve.candidates.problem import AllowedReplacements, NoStackError
from advisor.resolve.score.predictor import Predictor
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def project(no_user_configuration: None, index: PackageIndex, tmp_path: Path) -> Path:
    """A project with one requirement."""
    index.add("a", "1.0", ["b"])
    index.add("b", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "requirements.in").write_text("a\n")
    return folder


Recall = Callable[..., RememberedAnswer | None]
Change = Callable[[AdviceInputs], AdviceInputs]


@pytest.fixture
def recall(index: PackageIndex, project: Path, tmp_path: Path, first_knowledge: Path) -> Recall:
    """A function that recalls the answer that was stored for the project, with some options changed."""
    knowledge = tmp_path / "own.sqlite"
    knowledge.write_bytes(first_knowledge.read_bytes())
    answer = RememberedAnswer(report="the report", locks={Path("pylock.toml"): "the lock"})

    def session_of(
        use: Callable[[AdviceSession], Any],
        change: Callable[[AdviceInputs], AdviceInputs] = lambda i: i,
        **changes: Any,
    ) -> Any:
        target = TargetOptions(hardware="cpu-zen4", python=changes.pop("python", "3.12"))
        indexes = IndexOptions(index_url=index.url, cache_directory=tmp_path / "cache", refresh=True)
        resolution = replace(ResolutionOptions(knowledge=f"sqlite:///{knowledge}"), **changes)
        with open_session(
            ProjectOptions(files=ProjectFiles(directory=project), target=target, indexes=indexes, resolution=resolution)
        ) as session:
            session.inputs = change(session.inputs)
            return use(session)

    def memory(session: AdviceSession, format: str = "text", output: str = "pylock.toml") -> AnswerMemory:
        return AnswerMemory(session.inputs, format=format, outputs=[Path(output)])

    session_of(lambda session: session.remember(memory(session), answer))

    def recalled(*, format: str = "text", output: str = "pylock.toml", **changes: Any) -> RememberedAnswer | None:
        result: RememberedAnswer | None = session_of(lambda s: memory(s, format, output).recall(), **changes)
        return result

    return recalled


def test_an_equal_question_has_the_stored_answer(recall: Recall) -> None:
    answer = recall()

    assert answer is not None
    assert (answer.report, answer.locks) == ("the report", {Path("pylock.toml"): "the lock"})


@pytest.mark.parametrize(
    "change",
    [
        {"format": "json"},
        {"output": "pylock.other.toml"},
        {"python": "3.13"},
        {"objective": "latest"},
        {"objective": "security"},
        {"prereleases": True},
        {"workload": "cnn-training"},
    ],
)
def test_another_question_has_no_stored_answer(recall: Recall, change: dict[str, Any]) -> None:
    assert recall(**change) is None


def with_context(**changes: Any) -> Change:
    """Return a function that changes the project of inputs."""
    return lambda inputs: replace(inputs, context=replace(inputs.context, **changes))


def with_configuration(inputs: AdviceInputs) -> AdviceInputs:
    """Return inputs whose client has another configuration."""
    inputs.client.configuration = replace(inputs.client.configuration, strategy="unsafe-best-match")
    return inputs


@pytest.mark.parametrize(
    "change",
    [
        with_context(name="gpu"),
        with_context(proposal=Proposal(workload="cnn-training", signs=())),
        with_context(allowed=AllowedReplacements(by_hardware=True)),
        with_context(compared_pythons=("3.12", "3.13")),
        with_context(project=ProjectRequirements(roots=(), requires_python=">=3.9")),
        with_configuration,
    ],
    ids=["name", "proposal", "allowed", "compared_pythons", "requires_python", "configuration"],
)
def test_an_answer_depends_on_each_part_of_the_inputs(recall: Recall, change: Change) -> None:
    assert recall(change=change) is None


@pytest.mark.parametrize(
    ("owner", "name"), [(TargetContext, "uses_uv"), (Predictor, "evidence_state"), (TargetContext, "criteria")]
)
def test_an_answer_depends_on_each_property_of_the_inputs(
    recall: Recall, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    monkeypatch.setattr(owner, name, "another")

    assert recall() is None


def test_another_directory_or_source_file_ends_the_answer(
    recall: Recall, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        assert recall() is None
    assert recall() is not None
    (project / "train.py").write_text("")
    assert recall() is None


@pytest.fixture
def context(project: Path) -> TargetContext:
    """The project, prepared for a target."""
    files = ProjectFiles(directory=project)
    target = TargetOptions(hardware="cpu-zen4", python="3.12")
    return prepare_target(ProjectOptions(files=files, target=target), load_project(files))


@pytest.mark.parametrize(
    "name", [f.name for f in fields(ResolutionOptions) if f.name not in ("time_limit", "workers", "knowledge")]
)
def test_each_option_is_a_criterion_of_the_best_stack(context: TargetContext, name: str) -> None:
    another: dict[str, Any] = {name: "another"}
    options = replace(context.options, **another)

    assert replace(context, options=options).criteria != context.criteria


def test_how_long_is_searched_is_no_criterion(context: TargetContext) -> None:
    options = replace(context.options, time_limit=1.0, workers=4, knowledge="sqlite://")

    assert replace(context, options=options).criteria == context.criteria
    assert replace(context, allowed=AllowedReplacements(by_hardware=True)).criteria != context.criteria


@pytest.mark.parametrize(("objective", "is_criterion"), [("performance", False), ("stable", True)])
def test_the_day_is_a_criterion_of_the_objective_stable(
    context: TargetContext, monkeypatch: pytest.MonkeyPatch, objective: str, is_criterion: bool
) -> None:
    context = replace(context, options=replace(context.options, objective=objective))
    today = context.criteria
    monkeypatch.setattr("advisor.api.context.datetime", SimpleNamespace(now=lambda _: datetime(2000, 1, 1)))

    assert (context.criteria != today) == is_criterion


def test_another_requirement_has_no_stored_answer(recall: Recall, project: Path) -> None:
    (project / "requirements.in").write_text("a\nb<2\n")

    assert recall() is None


def test_a_new_file_of_a_package_on_the_index_ends_the_answer(recall: Recall, index: PackageIndex) -> None:
    index.add("b", "2.0")

    assert recall() is None


def test_another_program_ends_the_answer(recall: Recall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.index.memo.program_digest", lambda: "another program")

    assert recall() is None


def test_a_present_lock_ends_the_answer(recall: Recall, project: Path) -> None:
    (project / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "a"\ndirectory = { path = "." }\n'
    )

    assert recall() is None


def test_a_directory_has_no_remembered_answer(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    (local / "pyproject.toml").write_text('[project]\nname = "local"\nversion = "1"\ndependencies = ["a"]\n')
    index.add("a", "1.0")
    index.add("c", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "requirements.txt").write_text(f"--index-url {index.url}\n../local\n")

    before = advisor("advise", "--dry-run", cwd=folder)
    (local / "pyproject.toml").write_text('[project]\nname = "local"\nversion = "1"\ndependencies = ["a", "c"]\n')
    after = advisor("advise", "--dry-run", cwd=folder)

    assert "2 packages" in before.stdout
    assert "3 packages" in after.stdout


@pytest.mark.parametrize("format", ["text", "json", "html"])
def test_a_remembered_advice_is_equal_and_needs_the_pages_only(
    advisor: Advisor, index: PackageIndex, project: Path, tmp_path: Path, format: str
) -> None:
    options = (
        "--hardware",
        "cpu-zen4",
        "--python",
        "3.12",
        "--index-url",
        index.url,
        "--cache-dir",
        str(tmp_path / "c"),
    )
    first = advisor("advise", *options, "--dry-run", "--format", format, cwd=project)
    for bucket in (tmp_path / "c" / "index").iterdir():
        if bucket.name not in ("pages", "answers"):
            shutil.rmtree(bucket)

    second = advisor("advise", *options, "--dry-run", "--format", format, "--offline", cwd=project)

    assert first.returncode == 0, first.stderr
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, first.stderr)


def test_a_remembered_lock_is_written(advisor: Advisor, index: PackageIndex, project: Path) -> None:
    arguments = ("advise", "--hardware", "cpu-zen4", "--python", "3.12", "--index-url", index.url, "-o", "lock.txt")
    first = advisor(*arguments, cwd=project)
    assert first.returncode == 0, first.stderr
    text = (project / "lock.txt").read_text()
    os.unlink(project / "lock.txt")

    second = advisor(*arguments, "--offline", cwd=project)

    assert second.stdout == first.stdout
    assert (project / "lock.txt").read_text() == text


def test_an_answer_without_all_sizes_is_remembered_for_runs_without_network(
    index: PackageIndex, project: Path, tmp_path: Path, first_knowledge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge = tmp_path / "own.sqlite"
    knowledge.write_bytes(first_knowledge.read_bytes())
    answer = RememberedAnswer(report="the report", locks={})

    def in_session(use: Callable[[AdviceSession, AnswerMemory], Any], *, offline: bool) -> Any:
        target = TargetOptions(hardware="cpu-zen4", python="3.12")
        indexes = IndexOptions(index_url=index.url, cache_directory=tmp_path / "cache", offline=offline)
        resolution = ResolutionOptions(knowledge=f"sqlite:///{knowledge}")
        with open_session(
            ProjectOptions(files=ProjectFiles(directory=project), target=target, indexes=indexes, resolution=resolution)
        ) as session:
            return use(session, AnswerMemory(session.inputs, format="text", outputs=[]))

    monkeypatch.setattr(AdviceSession, "sizes", lambda _: SimpleNamespace(final=False))
    in_session(lambda session, memory: session.remember(memory, answer), offline=False)

    assert in_session(lambda _, memory: memory.recall(), offline=False) is None
    assert in_session(lambda _, memory: memory.recall(), offline=True) == answer

    # The limits of a hint were reached before one was known.
    in_session(lambda _, memory: memory.store_conflict(NoStackError("no set of versions")), offline=False)
    assert in_session(lambda _, memory: memory.recall(), offline=True) == answer


def test_a_conflict_is_remembered_until_a_release_solves_it(
    advisor: Advisor, index: PackageIndex, project: Path, tmp_path: Path
) -> None:
    (project / "requirements.in").write_text("a\nb>=2\n")
    index.add("a", "2.0", ["b<2"])
    command = ("advise", "--dry-run", "--index-url", index.url, "--cache-dir", str(tmp_path / "c"))
    first = advisor(*command, cwd=project)
    for bucket in (tmp_path / "c" / "index").iterdir():
        if bucket.name not in ("pages", "answers"):
            shutil.rmtree(bucket)

    second = advisor(*command, "--offline", cwd=project)

    assert first.returncode == 3
    assert "no version of `b`" in first.stderr
    assert (second.returncode, second.stdout, second.stderr) == (3, first.stdout, first.stderr)

    index.add("b", "2.0")
    index.add("a", "3.0", ["b"])
    assert advisor(*command, "--refresh", cwd=project).returncode == 0

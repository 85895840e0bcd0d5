"""Time limits, Ctrl-C and progress: a search ends with what it has, and shows what it does."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.domain.progress import activity, progress, set_progress_display
from advisor.domain.time_limit import INTERRUPTED, TimeLimit
from advisor.resolve.candidates.problem import NoStackError
from advisor.resolve.explanation.prices import constraint_prices
from advisor.resolve.optimum.baseline import BaselineLimitError, resolve_baseline
from advisor.resolve.optimum.request import ResolutionRequest, Solved
from advisor.resolve.optimum.result import SearchLimitError
from advisor.resolve.optimum.solver import Effort, SolverModel, negated
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.recommendation.recommend import recommend
from advisor.resolve.score.criterion_costs import CriterionCosts
from knowledge.catalogue.rules import ConflictRule
from tests.advisor.factories import FixedScores, build_problem, build_request, versions_of
from tests.package_index import PackageIndex


@pytest.fixture
def request_for_older(index: PackageIndex, tmp_path: Path) -> ResolutionRequest:
    """A project whose best stack is not the newest one: version 1.0 of `a` is faster."""
    index.add("a", "1.0")
    index.add("a", "2.0")
    scores = FixedScores({("a", "1.0"): 1.0, ("a", "2.0"): 0.0})
    return build_request(index, tmp_path, build_problem("a<3"), estimator=scores)


def with_limit(request: ResolutionRequest, limit: TimeLimit) -> ResolutionRequest:
    """Return the request with another time limit."""
    return replace(request, effort=Effort(limit=limit))


def interrupt_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C once, when the search first asks for its objectives."""
    original, calls = CriterionCosts.objectives, [0]

    def objectives(self: CriterionCosts, candidates: object) -> object:
        calls[0] += 1
        if calls[0] == 1:
            raise KeyboardInterrupt
        return original(self, candidates)  # type: ignore[arg-type]

    monkeypatch.setattr(CriterionCosts, "objectives", objectives)


def test_without_a_limit_the_best_stack_is_proven(request_for_older: ResolutionRequest) -> None:
    advice = recommend(Selection(request=request_for_older))

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}
    assert (advice.optimum.proven, advice.optimum.stopped) == (True, "")


def test_at_the_time_limit_the_baseline_is_the_result_with_the_gap(request_for_older: ResolutionRequest) -> None:
    optimum = recommend(Selection(request=with_limit(request_for_older, TimeLimit(0.0)))).optimum

    assert versions_of(optimum.stack) == {"a": "2.0"}
    assert optimum.stopped == "stopped at the time limit of 0 s"
    assert not optimum.proven
    best = recommend(Selection(request=request_for_older)).optimum
    for bound, exact in zip(optimum.bounds, best.bounds, strict=True):
        assert bound.objective == exact.objective
        if bound.objective == "performance":
            assert bound.bound <= exact.value < bound.value


def test_ctrl_c_gives_the_best_stack_so_far_only_if_asked_for(
    request_for_older: ResolutionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_first_call(monkeypatch)
    optimum = recommend(Selection(request=with_limit(request_for_older, TimeLimit(keeps_result=True)))).optimum
    assert (versions_of(optimum.stack), optimum.stopped) == ({"a": "2.0"}, INTERRUPTED)

    interrupt_first_call(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        recommend(Selection(request=with_limit(request_for_older, TimeLimit())))


def test_a_baseline_that_the_rules_exclude_is_no_result(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0")
    index.add("b", "2.0")
    rule = ConflictRule(
        kind="conflict",
        id="a-b",
        severity="forbidden",
        package="a",
        versions=">=2",
        other="b",
        other_versions=">=2",
        message="they crash",
        source="https://a.example",
    )
    request = build_request(index, tmp_path, build_problem("a", "b"), rules=(rule,))

    with pytest.raises(SearchLimitError, match="stopped at the time limit of 0 s"):
        recommend(Selection(request=with_limit(request, TimeLimit(0.0))))


def test_the_plain_resolver_ends_at_the_limit(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    request = build_request(index, tmp_path, build_problem("a"))

    with pytest.raises(BaselineLimitError, match="stopped at the time limit"):
        resolve_baseline(request.problem, request.source, limit=TimeLimit(0.0))


def test_prices_after_the_limit_are_not_computed_and_say_so(request_for_older: ResolutionRequest) -> None:
    optimum = recommend(Selection(request=request_for_older)).optimum

    (price,) = constraint_prices(Solved(request=with_limit(request_for_older, TimeLimit(0.0)), optimum=optimum))

    assert price.constraint == "a<3"
    assert price.obstacle == "not priced: stopped at the time limit of 0 s"


def test_ctrl_c_keeps_the_prices_so_far(
    request_for_older: ResolutionRequest, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("b", "1.0")
    request = build_request(index, tmp_path, build_problem("a<3", "b<3"), estimator=request_for_older.score.estimator)
    optimum = recommend(Selection(request=request)).optimum
    interrupt_first_call(monkeypatch)

    prices = constraint_prices(Solved(request=request, optimum=optimum))

    assert [p.obstacle for p in prices] == ["not priced: interrupted", "not priced: interrupted"]


def test_a_conflict_that_may_not_be_the_smallest_is_explained_and_says_so(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from advisor.resolve.explanation.conflict import Contradiction

    for version in ("1.0", "2.0"):
        index.add("a", version, ["c<2"])
        index.add("b", version, ["c>=2"])
        index.add("c", version)
    index.add("d", "1.0")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Contradiction, "_smallest", interrupt)
    with pytest.raises(NoStackError) as caught:
        build_request(index, tmp_path, build_problem("a", "b", "d"))

    assert any("you require `a`" in line for line in caught.value.details)
    assert any("you require `b`" in line for line in caught.value.details)
    assert not any("`d`" in line for line in caught.value.details)
    assert caught.value.hint.endswith("; fewer requirements may conflict, too: the search for them was interrupted")


def unsolved_model() -> SolverModel:
    """Return random clauses at the ratio of clauses to Booleans where the solver needs longest."""
    generator, model = random.Random(1), SolverModel()
    literals = [model.boolean() for _ in range(400)]
    for _ in range(1704):
        model.require_any(x if generator.random() < 0.5 else negated(x) for x in generator.sample(literals, 3))
    return model


def test_the_solver_ends_at_the_time_limit() -> None:
    result = unsolved_model().solve(Effort(work=1e6, limit=TimeLimit(0.2)))

    assert (result.values, result.impossible) == (None, False)


def test_ctrl_c_ends_the_solver() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            unsolved_model().solve(Effort(work=1e6))
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


class _Record:
    """A display that keeps what it shows."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def show(self, text: str) -> None:
        self.texts.append(text)

    def hide(self) -> None:
        self.texts.append("hidden")


@pytest.fixture
def record() -> Iterator[_Record]:
    """The display of progress."""
    display = _Record()
    set_progress_display(display)
    yield display
    set_progress_display(None)


def test_progress_is_shown_until_the_outer_activity_ends(record: _Record) -> None:
    progress("before")
    with activity("first"):
        with activity("second %d", 2):
            progress("reading %s", "numpy")
        progress("again")
    progress("after")

    assert record.texts == ["first", "second 2", "reading numpy", "again", "hidden"]


PROGRAM = """
import time
from advisor.cli import progress as line
from advisor.domain.progress import activity
line._QUIET_SECONDS = 0.0
line.show_progress()
with activity("reading \\x1b[31m%s", "numpy from https://user:secret@host.example/simple"):
    time.sleep(1.0)
print("done")
"""


def run_on(stderr: int) -> str:
    """Run the program with a file descriptor as standard error; return its standard output."""
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "70"}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, check=True, text=True, env=environment).stdout


def test_progress_is_shown_on_a_terminal_without_secrets_and_control_characters() -> None:
    controller, terminal = pty.openpty()
    try:
        assert run_on(terminal) == "done\n"
        printed = os.read(controller, 100_000).decode()
    finally:
        os.close(controller)
        os.close(terminal)

    assert "reading \\x1b[31mnumpy from" in printed
    assert "secret" not in printed


def test_no_progress_is_printed_to_a_file(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w") as file:
        assert run_on(file.fileno()) == "done\n"

    assert (tmp_path / "errors").read_text() == ""

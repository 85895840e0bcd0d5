"""Explanations of a recommendation: conflicts, prices of constraints, runners-up and trees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.domain.time_limit import TimeLimit
from advisor.report.advice.reasons import explanation_text, prices_text
from advisor.report.advice.tree import tree_report
from advisor.resolve.candidates.problem import NoStackError
from advisor.resolve.explanation.alternatives import explain_package
from advisor.resolve.explanation.graph import dependency_graph
from advisor.resolve.explanation.prices import constraint_prices, python_prices
from advisor.resolve.optimum.request import ResolutionRequest, Solved
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.recommendation.recommend import recommend
from knowledge.domain.errors import InputError
from tests.advisor.factories import FixedScores, build_problem, build_request
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def pinned(index: PackageIndex, tmp_path: Path) -> ResolutionRequest:
    """A project with a constraint on `b` that excludes newer versions of `a` and `c`."""
    for version in ("1.0", "2.0", "3.0"):
        index.add("b", version, ["c"])
        index.add("c", version)
    index.add("a", "1.0", ["b<2"])
    index.add("a", "2.0", ["b<3"])
    index.add("a", "3.0", ["b>=3"])
    return build_request(index, tmp_path, build_problem("a", "b<3", "c>=1"))


def test_only_a_binding_constraint_has_a_price(pinned: ResolutionRequest) -> None:
    prices = {p.constraint: p for p in constraint_prices(Selection(request=pinned).solve())}

    assert prices["b<3"].binds
    assert prices["b<3"].changes == (("a", "2.0", "3.0"), ("b", "2.0", "3.0"))
    assert prices["b<3"].libyears > 0
    assert not prices["c>=1"].binds
    text = prices_text(list(prices.values()))
    assert text.startswith("cost      b<3   same age; speed unknown\n")
    assert "line 2; without it: a 2.0 -> 3.0, b 2.0 -> 3.0" in text


def test_another_interpreter_is_priced_with_the_candidates_of_both(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0", requires_python=">=3.13")
    index.add("b", "1.0", requires_python="<3.14")

    def solve_for(python: str, limit: TimeLimit) -> Solved:
        request = build_request(index, tmp_path, build_problem("a", "b", python=python))
        return Selection(request=replace(request, effort=Effort(limit=limit))).solve()

    solved = solve_for("3.12", TimeLimit())
    prices = python_prices(solved, versions=("3.12", "3.13", "3.14"), requires_python="<3.13", solve_for=solve_for)

    assert [p.constraint for p in prices] == ["Python 3.13", "Python 3.14"]
    assert prices[0].libyears > 0
    assert prices[0].origin == "outside `requires-python = <3.13`"
    assert "no version of `b`" in prices[1].obstacle


def test_the_price_of_another_interpreter_names_the_builds_that_were_not_tried(
    index: PackageIndex, tmp_path: Path
) -> None:
    index.add("a", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    index.add_sdist("a", "1.0")
    index.add_sdist("b", "1.0")

    def solve_for(python: str, limit: TimeLimit) -> Solved:
        request = build_request(index, tmp_path, build_problem("a", "b", python=python))
        return Selection(request=replace(request, effort=Effort(limit=limit))).solve()

    solved = solve_for("3.12", TimeLimit())
    prices = python_prices(solved, versions=("3.13",), requires_python=None, solve_for=solve_for)

    assert [p.origin for p in prices] == ["another interpreter, without a wheel of `a 1.0`"]


def test_an_explanation_has_paths_conflict_and_runner_up(pinned: ResolutionRequest) -> None:
    explanation = explain_package(pinned, recommend(Selection(request=pinned)), canonicalize_name("b"))

    assert (explanation.version, explanation.newest) == (Version("2.0"), Version("3.0"))
    assert set(explanation.required_by) == {("the project", "b<3"), ("a 2.0", "b<3")}
    assert explanation.paths == (("b",), ("a", "b"))
    assert explanation.against_newest is not None
    assert "you require `b<3` (line 2)" in explanation.against_newest.conflict
    assert explanation.runner_up is not None
    assert explanation.runner_up.version == Version("1.0")
    assert dict(explanation.runner_up.worse)["freshness-direct"] > 0
    assert "why not   1.0, the runner-up:" in explanation_text(explanation)


def test_a_package_outside_the_stack_is_an_error(pinned: ResolutionRequest) -> None:
    with pytest.raises(InputError, match="does not contain `z`"):
        explain_package(pinned, recommend(Selection(request=pinned)), canonicalize_name("z"))


def test_the_tree_shows_each_package_below_its_dependents(pinned: ResolutionRequest) -> None:
    graph = dependency_graph(pinned.problem, pinned.source, recommend(Selection(request=pinned)).optimum.stack)

    def show(format: str = "text", *, invert: bool = False, package: str | None = None) -> str:
        start = canonicalize_name(package) if package else None
        return tree_report(graph, format=format, invert=invert, package=start, depth=None)

    assert show().splitlines() == [
        "the project",
        "├── a 2.0",
        "│   └── b 2.0 [b<3]",
        "│       └── c 3.0",
        "├── b 2.0 [b<3] (*)",
        "└── c 3.0 [c>=1]",
    ]
    assert show(invert=True, package="c").splitlines()[:3] == ["c 3.0", "├── the project [c>=1]", "└── b 2.0"]
    assert 'n1["a 2.0"]' in show("mermaid")
    assert '"a" -> "b"' in show("dot")
    assert [p["name"] for p in json.loads(show("json"))["packages"]] == ["a", "b", "c"]


def test_a_conflict_over_many_versions_names_the_range(index: PackageIndex, tmp_path: Path) -> None:
    for minor in range(4):
        index.add("a", f"1.{minor}", ["c<2"])
        index.add("b", f"1.{minor}", ["c>=2", "d"])
    index.add("c", "1.0")
    index.add("c", "2.0")
    index.add("d", "1.0")

    with pytest.raises(NoStackError) as caught:
        build_request(index, tmp_path, build_problem("a>=1.1", "b", "d"))

    assert caught.value.details == (
        "you require `a>=1.1` (line 1)",
        "you require `b` (line 2)",
        "and `a` 1.1 to 1.3 (3 versions) requires `c<2`",
        "and `b` 1.0 to 1.3 (4 versions) requires `c>=2`",
        "so no version of `c` satisfies all of this",
    )
    assert "relaxing a single one of these requirements is not enough" in caught.value.hint


def test_all_requirements_without_a_version_are_named(index: PackageIndex, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        index.add(name, "1.0")

    with pytest.raises(NoStackError) as several:
        build_request(index, tmp_path, build_problem("a==9", "b", "c>=1", constraints=("c<1",)))
    with pytest.raises(NoStackError) as one:
        build_request(index, tmp_path, build_problem("a==9", "b"))

    assert several.value.details == (
        "you require `a==9` (line 1)",
        "so no version of `a` satisfies all of this; available candidates: 1.0",
        "you limit `c<1` (-c)",
        "so no version of `c` satisfies all of this; available candidates: 1.0",
    )
    assert several.value.hint.startswith("relax the requirements on `a`, `c`")
    assert "relax `a==9` (line 1): then `a` becomes 1.0" in one.value.hint


def test_the_cheapest_change_is_reported(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0", "3.0"):
        index.add("a", version, [f"c<{version}"])
        index.add("c", version)
    index.add("c", "0.5")

    with pytest.raises(NoStackError) as caught:
        build_request(index, tmp_path, build_problem("a==1.0", "c>=2"))

    assert "relax `a==1.0` (line 1): then `a` becomes 3.0" in caught.value.hint


def test_a_conflict_is_explained_without_predictions(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1.26.4", "2.0.2"):
        index.add("numpy", version)
    index.add("a", "1.0", ["numpy<2"])
    index.add("a", "2.0", ["numpy>=2"])
    estimator = FixedScores({})
    predictions: list[str] = []
    monkeypatch.setattr(estimator, "terms", lambda *_: predictions.append("terms"))
    monkeypatch.setattr(estimator, "setting_gains", lambda *_: predictions.append("settings"))

    with pytest.raises(NoStackError) as caught:
        build_request(index, tmp_path, build_problem("numpy>=2", "a==1.0"), estimator=estimator)

    assert "relax `a==1.0` (line 2): then `a` becomes 2.0" in caught.value.hint
    assert predictions == []


def test_a_conflict_over_a_measured_package_ends_with_the_cheapest_change(
    index: PackageIndex, tmp_path: Path, advisor_here: Advisor
) -> None:
    for version in ("1.26.4", "2.0.2", "2.2.6"):
        index.add("numpy", version)
    index.add("a", "1.0", ["numpy<2"])
    index.add("a", "2.0", ["numpy>=2"])
    (tmp_path / "requirements.txt").write_text("numpy>=2\na==1.0\n")
    target = ("--hardware", "cpu-zen4", "--python", "3.12", "--index-url", index.url)

    result = advisor_here("advise", *target, "--cache-dir", str(tmp_path / "cache"))

    assert result.returncode == 3
    assert "relax `a==1.0` (requirements.txt:2): then `a` becomes 2.0" in result.stderr


def test_relaxing_a_constraint_leaves_the_others(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0", "3.0"):
        index.add("a", version, ["b>=2"] if version == "3.0" else [])
        index.add("b", version)

    with pytest.raises(NoStackError) as caught:
        build_request(index, tmp_path, build_problem("a>=3", constraints=("a<9", "b<2")))

    assert "relax `b<2`" in caught.value.hint
    assert "then `b` becomes 3.0" in caught.value.hint


def test_a_version_for_another_python_is_named_in_the_conflict(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b>=2"])
    index.add("b", "1.0")
    index.add("b", "2.0", requires_python=">=3.13")

    with pytest.raises(NoStackError) as caught:
        build_request(index, tmp_path, build_problem("a"))

    assert caught.value.details[-1].endswith("available candidates: 1.0 (excluded: 1 requires another Python)")


def test_explain_prices_and_tree_work_for_a_project(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version, ["b"])
        index.add("b", version)
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\na<2\n")
    arguments = ("--hardware", "cpu-zen4", "--python", "3.12")

    explained = advisor("explain", "a", *arguments)
    priced = advisor("prices", *arguments, "--other-python", "3.13", "--format", "json")
    tree = advisor("tree", *arguments, "--format", "mermaid")
    absent = advisor("explain", "z", *arguments)

    assert explained.stdout.startswith("package   a 1.0\n"), explained.stderr
    assert [p["constraint"] for p in json.loads(priced.stdout)["prices"]] == ["a<2", "Python 3.13"]
    assert tree.stdout.startswith("flowchart LR")
    assert absent.returncode == 2
    assert absent.stderr.startswith("error: the recommended stack does not contain `z`")

"""Documented slow-downs in the score, the report and the gate; the score is compared with brute force."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from advisor.gate.checks.compatibility import check_slowdowns
from advisor.index.cache import DiskCache
from advisor.locks.registry import read_lock
from advisor.resolve.explanation.advice import Advice
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.recommendation.recommend import recommend
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.predictor import Predictor
from advisor.resolve.score.slowdowns import Slowdowns, SlowdownScore, gain_without
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.slower import HardwareCondition, Reproduction, SlowerRule
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.ratio import RISK
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.interface import Estimator
from knowledge.estimate.model_cache import ModelCache
from knowledge.estimate.workloads import Workload, find_workload, one_indicator
from knowledge.store.engine import open_knowledge_base
from tests.advisor.factories import (
    MACHINE,
    FixedScores,
    build_problem,
    build_request,
    build_scope,
    recommend_stack,
    versions_of,
)
from tests.advisor.small_problems import (
    NAMES,
    Ages,
    Releases,
    ReleaseSource,
    Stack,
    VersionSet,
    criteria_for,
    over_newest,
    plain,
    problems,
    solve_problem,
    some_roots,
    stacks,
    versions,
)
from tests.examples import examples
from tests.knowledge.samples import slower_rule
from tests.package_index import PackageIndex

Reports = tuple[float, ...]


def rule_of(package: str, slow: int, ratios: Reports, other: tuple[str, int] | None) -> SlowerRule:
    """Build a rule about a version of a package, with all versions of another one up to a maximum."""
    companion = {} if other is None or other[0] == package else {"other": other[0], "other_versions": f"<={other[1]}"}
    return slower_rule(packages=(package,), versions=f"=={slow}", than="0", ratios=ratios, **companion)


names = st.sampled_from(NAMES)
reports = st.lists(st.sampled_from((1.2, 3.0, 4.0, 40.0)), min_size=1, max_size=4).map(tuple)
slower_rules = st.builds(rule_of, names, versions, reports, st.none() | st.tuples(names, versions))


def steps_of(rule: SlowerRule) -> int:
    """Return the cost of a rule about a whole program, from the formula of the documentation."""
    if len(rule.ratios) < 2:
        return 0
    mean = sum(math.log(ratio) for ratio in rule.ratios) / len(rule.ratios)
    return max(0, int((mean - RISK / 2 * 0.53**2 / len(rule.ratios)) / 0.01))


@settings(max_examples=examples(200), deadline=None)
@given(
    releases=problems,
    roots=some_roots,
    rules=st.lists(slower_rules, max_size=6),
    gains=st.dictionaries(versions, st.integers(-40, 40), max_size=4),
    explicit=st.integers(1, 4),
)
def test_the_optimum_with_slow_downs_equals_that_of_brute_force(
    releases: Releases, roots: dict[str, VersionSet], rules: list[SlowerRule], gains: dict[int, int], explicit: int
) -> None:
    # The gains of package `a` were measured, a little more than whole steps, so that rounding does not change them.
    estimator = FixedScores({("a", str(v)): steps * 0.0101 for v, steps in gains.items()} | {("a", "0"): 0.0})
    source, book = ReleaseSource(releases), RuleBook(rules, MACHINE)
    criteria = criteria_for(roots, source, estimator, builds=TargetBuilds((), book, MACHINE))
    criteria = replace(criteria, min_gain=0.0)
    ages = Ages(roots, source)
    criteria, newest = over_newest(criteria, releases, roots, source)
    best_gain = max(gains.get(version, 0) for version in releases["a"])

    def speed(stack: Stack) -> int:
        matches = book.slowdowns_of({name: Version(str(version)) for name, version in stack.items()})
        measured = {("a", v) for v in gains}
        steps = sum(steps_of(rule) for rule, name in matches if (name, stack[name]) not in measured)
        # Only what the newest stack contains is compared, and a stack without it is as fast.
        return steps + (best_gain - gains.get(stack.get("a", newest["a"]), 0) if "a" in newest else 0)

    best = min(stacks(releases, roots), key=lambda stack: (speed(stack), *ages.rank(stack)), default=None)

    optimum = solve_problem(roots, source, criteria, explicit)

    if optimum is None:
        assert best is None
        return
    assert best is not None
    assert {b.objective: b.value for b in optimum.bounds}["speed"] == speed(best)
    assert optimum.proven
    assert plain(optimum) == best


def estimator_for(workload: str | None) -> Estimator:
    """Create an estimator without observations."""
    empty = open_knowledge_base("sqlite://", shipped=False)
    selected = None if workload is None else find_workload(workload)
    return WorkloadEstimator(ModelCache(empty), hardware=MACHINE, workload=selected, frameworks=frozenset(FRAMEWORKS))


RESNET = {"indicator": "model", "model": "resnet50", "mode": "training"}


def score_of_slowdown(rule: SlowerRule, name: str, estimator: Estimator) -> SlowdownScore:
    slowdowns = Slowdowns(rules=RuleBook((rule,), MACHINE), estimator=estimator)
    return slowdowns.score(rule, name, Version("2"))


@pytest.mark.parametrize(
    ("fields", "workload", "reason"),
    [
        ({}, None, ""),
        ({"ratios": (1.2, 1.2)}, None, "it is too small or too uncertain"),
        ({"ratios": (9.0,)}, None, "no workload is selected, and it is the report of one program"),
        ({"whole": False}, None, "no workload is selected, and it is a slow-down of one operation"),
        ({}, "cnn-training", "it is not known to be a part of the workload"),
        ({"parts": ({"indicator": "conv1d"},)}, "cnn-training", "it is not known to be a part of the workload"),
        ({"parts": (RESNET,)}, "cnn-training", ""),
        ({"parts": (RESNET,)}, "cnn-inference", "it is not known to be a part of the workload"),
        ({"parts": ({"indicator": "matmul"},), "whole": False, "packages": ("numpy",)}, "numeric", ""),
    ],
)
def test_a_slow_down_counts_for_the_workloads_that_it_is_a_part_of(
    fields: dict[str, object], workload: str | None, reason: str
) -> None:
    rule = slower_rule(**{"ratios": (9.0, 9.0), **fields})

    score = score_of_slowdown(rule, rule.packages[0], estimator_for(workload))

    assert score.reason == reason
    assert (score.steps > 0) is (not reason)


def test_a_part_of_the_workload_counts_with_its_share_of_the_time() -> None:
    rule = slower_rule(ratios=(9.0,), parts=(RESNET,))
    half = gain_without(rule, 0.5)

    assert half.mean == pytest.approx(math.log(5))
    assert half.variance == pytest.approx((0.9 * rule.deviation) ** 2)
    assert gain_without(rule, 1.0).mean == pytest.approx(math.log(9))


def test_a_measurement_of_both_versions_replaces_a_report() -> None:
    measured = FixedScores({("torch", "2"): 0.1, ("torch", "1"): 0.0})
    one_of_them = FixedScores({("torch", "2"): 0.1})
    rule = slower_rule(ratios=(9.0, 9.0))

    assert "both versions were measured" in score_of_slowdown(rule, "torch", measured).reason
    of_library = slower_rule(ratios=(9.0, 9.0), packages=("libtorch",), measured_as="torch")
    assert "both versions were measured" in score_of_slowdown(of_library, "libtorch", measured).reason
    assert score_of_slowdown(rule, "torch", one_of_them).steps > 0


def advice_for(
    index: PackageIndex, tmp_path: Path, rules: tuple[SlowerRule, ...], current: Mapping[str, Version] | None = None
) -> Advice:
    for version in ("1.0", "2.0"):
        index.add("torch", version)
    request = build_request(
        index, tmp_path, build_problem("torch"), rules=rules, estimator=estimator_for(workload=None)
    )
    return recommend(Selection(request=request), current=current)


def test_of_otherwise_equal_versions_the_one_without_a_slow_down_is_recommended(
    index: PackageIndex, tmp_path: Path
) -> None:
    advice = advice_for(index, tmp_path, (slower_rule(ratios=(9.0, 9.0)),), current={"torch": Version("2.0")})

    assert versions_of(advice.optimum.stack) == {"torch": "1.0"}
    assert advice.reasons["torch"].startswith("2.0 has a documented slow-down: a program")
    messages = [(f.severity, f.message, f.source) for f in advice.findings if f.code == "ADV117"]
    assert [(severity, source) for severity, _, source in messages] == [("note", "https://example.org")] * 2
    assert messages[0][1].startswith(
        "the current lock, not the recommended one, has a documented slow-down: `torch 2.0`"
    )
    assert messages[1][1].startswith("the newest versions, not the recommended ones, have a documented slow-down")
    assert not [f for f in advice.findings if f.code == "ADV116"]


def test_an_uncertain_slow_down_is_only_reported(index: PackageIndex, tmp_path: Path) -> None:
    rule = slower_rule(fixed="3", workaround="a switch", ratios=(1.2, 1.2))

    advice = advice_for(index, tmp_path, (rule,))

    assert versions_of(advice.optimum.stack) == {"torch": "2.0"}
    (finding,) = [f for f in advice.findings if f.code == "ADV116"]
    assert finding.severity == "warning"
    assert finding.message == (
        "`torch 2.0` is reported to take 1.2x the time of 1 (2 reports): a program; fixed in 3; work-around: a switch "
        "(not in the score: it is too small or too uncertain)"
    )


def test_the_message_says_whether_the_program_confirmed_it(index: PackageIndex, tmp_path: Path) -> None:
    own = Reproduction(ratio=1.5, low=1.4, high=1.6, versions=("2.0", "1.0"), machine="a test machine")

    advice = advice_for(index, tmp_path, (slower_rule(whole=False, reproduction=own),))

    (finding,) = [f for f in advice.findings if f.code == "ADV116"]
    assert "confirmed by this program: 2.0 takes 1.5x the time of 1.0 [1.4, 1.6] on a test machine" in finding.message


def test_the_message_names_another_program_that_was_measured(index: PackageIndex, tmp_path: Path) -> None:
    own = Reproduction(
        ratio=9.0, low=8.0, high=9.9, versions=("2.0", "1.0"), machine="a test machine", program="a smaller model"
    )

    advice = advice_for(index, tmp_path, (slower_rule(ratios=(1.2,), whole=False, reproduction=own),))

    (finding,) = [f for f in advice.findings if f.code == "ADV116"]
    assert "is reported to take 1.2x the time of 1 (1 report)" in finding.message
    assert "takes 9x the time of 1.0 [8, 9.9] with a smaller model on a test machine" in finding.message


def test_other_objectives_ignore_slow_downs(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        index.add("torch", version)

    advice, _ = recommend_stack(
        index, tmp_path, build_problem("torch"), rules=(slower_rule(ratios=(9.0, 9.0)),), objective="latest"
    )

    assert versions_of(advice.optimum.stack) == {"torch": "2.0"}
    (finding,) = [f for f in advice.findings if f.code == "ADV116"]
    assert "not in the score" not in finding.message


def test_slow_downs_of_other_hardware_are_not_reported(index: PackageIndex, tmp_path: Path) -> None:
    rule = slower_rule(ratios=(9.0, 9.0), hardware=HardwareCondition(accelerator="nvidia"))

    advice = advice_for(index, tmp_path, (rule,))

    assert versions_of(advice.optimum.stack) == {"torch": "2.0"}
    assert not [f for f in advice.findings if f.code in ("ADV116", "ADV117")]


def test_the_gate_warns_of_a_locked_slow_down(
    tmp_path: Path, knowledge_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "freeze.txt").write_text("numpy==1.21.1\nscikit-learn==0.23.2\n")
    rule = slower_rule(
        packages=("numpy",), versions=">=1.19", than="1.18.5", other="scikit-learn", other_versions="==0.23.2"
    )
    requirements = build_problem("numpy", "scikit-learn")
    lock = read_lock(tmp_path / "freeze.txt", requirements.target)
    monkeypatch.setattr("advisor.gate.checks.compatibility.shipped_rules", lambda: (rule,))
    predictor = Predictor(DiskCache(tmp_path), address=f"sqlite:///{knowledge_file}", hardware=MACHINE)

    (finding,) = check_slowdowns(build_scope(lock, requirements, predictor=predictor))

    assert (finding.code, finding.level, finding.package, finding.place.line) == ("ADV033", "warning", "numpy", 1)
    assert finding.cause.versions == (("numpy", "1.21.1"), ("scikit-learn", "0.23.2"))
    assert finding.source == rule.source
    assert "with `scikit-learn 0.23.2`" in finding.message


@pytest.mark.shipped
def test_a_predictor_answers_for_its_workload(tmp_path: Path, knowledge_file: Path) -> None:
    def share(workload: Workload | None) -> float | None:
        address = f"sqlite:///{knowledge_file}"
        predictor = Predictor(DiskCache(tmp_path), address=address, hardware=MACHINE, workload=workload)
        return predictor.time_share("numpy", [{"indicator": "matmul"}])

    assert share(None) is None
    assert share(one_indicator("matmul")) == 1
    assert share(one_indicator("sort")) == 0

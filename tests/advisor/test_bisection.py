"""Bisections on simulated machines: which differences they find, and which they do not invent."""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from advisor.api.measurements.bisect import Culprit, ProjectBisection
from advisor.api.measurements.laboratory import MachineLaboratory
from advisor.domain.words import slowdown_text
from advisor.experiment.bisection import Bisection, Combination, PathSection, is_same_failure
from advisor.experiment.experiment import CONTROL, ArmRun, Laboratory
from advisor.report.bisection import bisection_json, bisection_markdown, bisection_text
from advisor.report.layout import Layout
from knowledge.domain.errors import InputError
from knowledge.domain.ratio import Ratio
from pi_runners.execution.campaign import Block
from tests.advisor.factories import MACHINE
from tests.advisor.stack_pairs import end, pair

NUMBER = 12
GAIN = "more than the loss: other differences make the program faster"
HIDING = "each culprit costs less once the other is there"


@dataclass
class SimulatedMachine(Laboratory):
    """Differences with losses (logarithms of seconds), noise, and combinations that fail."""

    loss: Callable[[Combination], float]
    seed: int = 0
    deviation: float = 0.004
    failure: Callable[[Combination], str] = lambda combination: ""
    earlier: Sequence[tuple[int, Combination, bool, float]] = ()
    runs: int = 0
    results: list[tuple[int, Combination, bool, float]] = field(default_factory=list)
    arms: list[Combination] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._rounds: dict[int, float] = {}

    def run(self, round_number: int, arm: int) -> ArmRun:
        combination = self.arms[max(arm, 0)]
        self.runs += 1
        if failure := self.failure(combination):
            return ArmRun(seconds=None, failure=failure)
        # Load and clocks of the machine change from round to round.
        drift = self._rounds.setdefault(round_number, self._random.gauss(0, 0.03))
        seconds = math.exp(self.loss(combination) + drift + self._random.gauss(0, self.deviation))
        self.results.append((round_number, combination, arm == CONTROL, seconds))
        return ArmRun(seconds=seconds)

    def earlier_runs(self, arm: int) -> Iterator[tuple[int, ArmRun]]:
        for number, ran, was_control, seconds in self.earlier:
            if (ran, was_control) == (self.arms[max(arm, 0)], arm == CONTROL):
                yield number - len(self.earlier), ArmRun(seconds=seconds)

    def seconds_of(self, arm: int) -> float:
        return 1.0

    def now(self) -> float:
        return float(self.runs)


def added(losses: Mapping[int, float]) -> Callable[[Combination], float]:
    """Return the loss of a combination whose differences have these losses."""
    return lambda combination: sum(loss for difference, loss in losses.items() if difference in combination)


def bisected(machine: SimulatedMachine, needs: Sequence[Combination] = (), budget: float = 5_000) -> Bisection:
    needs = needs or [frozenset()] * NUMBER
    bisection = Bisection(needs=needs, laboratory=machine, add=machine.arms.append, budget_seconds=budget)
    bisection.run()
    return bisection


def names(bisection: Bisection) -> list[list[int]]:
    return sorted(sorted(part.differences) for part in bisection.culprits)


def test_both_of_two_culprits_of_5_percent_are_found_and_nothing_else() -> None:
    right = 0
    for seed in range(100):
        pair = sorted(random.Random(seed).sample(range(NUMBER), 2))
        bisection = bisected(SimulatedMachine(added(dict.fromkeys(pair, math.log(1.05))), seed))
        right += names(bisection) == [[number] for number in pair]
        assert bisection.is_recovered
        assert bisection.without == bisection.bad - frozenset(pair)

    assert right >= 95


def test_nothing_is_invented_without_a_difference() -> None:
    verdicts = [bisected(SimulatedMachine(added({}), seed, deviation=0.01)).verdict for seed in range(200)]

    assert verdicts.count("equal") >= 190
    assert verdicts.count("open") == 0


def test_a_loss_below_the_tolerance_is_no_loss() -> None:
    assert bisected(SimulatedMachine(added({3: 0.004}))).verdict == "equal"


def test_a_faster_bad_stack_is_named_so() -> None:
    assert bisected(SimulatedMachine(added({3: -0.06}))).verdict == "faster"


def test_a_culprit_that_a_gain_hides_in_the_whole_is_found_where_the_path_divides_them() -> None:
    bisection = bisected(SimulatedMachine(added({2: 0.10, 9: -0.05})))

    assert names(bisection) == [[2]]
    assert bisection.is_recovered


def test_a_search_names_both_culprits_that_hide_each_other() -> None:
    # Each of them alone makes the program take the slow way.
    bisection = bisected(SimulatedMachine(lambda c: 0.08 if c & {1, 7} else 0.0))

    assert names(bisection) == [[1], [7]]
    assert bisection.is_recovered


def test_of_differences_that_are_slow_only_together_one_is_enough_to_recover() -> None:
    bisection = bisected(SimulatedMachine(lambda c: 0.08 if c >= {1, 7} else 0.0))

    assert names(bisection) == [[7]]
    assert bisection.is_recovered


def test_a_loss_of_many_small_differences_is_not_explained_by_any() -> None:
    bisection = bisected(SimulatedMachine(added(dict.fromkeys(range(NUMBER), 0.004))))

    assert bisection.verdict == "slower"
    assert names(bisection) == []
    assert bisection.is_recovered is False


def test_a_failure_is_found_with_few_runs_and_a_second_one_behind_it() -> None:
    machine = SimulatedMachine(added({}), failure=lambda c: "ImportError: broken" if c & {4, 10} else "")
    bisection = bisected(machine)

    assert bisection.verdict == "failing"
    assert names(bisection) == [[4], [10]]
    assert bisection.is_recovered
    assert machine.runs <= 25


def test_another_failure_between_the_ends_is_unresolved_and_not_the_culprit() -> None:
    # Difference 3 fails without 4, as versions that do not work together do.
    def failure(combination: Combination) -> str:
        if 3 in combination and 4 not in combination:
            return "AttributeError: no `x`"
        return "ImportError: broken" if 8 in combination else ""

    assert names(bisected(SimulatedMachine(added({}), failure=failure))) == [[8]]


def test_a_culprit_that_cannot_run_alone_is_named_with_its_neighbour() -> None:
    def failure(combination: Combination) -> str:
        return "AttributeError" if (3 in combination) != (4 in combination) else ""

    bisection = bisected(SimulatedMachine(added({3: 0.06}), failure=failure))

    assert names(bisection) == [[3, 4]]
    assert bisection.is_recovered


def test_a_failing_good_stack_ends_it() -> None:
    bisection = bisected(SimulatedMachine(added({}), failure=lambda c: "" if c else "crash"))

    assert bisection.ending == "good-failed"


def test_a_good_stack_that_begins_to_fail_ends_the_search_at_once() -> None:
    machine = SimulatedMachine(added({3: 0.06}))
    machine.failure = lambda c: "" if machine.runs < 40 or c else "no space"
    bisection = bisected(machine)

    assert (bisection.verdict, bisection.ending) == ("slower", "good-failed")
    assert machine.runs < 60


@pytest.mark.parametrize("last", [1, 10, 20])
def test_an_outage_is_the_failure_of_no_difference(last: int) -> None:
    machine = SimulatedMachine(added({3: 0.06}))
    machine.failure = lambda c: "no space" if machine.runs > last else ""
    bisection = bisected(machine)

    assert bisection.ending == "good-failed"
    assert set(bisection.failures) == {frozenset()}
    assert machine.runs <= last + 4


def test_the_comparisons_of_all_searches_share_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: dict[int, dict[PathSection, float]] = defaultdict(dict)
    verdict_of = Bisection.verdict_of

    def recorded(bisection: Bisection, part: PathSection) -> str:
        errors[bisection._search][part] = bisection.error
        return verdict_of(bisection, part)

    monkeypatch.setattr(Bisection, "verdict_of", recorded)
    # Many culprits need most comparisons in a search, and those that hide each other most searches.
    bisected(SimulatedMachine(added(dict.fromkeys(range(NUMBER), 0.06))))
    most = len(errors[0])
    bisected(SimulatedMachine(lambda c: 0.08 if c & {1, 3, 5, 7, 9} else 0.0))

    assert most >= 2 * NUMBER - 1
    assert len(errors) == 5
    assert most * sum(max(own.values()) for own in errors.values()) <= 0.05


def test_the_budget_ends_it_with_what_is_known() -> None:
    bisection = bisected(SimulatedMachine(added({3: 0.06}), deviation=0.05), budget=40)

    assert (bisection.verdict, bisection.ending) == ("open", "time")
    assert bisection.seconds_left() > 40


def test_runs_of_an_earlier_bisection_are_not_repeated() -> None:
    losses = added({3: 0.06, 5: 0.06})
    whole = SimulatedMachine(losses)
    bisected(whole)
    first = SimulatedMachine(losses)
    bisected(first, budget=whole.runs / 2)
    second = SimulatedMachine(losses, seed=1, earlier=first.results)

    bisection = bisected(second)

    assert bisection.earlier_runs == first.runs > 0
    assert len(bisection.earlier_rounds) == len({number for number, *_ in first.results})
    assert min(number for number, *_ in second.results) == 0
    assert names(bisection) == [[3], [5]]
    assert second.runs < whole.runs


def test_a_complete_bisection_runs_nothing_again() -> None:
    losses = added({3: 0.06, 5: 0.06})
    first = SimulatedMachine(losses)
    bisected(first)
    second = SimulatedMachine(losses, earlier=first.results)

    assert names(bisected(second)) == [[3], [5]]
    assert second.runs == 0


@hypothesis.given(
    strategies.lists(strategies.integers(0, 7), unique=True, max_size=3),
    strategies.lists(strategies.frozensets(strategies.integers(0, 6), max_size=2), min_size=8, max_size=8),
)
def test_every_combination_has_what_it_needs_and_the_loss_is_recovered(
    culprits: list[int], drawn: list[Combination]
) -> None:
    needs = [frozenset(other for other in others if other < number) for number, others in enumerate(drawn)]
    machine = SimulatedMachine(added(dict.fromkeys(culprits, 0.06)), seed=len(culprits), deviation=0.001)
    bisection = bisected(machine, needs)

    assert all(needs[difference] <= combination for combination in machine.arms for difference in combination)
    assert names(bisection) == [[number] for number in sorted(culprits)]
    assert bisection.is_recovered or not culprits


@pytest.mark.parametrize(
    ("failure", "other", "same"),
    [
        ("killed after 120 seconds", "killed after 122.437 seconds", True),
        ("<object at 0x7f31>", "<object at 0x1a2b>", True),
        ("ImportError: a", "ImportError: b", False),
    ],
)
def test_failures_are_the_same_whatever_their_numbers_are(failure: str, other: str, same: bool) -> None:
    assert is_same_failure(failure, other) is same


def project(
    machine: SimulatedMachine, number: int = 4, budget: float = 5_000, recalled_seconds: float = 0.0
) -> ProjectBisection:
    """Return a bisection of packages `p0`, `p1` and so on, on a simulated machine."""
    stacks = [end({f"p{n}": version for n in range(number)}, settings={"threads": 2}) for version in "12"]
    computer: Any = SimpleNamespace(
        hardware=replace(MACHINE, memory_bytes=25_197_568_000),
        program=SimpleNamespace(text="`python bench.py`"),
        block=SimpleNamespace(name="block"),
        disturbance=None,
        is_over_time=False,
        recalled_seconds=recalled_seconds,
        check_limits=lambda *_: None,
        seconds_of=machine.seconds_of,
        timeout_seconds=lambda arm, *, is_first: 120.0 if is_first else 30.0,
    )
    stacks_pair = pair(stacks[0], replace(stacks[1], name="requirements.txt", settings={}))
    bisection = Bisection(needs=stacks_pair.needs, laboratory=machine, add=machine.arms.append, budget_seconds=budget)
    return ProjectBisection(pair=stacks_pair, machine=computer, bisection=bisection)


def report(result: ProjectBisection) -> str:
    result.run(lambda *_: None)
    return bisection_text(result, Layout(width=1000))


def test_the_shares_of_two_culprits_add_up() -> None:
    result = project(SimulatedMachine(added({0: math.log(1.3), 2: math.log(1.15)})))
    text = report(result)

    assert [culprit.share for culprit in result.culprits] == pytest.approx([0.65, 0.35], abs=0.015)
    assert re.search(r"p0 1 -> 2 +explains 6[56] % of the loss: (29|30)\.\d % slower \[", text)
    assert [c["share"] for c in bisection_json(result)["culprits"]] == [c.share for c in result.culprits]


def test_a_loss_by_a_factor_is_a_factor() -> None:
    losses = [Ratio(mean=math.log(speedup), variance=1e-4) for speedup in (1.99, 7.75)]

    assert [slowdown_text(loss, "good") for loss in losses] == [
        "99.0 % slower than good [95.1, 102.9]",
        "7.75 times as slow as good [7.60, 7.90]",
    ]


@pytest.mark.parametrize(
    ("loss", "shares", "reason"),
    [
        (lambda c: 0.08 if c & {0, 2} else 0.0, [1, 1], f"together {GAIN}, or {HIDING}"),
        (added({0: 0.2, 1: 0.1, 3: -0.15}), [1.33, 0.67], f"together {GAIN}, or {HIDING}"),
        (added({0: 0.2, 3: -0.15}), [4], f" {GAIN}\n"),
    ],
)
def test_culprits_that_cost_more_than_the_loss_have_no_shares_in_the_text(
    loss: Callable[[Combination], float], shares: list[float], reason: str
) -> None:
    result = project(SimulatedMachine(loss))
    text = report(result)

    assert [c["share"] for c in bisection_json(result)["culprits"]] == pytest.approx(shares, rel=0.1)
    for document in (text, bisection_markdown(result)):
        assert reason in document
        assert "of the loss: " not in document


def test_noise_adds_little_to_a_share() -> None:
    texts = [report(project(SimulatedMachine(added({2: 0.06}), seed))) for seed in range(8)]
    percents = [int(percent) for text in texts for percent in re.findall(r"explains (\d+) % of the loss", text)]

    # A share of more than 110 % is not in the text.
    assert len(percents) >= 7
    assert max(percents) > 100


def test_a_share_that_noise_makes_much_larger_than_the_loss_is_not_in_the_text() -> None:
    results = [project(SimulatedMachine(added({0: 0.03, 3: -0.015}), seed)) for seed in range(6)]
    texts = [report(result) for result in results]

    larger = ["of the loss" in text for result, text in zip(results, texts, strict=True) if not result.has_shares]
    assert larger
    assert not any(larger)


@pytest.mark.parametrize(("variance", "is_more"), [(1e-4, False), (1e-6, True)])
def test_culprits_cost_more_than_the_loss_only_if_that_is_certain(
    variance: float, is_more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    culprit = Culprit(differences=(), slowdown=Ratio(mean=0.06, variance=variance), share=1.2)
    monkeypatch.setattr(ProjectBisection, "slowdown", Ratio(mean=0.05, variance=1e-6))
    monkeypatch.setattr(ProjectBisection, "culprits", (culprit,))

    assert project(SimulatedMachine(added({}))).exceeds_loss is is_more


def test_the_rounds_and_minutes_of_earlier_bisections_count() -> None:
    first = SimulatedMachine(added({3: 0.06}))
    result = project(first)
    report(result)
    again = project(SimulatedMachine(added({3: 0.06}), earlier=first.results), recalled_seconds=300.0)
    text = report(again)

    assert again.bisection.rounds == 0
    assert again.rounds == result.rounds > 0
    assert f"{result.rounds} rounds, 5.0 minutes" in text
    assert bisection_json(again)["minutes"] == pytest.approx(5, abs=0.2)


def test_a_stack_that_hangs_until_the_end_of_the_time_is_named() -> None:
    machine = SimulatedMachine(added({3: 0.06}))

    def hang(combination: Combination) -> str:
        if len(combination) != 2:
            return ""
        machine.runs += 100
        return "killed after 100 seconds"

    machine.failure = hang
    result = project(machine, budget=100)
    text = report(result)

    assert "the time is over: it needs about 5 more minutes; the same command continues" in text
    assert "`good with p0==2 p1==2` failed, which is not certain yet: killed after 100 seconds" in text
    assert "p1==2` failed, which is not certain yet" in bisection_markdown(result)
    assert bisection_json(result)["unconfirmed"] == [
        {"stack": "good with p0==2 p1==2", "failure": "killed after 100 seconds"}
    ]


def test_a_failure_that_a_second_run_does_not_confirm_is_not_listed() -> None:
    machine = SimulatedMachine(added({3: 0.06}))
    machine.failure = lambda c: "crash" if machine.runs == 9 else ""
    result = project(machine)

    assert "crash" not in report(result)
    assert not result.unconfirmed


def test_the_report_says_that_good_began_to_fail() -> None:
    machine = SimulatedMachine(added({3: 0.06}))
    machine.failure = lambda c: "no space" if machine.runs > 25 else ""
    result = project(machine)
    text = report(result)

    assert "the program began to fail with good; the same command continues" in text
    assert "`good` does not run: no space" in text
    assert "more minute" not in text
    issue = bisection_markdown(result)
    assert "- the program began to fail with good\n- `good` does not run: no space\n" in issue
    assert "the same command" not in issue


def test_good_that_fails_before_anything_is_certain_is_refused() -> None:
    machine = SimulatedMachine(added({}))
    machine.failure = lambda c: "no space" if machine.runs > 3 else ""

    with pytest.raises(InputError, match="the program fails with the good stack, `lock`: no space"):
        project(machine).run(lambda *_: None)


def test_a_budget_in_which_the_bad_stack_cannot_run_is_refused() -> None:
    machine = SimulatedMachine(added({}), earlier=[(number, frozenset(), False, 1.0) for number in range(4)])
    machine.seconds_of = lambda arm: 1.0 if arm == 0 else 10.5  # type: ignore[method-assign]
    result = project(machine, budget=8)

    with pytest.raises(InputError, match=r"the next takes 1.0 s \(good\) or 10.5 s \(bad\)") as error:
        result.run(lambda *_: None)

    assert "`--budget 1m`" in error.value.hint


def test_a_bad_stack_that_hangs_longer_than_the_budget_is_named() -> None:
    machine = SimulatedMachine(added({}), failure=lambda c: "killed after 120 seconds" if c else "")

    with pytest.raises(InputError, match="fails with the bad stack, `requirements.txt`: killed after 120 s") as error:
        project(machine, budget=3).run(lambda *_: None)

    # Five differences: log2(6) + 1 failing stacks, twice two minutes each.
    assert "`--budget 15m`" in error.value.hint


def test_a_failure_after_the_verdict_is_listed_and_is_not_the_verdict() -> None:
    machine = SimulatedMachine(added({3: 0.06}))
    result = project(machine)
    machine.failure = lambda c: "crash" if c == result.bisection.bad and result.bisection.verdict == "slower" else ""
    text = report(result)

    assert (result.bisection.verdict, result.failure) == ("slower", "")
    assert "`bad` does not run: crash" in text
    assert ": the program is slower\n" in bisection_markdown(result)


def test_the_text_for_an_issue_has_both_versions_of_every_difference() -> None:
    result = project(SimulatedMachine(added({3: 0.06})))
    report(result)
    lines = bisection_markdown(result).splitlines()

    assert "- good: lock: Python 3.11, 4 packages, threads=2" in lines
    assert "- bad: requirements.txt: Python 3.11, 4 packages" in lines
    assert {"| p0 | 1 | 2 |", "| p3 | 1 | 2 |", "| threads | 2 | absent |"} <= set(lines)
    assert "- memory: 23.47 GiB" in lines


def test_a_run_is_killed_after_a_multiple_of_the_time_of_the_reference() -> None:
    laboratory = object.__new__(MachineLaboratory)
    laboratory.block = Block(name="b", arms=(), rounds=1, hardware=MACHINE, timeout_seconds=600)
    laboratory.slowest, laboratory._seconds, laboratory._recalled_seconds = 20, {}, {}
    seconds = [laboratory.timeout_seconds(1, is_first=False)]
    for earlier, here in ((None, 1.0), (None, 4.01), (4.0, None), (1.0, 4.0)):
        laboratory._recalled_seconds = {} if earlier is None else {0: earlier}
        laboratory._seconds = {} if here is None else {0: here}
        seconds += [laboratory.timeout_seconds(1, is_first=is_first) for is_first in (False, True)]

    assert seconds == [600, 30, 120, 81, 120, 80, 120, 80, 120]
    # Caches may have been emptied since an earlier run of the reference.
    laboratory._recalled_seconds, laboratory._seconds = {0: 4.0}, {}
    assert laboratory.timeout_seconds(0, is_first=True) == 600


def test_the_next_run_takes_as_long_as_in_an_earlier_experiment() -> None:
    laboratory = object.__new__(MachineLaboratory)
    stacks = pair(end({"a": "1"}), end({"a": "2"}))
    laboratory.arms = [stacks.arm(frozenset()), stacks.arm(frozenset({0}))]
    laboratory._seconds, laboratory._recalled_seconds = {}, {}
    unknown = laboratory.seconds_of(0)
    laboratory._recalled_seconds = {0: 0.5}

    assert unknown >= 20
    # The first run in a process fills caches.
    assert laboratory.seconds_of(0) == 1
    laboratory._recalled_seconds = {0: 30, 1: 1}
    assert [laboratory.seconds_of(arm) for arm in (0, 1)] == [60, 2]

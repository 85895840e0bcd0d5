"""The statistics of experiments: intervals that hold at all times, decisions, and the choice of the next arms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from advisor.experiment.arms import ExperimentArm
from advisor.experiment.belief import prior_belief
from advisor.experiment.change import Change
from advisor.experiment.decision import Race
from advisor.experiment.experiment import CONTROL, REFERENCE, ArmRun, Experiment, Laboratory, Plan
from advisor.experiment.paired_runs import PairedRuns, anytime_quantile
from advisor.experiment.result import arm_results
from advisor.resolve.candidates.problem import NO_PACKAGES
from knowledge.domain.ratio import Ratio


def test_ratios_and_their_spread_are_those_of_least_squares_with_rounds() -> None:
    random = np.random.default_rng(1)
    rounds = [(0, 1, 2), (0, 2), (0, 1, 3), (1, 3), (0, 1, 2, 3)]
    runs, rows, values = PairedRuns(), [], []
    for number, arms in enumerate(rounds):
        level = random.normal()
        for arm in arms:
            seconds = math.exp(level + 0.1 * arm + random.normal(0, 0.05))
            runs.add(number, arm, seconds)
            rows.append([float(number == r) for r in range(len(rounds))] + [float(arm == a) for a in (1, 2, 3)])
            values.append(math.log(seconds))

    fit = runs.fit()

    # The same model, written out: a column for each round, and one for each arm but the first.
    design, y = np.array(rows), np.array(values)
    solution, residual, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    assert fit.degrees == len(values) - rank
    assert fit.logarithms == pytest.approx([0.0, *(-solution[len(rounds) :])])
    assert fit.variance == pytest.approx(residual[0] / fit.degrees)
    covariance = np.linalg.inv(design.T @ design)[len(rounds) :, len(rounds) :]
    assert (fit.influence.T @ fit.influence)[1:, 1:] == pytest.approx(covariance)
    # The degrees of freedom of the arms add up to those of all runs.
    assert fit.own_degrees.sum() == pytest.approx(fit.degrees)


def test_the_interval_is_where_the_bayes_factor_of_the_paper_reaches_the_inverse_error() -> None:
    # Lindon et al. 2022: a mixture of densities over the density at the hypothesis, the variance integrated out.
    spread, degrees, error, mixture = 2 / 7, 9, 0.01, 25.0
    t = anytime_quantile(spread, degrees, error=error)

    ratio = spread / (spread + mixture)
    power = (degrees + 1) / 2
    factor = math.sqrt(ratio) * ((1 + t**2 / degrees) / (1 + ratio * t**2 / degrees)) ** power
    assert factor == pytest.approx(1 / error)


def test_an_interval_rarely_ever_misses_the_truth_however_long_one_looks() -> None:
    misses, experiments = 0, 200
    for seed in range(experiments):
        random, runs = np.random.default_rng(seed), PairedRuns()
        for number in range(30):
            for arm in (0, 1, 2):
                runs.add(number, arm, math.exp(random.normal(0, 0.01)))
            fit = runs.fit()
            if abs(fit.difference(1, 0)) > fit.half_width(1, 0, error=0.05):
                misses += 1
                break

    # 200 experiments that each miss with probability 0.05 miss more than 19 times with probability 0.003.
    assert misses <= 19
    # An interval for a fixed number of rounds would miss in about a third of them.
    assert misses < experiments / 10


@pytest.mark.parametrize("rounds", [1, 2, 8])
def test_runs_without_any_spread_are_not_more_certain_than_their_number(rounds: int) -> None:
    arms = [(), (_change("a"),)]
    race = Race(tolerance=0.02, changes=arms, most_arms=2)
    for number in range(rounds):
        race.runs.add(number, 0, 0.5)
        race.runs.add(number, 1, 0.3)

    decision, ratio = race.decide(prior_belief(arms)), race.runs.fit().ratio(1, 0, error=0.05)

    if rounds < 8:
        assert (decision.choice, decision.is_certain) == (0, False)
    else:
        assert (decision.choice, decision.is_certain) == (1, True)
        assert ratio is not None
        assert ratio.low < 0.5 / 0.3 < ratio.high


def test_arms_that_no_round_connects_are_not_compared() -> None:
    arms = [(), (_change("a"),), (_change("b"),), (_change("c"),)]
    race, random = Race(tolerance=0.02, changes=arms, most_arms=4), np.random.default_rng(0)
    for number in range(24):
        # Two arms ran twenty times without the reference, on which nothing is known about them.
        for arm, seconds in ((1, 0.8), (2, 0.8)) if number < 20 else ((0, 1.0), (3, 1.0)):
            race.runs.add(number, arm, seconds * math.exp(random.normal(0, 0.002)))

    decision, fit = race.decide(prior_belief(arms)), race.runs.fit()

    assert {1, 2} <= set(decision.open)
    assert fit.half_width(1, 0, error=0.05) == math.inf
    assert fit.half_width(1, 2, error=0.05) < 0.01
    # One round that has both connects them.
    race.runs.add(24, 0, 1.0)
    race.runs.add(24, 1, 0.8)
    connected = race.runs.fit()
    assert connected.half_width(2, 3, error=0.05) < 0.05
    assert connected.difference(2, 3) == pytest.approx(-math.log(0.8), abs=0.01)
    assert connected.degrees == fit.degrees


def test_the_reference_stays_unless_another_arm_is_certainly_faster() -> None:
    arms = [(), (_change("a"),), (_change("b"),)]
    race, belief = Race(tolerance=0.02, changes=arms, most_arms=3), prior_belief(arms)
    for number in range(4):
        for arm, seconds in enumerate((1.0, 1.0 + 0.001 * number, 0.8 + 0.001 * number)):
            race.runs.add(number, arm, seconds)

    decision = race.decide(belief)

    assert (decision.choice, decision.is_certain) == (2, True)
    assert {0, 1} <= race.dropped


def test_the_last_look_chooses_a_gain_that_is_not_certain_at_all_times_and_no_smaller_one() -> None:
    arms = [(), (_change("gain"),), (_change("small"),), (_change("unclear"),)]
    race, belief, random = (
        Race(tolerance=0.02, changes=arms, most_arms=16),
        prior_belief(arms),
        np.random.default_rng(6),
    )
    for number in range(6):
        for arm, gain in enumerate((0.0, 0.045, 0.0, 0.0)):
            race.runs.add(number, arm, math.exp(random.normal(-gain, 0.018)))

    assert race.decide(belief).choice == 0
    last = race.last_decision(belief)
    assert (last.choice, set(last.open)) == (1, {2})
    assert last.ratio is not None
    assert last.ratio.low > 1
    # A combination that is faster by less than the tolerance has a change too many.
    arms.append((*arms[1], *arms[2]))
    for number in range(6, 12):
        for arm, gain in ((0, 0.0), (1, 0.045), (4, 0.055)):
            race.runs.add(number, arm, math.exp(random.normal(-gain, 0.018)))
    assert race.last_decision(prior_belief(arms)).choice == 1


@pytest.mark.parametrize("noises", [(0.02, 0.02), (0.005, 0.02), (0.02, 0.005)])
def test_the_last_look_rarely_chooses_one_of_many_equal_arms(noises: Sequence[float]) -> None:
    arms = [(), *((_change(str(number)),) for number in range(12))]
    belief, changed = prior_belief(arms), 0
    for seed in range(200):
        race, random = Race(tolerance=0.0, changes=arms, most_arms=24), np.random.default_rng(seed)
        for number in range(8):
            for arm in (0, *map(int, random.choice(range(1, 13), 3, replace=False))):
                race.runs.add(number, arm, math.exp(random.normal(0, noises[arm > 0])))
            race.runs.add(number, 0, math.exp(random.normal(0, noises[0])), is_second=True)
        changed += race.last_decision(belief).choice != 0

    # Of 200 experiments with an error of 0.02, more than 10 are wrong with probability 0.003.
    assert changed <= 10


def test_an_arm_with_more_noise_than_the_others_is_rarely_chosen() -> None:
    arms = [(), *((_change(str(number)),) for number in range(12))]
    belief, changed = prior_belief(arms), 0
    for seed in range(60):
        race, random = Race(tolerance=0.02, changes=arms, most_arms=24), np.random.default_rng(seed)
        # Eleven quiet arms say that runs are exact to 1 %, and then a new one has 10 %.
        for number in range(6):
            for arm in range(12):
                race.runs.add(number, arm, math.exp(random.normal(0, 0.01)))
        for number in range(6, 10):
            for arm, noise in ((0, 0.01), (1, 0.01), (12, 0.1)):
                race.runs.add(number, arm, math.exp(random.normal(0, noise)))
            if race.decide(belief).is_certain:
                break
        changed += race.last_decision(belief).choice != 0

    # Of 60 experiments with an error of 0.05, more than 8 are wrong with probability 0.004.
    assert changed <= 8


@pytest.mark.parametrize("seed", [2, 6, 12, 16, 18, 22, 27])
def test_a_faster_arm_with_more_noise_than_the_others_is_not_excluded_too_early(seed: int) -> None:
    """With one variance for all arms, these 7 of the first 30 seeds ended without it, some after one run of it."""

    class Machine(_Machine):
        """A machine on which the last arm has its own noise."""

        def run(self, round_number: int, arm: int) -> ArmRun:
            self.noise = 0.08 if arm == 3 else 0.01
            return super().run(round_number, arm)

    experiment = _experiment(Machine([0.0, 0.0, 0.06], seed=seed), *["exact"] * 3)

    assert (experiment.ending, experiment.decision.choice) == ("certain", 3)


def test_the_variance_of_each_arm_is_known_after_many_runs() -> None:
    deviations, random, runs = (0.01, 0.01, 0.03, 0.08), np.random.default_rng(4), PairedRuns()
    for number in range(200):
        # The noisiest arm leaves a part of its noise in the level of each round, and so in the other arms.
        for arm, deviation in enumerate(deviations):
            runs.add(number, arm, math.exp(random.normal(0, deviation)))
        runs.add(number, 0, math.exp(random.normal(0, deviations[0])), is_second=True)

    fit = runs.fit()

    assert fit.own_variances[2:] == pytest.approx(np.square(deviations)[2:], rel=0.2)
    # Small variances are less exact, because the noise of the other arms is subtracted.
    assert fit.own_variances[:2] == pytest.approx(np.square(deviations)[:2], rel=0.8)


def test_what_is_left_of_the_noise_of_each_arm_is_that_of_least_squares() -> None:
    random, runs = np.random.default_rng(5), PairedRuns()
    rows: list[list[float]] = []
    owners: list[int] = []
    values: list[float] = []
    for number in range(8):
        for arm, is_second in [(int(arm), False) for arm in random.choice(4, 3, replace=False)] + [
            (4, False),
            (4, True),
        ]:
            values.append(random.normal(0, 0.01 * (1 + arm)))
            runs.add(number, arm, math.exp(values[-1]), is_second=is_second)
            rows.append([float(number == r) for r in range(8)] + [float(arm == a) for a in range(1, 5)])
            owners.append(arm)

    fit = runs.fit()

    # The same with all runs at once: residuals are a projection of the noise, and their squares a sum of variances.
    design, places = np.array(rows), np.eye(5)[owners]
    residual = np.eye(len(rows)) - design @ np.linalg.pinv(design)
    remainders = places.T @ residual**2 @ places
    assert fit.own_degrees == pytest.approx(remainders.sum(axis=1))
    squares = places.T @ (residual @ np.array(values)) ** 2 + 3 * fit.variance
    assert fit.own_variances == pytest.approx(np.linalg.solve(remainders + 3 * np.eye(5), squares))


def test_the_test_of_one_look_is_students_paired_test() -> None:
    random, runs, seconds = np.random.default_rng(2), PairedRuns(), np.empty((2, 6))
    for number in range(6):
        for arm in (0, 1):
            seconds[arm, number] = random.normal(1 - 0.1 * arm, 0.02)
            runs.add(number, arm, seconds[arm, number])

    ratio = runs.fit().ratio_now(1, 0, error=0.02)

    logarithms = np.log(seconds)
    test = stats.ttest_rel(logarithms[0], logarithms[1])
    interval = test.confidence_interval(0.96)
    assert ratio is not None
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    # One round says nothing about the noise of an arm.
    runs.add(6, 0, 1.0)
    runs.add(6, 2, 0.9)
    assert runs.fit().ratio_now(2, 0, error=0.02) is None


def test_the_variance_of_all_runs_has_a_small_weight_in_that_of_an_arm() -> None:
    random, runs = np.random.default_rng(3), PairedRuns()
    logarithms = random.normal(0, [[0.01]] * 11 + [[0.1]], (12, 3))
    for number in range(3):
        for arm in range(12):
            runs.add(number, arm, math.exp(logarithms[arm, number]))

    fit = runs.fit()

    # What is left without the arms' means and the rounds' is as in an analysis of variance.
    rest = logarithms - logarithms.mean(axis=0) - logarithms.mean(axis=1)[:, None] + logarithms.mean()
    degrees = 2 * 11 / 12
    assert fit.variance == pytest.approx((rest**2).sum() / 22)
    assert fit.own_degrees == pytest.approx([degrees] * 12)
    # Of three rounds two degrees are left, in which each arm has squared weights of its own noise and that of others.
    remainders = 2 * (np.eye(12) - 1 / 12) ** 2
    own = np.linalg.solve(remainders + 3 * np.eye(12), (rest**2).sum(axis=1) + 3 * fit.variance)
    assert fit.own_variances == pytest.approx(own)
    # Of a difference, each arm has half of the squares, but for the small parts of other arms.
    noisy = fit.ratio_now(11, 0, error=0.02)
    assert noisy is not None
    assert noisy.variance == pytest.approx((own[11] + own[0]) / 3)
    welch = (own[11] + own[0]) ** 2 / ((own[11] ** 2 + own[0] ** 2) / (degrees + 3))
    assert noisy.quantile == pytest.approx(stats.t.ppf(0.98, welch))


def test_a_second_run_of_the_reference_counts_as_one_of_its_runs() -> None:
    runs, random = PairedRuns(), np.random.default_rng(1)
    for number in range(10):
        for arm in (0, 1):
            runs.add(number, arm, math.exp(random.normal(0, 0.01)))
    once = runs.fit()
    for number in range(10):
        runs.add(number, 0, math.exp(random.normal(0, 0.01)), is_second=True)
    twice = runs.fit()

    # The spread of a difference is 1 + 1/2 runs instead of 1 + 1, in each of ten rounds.
    assert np.square(once.influence[:, 1]).sum() == pytest.approx(2 / 10)
    assert np.square(twice.influence[:, 1]).sum() == pytest.approx(1.5 / 10)
    assert (once.degrees, twice.degrees) == (9, 19)


def test_the_end_of_the_time_chooses_what_the_last_look_shows() -> None:
    machine = _Machine([0.02, 0, 0])
    experiment = _experiment(machine, *["exact"] * 3, minutes=2)

    assert (experiment.ending, experiment.race.decide(experiment.belief()).choice) == ("time", REFERENCE)
    assert experiment.decision.choice == 1
    choice, _ = arm_results(experiment, [ExperimentArm(changes=own, stack=NO_PACKAGES) for own in experiment.arms])
    assert choice.ratio is not None
    assert 1 < choice.ratio.low < choice.ratio.speedup < choice.ratio.high
    # The reference ran twice in every second round, and all of these runs count, also those of the unfinished round.
    degrees = experiment.race.runs.fit().degrees
    assert degrees == len(machine.ran) - (experiment.rounds + 1) - 3
    assert machine.ran.count(CONTROL) == 2


def test_the_noise_is_not_known_from_few_runs() -> None:
    assert _experiment(_Machine([0.0]), "exact", minutes=0.5).noise is None
    assert _experiment(_Machine([0.0]), "exact", minutes=20).noise


def test_a_change_that_adds_nothing_is_not_a_part_of_the_choice() -> None:
    gain, nothing = _change("gain"), _change("nothing")
    arms = [(), (gain,), (gain, nothing)]
    race = Race(tolerance=0.02, changes=arms, most_arms=3)
    for number in range(8):
        for arm, seconds in enumerate((1.0, 0.801 + 0.004 * (number % 2), 0.804 - 0.004 * (number % 2))):
            race.runs.add(number, arm, seconds)

    decision = race.decide(prior_belief(arms))

    assert (decision.choice, decision.is_certain) == (1, True)


def test_a_change_that_seems_to_add_little_is_left_out_unless_only_the_arm_with_it_is_certain_at_the_end() -> None:
    gain, little = _change("gain"), _change("little")
    arms = [(), (gain,), (little,), (gain, little)]
    race = Race(tolerance=0.02, changes=arms, most_arms=4)
    for number in range(10):
        shift = 0.006 if number % 2 else -0.006
        for arm, logarithm in enumerate((0.0, 0.1 - shift, 0.0, 0.111 + shift)):
            race.runs.add(number, arm, math.exp(-logarithm))

    decision = race.decide(prior_belief(arms))
    assert (decision.choice, set(decision.open)) == (1, {3})
    last = race.last_decision(prior_belief(arms))
    assert (last.choice, last.is_certain) == (3, True)


def test_the_fastest_of_the_arms_with_equally_few_changes_is_chosen() -> None:
    first, second = _change("first"), _change("second")
    arms = [(), (first,), (second,), (first, second)]
    race = Race(tolerance=0.02, changes=arms, most_arms=4)
    for number in range(8):
        shift = 0.006 if number % 2 else -0.006
        for arm, logarithm in enumerate((0.0, 0.092 + shift, 0.098 - shift, 0.1 + shift)):
            race.runs.add(number, arm, math.exp(-logarithm))

    assert race.decide(prior_belief(arms)).choice == 2


def test_an_arm_that_is_improbably_better_need_not_run() -> None:
    hopeless, unknown = _change("hopeless", mean=-0.5, deviation=0.05), _change("unknown")
    arms = [(), (hopeless,), (unknown,)]
    race = Race(tolerance=0.02, changes=arms, most_arms=3)
    for number in range(6):
        race.runs.add(number, 0, 1.0 + 0.002 * (number % 2))

    decision = race.decide(prior_belief(arms))

    assert decision.set_aside == {1}
    assert set(decision.open) == {2}
    assert not decision.is_certain


def test_what_one_release_gains_says_something_about_the_others() -> None:
    first, second, other = (Change(name=name, value=value) for name, value in (("a", 1), ("a", 2), ("b", 1)))
    runs = PairedRuns()
    for number in range(6):
        runs.add(number, 0, 1.0)
        runs.add(number, 1, 0.9 + 0.001 * (number % 2))

    belief = prior_belief([(), (first,), (second,), (other,)]).after(runs.fit(), 0.001**2)

    # The mean of a normal distribution, given another one with the correlation 0.3, and no other information.
    assert belief.mean[1:] == pytest.approx([runs.fit().logarithms[1], 0.3 * belief.mean[1], 0], rel=0.01)


class _Machine(Laboratory):
    """A machine on which changes have true gains; some arms fail."""

    def __init__(self, gains: Sequence[float], *, seed: int = 0, failing: Sequence[int] = ()) -> None:
        self.random = np.random.default_rng(seed)
        self.gains = [0.0, *gains]
        self.failing = failing
        self.noise = 0.005
        self.time = 0.0
        self.ran: list[int] = []

    def run(self, round_number: int, arm: int) -> ArmRun:
        self.time += 10
        self.ran.append(arm)
        if arm in self.failing:
            return ArmRun(seconds=None, failure="it crashes")
        return ArmRun(seconds=math.exp(-self.gains[max(arm, REFERENCE)] + self.random.normal(0, self.noise)))

    def seconds_of(self, arm: int) -> float:
        return 10.0

    def combine(self, changes: Sequence[Change]) -> bool:
        self.gains.append(sum(self.gains[int(change.name)] for change in changes))
        return True

    def now(self) -> float:
        return self.time


def _change(name: str, *, mean: float = 0.0, deviation: float = 0.06, numerics: str = "exact") -> Change:
    gain = Ratio(mean=mean, variance=deviation**2)
    return Change(name=name, value="on", is_setting=True, numerics=numerics, gain=gain)  # type: ignore[arg-type]


def _experiment(machine: _Machine, *numerics: str, minutes: float = 60) -> Experiment:
    arms: list[tuple[Change, ...]] = [(), *((_change(str(n), numerics=kind),) for n, kind in enumerate(numerics, 1))]
    experiment = Experiment(plan=Plan(budget_seconds=60 * minutes), arms=arms, laboratory=machine)
    experiment.run()
    return experiment


def test_changes_that_gain_alone_are_combined_and_the_combination_is_measured() -> None:
    machine = _Machine([0.1, 0.0, 0.2])
    experiment = _experiment(machine, "exact", "exact", "exact")

    assert [change.name for change in experiment.arms[experiment.decision.choice]] == ["3", "1"]
    assert experiment.ending == "certain"
    ratio = experiment.ratio(experiment.decision.choice)
    assert ratio is not None
    assert ratio.low < math.exp(0.3) < ratio.high


def test_changes_that_are_too_small_alone_are_tried_with_a_large_one() -> None:
    machine = _Machine([0.7, 0.05, 0.04, -0.05])
    arms: list[tuple[Change, ...]] = [(), (_change("1", mean=0.7, deviation=0.01),)]
    arms += [(_change(str(number)),) for number in (2, 3, 4)]
    experiment = Experiment(plan=Plan(budget_seconds=3600), arms=arms, laboratory=machine)
    experiment.run()

    assert sorted(change.name for change in experiment.arms[experiment.decision.choice]) == ["1", "2", "3"]
    assert experiment.ending == "certain"


def test_the_reference_rarely_runs_once_it_is_certainly_slower_and_its_control_continues() -> None:
    machine = _Machine([2.0, 2.0])
    machine.noise = 0.03
    # Two values of one setting cannot be combined.
    arms: list[tuple[Change, ...]] = [(), *((replace(_change("1"), value=value),) for value in (1, 2))]
    experiment = Experiment(plan=Plan(budget_seconds=36000), arms=arms, laboratory=machine)
    experiment.run()

    assert (experiment.ending, bool(experiment.decision.choice)) == ("certain", True)
    late = machine.ran[len(machine.ran) // 2 :]
    share = late.count(REFERENCE) * len(machine.ran) / len(late) / experiment.rounds
    assert share == pytest.approx(1 / 4, abs=0.05)
    assert late.count(REFERENCE) == pytest.approx(late.count(CONTROL), abs=1)
    assert experiment.counts[REFERENCE] < experiment.race.runs.rounds == experiment.rounds


@pytest.mark.parametrize("seed", range(3, 7))
def test_a_reference_that_is_the_choice_again_runs_in_each_round(seed: int) -> None:
    class Disturbed(_Machine):
        """A machine that becomes noisy after it showed that the arms are faster."""

        def run(self, round_number: int, arm: int) -> ArmRun:
            self.noise = 0.004 if round_number < 5 else 0.05
            run = super().run(round_number, arm)
            by_round.setdefault(round_number, set()).add(arm)
            return run

    by_round: dict[int, set[int]] = {}
    arms: list[tuple[Change, ...]] = [(), *((replace(_change("1"), value=value),) for value in range(4))]
    machine = Disturbed([0.03] * 4, seed=seed)
    experiment = Experiment(plan=Plan(budget_seconds=1500), arms=arms, laboratory=machine)
    choices: dict[int, tuple[int, bool]] = {}
    experiment.notify = lambda number, _: choices.update(
        {number: (experiment.decision.choice, REFERENCE in experiment.race.dropped)}
    )
    experiment.run()

    # It was not certain before the noise.
    assert len(choices) > 10
    assert (REFERENCE, True) not in choices.values()
    # The last round can end early.
    complete = [number for number in by_round if number < experiment.rounds]
    assert all(REFERENCE in by_round[number] for number in complete if choices[number][0] == REFERENCE)
    assert min(len(by_round[number]) for number in complete) > 1


def test_equal_results_are_tried_before_other_orders_and_reduced_precision_last() -> None:
    machine = _Machine([0.0, 0.0, 0.0])
    _experiment(machine, "reduced", "exact", "reordered")

    first = [machine.ran.index(arm) for arm in (2, 3, 1)]
    assert first == sorted(first)


def test_an_arm_that_can_gain_much_need_not_wait_long_for_those_that_come_first() -> None:
    machine = _Machine([0.0] * 4, seed=3)
    machine.noise = 0.03
    changes = (
        _change("1", deviation=0.3, numerics="reordered"),
        _change("2"),
        _change("3"),
        _change("4", mean=-0.02, deviation=0.02),
    )
    arms = [(), *((change,) for change in changes)]
    Experiment(plan=Plan(budget_seconds=3600), arms=arms, laboratory=machine).run()

    assert machine.ran.index(4) < machine.ran.index(1) < 12


def test_a_failing_arm_is_dropped_and_a_failing_reference_ends_the_experiment() -> None:
    experiment = _experiment(_Machine([0.0, 0.1], failing=[1]), "exact", "exact")
    assert experiment.failures == {1: "it crashes"}
    assert experiment.decision.choice == 2

    failed = _experiment(_Machine([0.1], failing=[0]), "exact")
    assert (failed.ending, failed.failures[REFERENCE]) == ("failed", "it crashes")


def test_a_failure_of_the_reference_after_good_rounds_does_not_end_the_experiment() -> None:
    class Machine(_Machine):
        def run(self, round_number: int, arm: int) -> ArmRun:
            run = super().run(round_number, arm)
            hangs = arm == REFERENCE and self.ran.count(REFERENCE) == 3
            return ArmRun(seconds=None, failure="it hangs") if hangs else run

    experiment = _experiment(Machine([0.1, 0.0]), "exact", "exact")

    experiment.run()

    assert (experiment.ending, experiment.decision.choice) == ("certain", 1)
    assert experiment.disturbance == "it hangs"


def test_arms_that_were_slower_than_a_choice_that_fails_can_be_chosen() -> None:
    experiment = Experiment(
        plan=Plan(budget_seconds=3600), arms=[(), *((_change(name),) for name in "abc")], laboratory=_Machine([])
    )
    for number in range(16):
        for arm, seconds in ((0, 1.0), (1, 0.9), (2, 0.8)) if number < 8 else ((0, 1.0), (3, 1.05)):
            experiment.record(number, arm, ArmRun(seconds=seconds + 0.004 * (number % 2)))
    assert experiment.last_decision().choice == 2
    assert experiment.race.dropped == {0, 1, 3}

    experiment.record(16, 2, ArmRun(seconds=None, failure="killed"))

    decision = experiment.last_decision()
    assert (decision.choice, decision.is_certain, experiment.race.dropped) == (1, True, {0, 2, 3})


def test_arms_that_were_slower_than_one_that_is_uncertain_now_are_open() -> None:
    random = np.random.default_rng(0)
    arms = [(), *((_change(name),) for name in "ab")]
    experiment = Experiment(plan=Plan(budget_seconds=3600), arms=arms, laboratory=_Machine([]))
    for number in range(8):
        for arm, gain in ((0, 0.0), (1, 0.1), (2, 0.2)):
            experiment.record(number, arm, ArmRun(seconds=math.exp(-gain + random.normal(0, 0.004))))
    assert experiment.last_decision().choice == 2
    assert experiment.race.dropped == {0, 1}

    for number in range(8, 16):
        for arm, gain, noise in ((0, 0.0, 0.004), (2, -0.2, 0.1)):
            experiment.record(number, arm, ArmRun(seconds=math.exp(-gain + random.normal(0, noise))))

    assert {1, 2} <= set(experiment.last_decision().open)
    assert not experiment.race.dropped


def test_changes_that_no_stack_has_are_not_combined_again() -> None:
    class Machine(_Machine):
        """A machine that has no stack with several changes."""

        def combine(self, changes: Sequence[Change]) -> bool:
            tried.append(frozenset(changes))
            return False

    tried: list[frozenset[Change]] = []
    experiment = _experiment(Machine([0.1, 0.2]), "exact", "exact")

    assert (experiment.ending, experiment.decision.choice) == ("certain", 2)
    assert len(tried) == len(set(tried)) == 1


def test_an_arm_that_cannot_be_tried_is_not_one_that_fails() -> None:
    class Machine(_Machine):
        def run(self, round_number: int, arm: int) -> ArmRun:
            return replace(super().run(round_number, arm), is_untried=arm == 2)

    experiment = _experiment(Machine([0.1, 0.3, 0.2], failing=[2, 3]), *["exact"] * 3)

    experiment.run()

    assert (experiment.decision.choice, set(experiment.failures), experiment.untried) == (1, {2, 3}, {2})


def test_the_end_of_the_time_leaves_arms_open_and_says_how_long_they_would_take() -> None:
    experiment = _experiment(_Machine([0.001, -0.001]), "exact", "exact", minutes=1.5)

    assert (experiment.ending, experiment.decision.choice) == ("time", REFERENCE)
    assert experiment.decision.open
    assert 30 < experiment.seconds_left() < 3600


@pytest.mark.slow
def test_of_two_hundred_projects_with_equal_arms_few_get_another_lock() -> None:
    changed = 0
    for seed in range(200):
        machine = _Machine([0.0] * 6, seed=seed)
        changed += _experiment(machine, *["exact"] * 6, minutes=30).decision.choice != REFERENCE

    assert changed <= 10

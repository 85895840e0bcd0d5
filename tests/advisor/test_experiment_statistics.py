"""The statistics of experiments: intervals that hold at all times, and decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from advisor.experiment.belief import Belief, prior_belief
from advisor.experiment.change import Change
from advisor.experiment.decision import Race
from advisor.experiment.experiment import REFERENCE
from advisor.experiment.paired_runs import PairedRuns, anytime_quantile
from tests.advisor.experiment_changes import change


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
    arms = [(), (change("a"),)]
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
    arms = [(), (change("a"),), (change("b"),), (change("c"),)]
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
    arms = [(), (change("a"),), (change("b"),)]
    race, belief = Race(tolerance=0.02, changes=arms, most_arms=3), prior_belief(arms)
    for number in range(4):
        for arm, seconds in enumerate((1.0, 1.0 + 0.001 * number, 0.8 + 0.001 * number)):
            race.runs.add(number, arm, seconds)

    decision = race.decide(belief)

    assert (decision.choice, decision.is_certain) == (2, True)
    assert {0, 1} <= race.dropped


def test_the_last_look_chooses_a_gain_that_is_not_certain_at_all_times_and_no_smaller_one() -> None:
    arms = [(), (change("gain"),), (change("small"),), (change("unclear"),)]
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
    arms = [(), *((change(str(number)),) for number in range(12))]
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
    arms = [(), *((change(str(number)),) for number in range(12))]
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


def test_a_change_that_adds_nothing_is_not_a_part_of_the_choice() -> None:
    gain, nothing = change("gain"), change("nothing")
    arms = [(), (gain,), (gain, nothing)]
    race = Race(tolerance=0.02, changes=arms, most_arms=3)
    for number in range(8):
        for arm, seconds in enumerate((1.0, 0.801 + 0.004 * (number % 2), 0.804 - 0.004 * (number % 2))):
            race.runs.add(number, arm, seconds)

    decision = race.decide(prior_belief(arms))

    assert (decision.choice, decision.is_certain) == (1, True)


def test_a_change_that_seems_to_add_little_is_left_out_unless_only_the_arm_with_it_is_certain_at_the_end() -> None:
    gain, little = change("gain"), change("little")
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
    first, second = change("first"), change("second")
    arms = [(), (first,), (second,), (first, second)]
    race = Race(tolerance=0.02, changes=arms, most_arms=4)
    for number in range(8):
        shift = 0.006 if number % 2 else -0.006
        for arm, logarithm in enumerate((0.0, 0.092 + shift, 0.098 - shift, 0.1 + shift)):
            race.runs.add(number, arm, math.exp(-logarithm))

    assert race.decide(prior_belief(arms)).choice == 2


def _race(
    logarithms: Sequence[float], changes: Sequence[str], *, shifts: Sequence[float], rounds: int
) -> tuple[Race, Belief]:
    """Return a race of arms with these speeds, which vary by the shifts, and what is expected; a letter is a change."""
    arms = [tuple(change(letter) for letter in text) for text in ("", *changes)]
    race = Race(tolerance=0.02, changes=arms, most_arms=len(arms))
    for number in range(rounds):
        sign = 1 if number % 2 else -1
        for arm, logarithm in enumerate((0.0, *logarithms)):
            shift = (0.0, *shifts)[arm]
            race.runs.add(number, arm, math.exp(-logarithm - sign * shift))
    return race, prior_belief(arms)


def test_at_the_end_the_simplest_certain_arm_is_chosen() -> None:
    race, belief = _race([0.085, 0.1, 0.101], ["a", "ab", "abc"], shifts=[0.012, -0.002, -0.002], rounds=8)

    decision = race.decide(belief)
    assert (decision.choice, decision.is_certain) == (1, False)
    last = race.last_decision(belief)
    assert (last.choice, last.is_certain) == (2, True)


def test_a_simpler_arm_without_a_part_of_the_fastest_arms_changes_is_not_chosen_instead() -> None:
    race, belief = _race([0.1, 0.11], ["a", "bc"], shifts=[0.004, -0.004], rounds=8)

    assert race.decide(belief).choice == 2


@pytest.mark.parametrize(("gain", "choice"), [(0.11, 1), (0.14, 2)])
def test_the_last_look_prefers_another_arm_to_a_certainly_faster_one_only_for_more_than_the_tolerance(
    gain: float, choice: int
) -> None:
    race, belief = _race([0.1, gain], ["a", "b"], shifts=[0.003, 0.12], rounds=10)

    assert race.decide(belief).choice == 1
    last = race.last_decision(belief)
    assert last.choice == choice
    assert (last.ratio is not None) == (choice == 2)


def test_a_certain_gain_below_the_tolerance_is_chosen() -> None:
    race, belief = _race([0.01], ["a"], shifts=[0.0005], rounds=12)

    assert race.decide(belief).choice == 1


def test_a_reference_that_the_last_look_shows_to_be_slower_is_not_open() -> None:
    race, belief = _race([0.04], ["a"], shifts=[0.04], rounds=8)

    assert race.decide(belief).choice == REFERENCE
    last = race.last_decision(belief)
    assert (last.choice, last.is_certain) == (1, True)
    assert last.ratio is not None


def test_an_arm_that_is_improbably_better_need_not_run() -> None:
    hopeless, unknown = change("hopeless", mean=-0.5, deviation=0.05), change("unknown")
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

"""Value of information: what measurements are expected to gain, and which are selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from knowledge.domain.ratio import Ratio
from knowledge.estimate.cases import Case
from knowledge.estimate.gain_model import GainModel
from knowledge.estimate.gain_space import Array
from knowledge.estimate.gain_terms import Blend, Pair, Variances, terms_of
from knowledge.estimate.information import DEFAULT, BlockCosts, CaseDecision, PossibleBlock, decide, select
from knowledge.estimate.programs import Program, program_of_run
from knowledge.evidence.contrasts import Contrast, Side
from tests.knowledge.contrasts import HERE, contrast, side

PLAIN, OLD = side("2.9.0"), side("2.8.0")
FAST = replace(PLAIN, settings={"allocator": "tcmalloc"})
VARIANCES = Variances(terms=dict.fromkeys(terms_of("cpu"), 0.05**2), label=2 * 0.01**2, arm=2 * 0.015**2, noise=1.0)
COSTS = BlockCosts(rounds=6, process_seconds=4.0, program_seconds=(1.0,) * 8, arm_seconds=(0.0,) * 8)


def program_of(c: Contrast) -> Program:
    return program_of_run(c.label, "model", flops=c.flops, bytes=c.flops / 20)


def measured(arm: Side, mean: float, *, flops: float = 1e10, block: str = "b") -> Contrast:
    """A ratio of a stack to the plain one, of a model with some operations in a step."""
    label = f"model@1[flops={flops:.0g},mode=training,model=encoder] float32 torch/cpu"
    number = 1 if arm == OLD else 2
    return replace(contrast(arm, PLAIN, mean, 0.01, label=label, block=block, arm=number), flops=flops)


def blend(flops: float) -> Blend:
    return ((1.0, program_of(measured(FAST, 0.0, flops=flops))),)


def decision(mean: float, weight: float = 1.0, *, subject: str = "compile") -> CaseDecision:
    """A choice between the default and one option, whose predicted gain is not positive."""
    gain = Ratio(mean=mean, variance=0.04)
    return CaseDecision(
        case=Case(workload="w", basis="", programs=(blend(1e9),)),
        subject=subject,
        gains={"on": gain},
        best=DEFAULT,
        rivals={"on": gain},
        sides={DEFAULT: PLAIN, "on": FAST},
        weight=weight,
    )


def block(
    decisions: Sequence[CaseDecision], joint: Array, *, programs: int = 1, costs: BlockCosts = COSTS
) -> PossibleBlock:
    """A block whose ratios have a joint covariance with the gains of the decisions, which are first."""
    number = len(decisions)
    arms = (len(joint) - number) // programs
    return PossibleBlock(
        cells={(arm, program): arm * programs + program for arm in range(arms) for program in range(programs)},
        costs=costs,
        decisions=decisions,
        across=joint[:number, number:],
        within=joint[number:, number:],
    )


def test_what_ratios_would_explain_is_what_they_explain_once_they_are_measured() -> None:
    earlier = [measured(OLD, 0.05), measured(FAST, 0.1, flops=1e8)]
    new = [measured(FAST, 0.0, flops=flops, block="new") for flops in (1e8, 1e10, 1e12)]
    new.append(measured(OLD, 0.0, block="new"))
    model = GainModel(earlier, program_of, VARIANCES)
    target = ((FAST, PLAIN), blend(3e9)[0][1], HERE)

    across, within = model.explained_by(new, [program_of(c) for c in new], [target])

    (before,) = model.predict([(FAST, PLAIN)], [blend(3e9)], HERE)
    (after,) = GainModel([*earlier, *new], program_of, VARIANCES).predict([(FAST, PLAIN)], [blend(3e9)], HERE)
    explained = across @ np.linalg.solve(within, across.T)
    assert before.variances[0] - explained[0, 0] == pytest.approx(after.variances[0], rel=1e-6)
    assert 0 < after.variances[0] < before.variances[0]


def test_the_expected_gain_is_that_of_the_choice_after_the_measurement() -> None:
    number, spread, mean = 400_000, 0.12, -0.05
    possible = block([decision(mean)], np.array([[0.04, spread], [spread, 1.0]]))

    possible.take((0,), (0,))

    later = mean + spread * np.random.default_rng(0).standard_normal(number)
    assert possible.gain == pytest.approx(float(np.maximum(0.0, later).mean()), rel=0.01)


def test_an_option_that_the_measurement_says_nothing_about_gains_nothing() -> None:
    possible = block([decision(-0.05)], np.array([[0.04, 0.0], [0.0, 1.0]]))

    possible.take((0,), (0,))

    assert possible.gain == pytest.approx(0.0, abs=1e-9)


def test_the_best_option_is_the_one_with_the_largest_mean_and_rivals_are_compared_with_it() -> None:
    contrasts = [measured(FAST, 0.2), measured(OLD, 0.05)]
    model, case = GainModel(contrasts, program_of, VARIANCES), Case(workload="w", basis="", programs=(blend(1e10),))

    def gains_of(pairs: Sequence[Pair]) -> list[dict[Case, Ratio]]:
        (p,) = model.predict(pairs, [blend(1e10)], HERE)
        return [{case: Ratio(mean=m, variance=v)} for m, v in zip(p.means.tolist(), p.variances.tolist(), strict=True)]

    (made,) = decide("any", {DEFAULT: PLAIN, "fast": FAST, "old": OLD}, gains_of)

    assert made.best == "fast"
    assert made.gains["fast"].mean > made.gains["old"].mean > 0
    assert {option: gain.mean < 0 for option, gain in made.rivals.items()} == {DEFAULT: True, "old": True}
    assert made.rivals[DEFAULT].mean == pytest.approx(-made.gains["fast"].mean)


def test_the_measurement_that_gains_most_for_its_time_is_selected_first() -> None:
    joint = np.array([[0.04, 0.18, 0.05], [0.18, 1.0, 0.0], [0.05, 0.0, 1.0]])
    possible = block([decision(0.0)], joint)

    select([possible], COSTS.seconds((0,), (0,)))

    assert possible.arms == (0,)


def test_a_measurement_that_repeats_another_one_adds_less_than_it_gains_alone() -> None:
    joint = np.array([[0.04, 0.15, 0.15], [0.15, 1.0, 0.99], [0.15, 0.99, 1.0]])
    possible = block([decision(-0.02)], joint)
    alone = {step.arms: step.gain for step in possible.steps()}

    possible.take((0,), (0,))

    (again,) = possible.steps()
    assert again.gain < 0.05 * alone[1,]


def test_a_decision_with_more_weight_is_measured_first() -> None:
    joint = np.array([[0.04, 0, 0.15, 0], [0, 0.04, 0, 0.15], [0.15, 0, 1.0, 0], [0, 0.15, 0, 1.0]])
    possible = block([decision(0.0, 0.2), decision(0.0, 0.8)], joint)

    select([possible], COSTS.seconds((0,), (0,)))

    assert possible.arms == (1,)


@pytest.mark.parametrize("minutes", [1, 3, 10, 60])
def test_selected_blocks_take_no_longer_than_the_time(minutes: int) -> None:
    blocks = [random_problem(seed)[0] for seed in range(3)]

    select(blocks, 60 * minutes)

    assert sum(b.seconds for b in blocks) <= 60 * minutes
    assert any(b.arms for b in blocks) == (minutes > 1)


def test_more_time_gains_more() -> None:
    gains = []
    for minutes in (3, 6, 12, 60):
        possible, _ = random_problem(7)
        select([possible], 60 * minutes)
        gains.append(possible.gain)

    assert gains == sorted(gains)
    assert gains[0] < gains[-1]


def test_selected_measurements_reduce_the_regret_more_than_random_ones_of_the_same_time() -> None:
    planned, drawn, nothing = [], [], []
    for seed in range(12):
        generator = np.random.default_rng(seed)
        possible, joint = random_problem(seed)
        nothing.append(regret(possible, joint, generator))
        select([possible], SIMULATED_SECONDS)
        planned.append(regret(possible, joint, generator))
        for _ in range(4):
            other, _ = random_problem(seed)
            while sides := [s for s in other.extensions() if other.costs.seconds(*s) <= SIMULATED_SECONDS]:
                other.take(*sides[generator.integers(len(sides))])
            drawn.append(regret(other, joint, generator))

    assert np.mean(planned) < 0.8 * np.mean(drawn) < 0.8 * np.mean(nothing)


DECISIONS, SIMULATED_SECONDS = 12, 300.0


def random_problem(seed: int) -> tuple[PossibleBlock, Array]:
    """A block of eight arms at eight programs, for decisions that differ in weight, with the joint covariance."""
    generator = np.random.default_rng(seed)
    weights = generator.dirichlet([0.5] * DECISIONS)
    decisions = [decision(-abs(generator.normal(0, 0.05)), weight) for weight in weights]
    factors = generator.normal(0, 0.05, (DECISIONS + 64, 10)) * generator.gamma(1.0, 1.0, 10)
    joint = factors @ factors.T + np.diag([0.0] * DECISIONS + [0.02**2] * 64)
    return block(decisions, joint, programs=8), joint


def regret(possible: PossibleBlock, joint: Array, generator: np.random.Generator) -> float:
    """Return the mean regret of the decisions in simulated problems, when the selected ratios are earlier."""
    rows = [DECISIONS + possible.cells[arm, program] for arm in possible.arms for program in possible.programs]
    means = np.array([d.rivals["on"].mean for d in possible.decisions])
    truths = generator.multivariate_normal(np.zeros(len(joint)), joint, size=400, method="eigh")
    weights = np.linalg.solve(joint[np.ix_(rows, rows)], joint[rows, :DECISIONS])
    predicted = means + truths[:, rows] @ weights
    gains = means + truths[:, :DECISIONS]
    losses = np.maximum(0.0, gains) - np.where(predicted > 0, gains, 0.0)
    return float((losses @ [d.weight for d in possible.decisions]).mean())

"""What an experiment found out about each arm, and which arm it chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.experiment.arms import ExperimentArm
from advisor.experiment.experiment import REFERENCE, Ending, Experiment
from advisor.locks.certificate import Certificate
from knowledge.domain.ratio import Ratio

Verdict = Literal["reference", "slower", "open", "not better", "failed", "not tried", "not run"]
"""What is known about an arm: it is the reference, certainly slower than the reference or an arm that is certainly
faster, possibly better than the choice, certainly not better by more than the tolerance, failed, could not be tried, or
never ran because it is too improbable that it is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """What an experiment found out about an arm.

    Attributes:
        arm: The arm.
        verdict: What is known about it.
        ratio: Its speed over the reference; ``None`` if it did not run often enough.
        rounds: Number of its rounds.
        failure: Why it failed.
        results: What the program computed in each run, such as its loss; empty if that is not known.
    """

    arm: ExperimentArm
    verdict: Verdict
    ratio: Ratio | None
    rounds: int
    failure: str = ""
    results: tuple[float, ...] = ()

    @property
    def has_reduced_precision(self) -> bool:
        """Whether a change of the arm reduces the precision."""
        return any(change.numerics == "reduced" for change in self.arm.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """The choice of an experiment, and what it rests on.

    Attributes:
        choice: The arm that was chosen.
        arms: The other arms, the fastest first.
        certificate: What is certain.
        control: Speed of the reference over itself (A/A); ``None`` if it did not run twice often enough.
        noise: Standard deviation of the logarithm of a run's seconds within a round; ``None`` if it is not known.
        ending: Why it ended.
        block: Name of the block of its observations.
        disturbance: Why some runs do not count; empty if all do.
    """

    choice: ArmResult
    arms: tuple[ArmResult, ...]
    certificate: Certificate
    control: Ratio | None
    noise: float | None
    ending: Ending
    block: str
    disturbance: str = ""

    @property
    def setting_values(self) -> dict[str, int | str]:
        """Settings of the choice by name."""
        return {
            name: value if isinstance(value, int) else str(value) for name, value in self.choice.arm.settings.items()
        }


def arm_results(experiment: Experiment, arms: Sequence[ExperimentArm]) -> tuple[ArmResult, tuple[ArmResult, ...]]:
    """Return the result of the choice, and those of the other arms, the fastest first."""
    results = [
        ArmResult(
            arm=arm,
            verdict=_verdict(experiment, number),
            ratio=_ratio(experiment, number),
            rounds=experiment.counts[number],
            failure=experiment.failures.get(number, ""),
            results=tuple(experiment.results[number]),
        )
        for number, arm in enumerate(arms)
    ]
    choice = results.pop(experiment.decision.choice)
    speeds = {id(result): result.ratio.mean if result.ratio else 0.0 for result in results}
    return choice, tuple(sorted(results, key=lambda result: -speeds[id(result)]))


def _ratio(experiment: Experiment, number: int) -> Ratio | None:
    if number == REFERENCE:
        return None
    is_choice = number == experiment.decision.choice
    return (experiment.decision.ratio if is_choice else None) or experiment.ratio(number)


def _verdict(experiment: Experiment, number: int) -> Verdict:
    decision = experiment.decision
    if number == REFERENCE:
        return "reference"
    if number in experiment.failures:
        return "not tried" if number in experiment.untried else "failed"
    if number in decision.open:
        return "open"
    if number in decision.set_aside:
        return "not run"
    return "slower" if number in experiment.race.dropped else "not better"

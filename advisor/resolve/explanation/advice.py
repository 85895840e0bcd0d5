"""What the score of a stack is based on: its criteria, the measured packages, and those of unknown speed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.version import Version

from advisor.resolve.candidates.problem import CandidateStack
from advisor.resolve.explanation.findings import AdviceFinding
from advisor.resolve.optimum.result import Optimum
from advisor.resolve.score.criteria import CRITERIA, ObjectiveName, StackScore
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.estimate.interface import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBasis:
    """What the score of a stack is based on; each package of the stack is in one of the lists.

    Attributes:
        objective: The objective.
        measured: Frameworks and their companions that were measured on comparable hardware and count for the workload.
        unmeasured: Frameworks that count for the workload, but have no usable measurement on comparable hardware.
        not_in_workload: Frameworks that do not count for the workload.
        without_measurements: All other packages: only rules and freshness apply to them.
        min_gain: Smallest gain of speed for which another stack than the newest one is recommended, as a fraction.
    """

    objective: ObjectiveName
    measured: tuple[str, ...]
    unmeasured: tuple[str, ...]
    not_in_workload: tuple[str, ...]
    without_measurements: tuple[str, ...]
    min_gain: float

    @property
    def criteria(self) -> tuple[str, ...]:
        """The criteria of the objective, in order."""
        return CRITERIA[self.objective]


def score_basis(
    stack: Mapping[str, Version], baseline: Mapping[str, Version], *, score: StackScore, unmeasured: Iterable[str]
) -> ScoreBasis:
    """Return what the score of a stack is based on; speed is compared with the baseline, which may be empty."""
    terms = score.estimator.terms({name: [version] for name, version in stack.items()}, baseline or stack)
    measured = {gains.framework for gains in terms}
    measured |= {companion for gains in terms for _, companion, _, _ in gains.groups()}
    measured &= set(stack)
    unknown = set(unmeasured)
    unused = (set(FRAMEWORKS) & set(stack)) - measured - unknown
    return ScoreBasis(
        objective=score.objective,
        measured=tuple(sorted(measured - unknown)),
        unmeasured=tuple(sorted(unknown)),
        not_in_workload=tuple(sorted(unused)),
        without_measurements=tuple(sorted(set(stack) - measured - unknown - unused)),
        min_gain=score.min_gain,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommended stack and the information about it.

    Attributes:
        objective: The objective.
        baseline: The stack that a plain resolver chooses; empty if it found none.
        optimum: The recommended stack and its proof.
        prediction: Predicted speed-up over the baseline.
        basis: What the score of the stack is based on.
        findings: Findings, sorted by code.
        reasons: For each package of the stack, why it has its version.
        libyears: Years behind the newest candidates, of the stack and of the baseline.
        current: Currently locked versions, by package, and the predicted speed-up of the stack over them; `None`
            if there is no lock.
    """

    objective: ObjectiveName
    baseline: CandidateStack
    optimum: Optimum
    prediction: Prediction
    basis: ScoreBasis
    findings: tuple[AdviceFinding, ...]
    reasons: dict[str, str]
    libyears: tuple[float, float]
    current: tuple[Mapping[str, Version], Prediction] | None = None

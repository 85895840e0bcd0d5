"""The criterion speed: predicted gains over the baseline, in whole steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.choices import Candidates, Choice, PairedChoice
from advisor.resolve.optimum import Objective
from knowledge.estimate.interface import Estimator, FrameworkGains, PredictedGain

SPEED_STEP = 0.01
"""Log speed is compared in steps of 1 %: another version than the baseline's is chosen only for at least one step."""
_NO_GAIN = PredictedGain(mean=0.0, variance=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSettings:
    """The best run-time settings of a framework's version.

    Attributes:
        values: Names and values, sorted.
        steps: Their gain in whole steps of the criterion speed.
        gain: Their gain.
        at_baseline: Gain in the baseline's version of those that it has.
    """

    values: tuple[tuple[str, str], ...] = ()
    steps: int = 0
    gain: PredictedGain = _NO_GAIN
    at_baseline: PredictedGain = _NO_GAIN

    def beyond(self, other: PredictedGain) -> PredictedGain:
        """Return what they gain more than others; the errors count as independent."""
        return PredictedGain(mean=self.gain.mean - other.mean, variance=self.gain.variance + other.variance)


def speed_objective(
    candidates: Candidates,
    estimator: Estimator,
    baseline: Mapping[str, Version],
    *,
    settings: Mapping[str, Mapping[Version, BestSettings]] = MappingProxyType({}),
) -> tuple[Objective, dict[str, int]]:
    """Return whole steps behind the best candidate of each measured framework; companions are counted in pairs.

    Args:
        candidates: Candidates of each package.
        estimator: Predictions from the observations.
        baseline: The stack that speed is compared with; empty if there is none.
        settings: The best settings of each version, by framework.

    Returns:
        The objective, and the gain of the best candidate of each measured framework, in steps.
    """
    offered = {str(name): [c.version for c in versions] for name, versions in candidates.items() if versions}
    best_steps: dict[str, int] = {}
    costs: dict[Choice, int] = {}
    pairs: dict[tuple[Choice, PairedChoice], int] = {}
    # There is no baseline if the requirements have no solution, or if resolvelib reached its limit.
    reference = baseline or {name: versions[0] for name, versions in offered.items()}
    for gains in estimator.terms(offered, reference).frameworks:
        name = NormalizedName(gains.framework)
        alone = {version: speed_steps(gain, gains.comparisons) for version, gain in gains.alone.items()}
        # A version is credited with its best companion; each pair costs its distance to the best one.
        behind = _steps_behind_best_companion(gains, alone, reference[name])
        for (versions, companion, others), (best, steps) in behind.items():
            # If no version of a companion is faster, its absence costs the same as the baseline's version: a cost
            # of absence would be a reward for packages that nothing requires.
            if steps < best:
                pairs |= {
                    ((name, version), (NormalizedName(companion), other)): best
                    - (max(0, steps) if other is None else steps)
                    for version in versions
                    for other in others
                    if other is not None or best > 0
                }
        companion_bonus: dict[tuple[Version, str], int] = {
            (version, companion): best for (versions, companion, _), (best, _) in behind.items() for version in versions
        }
        for (version, _), best in companion_bonus.items():
            alone[version] += best
        best_settings = settings.get(gains.framework, {})
        for version in alone.keys() & best_settings.keys():
            alone[version] += _steps_of_settings(gains, version, best_settings, reference[name])
        best_steps[name] = max(alone.values())
        costs |= {(name, version): best_steps[name] - steps for version, steps in alone.items()}
    return Objective(name="speed", costs=costs, pairs=pairs), best_steps


def speed_steps(gain: PredictedGain, comparisons: int = 1) -> int:
    """Return a gain over the baseline in whole steps, rounded towards zero.

    A gain that is not significant counts as zero: no version is chosen because of it.

    Args:
        gain: The gain.
        comparisons: Number of versions that were compared, to correct the significance for the selection.
    """
    steps = int(gain.cautious / SPEED_STEP)
    return steps if steps < 0 or gain.is_significant(comparisons) else 0


def _steps_of_settings(
    gains: FrameworkGains, version: Version, settings: Mapping[Version, BestSettings], baseline: Version
) -> int:
    """Return the steps that the best settings of a version add.

    Another version than the baseline's is credited with more than the best settings of the baseline's version gain only
    if that is significant over these, over the same settings there, and together with the change of the version. Errors
    of one setting in two versions are alike, so the differences are more certain than they count.

    Args:
        gains: Gains of the framework.
        version: The version.
        settings: The best settings of each version.
        baseline: The version that the others are compared with.
    """
    own, other = settings[version], settings.get(baseline, BestSettings())
    more, change = own.beyond(other.gain), gains.alone[version]
    both = PredictedGain(mean=change.mean + more.mean, variance=change.variance + more.variance)
    if any(speed_steps(x, gains.comparisons) <= 0 for x in (more, own.beyond(own.at_baseline))):
        return min(own.steps, other.steps)
    if speed_steps(both, gains.comparisons) <= 0:
        return min(own.steps, other.steps - min(0, speed_steps(change, gains.comparisons)))
    return own.steps


_Versions = tuple[Version, ...]
_Companions = tuple[Version | None, ...]


def _steps_behind_best_companion(
    gains: FrameworkGains, alone: Mapping[Version, int], baseline: Version
) -> dict[tuple[_Versions, str, _Companions], tuple[int, int]]:
    """Return, for versions with versions of a companion: the steps that its best one adds, and that these add.

    A companion whose change is not significant by itself adds nothing to the gain of the framework. A framework whose
    change is not significant by itself adds nothing to the gain of the companion with the baseline's framework. The
    version of an absent companion is none.

    Args:
        gains: Gains of the framework.
        alone: Steps of the framework's versions with the companions of the baseline.
        baseline: The framework's version in the baseline.
    """
    added: dict[tuple[_Versions, str], dict[_Companions, int]] = {}
    steps_at_baseline: dict[tuple[str, _Companions], int] = {}
    # The baseline's version first: the others are compared with it.
    for versions, companion, others, gain in sorted(gains.groups(), key=lambda group: baseline not in group[0]):
        steps = int(gain.joint.cautious / SPEED_STEP)
        if not gain.own.is_significant(gains.comparisons):
            steps = min(steps, alone[versions[0]])
        if baseline in versions:
            steps_at_baseline[companion, others] = steps
        elif not gain.framework.is_significant(gains.comparisons):
            steps = min(steps, steps_at_baseline.get((companion, others), 0))
        added.setdefault((versions, companion), {})[others] = steps - alone[versions[0]]
    return {
        (versions, companion, others): (max(0, *steps_by_others.values()), steps)
        for (versions, companion), steps_by_others in added.items()
        for others, steps in steps_by_others.items()
    }

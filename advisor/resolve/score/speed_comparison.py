"""The criterion speed: predicted gains over a reference stack that count, in whole steps.

A difference counts if it is significant and at least as large as the smallest gain that counts (`min-gain`). Versions
count as equally fast if none of them is faster by as much.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.score.costs import Candidates, Choice, Objective, PairedChoice, counted_steps, speed_steps
from advisor.resolve.score.setting_choice import BestSettings, TargetSettings
from knowledge.domain.ratio import MIN_GAIN, NO_GAIN, Ratio
from knowledge.estimate.gains import FrameworkGains
from knowledge.estimate.interface import Estimator

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedComparison:
    """Compares versions with the versions of a reference stack, or with the newest candidates if it is empty.

    `min_gain` is the smallest difference that counts, as a fraction.
    """

    estimator: Estimator
    reference: Mapping[str, Version]
    min_gain: float = MIN_GAIN
    settings: TargetSettings | None = None

    def objective(self, candidates: Candidates) -> tuple[Objective, dict[str, int]]:
        """Return whole steps behind the best candidate of each measured framework; companions are counted in pairs.

        A package that the reference does not have is not compared: it could be required without having been read. The
        second result is the gain of the best candidate of each measured framework, in steps.
        """
        reference = self.reference or {str(name): of[0].version for name, of in candidates.items() if of}
        compared = {name: of for name, of in candidates.items() if of and str(name) in reference}
        best_steps: dict[str, int] = {}
        costs: dict[Choice, int] = {}
        pairs: dict[tuple[Choice, PairedChoice], int] = {}
        for gains in self._gains(compared, reference):
            name = NormalizedName(gains.framework)
            alone = self._steps_by_version(compared, gains, reference)
            # A version is credited with its best companion; each pair costs its distance to the best one.
            bonus: dict[tuple[Version, str], int] = {}
            for (versions, companion), of_others in self._steps_by_companion(compared, gains, reference).items():
                best = max(0, *of_others.values())
                bonus |= {(version, companion): best for version in versions}
                # If no version of a companion is faster, its absence costs the same as the reference's version: a cost
                # of absence would be a reward for packages that nothing requires.
                pairs |= {
                    ((name, version), (NormalizedName(companion), other)): best
                    - (max(0, steps) if other is None else steps)
                    for other, steps in of_others.items()
                    if steps < best and (other is not None or best > 0)
                    for version in versions
                }
            for (version, _), steps in bonus.items():
                alone[version] += steps
            best_steps[name] = max(alone.values())
            costs |= {(name, version): best_steps[name] - steps for version, steps in alone.items()}
        # A stack without a framework gains nothing.
        absent = {NormalizedName(name): steps for name, steps in best_steps.items() if steps > 0}
        return Objective(name="speed", costs=costs, pairs=pairs, absent=absent), best_steps

    def gain(
        self, stack: Mapping[str, Version], candidates: Candidates, *, only_counted: bool = False
    ) -> tuple[Ratio, int]:
        """Return the gain of a whole stack over the reference, and the number of compared versions.

        With `only_counted`, packages whose own gain does not count add their uncertainty alone.
        """
        compared = {name: of for name, of in candidates.items() if of and str(name) in self.reference}
        own_settings = self._settings_of(compared, self.reference)
        total, comparisons = NO_GAIN, 1
        for gains in self._gains(compared, self.reference):
            comparisons = gains.comparisons
            name = gains.framework
            if (version := stack.get(name)) in gains.alone:
                assert version is not None
                # The settings of one version cancel.
                of_settings = own_settings.get(name, {}) if version != self.reference[name] else {}
                own, other = (of_settings.get(v) for v in (version, self.reference[name]))
                of_framework = _gain_with_settings(gains.gain(stack), own, other, comparisons)
                if only_counted:
                    of_framework = self._without_uncounted(of_framework, gains, stack)
                total = total.times(of_framework)
        return total, comparisons

    def _without_uncounted(self, gain: Ratio, gains: FrameworkGains, stack: Mapping[str, Version]) -> Ratio:
        """Return the gain of a framework without gains that do not count: of its companions, and of the remainder."""
        own = [
            pair.own.mean
            for (version, companion, other), pair in gains.with_companion.items()
            if version == stack[gains.framework] and stack.get(companion) == other and companion != gains.framework
            if pair.own.mean > 0 and self.counted(pair.own, gains.comparisons) <= 0
        ]
        remaining = replace(gain, mean=gain.mean - sum(own))
        if remaining.mean > 0 and self.counted(remaining, gains.comparisons) <= 0:
            remaining = replace(remaining, mean=0.0)
        return remaining

    def counted(self, gain: Ratio, comparisons: int) -> int:
        """Return a gain in whole steps; 0 unless it is significant and large enough."""
        return counted_steps(gain, comparisons, self.min_gain)

    def _gains(self, candidates: Candidates, reference: Mapping[str, Version]) -> Sequence[FrameworkGains]:
        offered = {str(name): [c.version for c in of] for name, of in candidates.items()}
        return self.estimator.terms(offered, reference)

    def _gains_of(self, framework: str, candidates: Candidates, reference: Mapping[str, Version]) -> FrameworkGains:
        return next(gains for gains in self._gains(candidates, reference) if gains.framework == framework)

    def _settings_of(
        self, candidates: Candidates, reference: Mapping[str, Version]
    ) -> dict[str, dict[Version, BestSettings]]:
        """Return the best settings of each candidate, by framework, compared with the settings of a reference."""
        return self.settings.best_by_version(candidates, self.estimator, reference) if self.settings else {}

    def _steps_by_version(
        self, candidates: Candidates, gains: FrameworkGains, reference: Mapping[str, Version]
    ) -> dict[Version, int]:
        """Return what each version of a framework gains, with its best settings."""
        name = gains.framework

        def steps_over(gains: FrameworkGains, reference: Mapping[str, Version]) -> dict[Version, int]:
            settings = self._settings_of(candidates, reference).get(name, {})
            other = settings.get(reference[name])
            return {
                version: self.counted(
                    _gain_with_settings(change, settings.get(version), other, gains.comparisons), gains.comparisons
                )
                for version, change in gains.alone.items()
            }

        def beaten_by(leader: Version) -> Collection[Version]:
            other = {**reference, name: leader}
            over_leader = self._gains_of(name, candidates, other)
            return [version for version, steps in steps_over(over_leader, other).items() if steps < 0]

        return _in_tiers(steps_over(gains, reference), beaten_by)

    def _steps_by_companion(
        self, candidates: Candidates, gains: FrameworkGains, reference: Mapping[str, Version]
    ) -> dict[tuple[tuple[Version, ...], str], dict[Version | None, int]]:
        """Return what each version of a companion adds, for versions with it; `None` stands for an absent companion.

        A companion whose own change does not count adds nothing to the gain of the framework. A framework whose change
        does not count by itself adds nothing to the gain of the companion with the reference's framework.
        """
        over_leader: dict[tuple[str, Version], FrameworkGains] = {}

        def beaten_by(version: Version, companion: str, leader: Version | None) -> Collection[Version | None]:
            if leader is None:
                return ()
            if (companion, leader) not in over_leader:
                other = {**reference, companion: leader}
                over_leader[companion, leader] = self._gains_of(gains.framework, candidates, other)
            own = over_leader[companion, leader].with_companion
            return [
                w
                for v, c, w in own
                if (v, c) == (version, companion) and self.counted(own[v, c, w].own, gains.comparisons) < 0
            ]

        base = reference[gains.framework]
        added: dict[tuple[tuple[Version, ...], str], dict[Version | None, int]] = {}
        at_reference: dict[tuple[str, Version | None], int] = {}
        # The reference's version first: the others are compared with it.
        for versions, companion, others, gain in sorted(gains.groups(), key=lambda group: base not in group[0]):
            steps = self.counted(gain.own, gains.comparisons)
            if base in versions:
                at_reference |= {(companion, other): steps for other in others}
            elif self.counted(gain.framework, gains.comparisons) <= 0:
                own = self.counted(gains.alone[versions[0]], gains.comparisons)
                steps = min(steps, at_reference.get((companion, others[0]), 0) - own)
            added.setdefault((versions, companion), {}).update(dict.fromkeys(others, steps))
        return {
            (versions, companion): _in_tiers(
                of_others,
                lambda leader, v=versions[0], c=companion: beaten_by(v, c, leader),  # type: ignore[misc]
            )
            for (versions, companion), of_others in added.items()
        }


def _gain_with_settings(change: Ratio, own: BestSettings | None, other: BestSettings | None, comparisons: int) -> Ratio:
    """Return the gain of a version with its best settings over the reference's version with its best settings.

    More than the settings of the reference's version counts only if it is significant over these, and over the same
    settings there. Errors of one setting in two versions are alike, so the differences are more certain than they
    count.
    """
    own, other = own or BestSettings(), other or BestSettings()
    more = own.gain.over(other.gain)
    if more.mean > 0 and any(speed_steps(x, comparisons) <= 0 for x in (more, own.gain.over(own.at_baseline))):
        return change
    return change.times(more)


def _in_tiers(steps: Mapping[_T, int], beaten_by: Callable[[_T], Collection[_T]]) -> dict[_T, int]:
    """Return the steps of versions; a version counts as fast as the fastest one if that does not beat it.

    The same holds for the fastest one of the others, and so on. Versions that do not differ from the reference stay as
    they are; those that are slower only matter if all are.
    """
    tiers = dict(steps)
    others = [v for v, count in steps.items() if count > 0 or max(steps.values()) < 0]
    while len({steps[v] for v in others}) > 1:
        leader = max(others, key=lambda v: steps[v])
        beaten = beaten_by(leader)
        tiers |= dict.fromkeys([v for v in others if v not in beaten], steps[leader])
        others = [v for v in others if v in beaten and steps[v] < steps[leader]]
    return tiers

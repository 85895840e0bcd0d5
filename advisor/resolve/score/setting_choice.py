"""Run-time settings as decisions: the best settings for each version of a framework, and what they are worth.

A setting needs nothing but a version of its framework that knows it. So the best settings for a version do not depend
on other packages, and each version counts with the gain of its best settings. The result is the exact optimum, without
further variables in the model of the solver. Some settings apply to the whole process: values that several frameworks
disagree about are left out before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from advisor.resolve.score.costs import SPEED_STEP, Candidates, speed_steps
from knowledge.catalogue.fit import Misfit, contradictions, misfit_of
from knowledge.catalogue.settings import ANY, SettingChoice, environment_of, shipped_settings
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.ratio import NO_GAIN, Ratio
from knowledge.estimate.gains import PairGain, SettingGains, SettingValue
from knowledge.estimate.interface import Estimator


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSettings:
    """The best run-time settings of a framework's version, and their gain, also in whole steps of the criterion speed.

    `at_baseline` is the gain in the reference's version of those that it has.
    """

    values: tuple[tuple[str, str], ...] = ()
    steps: int = 0
    gain: Ratio = NO_GAIN
    at_baseline: Ratio = NO_GAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """The settings that may be chosen on a machine, also those of a lower precision if they are allowed.

    Disputed values apply to the whole process, and its frameworks disagree about them; they are not chosen.
    """

    hardware: HardwareProfile
    allows_reduced: bool = False
    disputed: frozenset[SettingValue] = frozenset()

    def choice(self, framework: str, value: SettingValue, version: Version) -> SettingChoice | None:
        """Return a value of a setting; `None` if the framework's version or the machine does not have it."""
        choice, misfit = self._judged(framework, value, version)
        return None if misfit else choice

    def may_have(self, framework: str, value: SettingValue, version: Version) -> bool:
        """Whether nothing is known to be missing for a value; true for values that the catalogue does not have."""
        _, misfit = self._judged(framework, value, version)
        return misfit is None or misfit.is_unknown

    def emulated(self, framework: str, value: SettingValue, version: Version) -> tuple[SettingChoice, str] | None:
        """Return a value that the machine emulates or ignores, and which feature it lacks; `None` for other values."""
        choice, misfit = self._judged(framework, value, version)
        if choice is None or misfit is None or misfit.is_unknown or misfit.subject not in ("features", "capability"):
            return None
        return choice, misfit.reason

    def _judged(
        self, framework: str, value: SettingValue, version: Version
    ) -> tuple[SettingChoice | None, Misfit | None]:
        """Return a value of the catalogue on the device, and why the version or the machine does not have it."""
        setting = shipped_settings().get(value[0])
        if setting is None or framework not in FRAMEWORKS or self.hardware.device not in setting.devices:
            return None, None
        choice = setting.choice(FRAMEWORKS[framework], value[1])
        return choice, misfit_of(choice, version=version, hardware=self.hardware) if choice else None

    def may_choose(self, framework: str, value: SettingValue, version: Version) -> bool:
        """Whether a value of a setting may be a part of the advice."""
        choice = self.choice(framework, value, version)
        return (
            value not in self.disputed and choice is not None and (self.allows_reduced or choice.numerics != "reduced")
        )

    def best_by_version(
        self, candidates: Candidates, estimator: Estimator, baseline: Mapping[str, Version]
    ) -> dict[str, dict[Version, BestSettings]]:
        """Return the best settings of each candidate of a framework, compared with the baseline's version, if any."""
        offered = {str(name): [c.version for c in versions] for name, versions in candidates.items() if versions}
        stack = baseline or {name: versions[0] for name, versions in offered.items()}
        for name in offered.keys() & baseline.keys():
            if baseline[name] not in offered[name]:
                offered[name].append(baseline[name])
        return {
            gains.framework: {
                version: self._compared(self.best(gains, version), gains, stack[gains.framework])
                for version in offered[gains.framework]
            }
            for gains in estimator.setting_gains(offered, stack)
        }

    def _compared(self, best: BestSettings, gains: SettingGains, baseline: Version) -> BestSettings:
        present = [
            value
            for value in best.values
            if value in gains.alone.get(baseline, {})
            if self.choice(gains.framework, value, baseline) is not None
        ]
        return replace(best, at_baseline=gains.of(baseline, present))

    def in_one_process(self, stack: Mapping[str, Version], estimator: Estimator) -> TargetSettings:
        """Return the settings that may be chosen if all frameworks of a stack run in one process.

        Some settings apply to all of them: the allocator, or variables that several libraries read. A value is disputed
        if another framework would choose another value, or is slower with it.
        """
        if len(FRAMEWORKS.keys() & stack.keys()) < 2:
            return self
        every = estimator.setting_gains({name: [version] for name, version in stack.items()}, stack)
        best = {gains.framework: dict(self.best(gains, stack[gains.framework]).values) for gains in every}
        disputed = {
            (name, value)
            for framework, values in best.items()
            for name, value in values.items()
            for gains in every
            if gains.framework != framework and _share_a_variable(name, value, framework, gains.framework)
            if best[gains.framework].get(name, value) != value or _loses(gains, stack[gains.framework], (name, value))
        }
        return replace(self, disputed=frozenset(disputed))

    def missing_in(
        self, baseline: Mapping[str, Version], stack: Mapping[str, Version], estimator: Estimator
    ) -> dict[str, tuple[SettingValue, ...]]:
        """Return the best settings of a stack that the baseline's version of the framework does not have."""
        offered = {name: [version] for name, version in stack.items()}
        missing = {
            gains.framework: tuple(
                value
                for value in self.best(gains, stack[gains.framework]).values
                if self.choice(gains.framework, value, baseline[gains.framework]) is None
            )
            for gains in estimator.setting_gains(offered, stack)
            if gains.framework in baseline
        }
        return {name: values for name, values in missing.items() if values}

    def best(self, gains: SettingGains, version: Version) -> BestSettings:
        """Return the best settings for a version of a framework."""
        admissible = [v for v in gains.alone.get(version, {}) if self.may_choose(gains.framework, v, version)]
        return best_settings(gains, version, admissible)


def _share_a_variable(name: str, value: str, framework: str, other: str) -> bool:
    """Whether a value of a setting in one framework also applies to another one in the same process."""
    setting, backends = shipped_settings()[name], (FRAMEWORKS[framework], FRAMEWORKS[other])
    choice = setting.choice(backends[0], value)
    # A set of processors belongs to the process.
    if setting.framework(ANY) is not None or (choice is not None and choice.processors):
        return True
    one, two = (environment_of({name: value}, backend, present={}, libraries={}) for backend in backends)
    return bool(one.keys() & two.keys())


def _loses(gains: SettingGains, version: Version, value: SettingValue) -> bool:
    gain = gains.alone[version].get(value)
    return gain is not None and speed_steps(gain) < 0 and gain.is_significant()


def best_settings(gains: SettingGains, version: Version, admissible: Iterable[SettingValue]) -> BestSettings:
    """Return the settings with the largest gain; of several, the fewest, then the first by name.

    Settings have their gains alone; two that were measured together have the gain of both. Gains that are not
    significant count as nothing. A setting may gain more where another one is set. That counts only if it is
    significant there, and the other gains alone, or both gain where the other is set. If two gain less together, that
    counts in any case.
    """
    alone = {v: speed_steps(gains.alone[version][v]) for v in admissible}
    extra = {
        (one, other): _further_steps(pair, gains.alone[version][one], gains.alone[version][other])
        for (one, other), pair in gains.together.get(version, {}).items()
        if one in alone and other in alone
    }
    useful = [v for v in sorted(alone) if alone[v] + sum(max(0, x) for pair, x in extra.items() if v in pair) > 0]
    backend = FRAMEWORKS.get(gains.framework, ANY)
    pairs = [(a, b) for a, b in itertools.combinations(useful, 2) if _interact(a, b, extra, backend)]
    values: list[SettingValue] = []
    steps = 0
    for group in _connected(useful, pairs):
        # What is chosen in one group changes nothing in another.
        gained, _, best = min(_combinations(sorted(group), alone, extra, backend))
        values += best
        steps -= gained
    return BestSettings(values=tuple(sorted(values)), steps=steps, gain=gains.of(version, values))


def _connected(
    values: Sequence[SettingValue], pairs: Iterable[tuple[SettingValue, SettingValue]]
) -> list[set[SettingValue]]:
    """Return the groups of values that pairs connect; without networkx, which is slow to import."""
    groups = [{value} for value in values]
    for pair in pairs:
        joined = [group for group in groups if not group.isdisjoint(pair)]
        groups = [*(group for group in groups if group not in joined), set[SettingValue]().union(*joined)]
    return groups


def _further_steps(pair: PairGain, one: Ratio, other: Ratio) -> int:
    """Return the steps that two settings gain together beyond the sum of what they gain alone.

    A setting is credited with what it gains where the other is set only if that is significant, and the other gains
    alone; if none does, both must gain where the other is set.
    """
    first, second = speed_steps(one), speed_steps(other)
    loss = min(0.0, pair.joint.mean - one.mean - other.mean)
    first_added, second_added = speed_steps(pair.first), speed_steps(pair.second)
    together = [first + second + int(loss / SPEED_STEP)]
    if first > 0 and second_added > 0:
        together.append(first + second_added)
    if second > 0 and first_added > 0:
        together.append(second + first_added)
    if first_added > 0 and second_added > 0:
        together.append(speed_steps(pair.joint))
    return max(together) - first - second


Extra = Mapping[tuple[SettingValue, SettingValue], int]
"""Steps that two settings gain together beyond what they gain alone."""


def _interact(one: SettingValue, other: SettingValue, extra: Extra, backend: str) -> bool:
    """Whether two values cannot be chosen independently of each other."""
    return (
        one[0] == other[0]
        or bool({(one, other), (other, one)} & extra.keys())
        or _are_contradictory(one, other, backend)
    )


def _are_contradictory(one: SettingValue, other: SettingValue, backend: str) -> bool:
    return bool(contradictions(dict((one, other)), backend=backend))


def _combinations(
    group: Sequence[SettingValue], alone: Mapping[SettingValue, int], extra: Extra, backend: str
) -> Iterator[tuple[int, int, tuple[SettingValue, ...]]]:
    """Yield the negated gain in steps and the number of the values of every admissible combination, with the values."""
    by_name: dict[str, list[SettingValue | None]] = {}
    for value in group:
        by_name.setdefault(value[0], [None]).append(value)
    for combination in itertools.product(*by_name.values()):
        selection = tuple(filter(None, combination))
        if any(_are_contradictory(a, b, backend) for a, b in itertools.combinations(selection, 2)):
            continue
        gained = sum(alone[v] for v in selection) + sum(
            x for (a, b), x in extra.items() if a in selection and b in selection
        )
        yield -gained, len(selection), selection

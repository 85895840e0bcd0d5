"""What versions, companions and settings gain: log speed-ups over the baseline, as the optimum counts them.

The significance of settings is not corrected for their number. Each is a decision of its own, not the best of several.
Their effects are estimated together, and shrunk by what settings usually do (Gelman, Hill and Yajima, "Why we (usually)
don't have to worry about multiple comparisons", Journal of Research on Educational Effectiveness 5, 2012).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from packaging.version import Version

from knowledge.domain.ratio import Ratio, product

SettingValue = tuple[str, str]
"""Name of a setting, and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionGain:
    """Gains of a framework's version together with another version of one companion.

    Attributes:
        joint: Gain of both changes over the baseline.
        own: Gain of the companion's change alone, with that version of the framework.
        framework: Gain of the framework's change alone, with that version of the companion.
    """

    joint: Ratio
    own: Ratio
    framework: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionGains(Mapping[tuple[Version, str, Version | None], CompanionGain]):
    """Gains by version, companion and version of the companion; versions with the same representative share a gain.

    Attributes:
        own: Representative of each version of the framework.
        companions: By companion, the representative of each of its versions, and of its absence.
        cells: Gain by representative, companion and representative of the companion.
    """

    own: Mapping[Version, str]
    companions: Mapping[str, Mapping[Version | None, str]]
    cells: Mapping[tuple[str, str, str], CompanionGain]

    def __getitem__(self, key: tuple[Version, str, Version | None]) -> CompanionGain:
        """Return the gain of a version with a version of a companion."""
        version, companion, other = key
        return self.cells[self.own[version], companion, self.companions[companion][other]]

    def __iter__(self) -> Iterator[tuple[Version, str, Version | None]]:
        """Yield each version with each version of each companion."""
        for companion, others in self.companions.items():
            for version in self.own:
                for other in others:
                    yield version, companion, other

    def __len__(self) -> int:
        """Return the number of gains."""
        return len(self.own) * sum(map(len, self.companions.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkGains:
    """Gains over the baseline of a framework and its companions, scaled by the framework's share of the workload.

    Attributes:
        framework: The framework.
        alone: Gain by version, with every companion as in the baseline.
        with_companion: Gain by version, companion and version of the companion (none: absent). It contains the
            baseline's version of each companion, whose own gain is 0.
        comparisons: Number of measured versions of frameworks and companions other than the baseline's, to correct the
            significance for the selection of the best.
    """

    framework: str
    alone: Mapping[Version, Ratio]
    with_companion: CompanionGains
    comparisons: int = 1

    def groups(self) -> Iterator[tuple[tuple[Version, ...], str, tuple[Version | None, ...], CompanionGain]]:
        """Yield each gain with the versions of the framework and of the companion that share it."""
        table = self.with_companion
        versions = _by_value(table.own)
        others = {companion: _by_value(texts) for companion, texts in table.companions.items()}
        for (own, companion, other), gain in table.cells.items():
            if own in versions:
                yield versions[own], companion, others[companion][other], gain

    def gain(self, stack: Mapping[str, Version]) -> Ratio:
        """Return the gain of a stack: means and variances of the companions' changes add up."""
        version = stack[self.framework]
        alone = self.alone[version]
        changes = [
            g.joint
            for (v, c, w), g in self.with_companion.items()
            if v == version and c != self.framework and stack.get(c) == w
        ]
        return Ratio(
            mean=alone.mean + sum(g.mean - alone.mean for g in changes),
            variance=alone.variance + sum(g.variance - alone.variance for g in changes),
        )


_T = TypeVar("_T")


def _by_value(texts: Mapping[_T, str]) -> dict[str, tuple[_T, ...]]:
    """Return the keys of each value, in their order."""
    keys: dict[str, list[_T]] = {}
    for key, text in texts.items():
        keys.setdefault(text, []).append(key)
    return {text: tuple(listed) for text, listed in keys.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGain:
    """Gains of two settings that were measured together.

    Attributes:
        joint: Gain of both over their absence.
        first: Gain of the first where the second is set.
        second: Gain of the second where the first is set.
    """

    joint: Ratio
    first: Ratio
    second: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingGains:
    """Gains of the settings of a framework over their absence, scaled by the framework's share of the workload.

    Attributes:
        framework: The framework.
        alone: Gain by version and setting.
        together: Gains by version and pair of settings that were measured together; gains of other pairs add up.
    """

    framework: str
    alone: Mapping[Version, Mapping[SettingValue, Ratio]]
    together: Mapping[Version, Mapping[tuple[SettingValue, SettingValue], PairGain]]

    def of(self, version: Version, values: Collection[SettingValue]) -> Ratio:
        """Return the gain of several settings together; means and variances add up.

        Args:
            version: Version of the framework.
            values: The settings.
        """
        alone = self.alone.get(version, {})
        parts = [alone[value] for value in values]
        # Two settings that were measured together gain what both gained, and not the sum.
        for (one, other), pair in self.together.get(version, {}).items():
            if one in values and other in values:
                joint, sums = pair.joint, (alone[one], alone[other])
                parts.append(
                    Ratio(
                        mean=joint.mean - sum(g.mean for g in sums),
                        variance=max(0.0, joint.variance - sum(g.variance for g in sums)),
                    )
                )
        return product(parts)


def mixture(gains: Sequence[Ratio]) -> Ratio:
    """Return the gain of one of several cases, of which nobody knows which it is."""
    # Not with `statistics`: this is called thousands of times.
    mean = sum(gain.mean for gain in gains) / len(gains)
    return Ratio(mean=mean, variance=sum(g.variance + (g.mean - mean) ** 2 for g in gains) / len(gains))

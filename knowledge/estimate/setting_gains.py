"""What run-time settings gain, alone and two together, for each version of a framework.

Their significance is not corrected for the number of settings. Each is a decision of its own, not the best of several,
and their effects are estimated together, shrunk by what settings usually do (Gelman, Hill and Yajima, "Why we (usually)
don't have to worry about multiple comparisons", Journal of Research on Educational Effectiveness 5, 2012).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from knowledge.estimate.interface import PredictedGain

SettingValue = tuple[str, str]
"""Name of a setting, and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGain:
    """Gains of two settings that were measured together.

    Attributes:
        joint: Gain of both over their absence.
        first: Gain of the first where the second is set.
        second: Gain of the second where the first is set.
    """

    joint: PredictedGain
    first: PredictedGain
    second: PredictedGain


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingGains:
    """Gains of the settings of a framework over their absence, scaled by the framework's share of the workload.

    Attributes:
        framework: The framework.
        alone: Gain by version and setting.
        together: Gains by version and pair of settings that were measured together; gains of other pairs add up.
    """

    framework: str
    alone: Mapping[Version, Mapping[SettingValue, PredictedGain]]
    together: Mapping[Version, Mapping[tuple[SettingValue, SettingValue], PairGain]]

    def of(self, version: Version, values: Collection[SettingValue]) -> PredictedGain:
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
                    PredictedGain(
                        mean=joint.mean - sum(g.mean for g in sums),
                        variance=max(0.0, joint.variance - sum(g.variance for g in sums)),
                    )
                )
        return PredictedGain(mean=sum(g.mean for g in parts), variance=sum(g.variance for g in parts))


def gains_record(gains: Sequence[SettingGains]) -> list[dict[str, Any]]:
    """Return gains as JSON-ready values."""
    return [
        {
            "framework": g.framework,
            "alone": [[str(v), [[*key, *_numbers(x)] for key, x in table.items()]] for v, table in g.alone.items()],
            "together": [
                [
                    str(v),
                    [
                        [*one, *other, *_numbers(pair.joint), *_numbers(pair.first), *_numbers(pair.second)]
                        for (one, other), pair in table.items()
                    ],
                ]
                for v, table in g.together.items()
            ],
        }
        for g in gains
    ]


def gains_from(record: Sequence[Mapping[str, Any]]) -> tuple[SettingGains, ...]:
    """Return the gains of JSON-ready values."""
    return tuple(
        SettingGains(
            framework=entry["framework"],
            alone={
                Version(v): {(name, value): PredictedGain(mean=m, variance=s) for name, value, m, s in rows}
                for v, rows in entry["alone"]
            },
            together={
                Version(v): {((a, x), (b, y)): _pair_of(numbers) for a, x, b, y, *numbers in rows}
                for v, rows in entry["together"]
            },
        )
        for entry in record
    )


def _pair_of(numbers: Sequence[float]) -> PairGain:
    pairs = zip(numbers[0::2], numbers[1::2], strict=True)
    joint, first, second = (PredictedGain(mean=mean, variance=variance) for mean, variance in pairs)
    return PairGain(joint=joint, first=first, second=second)


def _numbers(gain: PredictedGain) -> tuple[float, float]:
    return gain.mean, gain.variance

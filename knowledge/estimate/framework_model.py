"""Predictions for one framework whose versions or settings were compared, for workloads on a machine.

A workload is a list of cases (:mod:`knowledge.estimate.cases`): programs of which one is the user's. In one case, all
programs are equally likely, so the gain has the mean of their gains, and a variance that contains their spread. What
counts for a choice is the case in which it gains least.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from packaging.version import Version

from knowledge.domain.ratio import Ratio
from knowledge.estimate.cases import Case
from knowledge.estimate.compared_settings import ComparedSetting
from knowledge.estimate.gain_model import GainModel, Predicted
from knowledge.estimate.gain_space import Array
from knowledge.estimate.gain_terms import Blend, Pair
from knowledge.estimate.gains import CompanionGain, CompanionGains, FrameworkGains, PairGain, SettingGains, mixture
from knowledge.estimate.interface import Effect, Estimate, PredictedChange, evidence_line
from knowledge.estimate.measured_framework import MeasuredFramework, with_version
from knowledge.estimate.model_cache import number_left_out
from knowledge.estimate.programs import Program, program_of_run
from knowledge.evidence.contrasts import Contrast, Machine, Side

Versions = Mapping[str, Version]
Settings = Mapping[str, str]
SettingRequest = tuple[Version, Settings, Settings]
"""A version of the framework, settings, and those that they are compared with."""


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """A program of the user, as far as it compared the framework: the project's own benchmark, or measured models.

    Attributes:
        case: Its case.
        contrasts: Its measured ratios.
    """

    case: Case
    contrasts: tuple[Contrast, ...]

    @property
    def compared_versions(self) -> bool:
        """Whether it compared versions of the framework."""
        return any(c.side.version != c.reference.version for c in self.contrasts)

    def compared(self, settings: Settings) -> bool:
        """Whether it compared exactly these settings with others, or with their absence."""
        return any(
            settings.items() in (side.settings.items(), side.settings.items() - other.settings.items())
            for c in self.contrasts
            for side, other in ((c.side, c.reference), (c.reference, c.side))
        )


class FrameworkModel:
    """Model of one framework, for workloads on a machine."""

    def __init__(
        self,
        measured: MeasuredFramework,
        model: GainModel,
        cases: Sequence[Case],
        benchmark: OwnProgram | None = None,
        models: OwnProgram | None = None,
    ) -> None:
        """Create the model.

        Args:
            measured: Measurements of the framework, seen from the machine that predictions are for.
            model: The model that was conditioned on them.
            cases: What predictions are for.
            benchmark: The project's own benchmark on this kind of device; it decides about what it compared.
            models: Models of the workload that the user measured on the machine; they decide about what the benchmark
                did not compare.
        """
        self.measured = measured
        self.name = measured.name
        self.machine = measured.machine
        self.own = benchmark
        self._programs = [program for program in (benchmark, models) if program is not None]
        self._model = model
        # Where nothing stands for the workload, the benchmark is all that is known.
        self._cases = tuple(cases) or ((benchmark.case,) if benchmark is not None else ())
        self._gains_of_settings: dict[object, dict[Case, Ratio]] = {}

    @property
    def versions(self) -> frozenset[Version]:
        """Versions of the framework that were compared."""
        return self.measured.versions

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """What gains of versions are for."""
        compared = (program.case for program in self._programs if program.compared_versions)
        return next(((case,) for case in compared), self._cases)

    def cases_of_settings(self, *sides: Settings) -> tuple[Case, ...]:
        """Return what gains of some settings are for: a program of the user that compared those of each side."""
        compared = (p.case for p in self._programs if all(p.compared(settings) for settings in sides if settings))
        return next(((case,) for case in compared), self._cases)

    def _predict(
        self, pairs: Sequence[tuple[Side, Side]], cases: Sequence[Case], *, joint: bool = False
    ) -> dict[Blend, Predicted]:
        blends = list(dict.fromkeys(blend for case in cases for blend in case.programs))
        return dict(zip(blends, self._model.predict(pairs, blends, self.machine, joint=joint), strict=True))

    def gains(self, candidates: Mapping[str, Sequence[Version]], baseline: Versions, *, share: float) -> FrameworkGains:
        """Return gains over a baseline: of the framework's versions, and of its companions with each of them.

        Args:
            candidates: Candidate versions by package.
            baseline: Versions of the baseline, including the framework's.
            share: Share of the workload's time that is spent in the framework.
        """
        stacks = self.measured.compared_stacks(candidates, baseline)
        places = {key: number for number, key in enumerate(stacks.stacks)}
        predicted = self._predict([(side, stacks.baseline) for side in stacks.stacks.values()], self.cases, joint=True)
        texts = list(dict.fromkeys(stacks.own.values()))
        rows = [places[self.name, text] for text in texts]
        others = [key for key in places if key[0] != self.name]
        columns = [places[key] for key in others]
        # Effects of the framework and of its companions add up, so those of both need no further predictions.
        alone, own = ([gain.scaled(share) for gain in self._least(predicted, n)] for n in (rows, columns))
        joint = np.array(self._least(predicted, rows, columns), dtype=object).reshape(len(rows), len(columns))
        return FrameworkGains(
            framework=self.name,
            alone={version: alone[texts.index(text)] for version, text in stacks.own.items()},
            with_companion=CompanionGains(
                own=stacks.own,
                companions=stacks.companions,
                cells={
                    (text, *other): CompanionGain(
                        joint=joint[row, column].scaled(share), own=own[column], framework=alone[row]
                    )
                    for row, text in enumerate(texts)
                    for column, other in enumerate(others)
                },
            ),
            comparisons=self.measured.comparisons(candidates, baseline),
        )

    def _least(
        self, predicted: Mapping[Blend, Predicted], rows: Sequence[int], columns: Sequence[int] | None = None
    ) -> list[Ratio]:
        """Return the gains of changes, or of each two together, for the case in which they gain least."""
        every = []
        for case in self.cases:
            parts = [predicted[blend] for blend in case.programs]
            means = np.array([p.means[rows] for p in parts])
            variances = np.array([np.diag(p.variances)[rows] for p in parts])
            if columns is not None:
                means = means[:, :, None] + np.array([p.means[columns] for p in parts])[:, None]
                both = np.array([2 * p.variances[np.ix_(rows, columns)] for p in parts])
                own = np.array([np.diag(p.variances)[columns] for p in parts])
                variances = variances[:, :, None] + own[:, None] + both
            every.append((means.mean(axis=0).ravel(), (variances.mean(axis=0) + means.var(axis=0)).ravel()))
        gains = (
            [Ratio(mean=m, variance=max(0.0, v)) for m, v in zip(means.tolist(), variances.tolist(), strict=True)]
            for means, variances in every
        )
        return [min(listed, key=lambda gain: gain.cautious) for listed in zip(*gains, strict=True)]

    def differs(self, stack: Versions, baseline: Versions) -> bool:
        """Whether two stacks differ in a version that the model uses."""
        return self.measured.whole(stack) != self.measured.whole(baseline)

    def gain_by_case(self, stack: Versions, baseline: Versions) -> dict[Case, Ratio]:
        """Return the log speed-up of a stack over a baseline in each case, from the tables of the optimiser.

        What changes of companions have in common with each other is not counted.
        """
        base, whole = self.measured.whole(baseline), self.measured.whole(stack)
        names = sorted({*base.companions, *whole.companions})
        changed = [name for name in names if base.companions.get(name) != whole.companions.get(name)]
        alone = self.measured.whole({**baseline, self.name: stack[self.name]})
        sides = [alone, *(self.measured.whole(with_version(baseline, n, stack.get(n))) for n in changed)]
        predicted = self._predict([(side, base) for side in sides], self.cases, joint=True)
        counted = np.eye(len(sides))
        counted[0] = counted[:, 0] = 1.0
        sums = {
            blend: Predicted(own.means.sum(keepdims=True), (own.variances * counted).sum(keepdims=True)[0])
            for blend, own in predicted.items()
        }
        return {case: _mixed(case, sums)[0] for case in self.cases}

    def estimate(self, stack: Versions, against: Versions, *, confidence: float) -> Estimate:
        """Return the predicted speed-up of a stack over another, with the contrasts that support it."""
        pair = self.measured.whole(stack), self.measured.whole(against)
        gain = mixture(list(self.gain_by_case(stack, against).values()))
        blends = [blend for case in self.cases for blend in case.programs]
        weights = self._model.weights(pair, blends, self.machine).tolist()
        weighted = sorted(
            zip(weights, self._model.contrasts, strict=True), key=lambda c: (-abs(c[0] * c[1].mean), c[1].label)
        )
        return Estimate(
            ratio=replace(gain, quantile=statistics.NormalDist().inv_cdf((1 + confidence) / 2)),
            confidence=confidence,
            measured={stack[self.name], against[self.name]} <= self.versions,
            weighted_contrasts=tuple((float(w), c) for w, c in weighted if w),
        )

    def effects(self, stack: Versions, baseline: Versions) -> list[Effect]:
        """Return the predicted speed-up at each program; an empty list if no version differs."""
        if not self.differs(stack, baseline):
            return []
        pair = self.measured.whole(stack), self.measured.whole(baseline)
        predicted = self._predict([pair], self.cases)
        listed = {
            _subject(blend): Ratio(mean=float(own.means[0]), variance=max(0.0, float(own.variances[0])))
            for blend, own in predicted.items()
        }
        return [self._effect(subject, gain) for subject, gain in sorted(listed.items())]

    def setting_effect(self, stack: Versions, name: str, value: str, over: str = "") -> Effect:
        """Return the predicted effect of a value of a setting on the speed of a stack.

        Args:
            stack: The stack.
            name: Name of the setting, as in the measurements.
            value: Its value; empty for its absence.
            over: The value that it is compared with, by default its absence.
        """
        request = stack[self.name], {name: value} if value else {}, {name: over} if over else {}
        (by_case,) = self.gains_of_settings(stack, [request])
        return self._effect(f"{name}={value}", mixture(list(by_case.values())))

    def gains_of_settings(self, stack: Versions, requests: Sequence[SettingRequest]) -> list[Mapping[Case, Ratio]]:
        """Return the log speed-ups by settings over others in each case, each with another version of the framework.

        The optimum and the report ask for the same ones, so each is computed once.
        """
        keys = []
        new: dict[tuple[Case, ...], dict[object, tuple[Side, Side]]] = {}
        for version, one, other in requests:
            side = self.measured.whole({**stack, self.name: version})
            cases = self.cases_of_settings(one, other)
            key = side.version, tuple(sorted(one.items())), tuple(sorted(other.items()))
            keys.append(key)
            if key not in self._gains_of_settings:
                pair = replace(side, settings=dict(one)), replace(side, settings=dict(other))
                new.setdefault(cases, {})[key] = pair
        for cases, pairs in new.items():
            predicted = self._predict(list(pairs.values()), cases)
            of_cases = {case: _mixed(case, predicted) for case in cases}
            for number, asked in enumerate(pairs):
                self._gains_of_settings[asked] = {case: gains[number] for case, gains in of_cases.items()}
        return [self._gains_of_settings[key] for key in keys]

    def setting_gains(
        self, settings: Sequence[ComparedSetting], stack: Versions, versions: Sequence[Version], *, share: float
    ) -> SettingGains:
        """Return the gain of each setting, and of pairs that were measured together, for versions of the framework.

        Args:
            settings: The settings, each value by one name.
            stack: A stack with the other packages.
            versions: Versions of the framework.
            share: Share of the workload's time that is spent in the framework.
        """
        by_value = {setting.value: setting for setting in settings}
        requests: dict[str, SettingRequest] = {}

        def ask(version: Version, one: Sequence[ComparedSetting], over: Sequence[ComparedSetting] = ()) -> str:
            """Ask for the gain of some settings over others, and return the key of the answer."""
            values = {setting.change[0]: setting.change[1] for setting in one}
            defaults = {setting.change[0]: setting.change[2] for setting in one if setting.change[2]}
            others = {setting.change[0]: setting.change[1] for setting in over}
            key = repr((str(version), values, defaults, others))
            requests.setdefault(key, (version, values, {**defaults, **others}))
            return key

        alone = {v: {value: ask(v, [s]) for value, s in by_value.items()} for v in versions}
        together = {
            v: {
                (a.value, b.value): [ask(v, [a, b]), ask(v, [a, b], [b]), ask(v, [a, b], [a])]
                for a, b in self.measured.setting_pairs
                # Effects for one program and for another one do not add up to that of both.
                if by_value.get(a.value) is a and by_value.get(b.value) is b and self._are_for_one_program(a, b)
            }
            for v in versions
        }
        answers = self.gains_of_settings(stack, list(requests.values()))
        gains = {
            key: min(by_case.values(), key=lambda gain: gain.cautious).scaled(share)
            for key, by_case in zip(requests, answers, strict=True)
        }
        return SettingGains(
            framework=self.name,
            alone={v: {value: gains[key] for value, key in table.items()} for v, table in alone.items()},
            together={
                v: {
                    values: PairGain(joint=gains[joint], first=gains[first], second=gains[second])
                    for values, (joint, first, second) in table.items()
                }
                for v, table in together.items()
            },
        )

    def side(self, version: Version, settings: Settings | None = None) -> Side:
        """Return a stack of a version alone, with settings as in the measurements."""
        return replace(self.measured.whole({self.name: version}), settings=dict(settings or {}))

    def gains_of_pairs(self, pairs: Sequence[Pair]) -> list[dict[Case, Ratio]]:
        """Return the log speed-up of the first stack of each pair over the second one in each case."""
        predicted = self._predict(pairs, self.cases)
        of_cases = {case: _mixed(case, predicted) for case in self.cases}
        return [{case: gains[number] for case, gains in of_cases.items()} for number in range(len(pairs))]

    def explained_by(
        self, ratios: Sequence[Contrast], programs: Sequence[Program], gains: Sequence[tuple[Pair, Case]]
    ) -> tuple[Array, Array]:
        """Return what further ratios would explain of gains of pairs of stacks in cases.

        Args:
            ratios: The further ratios (n,), whose means do not count.
            programs: The program of each.
            gains: The gains (m,).

        Returns:
            The covariances of the gains with the ratios (m, n), and those of the ratios with their noise (n, n), both
            given the measured ratios.
        """
        numbers: dict[tuple[object, Program], int] = {}
        points: list[tuple[Pair, Program, Machine]] = []
        shares: list[dict[int, float]] = []
        for pair, case in gains:
            shares.append({})
            for blend in case.programs:
                for share, program in blend:
                    key = tuple(side.key for side in pair), program
                    if key not in numbers:
                        numbers[key] = len(points)
                        points.append((pair, program, self.machine))
                    place = numbers[key]
                    shares[-1][place] = shares[-1].get(place, 0.0) + share / len(case.programs)
        across, within = self._model.explained_by(ratios, programs, points)
        weights = np.zeros((len(gains), len(points)))
        for row, own in enumerate(shares):
            weights[row, list(own)] = list(own.values())
        return weights @ across, within

    def _are_for_one_program(self, one: ComparedSetting, other: ComparedSetting) -> bool:
        cases = {self.cases_of_settings(dict([s.change[:2]])) for s in (one, other)}
        return len({*cases, self.cases_of_settings(dict([one.change[:2], other.change[:2]]))}) == 1

    def _effect(self, subject: str, gain: Ratio) -> Effect:
        return Effect(subject=subject, package=self.name, ratio=gain)

    def change(self, stack: Versions, baseline: Versions, gain: Ratio) -> PredictedChange:
        """Return the prediction for a change, with the comparisons that support it."""
        versions = {str(stack[self.name]), str(baseline[self.name])}
        plain = [c for c in self._model.contrasts if not (c.is_control or c.side.settings or c.reference.settings)]
        models = {program.model for case in self.cases for blend in case.programs for _, program in blend}
        models |= {model[1:] for model in models}
        contrasts = [c for c in plain if program_of_run(c.label, c.family).model in models] or plain
        direct = [c for c in contrasts if {c.side.version, c.reference.version} == versions]
        related = direct or [c for c in contrasts if {c.side.version, c.reference.version} & versions]
        return PredictedChange(
            package=self.name,
            ratio=gain,
            measured=versions <= {str(v) for v in self.versions},
            evidence=tuple(evidence_line(c) for c in related or contrasts),
            left_out=number_left_out(self.measured.contrasts, self._model.contrasts),
        )


def _mixed(case: Case, predicted: Mapping[Blend, Predicted]) -> list[Ratio]:
    """Return the gain of each pair in a case: the mean of its programs', with their spread."""
    means = np.array([predicted[blend].means for blend in case.programs])
    variances = np.maximum(0.0, [predicted[blend].variances for blend in case.programs]).mean(axis=0)
    columns = means.mean(axis=0).tolist(), (variances + means.var(axis=0)).tolist()
    return [Ratio(mean=mean, variance=variance) for mean, variance in zip(*columns, strict=True)]


def _subject(blend: Blend) -> str:
    """Return the name of a blend of programs, for people."""
    first = blend[0][1].label
    return first.removeprefix("new ") if len(blend) == 1 else f"{first} and {len(blend) - 1} more"

"""The estimator: gains for the optimiser and predictions for reports, also for stacks that were not measured.

The score is the certainty equivalent, mean - (risk / 2) x variance (Pratt, "Risk Aversion in the Small and in the
Large", Econometrica 32, 1964), of the gain over the baseline. Nobody may have said what the program does, or how large
it is. Then the gain of a version or a setting is its gain in the case in which it gains least, and its loss is the loss
of the case that loses most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from packaging.version import Version

from knowledge.domain.frameworks import runs_on_processors_only
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import NO_FAILURE
from knowledge.domain.ratio import CONFIDENCE, NO_GAIN, Ratio, product
from knowledge.estimate.cases import AS_MEASURED, Case, case_of_benchmark, cases_of, is_program, measured_here
from knowledge.estimate.compared_settings import Change, ComparedSetting, preferred, sources_of
from knowledge.estimate.framework_model import FrameworkModel, OwnProgram
from knowledge.estimate.gains import CompanionGains, FrameworkGains, SettingGains, mixture
from knowledge.estimate.interface import Effect, KindPrediction, PredictedChange, Prediction
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.model_cache import ModelCache, same_on
from knowledge.estimate.setting_effect import EffectAtSize, SettingEffect
from knowledge.estimate.workloads import (
    INDICATOR,
    MODELS,
    OPERATIONS,
    OWN,
    PROFILE,
    STEPS,
    TASKS,
    TimePart,
    Workload,
    share_of_parts,
    workload_catalogue,
)
from knowledge.evidence.block_evidence import RunOutcome
from knowledge.evidence.contrasts import Contrast, Machine, machine_of
from knowledge.evidence.published_rows import DEFAULTS
from knowledge.evidence.timm import timm_contrasts

_OF_OPERATIONS = (INDICATOR, OPERATIONS, PROFILE, STEPS)
"""Lists of parts that may be single operations."""
Versions = Mapping[str, Version]


class WorkloadEstimator:
    """The estimator for one machine and some workloads; see :class:`knowledge.estimate.interface.Estimator`."""

    def __init__(
        self,
        models: ModelCache,
        *,
        hardware: HardwareProfile,
        workload: Workload | None,
        frameworks: Collection[str],
        benchmark: str = "",
    ) -> None:
        """Create the estimator; a framework is read when it is needed.

        Args:
            models: Models of the frameworks.
            hardware: The machine.
            workload: The workload; ``None`` for all general kinds.
            frameworks: Distributions that provide frameworks.
            benchmark: Identity of the project's own benchmark, whose ratios decide about what it compared.
        """
        self._models = models
        self._hardware = hardware
        self._workload = workload
        kinds = [kind for kind in workload_catalogue().values() if kind.is_kind]
        self._workloads = {w.name: w for w in ([workload] if workload is not None else kinds)}
        self._benchmark = models.benchmark(benchmark) if benchmark else ()
        # The benchmark may have compared versions of a package that is no framework.
        self._frameworks = frozenset({*frameworks, *(c.framework for c in self._benchmark)})
        self._made: dict[str, FrameworkModel | None] = {}
        # Nothing that was measured stands for accelerators of other makers than NVIDIA.
        self._only_processor = bool(hardware.accelerators) and hardware.gpu is None

    def model(self, name: str) -> FrameworkModel | None:
        """Return the model of a framework; none if nothing was compared that stands for the workloads and device."""
        if name not in self._made:
            is_known = name in self._frameworks and (runs_on_processors_only(name) or not self._only_processor)
            self._made[name] = self._make(name) if is_known else None
        return self._made[name]

    def _make(self, name: str) -> FrameworkModel | None:
        device, machine = self._device(name), self._machine(name)
        # A benchmark that ran on another kind of device says nothing about this one.
        names = {name, *same_on(name, device)}
        own = [c for c in self._benchmark if c.framework in names and c.machine.is_processor == machine.is_processor]
        contrasts = (*self._models.contrasts(name, device), *self._ratios_of_timm(name, device))
        blocks = self._models.own_blocks
        cases = [case for w in self._workloads.values() for case in cases_of(w, contrasts, machine, blocks)]
        if not cases and not own:
            return None
        benchmark, programs = None, {}
        if own:
            case, program = case_of_benchmark(own, cases if self._workload is not None else ())
            benchmark = OwnProgram(case, tuple(own))
            programs = {c.label: replace(program, label=c.label) for c in own}
        operations = {c.basis for c in cases} <= set(_OF_OPERATIONS) and bool(cases)
        families = frozenset(
            part.indicator
            for w in self._workloads.values()
            for basis, parts in w.parts.items()
            if operations and basis in _OF_OPERATIONS
            for part in parts
        )
        # The benchmark is in the knowledge base, too, and counts once.
        ratios = [*own, *(c for c in contrasts if (c.family in families if families else is_program(c)))]
        model = self._models.model(ratios, machine, families=families, own=programs)
        selected = self._workload if cases else None
        here = measured_here(selected, contrasts, machine, blocks, model.programs) if selected is not None else None
        models = OwnProgram(*here) if here is not None else None
        return FrameworkModel(MeasuredFramework(name, ratios, machine), model, cases, benchmark, models)

    def _ratios_of_timm(self, name: str, device: str) -> list[Contrast]:
        """Return the own ratios of the workload, if it is a model of timm."""
        model = self._workload.timm_model if self._workload is not None and name == "torch" else ""
        return [c for c in timm_contrasts(model) if c.label.endswith(f"/{device}")] if model else []

    def _device(self, name: str) -> str:
        """Return the device that a framework runs on: ``cpu`` or ``cuda``."""
        return "cpu" if runs_on_processors_only(name) else self._hardware.device

    def _machine(self, name: str) -> Machine:
        return machine_of(self._hardware, self._device(name))

    def _modelled(self, names: Iterable[str]) -> dict[str, FrameworkModel]:
        """Return the model of each package that has one, sorted by name."""
        listed = ((name, self.model(name)) for name in sorted(self._frameworks & set(names)))
        return {name: model for name, model in listed if model is not None}

    def _shares(self, names: Iterable[str]) -> dict[str, float]:
        """Return the share of the workload's time that each measured framework of a stack counts for, by name.

        The frameworks share a workload equally. The project's own benchmark measures the whole program: what it ran
        with counts alone.
        """
        measured = self._modelled(names)
        own = [name for name, model in measured.items() if model.own is not None]
        return dict.fromkeys(own, 1.0) or dict.fromkeys(measured, 1 / max(1, len(measured)))

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that failed to run on comparable hardware, each with the reason."""
        if name not in self._frameworks:
            return {}
        return find_failures(self._models.runs(name, self._device(name)), self._machine(name))

    def prepare(self, names: Iterable[str]) -> None:
        """Do what the predictions of some packages need, whatever the stacks are."""
        self._modelled(names)

    def terms(self, candidates: Mapping[str, Sequence[Version]], baseline: Versions) -> tuple[FrameworkGains, ...]:
        """Return the gains of every candidate, each in the case in which it gains least."""
        terms = []
        for name, share in self._shares(baseline).items():
            model = self.model(name)
            if model is not None and model.versions and candidates.get(name):
                gains = model.gains(candidates, baseline, share=share)
                terms.append(_measured_gains(gains, model, baseline) if _is_published(model) else gains)
        # Any of these comparisons could change the stack by chance.
        comparisons = sum(gains.comparisons for gains in terms)
        return tuple(replace(gains, comparisons=comparisons) for gains in terms)

    def is_measured(self, name: str, version: Version) -> bool:
        """Whether a version was compared on comparable hardware; true for packages that are not frameworks."""
        if name not in self._frameworks:
            return True
        model = self.model(name)
        return model is not None and version in model.versions

    def has_compared(self, name: str, version: Version, other: Version) -> bool:
        """Whether two versions of a package were compared on comparable hardware; false for unmeasured packages."""
        model = self.model(name)
        return model is not None and {version, other} <= model.versions

    def time_share(self, name: str, parts: Sequence[Mapping[str, str]]) -> float | None:
        """Return the share of the workload's time of some parts of it; ``None`` if no workload is selected."""
        if self._workload is None:
            return None
        return share_of_parts(self._workload, parts) if self._counts(name) else 0.0

    def _counts(self, name: str) -> bool:
        """Whether a framework can belong to the workloads, by the backend of its measurements."""
        contrasts = self._models.contrasts(name, self._device(name)) if name in self._frameworks else ()
        backends = {backend for w in self._workloads.values() for backend in w.backends}
        is_any = not all(w.backends for w in self._workloads.values())
        return not contrasts or is_any or contrasts[0].backend in backends

    def predict(self, stack: Versions, baseline: Versions) -> Prediction:
        """Predict the speed-up of a stack over the baseline.

        Without a selected workload, it is for the kind that gains least, with the predictions of all kinds.
        """
        changes: list[PredictedChange] = []
        by_workload: dict[str, dict[str, list[Ratio]]] = {}
        not_compared: list[str] = []
        for name, share in self._shares(baseline).items():
            model = self.model(name)
            if model is None or name not in stack or not model.versions or not model.differs(stack, baseline):
                continue
            # Published pairs are of few releases: a step to a release that nobody published is not measured.
            if _is_published(model) and not model.measured.has_measured_step(stack, baseline):
                not_compared.append(name)
                continue
            by_case = model.gain_by_case(stack, baseline)
            changes.append(model.change(stack, baseline, mixture(list(by_case.values()))))
            for case, gain in by_case.items():
                by_workload.setdefault(case.workload, {}).setdefault(case.size, []).append(gain.scaled(share))
        return self._prediction(stack, baseline, changes, by_workload, not_compared)

    def _prediction(
        self,
        stack: Versions,
        baseline: Versions,
        changes: Sequence[PredictedChange],
        by_workload: Mapping[str, Mapping[str, Sequence[Ratio]]],
        not_compared: Sequence[str],
    ) -> Prediction:
        models = {name: model for name, model in self._modelled(stack).items() if name in baseline and model.versions}
        unmeasured = sorted(n for n in self._frameworks & set(stack) - models.keys() if self._counts(n))
        sizes = {
            workload: {size: product(gains) for size, gains in by_size.items()}
            for workload, by_size in by_workload.items()
        }
        every = {workload: mixture(list(of_sizes.values())) for workload, of_sizes in sizes.items()}
        least = min(every, key=lambda workload: every[workload].cautious, default="")
        gain = every.get(least, NO_GAIN)
        names = dict.fromkeys(case.workload for model in models.values() for case in model.cases)
        selected = self._workload.name if self._workload is not None else ""
        kinds = every or dict.fromkeys(names, gain)
        return Prediction(
            ratio=gain,
            score=min((g.cautious for of_sizes in sizes.values() for g in of_sizes.values()), default=0.0),
            confidence=CONFIDENCE,
            workload=least or selected or next(iter(names), ""),
            changes=tuple(changes),
            unmeasured=tuple(unmeasured),
            newest_measured=tuple(
                (name, str(newest)) for name, m in models.items() if stack[name] > (newest := max(m.versions))
            ),
            not_compared=tuple(not_compared),
            operations_only=tuple(
                name for name, m in models.items() if all(case.basis == OPERATIONS for case in m.cases)
            ),
            kinds=_predictions(kinds) if self._workload is None and set(kinds) != {OWN} else (),
            sizes=_predictions(sizes[least]) if least and len(sizes[least]) > 1 else (),
        )

    def effects(self, stack: Versions, baseline: Versions) -> tuple[Effect, ...]:
        """Predict the speed-up of a stack over the baseline at each program that stands for the workloads."""
        models = self._modelled(name for name in stack if name in baseline)
        return tuple(effect for model in models.values() if model.versions for effect in model.effects(stack, baseline))

    def setting_effects(
        self,
        stack: Versions,
        settings: Mapping[str, Mapping[str, str]],
        over: Mapping[str, Mapping[str, str]] | None = None,
    ) -> tuple[Effect, ...]:
        """Predict what settings do to a stack, each against its default or another value, with the advice's numbers.

        Args:
            stack: The stack.
            settings: Settings by framework of the stack, empty values for their absence; the result has no effects of
                settings without measurements.
            over: Values that they are compared with, by framework; by default their absence.
        """
        over = over or {}
        effects = []
        for name, model in self._modelled(name for name in stack if settings.get(name)).items():
            by_value = {setting.value: setting for setting in preferred(model.measured.settings, self._parts(model))}
            for setting, value in sorted(settings[name].items()):
                values = [value, over.get(name, {}).get(setting, "")]
                sides = [by_value.get((setting, text)) for text in values]
                compared = [side for side in sides if side is not None]
                if not compared or len(compared) < sum(map(bool, values)):
                    continue
                measured, _, default = compared[0].change
                new, old = (side.change[1] if side is not None else default for side in sides)
                effects.append(replace(model.setting_effect(stack, measured, new, old), subject=f"{setting}={value}"))
        return tuple(effects)

    def compared_settings(self, stack: Versions) -> tuple[SettingEffect, ...]:
        """Return what settings of the frameworks of a stack are worth, for each workload, as far as it is known."""
        effects: list[SettingEffect] = []
        for model in self._modelled(stack).values():
            parts = {name: self._parts_of(workload, model) for name, workload in self._workloads.items()}
            parts[OWN] = ()
            listed = {name: preferred(model.measured.settings, of_workload) for name, of_workload in parts.items()}
            changes = {setting.change: setting for settings in listed.values() for setting in settings}
            requests = [_request(stack[model.name], change) for change in changes]
            answers = dict(zip(changes, model.gains_of_settings(stack, requests), strict=True))
            for change, by_case in answers.items():
                for workload in dict.fromkeys(case.workload for case in by_case):
                    if changes[change] in listed[workload]:
                        gains = {case: gain for case, gain in by_case.items() if case.workload == workload}
                        effects.append(_setting_effect(model, changes[change], gains, parts[workload]))
        return tuple(sorted(effects, key=lambda e: (e.package, e.setting, e.over, -e.speedup)))

    def setting_gains(self, candidates: Mapping[str, Sequence[Version]], stack: Versions) -> tuple[SettingGains, ...]:
        """Return the gains of the settings of each framework, for its candidates, in the case with the least gain.

        Args:
            candidates: Candidate versions by package.
            stack: A stack with the other packages, such as the baseline.
        """
        gains = []
        for name, share in self._shares(stack).items():
            model = self.model(name)
            if model is None or not candidates.get(name):
                continue
            # A setting that is for inference is not compared for a kind of workload that trains.
            workloads = dict.fromkeys(case.workload for case in model.cases if case.basis != OWN)
            lists = [preferred(model.measured.settings, self._parts_of(self._workloads[w], model)) for w in workloads]
            lists = lists or [preferred(model.measured.settings, ())]
            settings = [setting for setting in lists[0] if all(setting in other for other in lists)]
            if settings:
                gains.append(model.setting_gains(settings, stack, candidates[name], share=share))
        return tuple(gains)

    def _parts(self, model: FrameworkModel) -> tuple[TimePart, ...]:
        return tuple(part for w in self._workloads.values() for part in self._parts_of(w, model))

    def _parts_of(self, workload: Workload, model: FrameworkModel) -> tuple[TimePart, ...]:
        """Return the parts of a workload that its predictions come from."""
        bases = {case.basis for case in model.cases if case.workload == workload.name}
        # Settings of accelerators were published for whole models.
        bases |= set() if model.machine.is_processor else {TASKS}
        return tuple(part for basis in (MODELS, TASKS) if basis in bases for part in workload.parts.get(basis, ()))


def find_failures(runs: Iterable[RunOutcome], machine: Machine) -> dict[str, str]:
    """Return the versions that failed and never ran on machines of one kind; failed installations do not count."""
    ran: set[str] = set()
    failed: dict[str, str] = {}
    for run in runs:
        if run.machine.kind != machine.kind:
            continue
        if run.status == "ok":
            ran.add(run.version)
        elif run.status not in NO_FAILURE:
            # The cause may be NumPy's binary interface, which the rules describe.
            numpy = f" with numpy {run.numpy}" if run.numpy else ""
            failed[run.version] = f"{run.status} in block {run.block}{numpy}"
    return {version: reason for version, reason in failed.items() if version not in ran}


def _is_published(model: FrameworkModel) -> bool:
    """Whether predictions for versions come from published measurements."""
    return all(case.basis == TASKS for case in model.cases)


def _measured_gains(gains: FrameworkGains, model: FrameworkModel, baseline: Versions) -> FrameworkGains:
    """Return gains without those of steps that nobody published, which count like unmeasured packages: as nothing.

    Their uncertainty would be a cost of every version but the baseline's, and a stack without the framework would avoid
    it. Companions were not published.
    """
    alone = {
        version: gain if model.measured.has_measured_step({model.name: version}, baseline) else NO_GAIN
        for version, gain in gains.alone.items()
    }
    table = CompanionGains(own={version: str(version) for version in alone}, companions={}, cells={})
    return replace(gains, alone=alone, with_companion=table)


def _predictions(gains: Mapping[str, Ratio]) -> tuple[KindPrediction, ...]:
    return tuple(KindPrediction(workload=name, ratio=gain) for name, gain in gains.items())


def _request(version: Version, change: Change) -> tuple[Version, dict[str, str], dict[str, str]]:
    name, value, over = change
    return version, {name: value}, {name: over} if over else {}


def _setting_effect(
    model: FrameworkModel, setting: ComparedSetting, gains: Mapping[Case, Ratio], parts: Sequence[TimePart]
) -> SettingEffect:
    """Return the effect of a setting on one workload, with its sources."""
    name, value, over = setting.change
    own = setting.of_tasks(parts)
    contrasts: Sequence[Contrast] = own or setting.contrasts
    if model.own is not None and {case.workload for case in gains} == {OWN}:
        contrasts = own = tuple(c for c in setting.contrasts if c in model.own.contrasts) or setting.contrasts
    at_sizes = [EffectAtSize(flops=case.flops, ratio=gain) for case, gain in gains.items() if case.flops > 0]
    return SettingEffect(
        package=model.name,
        setting="=".join(setting.value),
        measured_as=f"{name}={value}",
        over=f"{name}={over or DEFAULTS.get(name, 'default')}",
        workload=next(case.workload for case in gains),
        ratio=mixture(list(gains.values())),
        sources=sources_of(contrasts),
        same_tasks=bool(own),
        accelerator_pairs=sum(c.machine.is_like(model.machine) for c in contrasts),
        sizes=tuple(sorted(at_sizes, key=lambda size: (size.flops, size.low)))
        if len(at_sizes) > 1 or any(case.size == AS_MEASURED for case in gains)
        else (),
    )

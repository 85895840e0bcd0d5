"""Proposes a campaign for a machine: the measurements that are expected to improve the advice most in a given time.

The decisions are the versions and the run-time settings of each framework, for each general kind of workload at each of
its sizes. All kinds have the same weight. In a kind, the frameworks that run it have the same weight, and so have its
sizes. The measurements are whole models at their sizes.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

from advisor.project.text_file import toml_text
from knowledge.catalogue.fit import misfit_of
from knowledge.catalogue.settings import shipped_settings
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import FRAMEWORKS, Framework, frameworks
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import PUBLISHED, IndicatorRun
from knowledge.domain.ratio import Ratio
from knowledge.estimate.cases import Case
from knowledge.estimate.compared_settings import ComparedSetting, preferred
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gain_terms import MEASURED_HERE
from knowledge.estimate.information import DEFAULT, BlockCosts, CaseDecision, PossibleBlock, decide, select
from knowledge.estimate.programs import WHOLE_MODEL, Program, program_of_run
from knowledge.estimate.workloads import MODELS, TASKS
from knowledge.evidence.contrasts import Contrast, Side
from knowledge.hardware.peaks import peak_operations
from pi_runners.indicators import INDICATORS
from pi_runners.plan.matrix import check_fit, choose_cases, fitting, indicator_runs

ROUNDS, SAMPLES, MIN_SECONDS, TIMEOUT_SECONDS = 6, 4, 0.02, 1800
"""How proposed blocks are measured, as the shipped ones were."""
PROCESS_SECONDS = 4.0
"""Start of a process of the harness."""
ENVIRONMENT_SECONDS = 60.0
"""Time to install a stack: a judgement. It depends on the network and on the cache."""
_SIZES = {"cpu": ("small", "medium", "large"), "cuda": ("large",)}
"""Sizes of whole models by device: smaller ones do not fill an accelerator, and published tasks do."""
_CALLS = SAMPLES + 8
"""Calls of a program in a run, with those that warm it up."""
_BEFORE_SAMPLES_SECONDS = 0.3
_ATTAINED = 0.1
"""Share of the peak rate of an accelerator that a program attains, if no run of it is known: a judgement."""
_USUAL_FLOPS = 1e11
"""Operations per second of a processor, if no run of the framework is known: a judgement."""
_ERROR = 0.01
"""Standard error of a ratio of 6 rounds, if the framework was not measured on this kind of device: a judgement."""
VERSION = "version"
"""Subject of the choice among versions."""
VersionsOf = Callable[[Requirement], Sequence[Version]]
"""Returns the versions that the machine can install, newest first, for a requirement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDecision:
    """A decision that a measurement may change.

    Attributes:
        workload: The kind of workload.
        size: Name of the size; empty if the workload has one only.
        option: The option with the largest predicted speed except the default: a version, or a value of a setting.
        ratio: Predicted speed-up of it over the default: the newest version, or the setting's absence.
        gain: Expected gain of the decision by the measurement, as a log ratio.
    """

    workload: str
    size: str
    option: str
    ratio: Ratio
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedChoice:
    """Arms of a block that are about one choice: versions, or values of one setting.

    Attributes:
        subject: What is chosen: ``version``, or the name of the setting.
        values: The versions or the values that are measured.
        gain: Expected gain: the mean over all workloads, as a log ratio.
        seconds: Their share of the duration of the block.
        decisions: The decisions that they may change, those with the largest gain first.
    """

    subject: str
    values: tuple[str, ...]
    gain: float
    seconds: float
    decisions: tuple[OpenDecision, ...]

    @property
    def is_of_versions(self) -> bool:
        """Whether versions are chosen, and not values of a setting."""
        return self.subject == VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedBlock:
    """Measurements of one framework with a common reference.

    Attributes:
        framework: The distribution.
        reference: Its version that the others are compared with, and that has the settings.
        choices: What is compared, the largest gain first.
        programs: The models at their sizes, which all arms run.
        gain: Expected gain: the mean over all workloads, as a log ratio.
        seconds: Duration.
    """

    framework: str
    reference: str
    choices: tuple[ProposedChoice, ...]
    programs: tuple[IndicatorRun, ...]
    gain: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignProposal:
    """A proposed campaign.

    Attributes:
        hardware: Name of the machine.
        device: ``cpu`` or ``cuda``.
        budget_seconds: Time that it may take.
        workloads: The kinds of workloads whose decisions count, all with the same weight.
        blocks: The blocks, the largest gain per time first.
        left_out: What cannot be planned, with the reasons.
    """

    hardware: str
    device: str
    budget_seconds: float
    workloads: tuple[str, ...]
    blocks: tuple[ProposedBlock, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def seconds(self) -> float:
        """Duration of all blocks."""
        return sum(block.seconds for block in self.blocks)

    @property
    def gain(self) -> float:
        """Expected gain of all blocks: the mean over all workloads, as a log ratio."""
        return sum(block.gain for block in self.blocks)


class _Arm(NamedTuple):
    """An arm that may be measured, with its stack as the model has it."""

    subject: str
    value: str
    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A block that may be measured, with what its numbers mean."""

    framework: str
    reference: Version
    arms: Sequence[_Arm]
    runs: Sequence[IndicatorRun]
    block: PossibleBlock


@dataclass(kw_only=True)
class _Planner:
    """What all frameworks have in common.

    Attributes:
        hardware: The machine.
        history: Seconds that a run of an indicator took so far, by its label.
        left_out: What cannot be planned, with the reasons.
    """

    hardware: HardwareProfile
    history: Mapping[str, float]
    left_out: dict[str, str] = field(default_factory=dict)

    def versions(self, model: FrameworkModel, failures: Mapping[str, str], offered: Iterable[Version]) -> list[Version]:
        """Return the newest version of each minor release, newest first, down to the oldest that was compared."""
        oldest = min(model.versions)
        newest: dict[tuple[int, int], Version] = {}
        for version in (version for version in offered if version >= oldest):
            if str(version) in failures:
                self.left_out[f"{model.name}=={version}"] = failures[str(version)]
            else:
                newest.setdefault((version.major, version.minor), version)
        return list(newest.values())

    def settings(self, model: FrameworkModel, version: Version) -> list[ComparedSetting]:
        """Return the values of settings that a version has on the machine."""
        backend, device = FRAMEWORKS[model.name], self.hardware.device
        listed = []
        for setting in preferred(model.measured.settings, ()):
            name, value = setting.value
            choice = shipped_settings()[name].choice(backend, value) if name in shipped_settings() else None
            if choice is None or not fitting({name: value}, backend, device):
                continue
            misfit = misfit_of(choice, version=version, hardware=self.hardware)
            if misfit is None:
                listed.append(setting)
            else:
                self.left_out[f"{name}={value} of {model.name}"] = misfit.reason
        return listed

    def runs(self, backend: str) -> list[IndicatorRun]:
        """Return the runs of whole models that a framework supports and that fit into memory."""
        device = self.hardware.device
        runs: list[IndicatorRun] = []
        for size in _SIZES[device]:
            for case in choose_cases([WHOLE_MODEL], size=size):
                try:
                    check_fit([case], ["float32"], self.hardware, device=device, backends=[backend])
                except InputError:
                    self.left_out[program_name(case.parameters)] = "it needs more memory than the machine has"
                    continue
                runs += indicator_runs([case], backend, ["float32"], device)
        return runs


def run_seconds(
    runs: Sequence[IndicatorRun], hardware: HardwareProfile, history: Mapping[str, float] | None = None
) -> list[float]:
    """Return the seconds that each run takes: those of earlier ones, by label, or estimated from its operations."""
    history = history or {}
    flops = {run.label: _flops(run) for run in runs}
    rates = [
        _CALLS * flops[label] / (history[label] - _BEFORE_SAMPLES_SECONDS)
        for label in flops
        if history.get(label, 0.0) > 1.0
    ]
    gpu = hardware.gpu if hardware.device == "cuda" else None
    peak = peak_operations(gpu, "float32") if gpu is not None else None
    rate = statistics.median(rates) if rates else _ATTAINED * peak if peak else _USUAL_FLOPS
    return [
        history.get(label, _BEFORE_SAMPLES_SECONDS + _CALLS * max(MIN_SECONDS, operations / rate))
        for label, operations in flops.items()
    ]


def propose(
    estimator: WorkloadEstimator,
    hardware: HardwareProfile,
    *,
    versions_of: VersionsOf,
    history: Mapping[str, float],
    budget_seconds: float,
    progress: Callable[[str], None] = lambda _: None,
) -> CampaignProposal:
    """Propose a campaign.

    Args:
        estimator: The estimator for the machine and all general kinds of workloads.
        hardware: The machine.
        versions_of: Returns the versions that the machine can install.
        history: Seconds that a run of an indicator took so far, by its label.
        budget_seconds: Time that the campaign may take.
        progress: Called with a short text before each framework, and before the selection.

    Raises:
        InputError: If the budget is too small for the smallest block, or nothing can be planned.
    """
    planner = _Planner(hardware=hardware, history=history)
    models = [model for f in frameworks().values() if (model := _model_of(estimator, f, planner)) is not None]
    weights = _weights(models)
    candidates: list[_Candidate] = []
    for number, model in enumerate(models, 1):
        progress(f"predicting {model.name} ({number} of {len(models)})")
        offered = versions_of(Requirement(model.name))
        versions = planner.versions(model, estimator.failures(model.name), offered)
        candidates += _candidates(planner, model, versions, weights)
    _check_budget(candidates, budget_seconds, planner)
    progress("selecting what to measure")
    select([candidate.block for candidate in candidates], budget_seconds)
    blocks = [_proposed(candidate) for candidate in candidates if candidate.block.arms]
    return CampaignProposal(
        hardware=hardware.name,
        device=hardware.device,
        budget_seconds=budget_seconds,
        workloads=tuple(sorted({workload for workload, _ in weights})),
        blocks=tuple(sorted(blocks, key=lambda block: -block.gain / block.seconds)),
        left_out=tuple(sorted(planner.left_out.items())),
    )


def _model_of(estimator: WorkloadEstimator, framework: Framework, planner: _Planner) -> FrameworkModel | None:
    """Return the model of a framework by the distribution that was measured; ``None`` if it cannot be planned."""
    if framework.is_input_library:
        return None
    if planner.hardware.device not in framework.devices:
        planner.left_out[framework.name] = f"it does not support `{planner.hardware.device}`"
        return None
    models = [model for name in framework.distributions if (model := estimator.model(name)) is not None]
    usable = [m for m in models if m.versions and {case.basis for case in m.cases} <= {MODELS, TASKS}]
    if not usable:
        reason = "it is predicted by single operations, and only whole models are planned"
        planner.left_out[framework.name] = reason if models else "nothing was compared that stands for such a device"
        return None
    measured = usable[0].measured.contrasts[0].framework
    return next((model for model in usable if model.name == measured), usable[0])


def _weights(models: Iterable[FrameworkModel]) -> dict[tuple[str, str], float]:
    """Return the weight of a case by workload and framework: workloads, their frameworks and sizes count equally."""
    sizes = Counter((case.workload, model.name) for model in models for case in model.cases)
    each = Counter(workload for workload, _ in sizes)
    return {key: 1 / (len(each) * each[key[0]] * number) for key, number in sizes.items()}


def _candidates(
    planner: _Planner, model: FrameworkModel, versions: Sequence[Version], weights: Mapping[tuple[str, str], float]
) -> Iterator[_Candidate]:
    """Yield the blocks of a framework: versions, settings, and settings that are for inference only."""
    if not versions:
        planner.left_out[model.name] = "the indexes offer no version of it"
        return
    runs = planner.runs(FRAMEWORKS[model.name])
    newest, *older = versions
    decided = partial(decide, gains_of=model.gains_of_pairs, weight_of=lambda case: weights[case.workload, model.name])
    make = _BlockMaker(planner=planner, model=model, reference=newest)
    sides = {text: model.side(version) for text, version in [(DEFAULT, newest), *((str(v), v) for v in older)]}
    arms = [_Arm(subject=VERSION, value=text, side=side) for text, side in sides.items() if text != DEFAULT]
    yield from make.block(arms, runs, decided(VERSION, sides) if arms else [])
    by_name: dict[str, dict[str, ComparedSetting]] = {}
    for setting in planner.settings(model, newest):
        by_name.setdefault(setting.value[0], {})[setting.value[1]] = setting
    for inference_only in (False, True):
        arms, decisions = [], []
        for name, values in by_name.items():
            if shipped_settings()[name].inference_only == inference_only:
                arms += [_Arm(subject=name, value=value, side=model.side(newest, {name: value})) for value in values]
                sides = {option: model.side(newest, _settings_of(values, option)) for option in (DEFAULT, *values)}
                decisions += decided(name, sides)
        some = [run for run in runs if not (inference_only and run.parameters["mode"] == "training")]
        yield from make.block(arms, some, [d for d in decisions if not (inference_only and _trains(d.case))])


def _trains(case: Case) -> bool:
    return any(program.training for blend in case.programs for _, program in blend)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BlockMaker:
    """Makes the possible blocks of a framework."""

    planner: _Planner
    model: FrameworkModel
    reference: Version

    def block(
        self, arms: Sequence[_Arm], runs: Sequence[IndicatorRun], decisions: Sequence[CaseDecision]
    ) -> Iterator[_Candidate]:
        """Yield a block of arms and programs that may be measured for some decisions, if there are any."""
        if not arms or not runs or not decisions:
            return
        cells = {(arm, run): arm * len(runs) + run for arm in range(len(arms)) for run in range(len(runs))}
        across, within = self.model.explained_by(
            self._ratios(arms, runs),
            [_program(run) for run in runs] * len(arms),
            [compared for d in decisions for compared in d.compared],
        )
        costs = BlockCosts(
            rounds=ROUNDS,
            process_seconds=PROCESS_SECONDS,
            program_seconds=run_seconds(runs, self.planner.hardware, self.planner.history),
            arm_seconds=[ENVIRONMENT_SECONDS if arm.subject == VERSION else 0.0 for arm in arms],
            setup_seconds=ENVIRONMENT_SECONDS,
        )
        block = PossibleBlock(cells=cells, costs=costs, decisions=decisions, across=across, within=within)
        yield _Candidate(framework=self.model.name, reference=self.reference, arms=arms, runs=runs, block=block)

    def _ratios(self, arms: Sequence[_Arm], runs: Sequence[IndicatorRun]) -> list[Contrast]:
        """Return the ratios of arms at programs as they will be measured, but their means.

        They are as exact as those that were measured.
        """
        measured = [c for c in self.model.measured.contrasts if c.family != PUBLISHED and not c.is_control]
        error = statistics.median([c.error for c in measured] or [_ERROR])
        common = statistics.median([c.common for c in measured] or [_ERROR])
        reference = self.model.side(self.reference)
        return [
            Contrast(
                block="proposed",
                arm=number,
                label=run.label,
                family=run.name,
                backend=run.backend,
                framework=self.model.name,
                machine=self.model.machine,
                side=arm.side,
                reference=reference,
                mean=0.0,
                rounds=ROUNDS,
                error=error,
                common=common,
            )
            for number, arm in enumerate(arms)
            for run in runs
        ]


def _settings_of(values: Mapping[str, ComparedSetting], option: str) -> dict[str, str]:
    """Return a value of a setting by its name in the measurements; the default is what the others are compared with."""
    if option != DEFAULT:
        name, value, _ = values[option].change
        return {name: value}
    defaults = {s.change[0]: s.change[2] for s in values.values() if s.change[2]}
    return defaults if len(defaults) <= 1 else {}


def _program(run: IndicatorRun) -> Program:
    """Return the program of a run, as the estimator will see it after the measurement."""
    indicator = INDICATORS[run.name]
    moved = indicator.bytes_moved(indicator.complete(dict(run.parameters)), run.dtype)
    return replace(program_of_run(run.label, run.name, flops=_flops(run), bytes=moved), own=MEASURED_HERE)


def _flops(run: IndicatorRun) -> float:
    indicator = INDICATORS[run.name]
    return indicator.flops(indicator.complete(dict(run.parameters)))


def _check_budget(candidates: Sequence[_Candidate], budget_seconds: float, planner: _Planner) -> None:
    """Refuse a budget in which nothing fits."""
    smallest = [
        (candidate.block.costs.seconds([arm], [run]), candidate.framework, candidate.runs[run])
        for candidate in candidates
        for arm, run in candidate.block.cells
    ]
    if not smallest:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(planner.left_out.items()))
        raise InputError(f"no measurement can be planned for `{planner.hardware.name}`: {reasons}")
    seconds, framework, run = min(smallest, key=lambda entry: entry[:2])
    if seconds > budget_seconds:
        minutes = -int(-seconds // 60)
        raise InputError(
            f"`--budget` is too short for one block: the shortest one takes about {minutes} min, "
            f"{framework} at {program_name(run.parameters)}",
            hint=f"take at least `--budget {minutes}m`",
        )


def _proposed(candidate: _Candidate) -> ProposedBlock:
    """Return a selected block as a value."""
    block = candidate.block
    gains = block.expected_gains(block.explained)
    selected = [candidate.arms[number] for number in sorted(block.arms)]
    choices = []
    for subject in dict.fromkeys(arm.subject for arm in selected):
        values = tuple(arm.value for arm in selected if arm.subject == subject)
        rows = [(float(g), d) for g, d in zip(gains, block.decisions, strict=True) if d.subject == subject]
        listed = [_open(gain, d) for gain, d in sorted(rows, key=lambda row: -row[0]) if gain > 0]
        choices.append(
            ProposedChoice(
                subject=subject,
                values=values,
                gain=sum(d.weight * gain for gain, d in rows),
                seconds=block.seconds * len(values) / len(selected),
                decisions=tuple(listed),
            )
        )
    return ProposedBlock(
        framework=candidate.framework,
        reference=str(candidate.reference),
        choices=tuple(sorted(choices, key=lambda choice: -choice.gain)),
        programs=tuple(candidate.runs[number] for number in sorted(block.programs)),
        gain=block.gain,
        seconds=block.seconds,
    )


def _open(gain: float, decision: CaseDecision) -> OpenDecision:
    option = decision.best or max(decision.rivals, key=lambda name: decision.rivals[name].mean)
    return OpenDecision(
        workload=decision.case.workload,
        size=decision.case.size,
        option=option,
        ratio=decision.gains[option],
        gain=gain,
    )


def program_name(parameters: Mapping[str, object]) -> str:
    """Return a model at its size, for people."""
    sizes = ", ".join(
        f"{name} {value}" for name, value in parameters.items() if name not in ("model", "mode") and value
    )
    return f"{parameters['model']} {parameters['mode']} ({sizes})"


def matrix_text(proposal: CampaignProposal) -> str:
    """Return a proposal as a matrix file, which `advisor pi campaign` runs."""
    document = {
        "name": f"plan-{proposal.hardware}",
        "rounds": ROUNDS,
        "samples": SAMPLES,
        "min-time": MIN_SECONDS,
        "timeout": TIMEOUT_SECONDS,
        "device": proposal.device,
        "indicators": [],
        "stack": [stack for block in proposal.blocks for stack in _stacks(block)],
    }
    comment = f"# Proposed for `{proposal.hardware}`. Each stack has its own indicators.\n"
    return comment + toml_text(document)


def _stacks(block: ProposedBlock) -> Iterator[dict[str, object]]:
    """Yield the stacks of a block, the reference first."""
    settings: list[dict[str, object]] = [{}]
    versions = [block.reference]
    for choice in block.choices:
        if choice.subject == VERSION:
            versions += choice.values
        else:
            settings += [{choice.subject: int(v) if v.isdigit() else v} for v in choice.values]
    for version in versions:
        yield {
            "framework": f"{block.framework}=={version}",
            "with": ["numpy"],
            "settings": settings,
            "indicators": [{"name": run.name, "parameters": dict(run.parameters)} for run in block.programs],
        }

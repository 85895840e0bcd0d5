"""What an experiment measures: the project's benchmark, its profiled workload, or whole models that stand for it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from advisor.api.measurements.benchmark import MachineSetup, copied_benchmark
from advisor.domain.words import count
from knowledge.catalogue.settings import SettingChoice
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import FRAMEWORKS, able_frameworks
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import IndicatorRun, Observation, Scalar
from knowledge.estimate.workloads import MODELS, find_workload
from knowledge.evidence.timm import architecture_of, family_of
from pi_runners.execution.benchmark import Benchmark
from pi_runners.execution.environment import StackLock
from pi_runners.indicators import INDICATORS
from pi_runners.plan.matrix import Arm, IndicatorCase, plan_arms, workload_cases

_DIGITS = 16
_INIT = "`advisor benchmark init` proposes a benchmark of the project's own program"


@dataclass(frozen=True, kw_only=True)
class MeasuredProgram:
    """A program that runs in the arms of an experiment.

    Attributes:
        text: What it is, in words.
        benchmark: The project's benchmark, in a copy of the project; ``None`` for indicators.
        cases: Indicators that stand for the program.
        shares: Share of the program's time of each.
        is_guessed: Whether it is a model like the project's that nobody chose.
    """

    text: str
    benchmark: Benchmark | None = None
    cases: tuple[IndicatorCase, ...] = ()
    shares: tuple[float, ...] = ()
    is_guessed: bool = False

    @property
    def identity(self) -> str:
        """Identity of the program: of equal ones, runs can be compared."""
        if self.benchmark is not None:
            return self.benchmark.identity
        cases = [[case.name, dict(case.parameters), case.dtype] for case in self.cases]
        return content_hash([cases, self.shares])[:_DIGITS]

    def can_apply(self, name: str, value: Scalar, choice: SettingChoice, *, allows_reduced: bool) -> bool:
        """Whether a value of a setting may be measured: its precision is allowed, and nobody has to change code for it.

        In indicators, this program makes settings that need code; in a benchmark, an option of the command may.
        """
        if choice.numerics == "reduced" and not allows_reduced:
            return False
        return self.benchmark is None or choice.is_measurable or bool(self.benchmark.options_of({name: value}))

    def arm(
        self,
        lock: StackLock,
        settings: Mapping[str, Scalar],
        number: int,
        hardware: HardwareProfile,
        *,
        reference: bool,
    ) -> Arm:
        """Return an arm that runs the program on a stack.

        Raises:
            InputError: If no framework of the stack can run the indicators.
        """
        package = _framework_of(lock, self.cases)
        runs: tuple[IndicatorRun, ...]
        if self.benchmark is not None:
            runs = (self.benchmark.indicator_run(hardware),)
        else:
            stack = replace(lock, requested=(package,))
            (arm,) = plan_arms([(stack, settings)], self.cases, device=hardware.device, control=False)
            runs = arm.indicators
            if len(runs) < len(self.cases):
                raise InputError(f"`{package}` cannot run {self.text}", hint=_INIT)
        return Arm(number=number, lock=lock, framework=package, reference=reference, indicators=runs, settings=settings)

    def seconds(self, observations: Sequence[Observation], units: Mapping[str, float]) -> float:
        """Return the result of a run: seconds, or the sum of the parts' durations, each in its share of the time.

        Args:
            observations: Observations of the run.
            units: Seconds of each part in the first run of the reference, by label; may be empty for one part.
        """
        durations = {o.indicator.label: statistics.median(o.samples) for o in observations}
        if len(durations) == 1:
            return next(iter(durations.values()))
        weights = self.shares or (1.0,) * len(durations)
        return sum(
            share * seconds / units.get(label, seconds)
            for share, (label, seconds) in zip(weights, durations.items(), strict=True)
        )


@contextmanager
def measured_program(setup: MachineSetup) -> Iterator[MeasuredProgram]:
    """Yield what is measured for a project: the first that exists of benchmark, profile and models of its workload.

    Raises:
        InputError: If there is nothing, or the benchmark is wrong.
    """
    context = setup.context
    if "benchmark" in context.project.settings:
        with copied_benchmark(context.files.directory) as (benchmark, _, _):
            yield MeasuredProgram(text=f"`{' '.join(benchmark.command)}`", benchmark=benchmark)
    elif context.profile is not None and (profiled := workload_cases(context.profile)):
        whole = sum(share for _, share in profiled)
        yield MeasuredProgram(
            text=f"{count(len(profiled), 'part')} of the profiled workload `{context.profile.name}`, {whole:.0%} of it",
            cases=tuple(case for case, _ in profiled),
            shares=tuple(share / whole for _, share in profiled),
        )
    else:
        yield _models(setup)


def _models(setup: MachineSetup) -> MeasuredProgram:
    """Return the whole models of the workload that somebody chose, or that the sources of the project name."""
    context = setup.context
    if context.workload is None:
        raise InputError("the project has nothing that could be measured: no benchmark, and no workload", hint=_INIT)
    workload = find_workload(context.workload)
    if model := workload.timm_model:
        # Models of its kind: this program has none of timm's.
        kind = "transformer" if architecture_of(family_of(model)) == "transformer" else "cnn"
        workload = find_workload(f"{kind}-{'training' if workload.name.endswith('-training') else 'inference'}")
    parts = workload.parts.get(MODELS, ())
    cases = [
        IndicatorCase(name=part.indicator, parameters=INDICATORS[part.indicator].canonical(dict(parameters)))
        for part in parts
        for parameters in INDICATORS[part.indicator].sets["medium"]
        if all(str(parameters.get(name, value)) == value for name, value in part.parameters.items())
    ]
    if not cases:
        raise InputError(f"no whole model of the workload `{workload.name}` can be measured here", hint=_INIT)
    models = "; ".join(map(_model_text, cases))
    return MeasuredProgram(
        text=f"models that stand for `{context.workload}`: {models}",
        cases=tuple(cases),
        shares=(1 / len(cases),) * len(cases),
        is_guessed=context.options.workload is None,
    )


def _model_text(case: IndicatorCase) -> str:
    sizes = {name: value for name, value in case.parameters.items() if name not in ("model", "mode")}
    listed = ", ".join(f"{name} {value}" for name, value in sizes.items())
    return f"{case.parameters['model']} ({case.parameters['mode']}, {listed})"


def _framework_of(lock: StackLock, cases: Sequence[IndicatorCase]) -> str:
    """Return the package that the ratios are evidence for: a framework, if the stack has one, NumPy last."""
    arrays = able_frameworks("arrays")
    names = [package.package.name for package in lock.packages]
    return min(names, key=lambda name: (name not in FRAMEWORKS, FRAMEWORKS.get(name) in arrays, name))

"""What an experiment measures: the project's benchmark, its profiled workload, or whole models that stand for it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from advisor.api.context import TargetContext
from advisor.api.measurements.benchmark import MachineSetup, copied_benchmark
from advisor.domain.words import count
from advisor.project.benchmark import read_benchmark
from knowledge.catalogue.settings import SettingChoice
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import FRAMEWORKS, MEASURED, able_frameworks, frameworks
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import BENCHMARK, IndicatorRun, Observation, Scalar
from knowledge.estimate.workloads import MODELS, find_workload
from knowledge.evidence.timm import architecture_of, family_of
from pi_runners.execution.benchmark import Benchmark
from pi_runners.execution.environment import StackLock
from pi_runners.indicators import INDICATORS
from pi_runners.plan.matrix import Arm, IndicatorCase, indicator_runs, workload_cases

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
        preferred: Frameworks that the indicators run with if a stack has one of them.
    """

    text: str
    benchmark: Benchmark | None = None
    cases: tuple[IndicatorCase, ...] = ()
    shares: tuple[float, ...] = ()
    is_guessed: bool = False
    preferred: frozenset[str] = frozenset()

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
        names = [package.package.name for package in lock.packages]
        package, runs = self._framework_of(names), self.runs(names, hardware)
        if len(runs) < max(1, len(self.cases)):
            raise InputError(f"`{package}` cannot run {self.text}", hint=_INIT)
        return Arm(number=number, lock=lock, framework=package, reference=reference, indicators=runs, settings=settings)

    def runs(self, packages: Iterable[str], hardware: HardwareProfile) -> tuple[IndicatorRun, ...]:
        """Return what the observations of the program on a stack of packages contain, in the order of the parts."""
        if self.benchmark is not None:
            return (self.benchmark.indicator_run(hardware),)
        backend = MEASURED.get(self._framework_of(packages), "")
        if not backend:
            return ()
        device = hardware.device if hardware.device in frameworks()[backend].devices else "cpu"
        return indicator_runs(self.cases, backend, ("float32",), device)

    def _framework_of(self, packages: Iterable[str]) -> str:
        """Return the package that the ratios are evidence for: a framework, if the stack has one, NumPy last."""

        def order(name: str) -> tuple[bool, bool, bool, str]:
            is_array_library = FRAMEWORKS.get(name) in able_frameworks("arrays")
            return name not in FRAMEWORKS, is_array_library, name not in self.preferred, name

        return min(packages, key=order)

    @cached_property
    def _parts(self) -> Mapping[object, int]:
        return {_part_key(case.name, case.dtype, case.parameters): part for part, case in enumerate(self.cases)}

    def part_of(self, run: IndicatorRun) -> int | None:
        """Return the number of the part of the program that an indicator stands for; ``None`` if it is none of it."""
        if self.benchmark is not None:
            is_own = run.name == BENCHMARK and run.parameters.get("identity") == self.benchmark.identity
            return 0 if is_own else None
        return self._parts.get(_part_key(run.name, run.dtype, run.parameters))

    def durations(self, observations: Iterable[Observation]) -> dict[int, float]:
        """Return the seconds of each part in a run, by its number."""
        parts = ((self.part_of(o.indicator), statistics.median(o.samples)) for o in observations)
        return {part: seconds for part, seconds in parts if part is not None}

    def seconds(self, durations: Mapping[int, float], units: Mapping[int, float]) -> float:
        """Return the result of a run: seconds, or the sum of the parts' durations, each in its share of the time.

        Args:
            durations: Seconds of each part, by its number.
            units: The same for the run that the others are compared with.
        """
        if len(durations) == 1:
            return next(iter(durations.values()))
        return sum(self.shares[part] * seconds / units[part] for part, seconds in durations.items())


@contextmanager
def measured_program(setup: MachineSetup) -> Iterator[MeasuredProgram]:
    """Yield what is measured for a project: the first that exists of benchmark, profile and models of its workload.

    Raises:
        InputError: If there is nothing, or the benchmark is wrong.
    """
    program = program_of(setup.context)
    if program.benchmark is None:
        yield program
        return
    with copied_benchmark(setup.context.files.directory) as (benchmark, _, _):
        yield replace(program, benchmark=benchmark)


def program_of(context: TargetContext) -> MeasuredProgram:
    """Return what :func:`measured_program` measures for a project; a benchmark runs in the project itself.

    Raises:
        InputError: If there is nothing, or the benchmark is wrong.
    """
    if "benchmark" in context.project.settings:
        benchmark = read_benchmark(context.files.directory)
        return MeasuredProgram(text=f"`{' '.join(benchmark.command)}`", benchmark=benchmark)
    if context.profile is not None and (profiled := workload_cases(context.profile)):
        whole = sum(share for _, share in profiled)
        return MeasuredProgram(
            text=f"{count(len(profiled), 'part')} of the profiled workload `{context.profile.name}`, {whole:.0%} of it",
            cases=tuple(case for case, _ in profiled),
            shares=tuple(share / whole for _, share in profiled),
        )
    return _models(context)


def program_text(context: TargetContext) -> str:
    """Return what :func:`measured_program` measures for a project, in words; empty if there is nothing."""
    try:
        return program_of(context).text
    except InputError:
        return ""


def _models(context: TargetContext) -> MeasuredProgram:
    """Return the whole models of the workload that somebody chose, or that the sources of the project name."""
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


def _part_key(name: str, dtype: str, parameters: Mapping[str, object]) -> object:
    # A framework may compute in another way than others, which its runs state.
    return name, dtype or "float32", frozenset(item for item in parameters.items() if item[0] != "algorithm")

"""A project opened for one target: recommend a stack, explain it, price constraints, write locks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.api.advice_inputs import open_inputs
from advisor.api.answer_memory import AnswerMemory, RememberedAnswer
from advisor.api.context import AdviceInputs, TargetContext
from advisor.api.locked_stack import lock_texts
from advisor.api.options import ProjectOptions
from advisor.api.search import compare_interpreters, find_other_python, select
from advisor.domain.progress import activity, announcing
from advisor.domain.target import Target
from advisor.domain.time_limit import TimeLimit
from advisor.domain.words import count, quoted
from advisor.experiment.result import ExperimentResult
from advisor.locks.certificate import stack_digest
from advisor.locks.settings_table import locked_settings
from advisor.project.settings.interface import ProjectSetting
from advisor.project.settings.project_settings import read_project_settings
from advisor.project.workload.proposal import Proposal
from advisor.resolve.candidates.problem import BuildsNeededError, NoStackError, SizeLimitError
from advisor.resolve.explanation.advice import Advice
from advisor.resolve.explanation.alternatives import Explanation, explain_package
from advisor.resolve.explanation.prices import Price, constraint_prices, python_prices
from advisor.resolve.explanation.recommended_settings import (
    CombinedGain,
    RecommendedSetting,
    combined_gain,
    compared_effects,
    recommended_settings,
    stated_settings,
    values_to_set,
)
from advisor.resolve.explanation.sizes import AdviceSizes, prefetch_sizes, read_sizes
from advisor.resolve.optimum.request import ResolutionRequest, Solved
from advisor.resolve.recommendation.problem_variants import Selection, VariantComparison
from advisor.resolve.recommendation.recommend import recommend
from advisor.resolve.recommendation.solved_targets import SolvedTargets
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.shared_files import write_all
from knowledge.estimate.interface import StartupTime
from knowledge.estimate.setting_effect import SettingEffect

_MEASURED = "measured to be the fastest"
OTHER_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Interpreter versions that are priced by default."""


@dataclass(frozen=True, kw_only=True)
class AdviceResult:
    """A recommended stack, with what it was recommended for.

    Attributes:
        advice: The stack, its proof, its predictions and its findings.
        target: Interpreter, platform and hardware.
        request: The resolution request that the advice answers.
        sizes: How much of the stack, the baseline and the current lock is downloaded and installed.
        startup: Measured import time and memory of the frameworks in the stack.
        settings: The run-time settings of the advice.
        settings_gain: What all recommended ones gain together; ``None`` if there are none.
        setting_effects: What run-time settings are worth on the target, according to measurements.
        present_settings: What the project's files set instead, or the same, by framework and setting as ``name=value``;
            each with its place.
        proposal: The workload that the project's sources suggest, if nobody chose one; ``None`` without evidence.
        outputs: Paths of the locks that were written.
        uses_uv: Whether the project is managed with uv.
        interpreters: The interpreters that were compared; ``None`` if one was chosen.
        experiment: The experiment that chose the stack and its settings; ``None`` if nothing was measured.
    """

    advice: Advice
    target: Target
    request: ResolutionRequest
    sizes: AdviceSizes
    startup: tuple[StartupTime, ...] = ()
    settings: tuple[RecommendedSetting, ...] = ()
    settings_gain: CombinedGain | None = None
    setting_effects: tuple[SettingEffect, ...] = ()
    present_settings: Mapping[tuple[str, str], str] = field(default_factory=dict)
    proposal: Proposal | None = None
    outputs: tuple[str, ...] = ()
    uses_uv: bool = False
    interpreters: VariantComparison | None = None
    experiment: ExperimentResult | None = None

    @property
    def setting_values(self) -> dict[str, dict[str, int | str]]:
        """Values of the recommended run-time settings, by package and name of the setting."""
        return values_to_set(self.settings)

    @property
    def direct(self) -> frozenset[str]:
        """Packages that the project requires by name."""
        return frozenset(self.request.problem.direct_names)

    @property
    def has_upload_times(self) -> bool:
        """Whether the index gives the upload time of each of its chosen files; else libyears count releases."""
        candidates = (*self.advice.optimum.stack, *self.advice.baseline)
        return self.request.score.has_upload_times(candidates)


@dataclass
class AdviceSession:
    """The advice for a project and one target.

    Attributes:
        inputs: The project with its indexes and predictions; with another interpreter, once that is selected.
        keeps_result: Whether Ctrl-C ends the search with the best stack so far; else it ends the program.
        announces: Whether a conflict is printed before the hint about it is known.
        reads_sizes: Whether sizes of the baseline are read during the search, because a report will need them.
        others: Solved targets of the same project: a target that differs in the machine only may have their stack.
        experiment: The experiment that chose the stack and its settings; ``None`` if nothing was measured.
    """

    inputs: AdviceInputs
    _: KW_ONLY
    keeps_result: bool = False
    announces: bool = False
    reads_sizes: bool = False
    others: SolvedTargets | None = None
    experiment: ExperimentResult | None = field(default=None, init=False)
    _selection: Selection | None = field(default=None, init=False)
    _advice: Advice | None = field(default=None, init=False)
    _sizes: AdviceSizes | None = field(default=None, init=False)
    _interpreters: VariantComparison | None = field(default=None, init=False)

    @property
    def context(self) -> TargetContext:
        """The project, prepared for the target."""
        return self.inputs.context

    def select(self) -> Selection:
        """Read the index, and return the request for the target's interpreter, with the best extras and replacements.

        Raises:
            NoStackError: If no stack satisfies the requirements.
            UnavailableError: If an index cannot be read.
        """
        if self._selection is None:
            # The index answers while measurements are loaded.
            roots = [root for root in self.context.problem.roots if root.direct is None and not root.constraint]
            self.inputs.client.prefetch(projects=[root.name for root in roots])
            self.inputs.estimator.prepare(root.name for root in roots)
            with activity("reading the project's packages"), self._other_python_named():
                limit = TimeLimit(self.context.options.time_limit, keeps_result=self.keeps_result)
                selection = self._take_best_python(limit) if self.context.compared_pythons else None
                if selection is None or not limit.is_over:
                    # With the baseline of this interpreter.
                    selection = select(self.inputs, limit=limit, others=self.others)
                not_compared = "; ".join(filter(None, (self._not_compared, selection.not_compared)))
                self._selection = replace(selection, not_compared=not_compared)
        return self._selection

    def _take_best_python(self, limit: TimeLimit) -> Selection:
        """Choose the interpreter with the best-scored stack, and return the request with this stack."""
        self._interpreters = compare_interpreters(self.inputs, limit)
        best = (self._interpreters.solved or self._interpreters.stopped)[0]
        python = best.request.problem.target.python
        context = replace(self.context.with_python(str(python)), compared_pythons=())
        self.inputs = replace(self.inputs, context=context)
        request = replace(best.request, effort=replace(best.request.effort, limit=limit))
        return replace(best.selection, request=request, optimum=best.optimum)

    @property
    def _not_compared(self) -> str:
        """Which interpreters were not compared; empty if all were, or the target names one."""
        compared = self._interpreters
        if compared is None or not compared.undecided:
            return ""
        interpreters = len(compared.solved) + len(compared.obstacles)
        return f"{compared.undecided} of {count(interpreters, 'interpreter')} were not compared completely"

    @property
    def loaded_packages(self) -> set[NormalizedName]:
        """Packages whose index pages were read for the recommendation."""
        of_interpreters = [variant.selection for variant in (self._interpreters.solved if self._interpreters else ())]
        return {name for selection in (self.select(), *of_interpreters) for name in selection.loaded_packages}

    @property
    def current_versions(self) -> dict[str, Version] | None:
        """Version of each package that the project has now; ``None`` if it has no lock."""
        return None if self.inputs.current is None else dict(self.inputs.current.versions)

    def recommend(self) -> Advice:
        """Return the best stack.

        Raises:
            NoStackError: If no stack satisfies the requirements and the rules.
            SearchLimitError: If the search was not completed.
            UnavailableError: If an index cannot be read.
        """
        if self._advice is None:
            selection = self.select()
            if self.reads_sizes:
                prefetch_sizes(self.inputs.client, selection.request.baseline)
            with activity("searching for the best stack"), self._other_python_named():
                self._advice = recommend(selection, current=self.current_versions)
        return self._advice

    def solved(self) -> Solved:
        """Return the request with its best stack; see :meth:`recommend`."""
        optimum = self.recommend().optimum
        return Solved(request=self.select().request, optimum=optimum)

    def replace_request(self, request: ResolutionRequest) -> None:
        """Recommend the best stack of another request instead, such as one with more requirements."""
        if self._selection is None or request is not self._selection.request:
            selection = replace(self.select(), request=request, optimum=None)
            self._selection, self._advice, self._sizes = selection, None, None

    @contextmanager
    def _other_python_named(self) -> Iterator[None]:
        """Add the name of an interpreter for which there is a stack to the error that there is none."""
        try:
            with announcing(enabled=self.announces):
                yield
        except (BuildsNeededError, SizeLimitError):
            # Another interpreter needs the same builds, and was not compared with the limit.
            raise
        except NoStackError as error:
            if other := find_other_python(self.inputs):
                hint = f"there is a stack for Python {other}: `--python {other}`"
                error.hint = f"{error.hint}; {hint}" if error.hint else hint
            raise

    def result(self, *, outputs: Sequence[Path] = ()) -> AdviceResult:
        """Return the best stack with what it was recommended for, and the locks that were written."""
        advice, sizes, settings = self.recommend(), self.sizes(), self.settings()
        request, versions = self.select().request, advice.optimum.stack.versions
        allowed = request.score.settings if self.experiment is None else None
        effects = compared_effects(versions, self.inputs.estimator, allowed, settings) if allowed else ()
        if self.experiment is not None:
            measured = {c.name: _MEASURED for c in self.experiment.choice.arm.changes if not c.is_setting}
            advice = replace(advice, reasons={**advice.reasons, **measured})
        findings = sorted((*advice.findings, *sizes.findings), key=lambda f: (f.code, f.package, f.message))
        return AdviceResult(
            advice=replace(advice, findings=tuple(findings)),
            target=self.context.target,
            request=request,
            sizes=sizes,
            startup=self.inputs.estimator.startup(versions),
            settings=settings,
            settings_gain=combined_gain(settings, versions, self.inputs.estimator) if allowed else None,
            setting_effects=effects,
            present_settings={
                (e.package, e.setting): own.text
                for e in effects
                for own in self._present(e.package, e.setting.partition("=")[0])
            },
            proposal=self.context.proposal,
            outputs=tuple(map(str, outputs)),
            uses_uv=self.context.uses_uv,
            interpreters=self._interpreters,
            experiment=self.experiment,
        )

    def settings(self) -> tuple[RecommendedSetting, ...]:
        """Return the run-time settings of the advice: those to set, those to allow, and those to avoid.

        A setting is not recommended if the program's code makes it, and not offered if any file of the project does.
        """
        stack, allowed = self.recommend().optimum.stack.versions, self.select().request.score.settings
        if self.experiment is not None:
            return stated_settings(stack, self.experiment.setting_values, allowed) if allowed else ()
        settings = recommended_settings(stack, self.inputs.estimator, allowed) if allowed else ()
        return tuple(s for s in settings if not self._is_needless(s))

    def _is_needless(self, setting: RecommendedSetting) -> bool:
        """Whether the program does already what a recommended or offered setting does."""
        present = [*self._present(setting.package, setting.name)]
        if setting.status == "offered":
            return bool(present)
        in_code = {own.value for own in present if own.origin == "code"}
        return setting.status == "recommended" and setting.value in in_code

    def _present(self, package: str, name: str) -> Iterator[ProjectSetting]:
        """Yield where files of the project set a setting of a framework."""
        return (own for own in self._project_settings if own.name == name and own.applies_to(FRAMEWORKS[package]))

    @cached_property
    def _project_settings(self) -> tuple[ProjectSetting, ...]:
        directory, table = self.context.files.directory, self.context.project.settings.get("settings", {})
        device = self.context.target.hardware.device
        return read_project_settings(directory, table).on(device)

    def sizes(self) -> AdviceSizes:
        """Return how much of the best stack, the baseline and the current lock is downloaded and installed."""
        advice = self.recommend()
        if self._sizes is None:
            with activity("reading sizes"):
                self._sizes = read_sizes(
                    self.inputs.client,
                    self.select().request.source,
                    advice.optimum.stack,
                    baseline=advice.baseline,
                    current=None if self.inputs.current is None else self.inputs.current.packages,
                    wait_for=not advice.optimum.interrupted,
                )
        return self._sizes

    def explain(self, package: str) -> Explanation:
        """Return why a package of the best stack has its version.

        Raises:
            InputError: If the stack does not contain the package.
        """
        advice = self.recommend()
        with activity("explaining %s", package):
            return explain_package(self.select().request, advice, canonicalize_name(package))

    def prices(self, *, other_pythons: Sequence[str] = OTHER_PYTHONS) -> tuple[Price, ...]:
        """Return what each constraint of the project costs, and what other interpreters would gain."""

        def solve_for(python: str, limit: TimeLimit) -> Solved:
            return select(self.inputs.with_python(python), limit=limit).solve()

        solved = self.solved()
        with activity("pricing constraints"):
            prices = constraint_prices(solved)
            if other_pythons:
                prices += python_prices(
                    solved,
                    versions=other_pythons,
                    requires_python=self.context.project.requires_python,
                    solve_for=solve_for,
                )
        return prices

    def lock_texts(self, paths: Sequence[Path]) -> dict[Path, str]:
        """Return the text of a lock of the best stack for each path, whose name determines the format.

        Raises:
            InputError: If a path has no known format, or its directory does not exist.
        """
        solved, values = self.solved(), values_to_set(self.settings())
        certificate = self.experiment.certificate if self.experiment else None
        if certificate is not None:
            certificate = replace(certificate, stack=stack_digest(solved.stack.versions, values))
        with activity("reading hashes and sizes"):
            return lock_texts(paths, solved, self.inputs.client, locked_settings(values), certificate)

    def write_locks(self, paths: Sequence[Path]) -> None:
        """Write the best stack to lock files, which are all rendered before the first is written.

        Raises:
            InputError: If a path has no known format, or a file cannot be written.
        """
        write_all(self.lock_texts(paths))

    def remember(self, memory: AnswerMemory, answer: RememberedAnswer) -> None:
        """Store an answer, unless it was cut short; one that lacks sizes or an index is valid only without network."""
        optimum = self.recommend().optimum
        # A part of the indexes or of the sizes may be available in the next run.
        is_final = self.sizes().final and not self.inputs.client.failed_builds
        if not (optimum.stopped or optimum.not_compared):
            memory.store(answer, self.loaded_packages, is_final=is_final)


@contextmanager
def open_session(options: ProjectOptions) -> Iterator[AdviceSession]:
    """Read a project and open its indexes and predictions for one target.

    Raises:
        InputError: If a file or an option is wrong, or there are several targets.
        KnowledgeBaseError: If the knowledge base cannot be opened.
    """
    with open_inputs(options) as inputs:
        if len(inputs) > 1:
            raise InputError(
                f"this is for one target at a time, and the project has {quoted([i.context.name for i in inputs])}",
                hint="name one `--target`",
            )
        yield AdviceSession(inputs[0])

"""The arms of an experiment: the reference, and single changes of it: another release, another build, a setting."""

from __future__ import annotations

import logging
import math
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.experiment.change import UNKNOWN_GAIN, Change
from advisor.resolve.candidates.problem import CandidateStack
from advisor.resolve.optimum.request import ResolutionRequest, solve
from advisor.resolve.optimum.result import InfeasibleError, SearchLimitError, StackTooLargeError
from knowledge.catalogue.fit import contradictions, misfit_of
from knowledge.catalogue.settings import ANY, Setting, SettingChoice, shipped_settings
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Scalar
from knowledge.domain.ratio import Ratio
from knowledge.hardware.this_machine import installed_libraries

logger = logging.getLogger(__name__)

MOST_RELEASES = 5
"""Releases of a package that are arms, in addition to that of the reference."""
_MOST_SECONDS = 60.0
"""Time of the search for the stack of an arm: there are dozens of arms, and the measurements wait for some."""
_SLOW_PART = 0.1
"""Probability that a program spends its time in what a documented slow-down makes slow: a judgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentArm:
    """A stack with settings that may be chosen.

    Attributes:
        changes: How it differs from the reference, which has no change.
        stack: The stack.
        python: Its interpreter, a path or a version; empty for that of the experiment.
        name: Its name; by default its changes as text.
    """

    changes: tuple[Change, ...]
    stack: CandidateStack = field(repr=False)
    python: str = ""
    name: str = ""

    @property
    def label(self) -> str:
        """Its name, or its changes as text."""
        return self.name or " ".join(change.text for change in self.changes)

    @property
    def settings(self) -> dict[str, Scalar]:
        """Values of its settings by name."""
        return {change.name: change.value for change in self.changes if change.is_setting}


def release_changes(request: ResolutionRequest, stack: CandidateStack, names: Iterable[str]) -> Iterator[Change]:
    """Yield other releases of packages of a stack: the newest of each of the last minor series, or else patches.

    Releases that the project does not admit, or that a rule forbids on the target, are left out. Of a release, the best
    build for the target is taken; on a machine with an accelerator, other builds of the stack's own release are
    changes, too. If the stack has documented slow-downs, so are the releases that they were compared with.
    """
    rules, estimator = request.score.rules, request.score.estimator
    has_accelerator = bool(request.problem.target.hardware.accelerators)
    for name in names:
        own = stack.by_name[NormalizedName(name)].version
        offered = [c.version for c in request.source.candidates(NormalizedName(name)) if request.problem.admits(c)]
        admitted = [v for v in offered if not any(verdict.severity == "forbidden" for verdict in rules.judge(name, v))]
        builds = [str(v) for v in admitted if v != own and v.public == own.public] if has_accelerator else []
        slow = [rule for rule, package in rules.slowdowns_of(stack.versions) if package == name]
        publics = {version.public for version in admitted}
        remedies = [than for rule in slow if (than := Version(rule.than).public) in publics]
        spread = _spread([v for v in admitted if v.public != own.public], own)
        for value in dict.fromkeys((*spread, *remedies, *builds)):
            versions = {**stack.versions, name: Version(value)}
            prediction = estimator.predict(versions, stack.versions)
            is_predicted = prediction.is_known and prediction.ratio.variance > 0
            gain = prediction.ratio if is_predicted else UNKNOWN_GAIN
            for rule in slow:
                if (rule, name) not in rules.slowdowns_of(versions):
                    gain = gain.times(Ratio(mean=0.0, variance=_SLOW_PART * math.log(rule.ratio) ** 2))
            # Other releases and builds round differently.
            yield Change(name=name, value=value, numerics="reordered", gain=gain)


def _spread(versions: Sequence[Version], own: Version) -> list[str]:
    """Return the newest release of each of the last minor series but that of the own one; else the newest patches."""
    releases = list(dict.fromkeys(Version(version.public) for version in versions))
    series: dict[tuple[int, int], Version] = {}
    for release in releases:
        if release.release[:2] != own.release[:2]:
            series.setdefault((release.major, release.minor), release)
    first = list(series.values())[:MOST_RELEASES]
    others = [release for release in releases if release not in first]
    return [str(release) for release in sorted([*first, *others[: MOST_RELEASES - len(first)]], reverse=True)]


def setting_changes(
    request: ResolutionRequest,
    stack: CandidateStack,
    hardware: HardwareProfile,
    can_apply: Callable[[str, Scalar, SettingChoice], bool],
) -> Iterator[Change]:
    """Yield the run-time settings of the frameworks of a stack that this machine has and that can be applied.

    Args:
        request: What the stacks must satisfy.
        stack: The stack.
        hardware: This machine.
        can_apply: Whether a value of a setting, which the catalogue has like this, may be measured.
    """
    names = [name for name in stack.versions if name in FRAMEWORKS]
    gains = {
        (g.framework, value): ratio
        for g in request.score.estimator.setting_gains({n: [stack.versions[n]] for n in names}, stack.versions)
        for value, ratio in g.alone.get(stack.versions[g.framework], {}).items()
    }
    changes: dict[tuple[str, str], Change] = {}
    for package in names:
        for setting in shipped_settings().values():
            for value, choice in _values(setting, FRAMEWORKS[package], hardware):
                misfit = misfit_of(
                    choice,
                    version=stack.versions[package],
                    hardware=hardware,
                    system=platform.system().lower(),
                    libraries=installed_libraries,
                )
                if misfit is None and can_apply(setting.name, value, choice):
                    change = Change(
                        name=setting.name,
                        value=value,
                        is_setting=True,
                        numerics=choice.numerics,
                        gain=gains.get((package, (setting.name, str(value))), UNKNOWN_GAIN),
                    )
                    changes.setdefault((setting.name, str(value)), change)
    yield from changes.values()


def _values(setting: Setting, backend: str, hardware: HardwareProfile) -> Iterator[tuple[Scalar, SettingChoice]]:
    """Yield the values of a setting that differ from its default and that something applies."""
    framework = setting.framework(backend)
    if framework is None or hardware.device not in setting.devices:
        return
    for choice in framework.choices:
        if not (choice.environment or choice.processors or choice.code) or choice.value == framework.default:
            continue
        values: Iterable[Scalar] = (choice.value,) if choice.value != ANY else _numbers(setting, hardware)
        for value in values:
            yield value, choice


def _numbers(setting: Setting, hardware: HardwareProfile) -> Iterator[int]:
    """Yield the numbers of processors worth trying: half of them, and one; nothing for other numbers."""
    cores = hardware.cpu.cores or 1
    if setting.within_processors:
        yield from (number for number in dict.fromkeys((cores // 2, 1)) if 0 < number < cores)


def with_changes(
    reference: ExperimentArm, changes: Sequence[Change], request: ResolutionRequest
) -> ExperimentArm | None:
    """Return the arm with some changes of the reference; ``None`` if there is no such stack, or settings contradict.

    The best stack that has the changed releases completes them.
    """
    arm = ExperimentArm(changes=tuple(changes), stack=reference.stack)
    names = Counter(change.name for change in changes)
    if max(names.values(), default=0) > 1 or any(True for _ in contradictions(arm.settings)):
        return None
    pins = [change for change in changes if not change.is_setting]
    if not pins:
        return arm
    request, is_early = request.begun_now(keeps_result=False, most_seconds=_MOST_SECONDS), False
    changed = {pin.name for pin in pins}
    # What does not change keeps its version where it can: the arm is about the changes alone.
    for keeps in (True, False):
        pinned = [f"{c.name}==={c.version}" for c in reference.stack if c.name not in changed] if keeps else []
        roots = [
            RootRequirement(requirement=Requirement(text), origin="measured for this comparison", constraint=True)
            for text in (*(f"{pin.name}=={pin.value}" for pin in pins), *pinned)
        ]
        try:
            optimum = solve(request.with_problem(request.problem.with_roots(roots)))
        except (InfeasibleError, StackTooLargeError):
            continue
        except SearchLimitError:
            is_early = True
            continue
        if not optimum.stopped:
            return ExperimentArm(changes=tuple(changes), stack=optimum.stack)
        is_early = True
    if is_early:
        logger.warning("not measured: `%s`, because the search for its stack ended early", arm.label)
    return None

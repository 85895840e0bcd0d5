"""A verdict by measurement: how long it would take, and what the program of the project says with both stacks."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from advisor.api.context import TargetContext
from advisor.api.measurements.bisect import FEWEST_RUNS, ProjectBisection, open_comparison
from advisor.api.measurements.laboratory import BUILD_SECONDS, DOWNLOAD_BYTES_PER_SECOND
from advisor.api.measurements.measured_program import program_of
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.options import ProjectOptions
from advisor.campaign.proposal import PROCESS_SECONDS, run_seconds
from advisor.domain.words import speed_text
from advisor.experiment.bisection import Combination
from advisor.gate.check import GateResult, TargetResult
from advisor.gate.findings import Finding, Place, merge_targets
from advisor.gate.verdict import ChangeVerdict, outcome_of
from knowledge.domain.errors import InputError
from knowledge.domain.ratio import Ratio, WithRatio
from knowledge.hardware.profiles import find_profile

_OF_SPEED = ("ADV007", "ADV041")
"""Codes of findings about the predicted effect of a change, whose place a measurement takes."""


def with_minutes(result: GateResult, contexts: tuple[TargetContext, ...]) -> GateResult:
    """Return a result with the minutes that a measurement would take, for each verdict that is not known."""
    targets = tuple(
        _with_minutes(target_result, context) for target_result, context in zip(result.targets, contexts, strict=True)
    )
    return replace(result, targets=targets)


def _with_minutes(target_result: TargetResult, context: TargetContext) -> TargetResult:
    verdict = target_result.verdict
    comparison = target_result.comparison
    if verdict is None or comparison is None or comparison.not_predicted:
        return target_result
    if verdict.outcome != "not-known" or not verdict.has_frameworks:
        return target_result
    try:
        program = program_of(context)
        runs = program.runs(target_result.case.head.lock.versions, context.target.hardware)
    except InputError:
        return target_result
    if program.benchmark is not None or not runs:
        # Nobody knows how long the project's own program takes.
        return target_result
    once = PROCESS_SECONDS + sum(run_seconds(runs, context.target.hardware))
    build = 2 * BUILD_SECONDS + sum(verdict.sizes or ()) / DOWNLOAD_BYTES_PER_SECOND
    minutes = math.ceil((build + FEWEST_RUNS * once) / 60)
    return replace(target_result, verdict=replace(verdict, minutes=minutes))


def measured(
    options: ProjectOptions,
    limits: ExperimentOptions,
    result: GateResult,
    notify: Callable[[ProjectBisection, int, Combination | None], None],
) -> GateResult:
    """Return a result whose verdict is measured: the program of the project runs with both stacks, in rounds.

    Args:
        options: The project, whose target is this machine.
        limits: Time, tolerance and further limits.
        result: The result by predictions, for one target.
        notify: Called before each run with the measurement, the round and the combination.

    Raises:
        InputError: If there are several targets or another machine, or the project has nothing to measure.
        UnavailableError: If another experiment runs on this machine, or the machine is not quiet.
    """
    if len(result.targets) != 1:
        raise InputError("a verdict is measured for one target at a time", hint="name one of them with `--target`")
    [target_result] = result.targets
    case, verdict = target_result.case, target_result.verdict
    if verdict is None or case.base is None:
        raise InputError("there is nothing to measure: the base has no lock that can be read")
    target = case.head.problem.target
    if target.hardware.identity != find_profile("detect").identity:
        raise InputError(
            f"the target `{target.hardware.name}` is another machine than this one, so nothing is measured for it",
            hint="run the command on that machine, or take this one as the target: `--hardware detect`",
        )
    limits = replace(limits, tolerance=verdict.tolerance)
    is_own_python = target.python_minor == ".".join(map(str, sys.version_info[:2]))
    python = options.target.python or (None if is_own_python else target.python_minor)
    options = replace(options, target=replace(options.target, names=(), hardware=None, platform=None, python=python))
    with open_comparison(options, limits, before=case.base[1].lock, after=case.head.lock) as comparison:
        comparison.run(lambda number, combination: notify(comparison, number, combination))
        if comparison.bisection.ending == "interrupted":
            raise KeyboardInterrupt
        verdict = _verdict(verdict, comparison)
    return _with_verdict(result, target_result, verdict)


def _verdict(verdict: ChangeVerdict, comparison: ProjectBisection) -> ChangeVerdict:
    slowdown, minutes = comparison.slowdown, math.ceil(comparison.minutes_left)
    if comparison.failure:
        return replace(verdict, outcome="worse", speed=None, reason=f"it fails: {comparison.failure}", is_measured=True)
    if slowdown is None:
        return replace(verdict, reason=verdict.reason or "the time was over", minutes=minutes or None)
    speed = slowdown.inverse()
    outcome = outcome_of(speed, verdict.tolerance)
    if outcome == "not-known" and verdict.outcome != "not-known":
        # The time was over before it was certain; what evidence says stays.
        return verdict
    recoveries = verdict.recoveries if outcome == "worse" else ()
    remaining = minutes if outcome == "not-known" else None
    return replace(verdict, outcome=outcome, speed=speed, recoveries=recoveries, is_measured=True, minutes=remaining)


def _with_verdict(result: GateResult, target_result: TargetResult, verdict: ChangeVerdict) -> GateResult:
    """Return a result with a measured verdict, whose findings take the place of those about predictions."""
    case = target_result.case
    is_settled = verdict.is_measured and verdict.outcome != "not-known"
    findings = [f for f in result.findings if not is_settled or f.code not in _OF_SPEED or f.subject]
    is_loss = verdict.speed is not None and verdict.speed.speedup < 1 - verdict.tolerance
    if is_settled and verdict.outcome == "worse" and (is_loss or verdict.speed is None):
        text = verdict.reason if verdict.speed is None else speed_text(_Measured(ratio=verdict.speed), "with the base")
        findings.append(
            Finding(
                code="ADV007",
                level=result.policy.level_of("ADV007"),
                message=f"the program was measured to be {text}; {1 - verdict.tolerance:.3g} times is allowed"
                if verdict.speed is not None
                else f"the program was measured with the change, and {text}",
                place=Place(path=str(case.head.lock.path or "")),
                targets=(case.name,),
            )
        )
    targets = (replace(target_result, verdict=verdict),)
    return replace(result, targets=targets, findings=merge_targets(findings))


@dataclass(frozen=True, slots=True)
class _Measured(WithRatio):
    ratio: Ratio

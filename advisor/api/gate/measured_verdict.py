"""A verdict by measurement: how long it would take, and what the program of the project says with both stacks."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import replace

from advisor.api.context import TargetContext
from advisor.api.gate.gate_session import OpenCases
from advisor.api.measurements.bisect import FEWEST_RUNS, Notify, ProjectBisection, open_comparison
from advisor.api.measurements.laboratory import BUILD_SECONDS, DOWNLOAD_BYTES_PER_SECOND
from advisor.api.measurements.measured_program import program_of
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.options import ProjectOptions
from advisor.campaign.proposal import PROCESS_SECONDS, run_seconds
from advisor.domain.words import quoted, speed_text
from advisor.gate.check import GateResult, TargetResult
from advisor.gate.checks.speed_limits import check_known_effect
from advisor.gate.policy import GatePolicy
from advisor.gate.scope import Scope
from advisor.gate.verdict import ChangeVerdict, outcome_of
from knowledge.domain.errors import InputError
from knowledge.hardware.profiles import find_profile


def with_minutes(result: GateResult, opened: OpenCases) -> GateResult:
    """Return a result with the minutes that a measurement would take, for each verdict that is not known."""
    pairs = zip(result.targets, opened.contexts, strict=True)
    return replace(result, targets=tuple(_with_minutes(*pair) for pair in pairs))


def _with_minutes(target_result: TargetResult, context: TargetContext) -> TargetResult:
    verdict = target_result.verdict
    comparison = target_result.comparison
    if verdict is None or comparison is None or comparison.not_predicted:
        return target_result
    if verdict.outcome != "not-known" or not verdict.has_frameworks:
        return target_result
    try:
        changed = frozenset(change.package for change in comparison.changes)
        program = replace(program_of(context), preferred=changed)
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


def with_measurement(
    result: GateResult, opened: OpenCases, options: ProjectOptions, limits: ExperimentOptions, notify: Notify
) -> GateResult:
    """Return a result whose verdict is measured: the program of the project runs with both stacks, in rounds.

    Args:
        result: The result by predictions, for one target.
        opened: What was judged.
        options: The project, whose target is this machine.
        limits: Time, tolerance and further limits.
        notify: Says what is measured.

    Raises:
        InputError: If there are several targets or another machine, or the project has nothing to measure.
        UnavailableError: If another experiment runs on this machine, or the machine is not quiet.
    """
    if len(result.targets) != 1:
        raise InputError("a verdict is measured for one target at a time", hint="name one of them with `--target`")
    [target_result] = result.targets
    if target_result.verdict is None:
        raise InputError("there is nothing to measure: the base has no lock that can be read")
    if not is_this_machine(target_result):
        raise other_machine_error([target_result])
    return opened.result([measured(target_result, opened.policy, options, limits, notify)])


def is_this_machine(target_result: TargetResult) -> bool:
    """Whether a target is this machine, so that its verdict can be measured."""
    return target_result.case.head.problem.target.hardware.identity == find_profile("detect").identity


def other_machine_error(target_results: Iterable[TargetResult]) -> InputError:
    """Return the error that the targets are other machines."""
    names = {result.case.head.problem.target.hardware.name for result in target_results}
    are = "s {} are other machines" if len(names) > 1 else " {} is another machine"
    text = f"target{are.format(quoted(sorted(names)))}"
    return InputError(
        f"the {text} than this one, so nothing is measured for {'them' if len(names) > 1 else 'it'}",
        hint="run the command on such a machine, or take this one as the target: `--hardware detect`",
    )


def measured(
    target_result: TargetResult, policy: GatePolicy, options: ProjectOptions, limits: ExperimentOptions, notify: Notify
) -> TargetResult:
    """Return the result for a target that is this machine, with its verdict measured.

    The arguments and errors are those of :func:`with_measurement`.
    """
    case, verdict = target_result.case, target_result.verdict
    assert case.base is not None
    assert verdict is not None
    target = case.head.problem.target
    limits = replace(limits, tolerance=verdict.tolerance)
    is_own_python = target.python_minor == ".".join(map(str, sys.version_info[:2]))
    python = options.target.python or (None if is_own_python else target.python_minor)
    options = replace(options, target=replace(options.target, names=(), hardware=None, platform=None, python=python))
    with open_comparison(options, limits, before=case.base[1].lock, after=case.head.lock) as comparison:
        comparison.run(lambda number, combination: notify(comparison, number, combination))
        if comparison.bisection.ending == "interrupted":
            raise KeyboardInterrupt
        verdict = _verdict(verdict, comparison)
    return _with_verdict(target_result, policy, verdict)


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
    return replace(
        verdict,
        outcome=outcome,
        speed=speed,
        reason="",
        not_compared=(),
        recoveries=recoveries,
        is_measured=True,
        minutes=minutes if outcome == "not-known" else None,
    )


def _with_verdict(target_result: TargetResult, policy: GatePolicy, verdict: ChangeVerdict) -> TargetResult:
    """Return a result with a measured verdict, whose findings take the place of those about predictions."""
    case = target_result.case
    scope = Scope(case=case, state=case.head, policy=policy, verdict=verdict)
    is_settled = verdict.is_measured and verdict.outcome != "not-known"
    # An undecided measurement leaves a predicted loss. What is not known is the measured interval then.
    codes = ("ADV007", "ADV041") if is_settled else ("ADV041",)
    findings = [f for f in target_result.findings if f.code not in codes or f.subject]
    findings += check_known_effect(scope)
    is_loss = verdict.speed is None or verdict.speed.speedup < 1 - verdict.tolerance
    if is_settled and verdict.outcome == "worse" and is_loss:
        findings.append(scope.finding("ADV007", _loss_text(verdict), package=_slowest(target_result)))
    return replace(target_result, verdict=verdict, findings=tuple(findings))


def _slowest(target_result: TargetResult) -> str:
    """Return the package that loses most by prediction; else the first one, which is measured or which is named."""
    comparison = target_result.comparison
    if comparison is None or not comparison.changes:
        return ""
    if comparison.prediction is not None and comparison.prediction.changes:
        return min(comparison.prediction.changes, key=lambda change: change.speedup).package
    return comparison.changes[0].package


def _loss_text(verdict: ChangeVerdict) -> str:
    if verdict.speed is None:
        return f"the program was measured with the change, and {verdict.reason}"
    speed = speed_text(verdict.speed, "with the base")
    return f"the program was measured to be {speed}; {1 - verdict.tolerance:.3g} times is allowed"

"""Checks of the predicted speed: a loss against the base, and the gap to the recommended stack."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.domain.words import ends_text, speed_text, workload_text
from advisor.gate.checks.certificate import is_measured
from advisor.gate.findings import Cause, Finding
from advisor.gate.recommendation import RecommendedStack
from advisor.gate.scope import Scope
from advisor.resolve.score.predictor import performance_versions
from knowledge.estimate.interface import Prediction


def check_regression(scope: Scope) -> Iterator[Finding]:
    """Yield the predicted loss of speed, if it is significant and exceeds the policy's `max-regression`."""
    comparison, allowed = scope.comparison, scope.policy.max_regression
    prediction = comparison.prediction if comparison is not None else None
    if comparison is None or prediction is None or is_measured(scope):
        return
    if scope.verdict is None or not scope.verdict.rows:
        # Nothing was compared with the releases that differ: the prediction is about others.
        return
    if prediction.speedup >= 1 - allowed or prediction.high >= 1:
        return
    slower = min(prediction.changes, key=lambda c: c.speedup)
    # The speed of a framework also depends on other packages, such as NumPy.
    before = next(
        (str(c.before) for c in comparison.changes if c.package == slower.package), "with the base's packages"
    )
    message = (
        f"`{slower.package} {scope.lock.versions[slower.package]}` is predicted to be "
        f"{speed_text(prediction, before)}, {workload_text(prediction)}; {1 - allowed:.3g} times is allowed"
    )
    cause = Cause.of(performance_versions(scope.lock.versions))
    yield scope.finding("ADV007", message, package=slower.package, cause=cause)


def check_known_effect(scope: Scope) -> Iterator[Finding]:
    """Yield that the effect of other versions of frameworks is not known."""
    verdict = scope.verdict
    if verdict is None or verdict.outcome != "not-known" or not verdict.has_frameworks or is_measured(scope):
        return
    speed = verdict.speed
    reason = verdict.reason or (f"it becomes {ends_text(speed)} times as fast" if speed else "")
    message = f"what the change does to speed is not known: {reason}"
    yield scope.finding("ADV041", message, cause=Cause.of(performance_versions(scope.lock.versions)))


def check_setting_regression(scope: Scope) -> Iterator[Finding]:
    """Yield the changed settings whose predicted loss of speed is significant and exceeds `max-regression`.

    Settings that are only added are compared with the default, whatever the base is (ADV016). A setting is not
    reported if the new versions make up for its loss.
    """
    comparison, allowed = scope.comparison, scope.policy.max_regression
    if comparison is None:
        return
    by_versions = max(1.0, comparison.prediction.speedup) if comparison.prediction is not None else 1.0
    for change in comparison.settings:
        for effect in change.effects if change.before else ():
            if effect.speedup * by_versions < 1 - allowed and effect.high < 1:
                message = (
                    f"`{effect.package}` with {change.text} is predicted to be {speed_text(effect, 'in the base')}; "
                    f"{1 - allowed:.3g} times is allowed"
                )
                yield scope.finding("ADV007", message, package=effect.package, place=change.place, subject=change.name)


def check_gap(scope: Scope, best: RecommendedStack, prediction: Prediction) -> Iterator[Finding]:
    """Yield the predicted gap to the recommended stack, if it is significant and exceeds the policy's `max-gap`."""
    allowed = scope.policy.max_gap
    if not exceeds_gap(prediction, allowed) or is_measured(scope):
        return
    faster = max(prediction.changes, key=lambda c: c.speedup)
    message = (
        f"the recommended stack is predicted to be {speed_text(prediction)}, {workload_text(prediction)}, with "
        f"`{faster.package} {best.versions[faster.package]}` in place of {scope.lock.versions[faster.package]}; "
        f"{1 + allowed:.3g} times is allowed"
    )
    cause = Cause.of(performance_versions(scope.lock.versions))
    yield scope.finding("ADV008", message, package=faster.package, cause=cause)


def exceeds_gap(prediction: Prediction, allowed: float) -> bool:
    """Whether a predicted speed-up is significant and exceeds the allowed one."""
    return prediction.speedup > 1 + allowed and prediction.low > 1


CHANGE_CHECKS = (check_regression, check_known_effect, check_setting_regression)

"""Judges a change: its speed by predictions, documented slow-downs and settings, and what recovers a loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.words import no_speedup_text, quoted
from advisor.gate.checks.download import read_download, total_size
from advisor.gate.comparison import LockComparison
from advisor.gate.findings import Finding
from advisor.gate.problem import without_pins
from advisor.gate.scope import Scope
from advisor.gate.verdict import ChangeVerdict, Outcome, Recovery, StackObstacle, outcome_of
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.explanation.recommended_settings import combined_gain, recommended_settings, values_to_set
from advisor.resolve.score.slowdowns import Slowdowns
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import shipped_rules
from knowledge.catalogue.slower import SlowerRule
from knowledge.domain.errors import UnavailableError
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.ratio import NO_GAIN, Ratio, product
from knowledge.estimate.interface import PredictedChange, Prediction

_MOST_VERSIONS = 20
"""Newest versions of a package that are tried for one that recovers a loss."""
_OUT_OF_DATE = "ADV001"

Versions = Mapping[str, Version]


def judge(
    head: Scope,
    base: Scope,
    comparison: LockComparison,
    obstacles: tuple[StackObstacle, StackObstacle],
    resolved: Sequence[Finding],
) -> ChangeVerdict:
    """Return the verdict on a change.

    Args:
        head: The project after the change.
        base: The project before it.
        comparison: The difference between them.
        obstacles: Why the lock and the base cannot run.
        resolved: Findings of the base that the change resolves.
    """
    after, before = obstacles
    make = partial(
        ChangeVerdict,
        tolerance=head.policy.max_regression,
        has_frameworks=any(change.package in FRAMEWORKS for change in comparison.changes),
        sizes=_sizes(head, base),
        # The smallest change is not a file, so findings about files alone are not resolved by it.
        resolved=tuple(finding for finding in resolved if finding.package),
    )
    if not comparison.changes and not comparison.settings:
        return make(outcome="no-difference", reason="no package differs")
    if after or before:
        # A lock that is only out of date may run as fast.
        fails = [bool(set(obstacle.codes) - {_OUT_OF_DATE}) for obstacle in obstacles]
        outcome: Outcome = "not-known"
        if fails[0] and not before:
            outcome = "worse"
        elif fails[1] and not after:
            outcome = "better"
        return make(outcome=outcome, reason="; ".join(map(str, filter(None, obstacles))), is_obstructed=True)
    return _Judgement(head, base, comparison).verdict(make)


def _sizes(head: Scope, base: Scope) -> tuple[int, int] | None:
    """Return the bytes to download before and after; `None` if one of them is not known."""
    try:
        before, after = (scope.once(read_download) for scope in (base, head))
    except UnavailableError:
        return None
    is_complete = None not in (*before.values(), *after.values())
    return (total_size(before), total_size(after)) if is_complete else None


class _Judgement:
    """The speed of a change by predictions, documented slow-downs and changed settings, and what recovers a loss."""

    def __init__(self, head: Scope, base: Scope, comparison: LockComparison) -> None:
        self._head, self._base, self._comparison = head, base, comparison
        self._predictor, self._before = head.case.predictor, base.lock.versions
        self._rules = RuleBook(shipped_rules(), head.problem.target.hardware)
        self._tolerance = head.policy.max_regression
        self._slowdowns = Slowdowns(rules=self._rules, estimator=self._predictor, min_gain=self._tolerance)

    def verdict(self, make: partial[ChangeVerdict]) -> ChangeVerdict:
        prediction = self._comparison.prediction
        speed = self._speed(self._head.lock.versions, prediction)
        if speed is None:
            return make(outcome="not-known", reason=self._reason(prediction) if prediction else "")
        if not self._comparison.changes and speed == NO_GAIN:
            return make(outcome="no-difference", reason="no package differs")
        outcome = outcome_of(speed, self._tolerance)
        rows = self._rows(self._head.lock.versions, prediction) if prediction else 0
        return make(
            outcome=outcome,
            speed=speed,
            rows=rows,
            reports=sum(len(rule.ratios) for rule, _ in self._differing_slowdowns()),
            not_compared=self._not_compared(prediction) if prediction and rows else (),
            recoveries=tuple(self._recoveries(speed)) if outcome == "worse" else (),
        )

    def _speed(self, stack: Versions, prediction: Prediction | None) -> Ratio | None:
        """Return the speed of a stack over the base; `None` if nothing is known about its difference."""
        factors = [self._slowdowns.gain(stack, self._before), *self._setting_factors()]
        factors = [factor for factor in factors if factor != NO_GAIN]
        if prediction is not None and prediction.is_known and (prediction.is_same or self._rows(stack, prediction)):
            factors.append(prediction.ratio)
        return product(factors) if factors else None

    def _rows(self, stack: Versions, prediction: Prediction) -> int:
        """Return the number of different comparisons of the changed releases behind a prediction."""
        return sum(self._rows_of(change, stack) for change in prediction.changes)

    def _rows_of(self, change: PredictedChange, stack: Versions) -> int:
        """Return the number of different comparisons of the releases of a package behind its predicted change.

        A prediction without any says what releases usually differ by, and names comparisons of other releases.
        """
        releases = {_minor(stack[change.package]), _minor(self._before[change.package])}
        evidence = {
            (e.block, e.indicator, e.version, e.reference, e.hardware)
            for e in change.evidence
            if releases & {_minor(Version(e.version)), _minor(Version(e.reference))}
        }
        return len(evidence) + change.left_out

    def _not_compared(self, prediction: Prediction) -> tuple[str, ...]:
        """Return the changed frameworks that no comparison behind a prediction is about, sorted."""
        stack = self._head.lock.versions
        with_rows = {change.package for change in prediction.changes if self._rows_of(change, stack)}
        names = {change.package for change in self._comparison.changes}
        return tuple(sorted((names & FRAMEWORKS.keys()) - with_rows))

    def _reason(self, prediction: Prediction) -> str:
        """Return why the speed is not known: what is not known of other packages than the changed ones is no reason."""
        changes = {change.package: change for change in self._comparison.changes}
        ends = {name: [v for v in (change.before, change.after) if v is not None] for name, change in changes.items()}
        of_one_stack = {name for name, versions in ends.items() if name in FRAMEWORKS and len(versions) == 1}
        not_compared = set(prediction.not_compared) | {
            name for name, versions in ends.items() if not all(self._predictor.is_measured(name, v) for v in versions)
        }
        names = changes.keys() - of_one_stack
        own = replace(
            prediction,
            changes=(),
            unmeasured=tuple(name for name in prediction.unmeasured if name in names),
            newest_measured=tuple(newest for newest in prediction.newest_measured if newest[0] in names),
            not_compared=tuple(sorted(not_compared & names)),
        )
        if of_one_stack and not (own.unmeasured or own.newest_measured or own.not_compared):
            return f"only one of the two stacks has {quoted(sorted(of_one_stack))}"
        other_releases = [change.package for change in prediction.changes if change.package in changes]
        if other_releases and not own.newest_measured:
            listed = quoted(other_releases)
            return f"no program of the workload was compared with one of the two releases of {listed} on such hardware"
        return no_speedup_text(own)

    def _setting_factors(self) -> Iterator[Ratio]:
        """Yield the effect of each changed setting, on the framework that loses most."""
        for change in self._comparison.settings:
            if change.effects:
                yield min((effect.ratio for effect in change.effects), key=lambda ratio: ratio.mean)

    def _differing_slowdowns(self) -> Iterator[tuple[SlowerRule, str]]:
        """Yield the documented slow-downs that count and that only one of the stacks has, with the slow package."""
        stacks = self._before, self._head.lock.versions
        before, after = (dict.fromkeys((rule.id, name) for rule, name in self._rules.slowdowns_of(s)) for s in stacks)
        for stack in stacks:
            for rule, name in self._rules.slowdowns_of(stack):
                is_common = (rule.id, name) in before and (rule.id, name) in after
                if not is_common and self._slowdowns.score(rule, name, stack[name]).steps:
                    yield rule, name

    def _recoveries(self, speed: Ratio) -> Iterator[Recovery]:
        slow = {name: rule for rule, name in self._differing_slowdowns() if self._has(rule, name)}
        for rule in slow.values():
            if rule.workaround:
                yield Recovery(what=rule.workaround, kind="work-around", source=rule.source)
        changes = self._comparison.prediction.changes if self._comparison.prediction else ()
        losing = [c.package for c in sorted(changes, key=lambda c: c.speedup) if c.speedup < 1]
        for name in dict.fromkeys([*losing[:1], *slow]):
            yield from self._other_version(name)
        yield from self._settings(speed)

    def _has(self, rule: SlowerRule, name: str) -> bool:
        return (rule, name) in self._rules.slowdowns_of(self._head.lock.versions)

    def _other_version(self, name: str) -> Iterator[Recovery]:
        """Yield the newest other version of a package with which no loss is predicted that matters, if there is one."""
        scope = self._base if self._base.state.requirements_known else self._head
        problem = without_pins(scope.problem, scope.lock)
        stack, tried = self._head.lock.versions, 0
        for candidate in IndexCandidates(self._head.case.client, problem).candidates(NormalizedName(name)):
            version = candidate.version
            if version == stack.get(name) or version == self._before.get(name) or not self._is_known(name, version):
                continue
            tried += 1
            if tried > _MOST_VERSIONS:
                return
            other = {**stack, name: version}
            speed = self._speed(other, self._predictor.predict(other, self._before))
            if speed is not None and speed.speedup >= 1 - self._tolerance and self._is_faster(other):
                yield Recovery(what=f"{name}=={version}", kind="version", speed=speed)
                return

    def _is_faster(self, other: Versions) -> bool:
        """Whether a stack is certainly faster than the lock."""
        stack = self._head.lock.versions
        gain = self._predictor.predict(other, stack).ratio.times(self._slowdowns.gain(other, stack))
        return gain.low > 1

    def _is_known(self, name: str, version: Version) -> bool:
        """Whether no rule and no observation says that a version does not run, and it was measured if that counts."""
        judged = self._rules.judge(name, version)
        if any(verdict.severity == "forbidden" for verdict in judged) or str(version) in self._predictor.failures(name):
            return False
        return self._predictor.is_measured(name, version)

    def _settings(self, speed: Ratio) -> Iterator[Recovery]:
        """Yield the recommended settings that nothing sets yet, together, if they gain anything."""
        allowed, stack = self._head.case.settings, self._head.lock.versions
        if allowed is None:
            return
        present = {setting.name for setting in self._head.settings_with_lock}
        listed = recommended_settings(stack, self._predictor, allowed.in_one_process(stack, self._predictor))
        chosen_settings = [s for s in listed if s.status == "recommended" and s.name not in present]
        gain = combined_gain(chosen_settings, stack, self._predictor)
        if gain is not None and gain.is_significant:
            values = values_to_set(chosen_settings).values()
            text = ", ".join(f"{name}={value}" for own in values for name, value in own.items())
            yield Recovery(what=text, kind="settings", speed=speed.times(gain.ratio))


def _minor(version: Version) -> tuple[int, int]:
    return version.major, version.minor

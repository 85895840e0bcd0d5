"""Why each package of a stack has its version."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from packaging.utils import NormalizedName

from advisor.domain.words import interval_text, quoted, ratio_text
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import PROJECT, Candidate, CandidateSource, CandidateStack, ResolutionProblem
from advisor.resolve.explanation.stack_requirements import replaced_by_replacement, requirements_within
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.result import Optimum
from knowledge.catalogue.rule_book import RuleBook
from knowledge.estimate.gains import SettingValue
from knowledge.estimate.interface import Prediction

AVOIDED_SLOWDOWN = "has a documented slow-down"
"""Part of the reason of a package whose newest version has one."""
_REQUIREMENTS = "newest that the requirements admit"
_OTHER_CHOICES = "follows from the other choices"


def _shortest_paths(
    required: Mapping[NormalizedName, Collection[NormalizedName]],
) -> dict[NormalizedName, list[NormalizedName]]:
    """Return the shortest path from the project to each package; without networkx, which is slow to import."""
    paths: dict[NormalizedName, list[NormalizedName]] = {PROJECT: []}
    queue = [PROJECT]
    for parent in queue:
        for name in required[parent]:
            if name not in paths:
                paths[name] = [*paths[parent], name]
                queue.append(name)
    return paths


def explain_stack(
    request: ResolutionRequest,
    optimum: Optimum,
    *,
    prediction: Prediction,
    settings: Mapping[str, Sequence[SettingValue]],
) -> dict[str, str]:
    """Return, for each package of the best stack, why it has its version and what requires it, in a few words.

    The settings are the recommended ones that the baseline's versions do not have, by package.
    """
    problem, source, stack, baseline = request.problem, request.source, optimum.stack, request.baseline
    paths = _shortest_paths(requirements_within(problem, source, stack))
    plain = baseline.by_name
    forbidden = _forbidden_below(problem, source, baseline, request.score.rules)
    slow = _slow_in_baseline(stack, baseline, request.score.rules, known=forbidden)
    replaced = replaced_by_replacement(problem, source, stack)
    reasons: dict[str, str] = {}
    for candidate in stack:
        reason = _reason(
            candidate, plain.get(candidate.name), source, forbidden=forbidden, slow=slow, prediction=prediction
        )
        if values := settings.get(candidate.name):
            listed = quoted(["=".join(value) for value in values])
            reason = f"{reason}; recommended with {listed}, which {plain[candidate.name].version} does not have"
        if build := request.score.builds.reason(candidate, plain.get(candidate.name)):
            reason = build if reason == _OTHER_CHOICES else f"{reason}; {build}"
        if reason == _REQUIREMENTS and _needs_build(candidate, problem, source):
            reason = "newest whose requirements are known without a build (`--build-sdists`)"
        if candidate.name in replaced:
            reason = f"{reason}; instead of {quoted(replaced[candidate.name])}"
        parents = paths[candidate.name][:-1]
        reasons[candidate.name] = f"{reason}; via {' > '.join(parents)}" if parents else reason
    return _with_reasons_of_age(reasons, optimum)


def _with_reasons_of_age(reasons: Mapping[str, str], optimum: Optimum) -> dict[str, str]:
    """Return the reasons of a stack, with the gain for which packages are older than in the newest stack that runs."""
    newest = optimum.newest.versions
    older = [c.name for c in optimum.stack if c.name in newest and c.version < newest[c.name]]
    documented = any(AVOIDED_SLOWDOWN in reason for reason in reasons.values())
    without = "without the documented slow-downs, " if documented else ""
    ratio, interval = ratio_text(optimum.gain.speedup, "exact"), interval_text(optimum.gain, "exact")
    gain = f"{without}the whole stack is predicted {ratio} times as fast {interval}"
    further = {str(name): f"{reasons[name]}; older than {newest[name]}, the newest that runs: {gain}" for name in older}
    return {**reasons, **further}


def _needs_build(candidate: Candidate, problem: ResolutionProblem, source: IndexCandidates) -> bool:
    """Whether the next newer version that the project admits was left out because it has to be built."""
    offered = source.candidates(candidate.name)
    newer = [other for other in offered if other.version > candidate.version and problem.admits(other)]
    return bool(newer) and source.is_known(newer[-1]) and source.lacks_build(newer[-1])


def _forbidden_below(
    problem: ResolutionProblem, source: CandidateSource, baseline: Sequence[Candidate], rules: RuleBook
) -> dict[NormalizedName, str]:
    """Return why a rule forbids each package of the baseline that it forbids, or that requires such a one."""
    forbidden = [
        (candidate.name, verdict.message)
        for candidate in baseline
        for verdict in rules.judge(candidate.name, candidate.version)
        if verdict.severity == "forbidden"
    ]
    if not forbidden:
        return {}
    required = requirements_within(problem, source, baseline)
    rule_messages: dict[NormalizedName, str] = {}
    for package, message in forbidden:
        for name in sorted(_requirers(required, package)):
            rule_messages.setdefault(name, f"does not run on the target: {message}")
    return rule_messages


def _requirers(
    required: Mapping[NormalizedName, Collection[NormalizedName]], package: NormalizedName
) -> set[NormalizedName]:
    """Return a package, and those that require it, directly or through others."""
    names = {package}
    while fresh := {parent for parent, of_parent in required.items() if not names.isdisjoint(of_parent)} - names:
        names |= fresh
    return names - {PROJECT}


def _slow_in_baseline(
    stack: CandidateStack, baseline: CandidateStack, rules: RuleBook, *, known: Collection[str]
) -> dict[NormalizedName, str]:
    """Return the documented slow-down that the stack avoids, of each package of the baseline without another reason."""
    remaining = {rule.id for rule, _ in rules.slowdowns_of(stack.versions)}
    avoided = [
        (rule, name)
        for rule, name in rules.slowdowns_of(baseline.versions)
        if rule.id not in remaining and name not in known
    ]
    # The one that says most about other programs comes last, and is the reason.
    avoided.sort(key=lambda entry: (entry[0].whole, len(entry[0].ratios), entry[0].ratio))
    return {NormalizedName(name): f"{AVOIDED_SLOWDOWN}: {rule.workload} ({rule.source})" for rule, name in avoided}


def _reason(
    candidate: Candidate,
    plain: Candidate | None,
    source: CandidateSource,
    *,
    forbidden: Mapping[NormalizedName, str],
    slow: Mapping[NormalizedName, str],
    prediction: Prediction,
) -> str:
    if plain is not None and plain.version != candidate.version and candidate.name in forbidden:
        return f"{plain.version} {forbidden[candidate.name]}"
    for change in prediction.changes:
        if change.package == candidate.name and plain is not None and not prediction.obstacle:
            ratio, interval = ratio_text(change.speedup, "exact"), interval_text(change, "exact")
            return f"predicted {ratio}x the speed of {plain.version} {interval}"
    if candidate.release == source.candidates(candidate.name)[0].version.public:
        return "newest for the target"
    if plain is None:
        return "newest that the other choices admit"
    if plain.version == candidate.version:
        return _REQUIREMENTS
    if candidate.name in slow:
        return f"{plain.version} {slow[candidate.name]}"
    return _OTHER_CHOICES

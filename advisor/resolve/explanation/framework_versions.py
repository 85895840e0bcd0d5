"""Predicted speeds of the versions of a stack's frameworks: what the choice among them rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.resolve.explanation.advice import Advice
from advisor.resolve.optimum.request import ResolutionRequest
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.ratio import NO_GAIN, Ratio, WithRatio
from knowledge.estimate.interface import Evidence

_MOST_VERSIONS = 12
_ComparedWith = Literal["newest", "recommended", "newest-measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpeed(WithRatio):
    """Predicted speed of the recommended stack with one version of a framework.

    Attributes:
        version: The version.
        ratio: Predicted speed-up over the reference.
        is_measured: Whether the version was measured on comparable hardware; its speed is estimated from others if not.
        evidence: Comparisons of exactly this version with that of the reference.
    """

    version: Version
    ratio: Ratio
    is_measured: bool
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkVersions:
    """The versions of one framework of the recommended stack.

    Attributes:
        framework: The framework.
        chosen: Its version in the recommended stack.
        reference: Its version in the stack that speeds are compared with.
        compared_with: Which stack that is: the newest one, the recommended one if the newest does not run, or the
            recommended one with the newest measured version if neither was compared on such hardware.
        speeds: Its version, the reference, and versions that were measured, the newest first. Of each minor release at
            most one measured version is listed.
        obstacle: Why no versions are compared; empty if some are.
    """

    framework: str
    chosen: Version
    reference: Version
    compared_with: _ComparedWith
    speeds: tuple[VersionSpeed, ...]
    obstacle: str = ""


def framework_versions(request: ResolutionRequest, advice: Advice) -> tuple[FrameworkVersions, ...]:
    """Return the predicted speeds of the versions of each framework of a recommended stack, changed ones first.

    They come from the predictor that made the advice. The project's own benchmark may have compared any package.
    """
    predicted, basis = {change.package for change in advice.prediction.changes}, advice.basis
    names = [name for name in advice.optimum.stack.versions if name in FRAMEWORKS or name in predicted]
    every = [_versions_of(name, request, advice) for name in sorted(names)]
    # What was measured only as a companion of another framework is a part of the speed of that one.
    listed = [v for v in every if v.speeds or v.framework in (*basis.unmeasured, *basis.not_in_workload)]
    newest, direct = advice.baseline.versions, request.problem.direct_names
    return tuple(sorted(listed, key=lambda v: (newest.get(v.framework) == v.chosen, v.framework not in direct)))


def _versions_of(name: str, request: ResolutionRequest, advice: Advice) -> FrameworkVersions:
    stack, newest = advice.optimum.stack.versions, advice.baseline.versions
    result = FrameworkVersions(
        framework=name,
        chosen=stack[name],
        reference=stack[name],
        compared_with="recommended",
        speeds=(),
        obstacle=f"no two versions of `{name}` that run on the target were compared on such hardware",
    )
    if name in advice.basis.not_in_workload:
        return replace(result, obstacle=f"`{name}` does not count for the workload")
    references: dict[_ComparedWith, Mapping[str, Version]] = {"recommended": stack}
    if name in newest and not advice.prediction.obstacle:
        references = {"newest": newest}
    versions = _listed_versions(name, request, {stack[name], newest.get(name, stack[name])})
    if measured := [v for v in versions if request.score.estimator.is_measured(name, v)]:
        references["newest-measured"] = {**stack, name: measured[0]}
    for kind, reference in references.items():
        listed = [v for v in versions if kind != "recommended" or v in (stack[name], *measured)]
        speeds = tuple(_speeds(name, listed, request, stack, reference))
        if len(speeds) > 1 and any(speed.is_measured for speed in speeds):
            return replace(result, reference=reference[name], compared_with=kind, speeds=speeds, obstacle="")
    return result


def _speeds(
    name: str,
    versions: Iterable[Version],
    request: ResolutionRequest,
    stack: Mapping[str, Version],
    reference: Mapping[str, Version],
) -> Iterator[VersionSpeed]:
    """Yield the predicted speed of the recommended stack with each version; those without a prediction are left out."""
    estimator, before = request.score.estimator, str(reference[name])
    for version in versions:
        other = {**stack, name: version}
        prediction = estimator.predict(other, reference)
        if other == reference or prediction.is_known:
            direct = (e for change in prediction.changes for e in change.evidence if change.package == name)
            yield VersionSpeed(
                version=version,
                ratio=NO_GAIN if other == reference else prediction.ratio,
                is_measured=estimator.is_measured(name, version),
                evidence=tuple(e for e in direct if {e.version, e.reference} == {str(version), before}),
            )


def _listed_versions(name: str, request: ResolutionRequest, always: set[Version]) -> list[Version]:
    """Return some versions, and the newest measured one of each other minor release, the newest first."""
    score = request.score
    failed = score.estimator.failures(name)
    releases = {version.release[:2] for version in always}
    others: list[Version] = []
    for version in sorted({c.version for c in request.source.candidates(canonicalize_name(name))}, reverse=True):
        if len(others) == _MOST_VERSIONS - len(always):
            break
        if version.release[:2] in releases or version.local or str(version) in failed:
            continue
        is_forbidden = any(verdict.severity == "forbidden" for verdict in score.rules.judge(name, version))
        if not is_forbidden and score.estimator.is_measured(name, version):
            releases.add(version.release[:2])
            others.append(version)
    return sorted({*always, *others}, reverse=True)

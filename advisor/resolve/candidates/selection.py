"""Selection of the candidates of a package among its files that the target can install."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.candidates.compatible_files import CompatibleFile, CompatibleFiles
from advisor.resolve.candidates.problem import Candidate, ResolutionProblem

PRERELEASE = "pre-release"
"""Why a pre-release is no candidate unless pre-releases are admitted."""


def select_candidates(
    name: NormalizedName,
    pages: Iterable[CompatibleFiles],
    problem: ResolutionProblem,
    skip: Callable[[NormalizedName, str, str, int], None],
) -> tuple[Candidate, ...]:
    """Return the candidates of a package, newest first: the best file of each version that the problem allows.

    Args:
        name: The package.
        pages: Its compatible files on each page. If several pages list a file of one name, the first is used.
        problem: The problem.
        skip: Records files that cannot be candidates: package, reason, an example and the number of files.
    """
    reason_against = _refuser(name, problem)
    best: dict[Version, CompatibleFile] = {}
    filenames: set[str] = set()
    for offers in pages:
        for reason, count in offers.refused.items():
            skip(name, reason, offers.examples[reason], count)
        for offer in offers.files:
            if offer.file.filename in filenames:
                continue
            filenames.add(offer.file.filename)
            previous = best.get(offer.version)
            if reason := reason_against(offer):
                skip(name, reason, offer.file.filename, 1)
            elif previous is None or offer.rank < previous.rank:
                best[offer.version] = offer
    admitted = _without_prereleases(name, best, problem)
    for version in best:
        if version not in admitted:
            skip(name, PRERELEASE, str(version), 1)
    return tuple(
        Candidate(name=name, version=version, file=best[version].file) for version in sorted(admitted, reverse=True)
    )


def _refuser(name: NormalizedName, problem: ResolutionProblem) -> Callable[[CompatibleFile], str]:
    """Return a function for why the policy or the project's requirements exclude a file; empty if they do not."""
    policy, roots = problem.policy, problem.roots_of(name)
    hashes = [root.hashes for root in roots if root.hashes]
    # A version that is pinned may be yanked (PEP 592).
    specifiers = (s for root in roots for s in root.requirement.specifier)
    pins = [s for s in specifiers if s.operator == "===" or (s.operator == "==" and not s.version.endswith(".*"))]

    def reason(offer: CompatibleFile) -> str:
        uploaded, version = offer.file.uploaded, offer.version
        if offer.is_wheel and not policy.allows_wheels(name):
            return "wheels are excluded by `--no-binary`"
        if not offer.is_wheel and not policy.allows_sdists(name):
            return "sdists are excluded by `--only-binary`"
        if policy.exclude_newer and (uploaded is None or uploaded > policy.exclude_newer):
            return "newer than `--exclude-newer`" if uploaded else "no upload time, which `--exclude-newer` needs"
        if (
            offer.file.yanked
            and (name, version) not in policy.retained
            and not any(pin.contains(version, prereleases=True) for pin in pins)
        ):
            return "yanked"
        if any(offer.file.sha256 not in accepted for accepted in hashes):
            return "hash differs from the required ones"
        return ""

    return reason


def _without_prereleases(
    name: NormalizedName, versions: Iterable[Version], problem: ResolutionProblem
) -> frozenset[Version]:
    """Drop pre-releases unless there are no other versions, or a requirement of the project names one (PEP 440)."""
    versions = frozenset(versions)
    retained = problem.policy.retained
    final = frozenset(v for v in versions if not v.is_prerelease or (name, v) in retained)
    opted_in = problem.policy.prereleases or any(
        root.requirement.specifier.prereleases for root in problem.roots_of(name)
    )
    return versions if opted_in or not final else final

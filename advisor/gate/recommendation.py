"""The recommended stack, cached until anything that it depends on changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.index.client import IndexClient
from advisor.resolve.predictor import Predictor
from advisor.resolve.problem import ResolutionProblem
from knowledge.catalogue.rules import catalogue_digest
from knowledge.domain.identity import canonical_json

if TYPE_CHECKING:
    from advisor.resolve.recommend import Advice
    from advisor.resolve.recommended_settings import CombinedGain
    from advisor.resolve.request import ResolutionRequest

_BUCKET = "recommended"
_FORMAT = 1
"""Version of the cached values; raise it when their meaning changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedStack:
    """The recommended stack of a problem.

    Attributes:
        versions: Version of each package.
        proven: Whether its score is proven to be optimal.
        settings_gain: What the recommended run-time settings gain; none if there are none.
    """

    versions: Mapping[str, Version]
    proven: bool
    settings_gain: CombinedGain | None = None


def find_recommended_stack(
    problem: ResolutionProblem,
    client: IndexClient,
    predictor: Predictor,
    *,
    criteria: Sequence[str],
    solve: Callable[[], tuple[ResolutionRequest, Advice]],
) -> RecommendedStack:
    """Return the recommended stack, from the cache if nothing that it depends on has changed.

    It depends on the requirements, the target, the observations, the rules, the program's version, and the index pages
    of every package that the search loaded.

    Args:
        problem: The requirements and the target.
        client: The indexes.
        predictor: Predictions from the observations.
        criteria: The objective, and for `stable` the minimum age of a file and the date.
        solve: Solves the problem.

    Raises:
        AdvisorError: If there is no stack, or an index cannot be read.
    """
    inputs = [predictor.state, catalogue_digest(), _problem_key(problem), _index_key(client), list(criteria)]
    key = canonical_json([_FORMAT, *inputs])
    # Vulnerability records and descriptions of variants are not part of the pages.
    is_on_pages = "security" not in criteria and not problem.policy.variants
    stored = client.cache.read(_BUCKET, key) if is_on_pages else None
    if stored is not None:
        document = json.loads(stored)
        if all(client.digest(NormalizedName(name)) == digest for name, digest in document["pages"].items()):
            return RecommendedStack(
                versions={name: Version(version) for name, version in document["versions"].items()},
                proven=document["proven"],
            )
    request, advice = solve()
    versions = {str(c.name): c.version for c in advice.optimum.stack}
    document = {
        "pages": {name: client.digest(name) for name in sorted(request.loaded_packages)},
        "versions": {name: str(version) for name, version in versions.items()},
        "proven": advice.optimum.proven,
    }
    if not advice.optimum.stopped:
        client.cache.write(_BUCKET, key, json.dumps(document).encode())
    return RecommendedStack(versions=versions, proven=advice.optimum.proven)


def _problem_key(problem: ResolutionProblem) -> Any:
    target, policy = problem.target, problem.policy
    roots = [
        sorted([str(r.requirement), r.constraint, sorted(r.hashes)] for r in group)
        for group in (problem.roots, problem.overrides)
    ]
    direct = sorted(
        [p.candidate.file.url, str(p.metadata.version), sorted(map(str, p.metadata.requires))]
        for p in problem.direct.values()
    )
    stated = sorted(
        [m.name, str(m.version), sorted(map(str, m.requires)), sorted(m.extras), str(m.requires_python)]
        for m in problem.stated
    )
    return [
        roots,
        direct,
        stated,
        str(target.python),
        target.platform,
        policy.prereleases,
        policy.build_sdists,
        sorted(policy.only_binary),
        sorted(policy.no_binary),
        policy.exclude_newer,
        policy.variants,
    ]


def _index_key(client: IndexClient) -> Any:
    c = client.configuration
    builds = [sorted((name, *urls) for name, urls in c.builds.items()), sorted(c.exclusive)]
    return [
        *(c.default, list(c.extra), list(c.supplemental), list(c.find_links)),
        *(sorted(c.bindings.items()), builds, c.strategy),
    ]

"""The recommended stack, remembered for as long as everything that it depends on stays the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.gate.prediction import Outlook
from advisor.index.client import IndexClient
from advisor.project.locks import Lock
from advisor.resolve.problem import ResolutionProblem
from knowledge.domain.identity import canonical_json
from knowledge.rules.catalogue import catalogue_digest

if TYPE_CHECKING:
    from advisor.resolve.recommend import Advice, ResolutionRequest

_BUCKET = "recommended"
_FORMAT = 1
"""To be raised when what is remembered changes its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """The recommended stack of a problem.

    Attributes:
        versions: By package.
        proven: Whether no better one exists.
    """

    versions: Mapping[str, Version]
    proven: bool


def recommended(
    problem: ResolutionProblem,
    client: IndexClient,
    outlook: Outlook,
    *,
    criteria: Sequence[str],
    solve: Callable[[], tuple[ResolutionRequest, Advice]],
) -> Recommended:
    """Return the recommended stack; solved where anything that it depends on is new.

    It depends on the requirements, the target, the observations, the rules, the program's version, and on what the
    indexes say of every package that the search reached.

    Args:
        problem: What is required.
        client: The indexes.
        outlook: What the observations imply.
        criteria: What is best, as text: the objective, and for some of them what counts as young.
        solve: Answers the problem.

    Raises:
        AdvisorError: If there is no stack, or an index cannot be read.
    """
    depends = [outlook.state, catalogue_digest(), _spelled(problem), _indexes(client), list(criteria)]
    key = canonical_json([_FORMAT, *depends])
    # Vulnerability records are no part of the pages.
    kept = None if "security" in criteria else client.cache.read(_BUCKET, key)
    if kept is not None:
        document = json.loads(kept)
        if all(client.digest(NormalizedName(name)) == digest for name, digest in document["pages"].items()):
            return Recommended(
                versions={name: Version(version) for name, version in document["versions"].items()},
                proven=document["proven"],
            )
    inquiry, advice = solve()
    versions = {str(c.name): c.version for c in advice.optimum.stack}
    document = {
        "pages": {name: client.digest(name) for name in inquiry.source.reached},
        "versions": {name: str(version) for name, version in versions.items()},
        "proven": advice.optimum.proven,
    }
    client.cache.write(_BUCKET, key, json.dumps(document).encode())
    return Recommended(versions=versions, proven=advice.optimum.proven)


def relaxed(problem: ResolutionProblem, lock: Lock) -> ResolutionProblem:
    """Return a problem without the pins of a lock that is itself where the project says what it requires.

    In such a file a pin says what is, not what must be: the question is what should be there.
    """
    if not lock.is_project:
        return problem
    return replace(problem, roots=tuple(map(_unpinned, problem.roots)))


def _unpinned(root: RootRequirement) -> RootRequirement:
    if root.constraint or not any(s.operator in ("==", "===") for s in root.requirement.specifier):
        return root
    free = Requirement(str(root.requirement))
    free.specifier = type(free.specifier)()
    return replace(root, requirement=free, hashes=frozenset())


def _spelled(problem: ResolutionProblem) -> Any:
    target, policy = problem.target, problem.policy
    roots = [
        sorted([str(r.requirement), r.constraint, sorted(r.hashes)] for r in group)
        for group in (problem.roots, problem.overrides)
    ]
    return [
        roots,
        str(target.python),
        target.platform,
        policy.prereleases,
        policy.build_sdists,
        sorted(policy.only_binary),
        sorted(policy.no_binary),
        policy.exclude_newer,
    ]


def _indexes(client: IndexClient) -> Any:
    c = client.configuration
    return [c.default, list(c.extra), list(c.find_links), sorted(c.bindings.items()), c.strategy]

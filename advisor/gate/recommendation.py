"""The recommended stack, cached until anything that it depends on changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from packaging.version import Version

from advisor.index.client import IndexClient
from advisor.index.memo import Memo
from advisor.resolve.candidates.problem import ResolutionProblem
from advisor.resolve.explanation.advice import Advice
from advisor.resolve.explanation.recommended_settings import CombinedGain
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.score.predictor import Predictor
from knowledge.domain.codec import decoded, encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedStack:
    """The recommended stack, whether its score is proven to be optimal, and what its settings gain, if it has any."""

    versions: Mapping[str, Version]
    proven: bool
    settings_gain: CombinedGain | None = None


def find_recommended_stack(
    problem: ResolutionProblem,
    client: IndexClient,
    predictor: Predictor,
    *,
    criteria: object,
    solve: Callable[[], tuple[Selection, Advice]],
) -> RecommendedStack:
    """Return the recommended stack, from the cache if nothing that it depends on has changed.

    It depends on the requirements, the target, the observations, the program, and the index pages of every package
    that the search loaded. The criteria are the objective, and for `stable` the minimum age of a file and the date;
    with `None`, the cache is not used.

    Raises:
        AdvisorError: If there is no stack, or an index cannot be read.
    """
    memo = Memo(client.cache, "recommended")
    question = [predictor.evidence_state, _without_places(problem), client.configuration, criteria]
    document = None if criteria is None else memo.read(question)
    if document is not None and client.digests(document["pages"]) == document["pages"]:
        return decoded(RecommendedStack, document["stack"])
    selection, advice = solve()
    stack = RecommendedStack(versions=advice.optimum.stack.versions, proven=advice.optimum.proven)
    if criteria is not None and not advice.optimum.stopped:
        memo.write(question, {"pages": client.digests(sorted(selection.loaded_packages)), "stack": encoded(stack)})
    return stack


def _without_places(problem: ResolutionProblem) -> ResolutionProblem:
    """Return a problem that does not say where its requirements are written: no stack depends on that."""
    roots, overrides = (
        tuple(replace(root, origin="", path="") for root in group) for group in (problem.roots, problem.overrides)
    )
    return replace(problem, roots=roots, overrides=overrides)

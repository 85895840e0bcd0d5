"""Fetches what a solution made it worth to know, and grows the model by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from packaging.utils import NormalizedName

from advisor.domain.requirement import RootRequirement
from advisor.resolve.encode import Encoding, Node
from advisor.resolve.problem import Candidate, CandidateSource, Dependency, ResolutionProblem

_GROWTH = 2


def needed_by(
    problem: ResolutionProblem,
    source: CandidateSource,
    chosen: Mapping[NormalizedName, Candidate],
    *,
    roots: tuple[RootRequirement, ...] | None = None,
) -> tuple[set[NormalizedName], list[Candidate], set[NormalizedName]]:
    """Walk what the root requires of a choice.

    Returns:
        The packages that are needed, the chosen candidates among them whose metadata is not known, and the needed
        packages that nothing was chosen for.
    """
    seen: set[Node] = set()
    unknown: dict[str, Candidate] = {}
    absent: set[NormalizedName] = set()
    queue: list[Node] = [
        (root.name, extra)
        for root in (problem.roots if roots is None else roots)
        if not root.constraint and problem.applies(root.requirement)
        for extra in (None, *Dependency(name=root.name, requirement=root.requirement).extras)
    ]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        if name not in chosen:
            absent.add(name)
        elif not source.is_known(chosen[name]):
            unknown[chosen[name].file.url] = chosen[name]
        else:
            for dependency in source.dependencies(chosen[name], extra) or ():
                queue += [(dependency.name, e) for e in (None, *dependency.extras)]
    return {name for name, _ in seen}, sorted(unknown.values()), absent


class Search:
    """Fetches what a solution made it worth to know."""

    def __init__(
        self, problem: ResolutionProblem, source: CandidateSource, encoding: Encoding, start: Sequence[Candidate]
    ) -> None:
        self._problem = problem
        self._source = source
        self._encoding = encoding
        self._patience: dict[NormalizedName, int] = {}
        roots = {r.name for r in problem.roots if not r.constraint and problem.applies(r.requirement)}
        source.fetch(start)
        self.reach(roots | {c.name for c in start})
        for candidate in start:
            allowed = encoding.allowed(candidate.name)
            if candidate in allowed:
                encoding.show(candidate.name, _GROWTH * allowed.index(candidate) + 1)

    def learn(
        self,
        chosen: Mapping[NormalizedName, Candidate],
        vague: Iterable[NormalizedName] = (),
        *,
        roots: tuple[RootRequirement, ...] | None = None,
    ) -> tuple[Candidate, ...] | None:
        """Fetch what is not known of a choice, and show more of the packages that it is vague about.

        Args:
            chosen: The choice.
            vague: Packages of which it chooses a candidate that is not shown.
            roots: What the root requires; by default all that the user asked for.

        Returns:
            What the root requires, directly or not, sorted by name; none where not all of it was known.
        """
        needed, unknown, absent = needed_by(self._problem, self._source, chosen, roots=roots)
        vague = sorted(absent.intersection(vague))
        for name in vague:
            self._encoding.show(name, _GROWTH * len(self._encoding.choices(name)))
        self._fetch_around(unknown)
        self.reach(absent.difference(vague))
        return None if unknown or absent else tuple(chosen[name] for name in sorted(needed))

    def _fetch_around(self, unknown: Sequence[Candidate]) -> None:
        """Fetch candidates and the versions below them, in one parallel batch."""
        wanted: list[Candidate] = []
        for candidate in unknown:
            # Twice as many each time a package is asked for again: a long chain of versions closes in few rounds.
            patience = self._patience.get(candidate.name, 1) * _GROWTH
            self._patience[candidate.name] = patience
            below = self._encoding.allowed(candidate.name)
            below = below[below.index(candidate) :]
            wanted += [c for c in below if not self._source.is_known(c)][:patience]
        self._source.fetch(wanted)
        self._encoding.learn(wanted)

    def reach(self, names: Iterable[NormalizedName]) -> None:
        """Add packages, and with them what their newest candidates require, and what those do."""
        fresh = sorted(set(names) - set(self._encoding.reached))
        while fresh:
            self._source.prefetch(fresh)
            self._encoding.reach(fresh)
            newest = [c for name in fresh for c in self._encoding.allowed(name)[:1]]
            self._source.fetch(newest)
            self._encoding.learn(c for name in fresh for c in self._encoding.reached[name])
            required = {d.name for c in newest for d in self._source.dependencies(c) or ()}
            fresh = sorted(required - set(self._encoding.reached))

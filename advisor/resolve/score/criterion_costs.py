"""What the criteria of a score cost, for the packages that one search has loaded so far."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from packaging.utils import NormalizedName

from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.score.costs import Budget, Candidates, Choice, Limits, Objective, OptionCosts, PairedChoice
from advisor.resolve.score.criteria import StackScore
from knowledge.catalogue.entries import admits
from knowledge.catalogue.rules import ConflictRule

_FAILURE_COST = 10
_UNTRIED = "`{name}` has versions without a wheel for the target, whose build was not tried (`--build-sdists`)"


class CriterionCosts:
    """The costs and limits of a score, cached for one search: packages are only added to it."""

    def __init__(self, score: StackScore) -> None:
        self._score = score
        self._objectives: dict[tuple[str, int], Objective] = {}
        self._limits: dict[int, Limits] = {}
        source, locked = score.source, score.change.locked if score.change else {}
        added = score.change.added if score.change else 0
        self._counts: dict[str, Callable[[Candidate], int]] = {
            "changes": lambda c: locked.get(c.name, c.version) != c.version,
            "added": lambda c: 0 if c.name in locked else added,
            "pre-release": lambda c: c.version.is_prerelease,
            "young": lambda c: (c.file.uploaded or "") > score.young_after,
            "unmeasured": lambda c: not score.estimator.is_measured(c.name, c.version),
            "vulnerabilities": lambda c: len(source.vulnerabilities(c) or ()) if source.is_known(c) else 0,
            "size": score.known_bytes,
        }
        """What each candidate costs by the criteria that count something."""
        self._ages: dict[str, Callable[[NormalizedName], bool]] = {
            "freshness": lambda _: True,
            "freshness-direct": lambda name: name in score.direct,
            "freshness-new": lambda name: name in score.direct and name not in locked,
        }
        """Which packages count for each of the criteria about age."""

    def objectives(self, candidates: Candidates) -> tuple[Objective, ...]:
        """Return the objectives, in the order of the criteria.

        Freshness of the packages that the project names comes before freshness of all packages: otherwise an older
        version of such a package would be chosen for newer versions of two of its dependencies.
        """
        return tuple(self._criterion(name, candidates) for name in self._score.ordered_names)

    def _criterion(self, name: str, candidates: Candidates) -> Objective:
        # Packages are only added, and their candidates do not change: their number is a sufficient cache key.
        key = (name, len(candidates))
        # Each iteration may have loaded more records.
        if key not in self._objectives or name in ("vulnerabilities", "size"):
            self._objectives[key] = self._computed(name, candidates)
        return self._objectives[key]

    def _computed(self, name: str, candidates: Candidates) -> Objective:
        if name in self._counts:
            count = self._counts[name]
            counts = ((package, c.version, int(count(c))) for package, offered in candidates.items() for c in offered)
            return Objective(name=name, costs={(package, version): n for package, version, n in counts if n})
        if name in self._ages:
            costs = {
                (package, version): hours
                for package, of in candidates.items()
                if self._ages[name](package)
                for version, hours in self._score.hours_behind(package, of).items()
            }
            return Objective(name=name, costs=costs)
        make = {
            "rules": self._prices,
            "idle-builds": self._idle_builds,
            "build": self._build_ranks,
            "speed": self._score.speed,
        }[name]
        return make(candidates)

    def _idle_builds(self, candidates: Candidates) -> Objective:
        idle = [choice for name, offered in candidates.items() for choice in self._score.builds.idle(name, offered)]
        options: OptionCosts = {(name, None): 1 for name in self._score.extra_options}
        costs = self._with_package_costs("idle-builds", dict.fromkeys(idle, 1), candidates)
        return Objective(name="idle-builds", costs=costs, options=options)

    def _build_ranks(self, candidates: Candidates) -> Objective:
        forbidden = self.limits(candidates).forbidden
        places = {
            (name, version): place
            for name, offered in candidates.items()
            for version, place in self._score.builds.ranks(name, offered, forbidden).items()
        }
        options: OptionCosts = {
            (n, place): place for n, count in self._score.extra_options.items() for place in range(count)
        }
        costs = self._with_package_costs("build", places, candidates)
        return Objective(name="build", costs=costs, options=options)

    def _with_package_costs(
        self, name: str, costs: Mapping[Choice, int], candidates: Candidates
    ) -> Mapping[Choice, int]:
        further = {
            (package, candidate.version): cost
            for package, cost in self._score.package_costs.get(name, {}).items()
            for candidate in candidates.get(package, ())
        }
        return {choice: costs.get(choice, 0) + further.get(choice, 0) for choice in {**costs, **further}}

    def limits(self, candidates: Candidates) -> Limits:
        """Return what is excluded."""
        if len(candidates) not in self._limits:
            self._limits[len(candidates)] = self._excluded(candidates)
        limits = self._limits[len(candidates)]
        if self._score.max_size is None:
            return limits
        budget = Budget(costs=self._criterion("size", candidates).costs, most=self._score.max_size)
        return replace(limits, budgets=(budget,))

    def _excluded(self, candidates: Candidates) -> Limits:
        forbidden = {
            (name, c.version): f"{v.message} ({v.source})"
            for name, offered in candidates.items()
            for c in offered
            for v in self._score.rules.judge(name, c.version)
            if v.severity == "forbidden"
        }
        every = (c for offered in candidates.values() for c in offered)
        forbidden |= {
            (c.name, c.version): _UNTRIED.format(name=c.name) for c in every if self._score.is_untried_sdist(c)
        }
        exclusive: list[tuple[tuple[frozenset[Choice], ...], str]] = []
        for rule in self._score.rules.conflicts:
            sides = self._sides(rule, candidates)
            if rule.severity == "forbidden" and all(sides):
                exclusive.append((sides, f"{rule.message} ({rule.source})"))
        exclusive += [((ones, others), reason) for ones, others, reason in self._score.builds.mismatches(candidates)[0]]
        exclusive += [
            (tuple(frozenset({choice}) for choice in sorted(refused)), "the gate does not accept this combination")
            for refused in (self._score.change.refused if self._score.change else ())
            if all(name in candidates for name, _ in refused)
        ]
        return Limits(forbidden=forbidden, exclusive=tuple(exclusive))

    def _sides(self, rule: ConflictRule, candidates: Candidates) -> tuple[frozenset[Choice], frozenset[Choice]]:
        """Return the choices of each of two packages that a rule is about."""

        def matching(package: str, specifier: str) -> frozenset[Choice]:
            name = NormalizedName(package)
            return frozenset((name, c.version) for c in candidates.get(name, ()) if admits(specifier, c.version))

        return matching(rule.package, rule.versions), matching(rule.other, rule.other_versions)

    def _prices(self, candidates: Candidates) -> Objective:
        costs: dict[Choice, int] = {}
        for name, offered in candidates.items():
            failures = self._score.estimator.failures(name)
            for candidate in offered:
                price = sum(v.severity == "discouraged" for v in self._score.rules.judge(name, candidate.version))
                price += _FAILURE_COST * (str(candidate.version) in failures)
                if price:
                    costs[name, candidate.version] = price
        pairs: dict[tuple[Choice, PairedChoice], int] = {
            pair: 1
            for rule in self._score.rules.conflicts
            if rule.severity == "discouraged"
            for pair in itertools.product(*self._sides(rule, candidates))
        }
        for ones, others, _ in self._score.builds.mismatches(candidates)[1]:
            pairs |= dict.fromkeys(itertools.product(ones, others), 1)
        return Objective(name="rules", costs=costs, pairs=pairs)

    def compared_beyond(self, stack: Iterable[Candidate]) -> frozenset[NormalizedName]:
        """Return the packages of the reference that a stack lacks, and whose absence may cost speed.

        A search that starts from the stack must load them.
        """
        lacking = {c.name for c in self._score.reference or ()} - {c.name for c in stack}
        if not self._score.includes_speed or not lacking:
            return frozenset()
        speed = self._score.speed(self._score.offered(()))
        paired = {name for pair in speed.pairs for name, _ in pair}
        return frozenset(lacking.intersection([*speed.absent, *paired, *(name for name, _ in speed.costs)]))

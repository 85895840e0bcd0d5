"""What the criteria of a score cost, for the packages that one search has loaded so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.score.costs import Budget, Candidates, Choice, Limits, Objective, OptionCosts, PairedChoice
from advisor.resolve.score.criteria import StackScore
from knowledge.catalogue.entries import admits

_FAILURE_COST = 10
_UNTRIED = "`{name}` has versions without a wheel for the target, whose build was not tried (`--build-sdists`)"


class CriterionCosts:
    """The costs and limits of a score, cached for one search: packages are only added to it."""

    def __init__(self, score: StackScore) -> None:
        self._score = score
        self._objectives: dict[tuple[str, int], Objective] = {}
        self._limits: dict[int, Limits] = {}

    def objectives(self, candidates: Candidates) -> tuple[Objective, ...]:
        """Return the objectives, in the order of the criteria.

        Freshness of the packages that the project names comes before freshness of all packages: otherwise an older
        version of such a package would be chosen for newer versions of two of its dependencies.
        """
        return tuple(self._criterion(name, candidates) for name in self._score.ordered_names)

    def _criterion(self, name: str, candidates: Candidates) -> Objective:
        make = {
            "changes": self._changes,
            "freshness-new": self._freshness_of_new,
            "added": self._additions,
            "rules": self._prices,
            "idle-builds": self._idle_builds,
            "build": self._build_ranks,
            "speed": self._score.speed,
            "freshness-direct": self._freshness_of_direct,
            "freshness": self._freshness,
            "pre-release": self._prereleases,
            "young": self._young,
            "unmeasured": self._unmeasured,
            "vulnerabilities": self._vulnerabilities,
            "size": self._sizes,
        }[name]
        if name in ("vulnerabilities", "size"):
            return make(candidates)  # Each iteration may have loaded more records.
        # Packages are only added, and their candidates do not change: their number is a sufficient cache key.
        key = (name, len(candidates))
        if key not in self._objectives:
            self._objectives[key] = make(candidates)
        return self._objectives[key]

    @property
    def _locked(self) -> Mapping[str, Version]:
        return self._score.change.locked if self._score.change else {}

    def _changes(self, candidates: Candidates) -> Objective:
        locked = self._locked
        return _counting("changes", candidates, lambda c: int(locked.get(c.name, c.version) != c.version))

    def _additions(self, candidates: Candidates) -> Objective:
        locked, added = self._locked, self._score.change.added if self._score.change else 0
        return _counting("added", candidates, lambda c: 0 if c.name in locked else added)

    def _freshness(self, candidates: Candidates) -> Objective:
        costs = {
            (name, version): hours
            for name, offered in candidates.items()
            for version, hours in self._score.freshness.hours_behind(name, offered).items()
        }
        return Objective(name="freshness", costs=costs)

    def _freshness_of_direct(self, candidates: Candidates) -> Objective:
        direct = {name: offered for name, offered in candidates.items() if name in self._score.direct}
        return replace(self._freshness(direct), name="freshness-direct")

    def _freshness_of_new(self, candidates: Candidates) -> Objective:
        locked = self._locked
        new = {
            name: offered for name, offered in candidates.items() if name in self._score.direct and name not in locked
        }
        return replace(self._freshness(new), name="freshness-new")

    def _idle_builds(self, candidates: Candidates) -> Objective:
        idle = [choice for name, offered in candidates.items() for choice in self._score.builds.idle(name, offered)]
        objective = self._with_package_costs("idle-builds", dict.fromkeys(idle, 1), candidates)
        return replace(objective, options={(name, None): 1 for name in self._score.extra_options})

    def _build_ranks(self, candidates: Candidates) -> Objective:
        forbidden = self.limits(candidates).forbidden
        places = {
            (name, version): place
            for name, offered in candidates.items()
            for version, place in self._score.builds.ranks(name, offered, forbidden).items()
        }
        objective = self._with_package_costs("build", places, candidates)
        options: OptionCosts = {
            (n, place): place for n, count in self._score.extra_options.items() for place in range(count)
        }
        return replace(objective, options=options)

    def _with_package_costs(self, name: str, costs: dict[Choice, int], candidates: Candidates) -> Objective:
        """Return the objective with the additional costs of packages."""
        for package, cost in self._score.package_costs.get(name, {}).items():
            for candidate in candidates.get(package, ()):
                choice = (package, candidate.version)
                costs[choice] = costs.get(choice, 0) + cost
        return Objective(name=name, costs=costs)

    def _prereleases(self, candidates: Candidates) -> Objective:
        return _counting("pre-release", candidates, lambda c: int(c.version.is_prerelease))

    def _young(self, candidates: Candidates) -> Objective:
        return _counting("young", candidates, lambda c: int((c.file.uploaded or "") > self._score.young_after))

    def _unmeasured(self, candidates: Candidates) -> Objective:
        return _counting(
            "unmeasured", candidates, lambda c: int(not self._score.estimator.is_measured(c.name, c.version))
        )

    def _vulnerabilities(self, candidates: Candidates) -> Objective:
        def vulnerability_count(candidate: Candidate) -> int:
            return (
                len(self._score.source.vulnerabilities(candidate) or ())
                if self._score.source.is_known(candidate)
                else 0
            )

        return _counting("vulnerabilities", candidates, vulnerability_count)

    def _sizes(self, candidates: Candidates) -> Objective:
        """Return the known bytes to download; each iteration may have read more of them."""
        return _counting("size", candidates, self._score.known_bytes)

    def limits(self, candidates: Candidates) -> Limits:
        """Return what is excluded."""
        if len(candidates) not in self._limits:
            self._limits[len(candidates)] = self._excluded(candidates)
        limits = self._limits[len(candidates)]
        if self._score.max_size is None:
            return limits
        budget = Budget(costs=self._sizes(candidates).costs, most=self._score.max_size)
        return replace(limits, budgets=(budget,))

    def _excluded(self, candidates: Candidates) -> Limits:
        forbidden = {
            (name, c.version): f"{v.message} ({v.source})"
            for name, offered in candidates.items()
            for c in offered
            for v in self._score.rules.judge(name, c.version)
            if v.severity == "forbidden"
        }
        for name, offered in candidates.items():
            untried = (c for c in offered if self._score.is_untried_sdist(c))
            forbidden |= {(name, c.version): _UNTRIED.format(name=name) for c in untried}
        exclusive: list[tuple[tuple[frozenset[Choice], ...], str]] = []
        for rule in self._score.rules.conflicts:
            choices = self._matching(candidates, rule.package, rule.versions)
            other_choices = self._matching(candidates, rule.other, rule.other_versions)
            if rule.severity == "forbidden" and choices and other_choices:
                exclusive.append(((choices, other_choices), f"{rule.message} ({rule.source})"))
        exclusive += [((ones, others), reason) for ones, others, reason in self._score.builds.mismatches(candidates)[0]]
        for refused in self._score.change.refused if self._score.change else ():
            if all(name in candidates for name, _ in refused):
                exclusive.append(
                    (
                        tuple(frozenset({choice}) for choice in sorted(refused)),
                        "the gate does not accept this combination",
                    )
                )
        return Limits(forbidden=forbidden, exclusive=tuple(exclusive))

    def _matching(self, candidates: Candidates, package: str, specifier: str) -> frozenset[Choice]:
        name = NormalizedName(package)
        return frozenset((name, c.version) for c in candidates.get(name, ()) if admits(specifier, c.version))

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
            (choice, other_choice): 1
            for rule in self._score.rules.conflicts
            if rule.severity == "discouraged"
            for choice in self._matching(candidates, rule.package, rule.versions)
            for other_choice in self._matching(candidates, rule.other, rule.other_versions)
        }
        for ones, others, _ in self._score.builds.mismatches(candidates)[1]:
            pairs |= {(choice, other_choice): 1 for choice in ones for other_choice in others}
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


def _counting(name: str, candidates: Candidates, count: Callable[[Candidate], int]) -> Objective:
    """Return an objective whose cost is a count of each candidate."""
    counts = ((package, c.version, count(c)) for package, offered in candidates.items() for c in offered)
    return Objective(name=name, costs={(package, version): number for package, version, number in counts if number})

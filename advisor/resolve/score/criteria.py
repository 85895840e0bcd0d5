"""The objectives: costs of rules, speed and freshness, by which stacks are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, get_args

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.candidates.problem import (
    NO_PACKAGES,
    Candidate,
    CandidatePolicy,
    CandidateStack,
    RecordedCandidates,
)
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.costs import Bound, Budget, Candidates, Choice, Limits, Objective, OptionCosts, PairedChoice
from advisor.resolve.score.setting_choice import TargetSettings
from advisor.resolve.score.slowdowns import Slowdowns
from advisor.resolve.score.speed_steps import MIN_GAIN, SpeedComparison
from knowledge.catalogue.rule_book import RuleBook
from knowledge.domain.ratio import Ratio
from knowledge.estimate.interface import Estimator

ObjectiveName = Literal["performance", "latest", "stable", "security", "size"]
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)

CRITERIA: dict[ObjectiveName, tuple[str, ...]] = {
    "performance": ("rules", "idle-builds", "speed", "freshness-direct", "build", "freshness"),
    "latest": ("rules", "idle-builds", "freshness-direct", "build", "freshness"),
    "stable": ("rules", "idle-builds", "pre-release", "young", "unmeasured", "freshness-direct", "build", "freshness"),
    "size": ("rules", "idle-builds", "freshness-direct", "size", "build", "freshness"),
    "security": ("vulnerabilities", "rules", "idle-builds", "speed", "freshness-direct", "build", "freshness"),
}
"""The criteria that each objective minimises, in order."""

_FAILURE_COST = 10
_ANY_CANDIDATE = CandidatePolicy()
_UNTRIED = "`{name}` has versions without a wheel for the target, whose build was not tried (`--build-sdists`)"


class FreshnessCache:
    """How far versions are behind the newest one of their package, computed once for the same candidates."""

    def __init__(self) -> None:
        self._hours: dict[NormalizedName, tuple[Sequence[Candidate], dict[Version, int]]] = {}

    def hours_behind(self, name: NormalizedName, offered: Sequence[Candidate]) -> dict[Version, int]:
        """Return how many hours each version of a package is behind the newest."""
        before = self._hours.get(name)
        if before is None or before[0] is not offered:
            before = self._hours[name] = (offered, hours_behind(offered))
        return before[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastChange:
    """What to change as little as possible, before everything else.

    The packages that a change adds are counted after the freshness of new direct requirements: otherwise an ancient
    version of one, with fewer dependencies, would be chosen.

    Attributes:
        locked: Versions of the lock; a package with another version counts as one change.
        refused: Combinations of choices that are excluded.
        added: Cost of a package that was not locked.
    """

    locked: Mapping[str, Version]
    refused: tuple[frozenset[Choice], ...] = ()
    added: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class StackScore:
    """What the stacks of a problem are compared by: criteria as whole-number costs, and limits.

    Costs and limits are those of the packages that the search has loaded so far.

    Attributes:
        objective: The objective.
        builds: The builds on the target, with the rules that apply to it.
        estimator: Predictions from the observations.
        source: The candidates.
        direct: Packages that the project's own requirements name.
        policy: Which files the user admits as candidates.
        baseline: The stack that a plain resolver installs.
        young_after: ISO 8601 time in UTC; files uploaded later count as young.
        settings: The run-time settings that may be chosen; `None` if none may.
        names: The criteria, in order; by default those of the objective.
        reference: The stack that speed is compared with; `None` for the newest stack of the problem that runs on the
            target. Without such a stack, speed is compared with the newest candidate of each package.
        min_gain: Smallest difference of speed that counts, as a fraction.
        max_size: Largest admissible download of a stack, in bytes; `None` for no limit.
        admits_untried_sdists: Whether sdists whose build was not tried violate no rule.
        package_costs: Additional costs of packages, whatever their version, for the criteria `idle-builds` and `build`.
        extra_options: Number of ways to require extras for the target's accelerator, of each package that has some.
            Without one of them, a package counts as an idle build; of several, the first one is preferred.
        change: The lock to change as little as possible; `None` if there is none.
        uncounted: Steps of speed that some combinations of choices have, but that do not count.
    """

    objective: ObjectiveName
    builds: TargetBuilds
    estimator: Estimator
    source: RecordedCandidates
    direct: frozenset[NormalizedName]
    policy: CandidatePolicy = _ANY_CANDIDATE
    baseline: CandidateStack = NO_PACKAGES
    young_after: str = ""
    settings: TargetSettings | None = None
    names: tuple[str, ...] = ()
    reference: CandidateStack | None = None
    min_gain: float = MIN_GAIN
    max_size: int | None = None
    admits_untried_sdists: bool = False
    package_costs: Mapping[str, Mapping[NormalizedName, int]] = field(default_factory=dict)
    extra_options: Mapping[NormalizedName, int] = field(default_factory=dict)
    change: LeastChange | None = None
    uncounted: Mapping[frozenset[Choice], int] = field(default_factory=dict)
    _freshness_cache: FreshnessCache = field(default_factory=FreshnessCache, repr=False)
    _objectives: dict[tuple[str, int], Objective] = field(init=False, default_factory=dict, repr=False)
    _limits: dict[int, Limits] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", CRITERIA[self.objective])

    @property
    def rules(self) -> RuleBook:
        """The rules that apply to the target."""
        return self.builds.rules

    @property
    def slowdowns(self) -> Slowdowns:
        """The documented slow-downs, as they count."""
        return Slowdowns(rules=self.rules, estimator=self.estimator, min_gain=self.min_gain)

    @property
    def includes_speed(self) -> bool:
        """Whether speed is one of the criteria."""
        return "speed" in self.names

    def without(self, *names: str) -> StackScore:
        """Return the same score without some criteria."""
        return replace(self, names=tuple(name for name in self.names if name not in names))

    def without_uncounted_gain(self, stack: CandidateStack) -> StackScore | None:
        """Return the same score, by which a stack is as fast as the reference because its gain does not count.

        The gains of its packages are significant, but other packages that they need may make the whole stack uncertain.
        A package whose own gain does not count is no help.
        The result is `None` if the stack has no gain, or one that counts, or if there is no reference.
        """
        if not self.reference:
            return None
        offered, comparison = self._offered(stack), self._comparison
        objective, best_steps = comparison.objective(offered)
        names = {c.name for c in stack}
        most = sum(steps for name, steps in best_steps.items() if steps > 0 or name in names)
        total = self._speed(offered)
        of_slowdowns = total.value(self.reference) - objective.value(self.reference)
        steps = most + of_slowdowns - total.value(stack)
        if steps <= 0 or comparison.counts(*self._whole_gain(stack, offered, only_counted=True)):
            return None
        measured = {name for name, _ in total.costs} | {n for pair in total.pairs for n, _ in pair}
        choices = frozenset((c.name, c.version) for c in stack if c.name in measured)
        return replace(self, uncounted={**self.uncounted, choices: self.uncounted.get(choices, 0) + steps})

    def with_speed_bound(self, bounds: Sequence[Bound], stack: Sequence[Candidate]) -> tuple[Bound, ...]:
        """Return the bounds of a stack that was found without speed, with the bound of its speed."""
        value = self._speed(self._offered(stack)).value(stack)
        names = [name for name in self._ordered_names if name in {"speed", *(b.objective for b in bounds)}]
        by_name = {b.objective: b for b in bounds} | {"speed": Bound(objective="speed", value=value, bound=0)}
        return tuple(by_name[name] for name in names)

    def compared_beyond(self, stack: Iterable[Candidate]) -> frozenset[NormalizedName]:
        """Return the packages of the reference that a stack lacks, and whose absence may cost speed.

        A search that starts from the stack must load them.
        """
        lacking = {c.name for c in self.reference or ()} - {c.name for c in stack}
        if not self.includes_speed or not lacking:
            return frozenset()
        speed = self._speed(self._offered(()))
        paired = {name for pair in speed.pairs for name, _ in pair}
        return frozenset(lacking.intersection([*speed.absent, *paired, *(name for name, _ in speed.costs)]))

    def gain_over_reference(self, stack: CandidateStack) -> Ratio:
        """Return what a whole stack gains over the reference, each with its best settings."""
        return self._whole_gain(stack, self._offered(stack))[0]

    def _whole_gain(
        self, stack: CandidateStack, offered: Candidates, *, only_counted: bool = False
    ) -> tuple[Ratio, int]:
        """Return the gain of a stack over the reference, and the number of versions that were compared."""
        versions, before = stack.versions, (self.reference or NO_PACKAGES).versions
        gain, comparisons = self._comparison.gain(versions, offered, only_counted=only_counted)
        return gain.times(self.slowdowns.gain(versions, before)), comparisons

    def is_untried_sdist(self, candidate: Candidate) -> bool:
        """Whether a candidate violates the rule about sdists whose build was not tried.

        An sdist of the target's best file may be one that no tool can build any more. What a plain resolver or the
        current lock installs is excepted, and what the user consents to: `--build-sdists` and `--no-binary`.
        """
        return (
            bool(untried_sdists([candidate], self.policy))
            and not self.admits_untried_sdists
            and self.baseline.versions.get(candidate.name) != candidate.version
            and (candidate.name, candidate.version) not in self.policy.retained
        )

    def is_too_large(self, stack: Iterable[Candidate]) -> bool:
        """Whether the known part of the download of a stack is above the limit."""
        return self.is_above_max_size(sum(map(self._bytes, stack)))

    def is_above_max_size(self, download: int) -> bool:
        """Whether a number of bytes is above the limit of the download."""
        return self.max_size is not None and download > self.max_size

    def objectives(self, candidates: Candidates) -> tuple[Objective, ...]:
        """Return the objectives in order (see :data:`CRITERIA`).

        Freshness of the packages that the project names comes before freshness of all packages: otherwise an older
        version of such a package would be chosen for newer versions of two of its dependencies.
        """
        return tuple(self._criterion(name, candidates) for name in self._ordered_names)

    @property
    def _ordered_names(self) -> tuple[str, ...]:
        """The criteria in order, with those of the smallest change of a lock."""
        names = self.names
        if self.change is None:
            return names
        place = names.index("freshness-direct")
        return ("changes", *names[:place], "freshness-new", "added", *names[place:])

    def _criterion(self, name: str, candidates: Candidates) -> Objective:
        make = {
            "changes": self._changes,
            "freshness-new": self._freshness_of_new,
            "added": self._additions,
            "rules": self._prices,
            "idle-builds": self._idle_builds,
            "build": self._build_ranks,
            "speed": self._speed,
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
        return self.change.locked if self.change else {}

    def _changes(self, candidates: Candidates) -> Objective:
        locked = self._locked
        return _counting("changes", candidates, lambda c: int(locked.get(c.name, c.version) != c.version))

    def _additions(self, candidates: Candidates) -> Objective:
        locked, added = self._locked, self.change.added if self.change else 0
        return _counting("added", candidates, lambda c: 0 if c.name in locked else added)

    def _freshness(self, candidates: Candidates) -> Objective:
        costs = {
            (name, version): hours
            for name, offered in candidates.items()
            for version, hours in self._freshness_cache.hours_behind(name, offered).items()
        }
        return Objective(name="freshness", costs=costs)

    def _freshness_of_direct(self, candidates: Candidates) -> Objective:
        direct = {name: offered for name, offered in candidates.items() if name in self.direct}
        return replace(self._freshness(direct), name="freshness-direct")

    def _freshness_of_new(self, candidates: Candidates) -> Objective:
        locked = self._locked
        new = {name: offered for name, offered in candidates.items() if name in self.direct and name not in locked}
        return replace(self._freshness(new), name="freshness-new")

    def _idle_builds(self, candidates: Candidates) -> Objective:
        idle = [choice for name, offered in candidates.items() for choice in self.builds.idle(name, offered)]
        objective = self._with_package_costs("idle-builds", dict.fromkeys(idle, 1), candidates)
        return replace(objective, options={(name, None): 1 for name in self.extra_options})

    def _build_ranks(self, candidates: Candidates) -> Objective:
        forbidden = self.limits(candidates).forbidden
        places = {
            (name, version): place
            for name, offered in candidates.items()
            for version, place in self.builds.ranks(name, offered, forbidden).items()
        }
        objective = self._with_package_costs("build", places, candidates)
        options: OptionCosts = {(n, place): place for n, count in self.extra_options.items() for place in range(count)}
        return replace(objective, options=options)

    def _with_package_costs(self, name: str, costs: dict[Choice, int], candidates: Candidates) -> Objective:
        """Return the objective with the additional costs of packages."""
        for package, cost in self.package_costs.get(name, {}).items():
            for candidate in candidates.get(package, ()):
                choice = (package, candidate.version)
                costs[choice] = costs.get(choice, 0) + cost
        return Objective(name=name, costs=costs)

    def _prereleases(self, candidates: Candidates) -> Objective:
        return _counting("pre-release", candidates, lambda c: int(c.version.is_prerelease))

    def _young(self, candidates: Candidates) -> Objective:
        return _counting("young", candidates, lambda c: int((c.file.uploaded or "") > self.young_after))

    def _unmeasured(self, candidates: Candidates) -> Objective:
        return _counting("unmeasured", candidates, lambda c: int(not self.estimator.is_measured(c.name, c.version)))

    def _vulnerabilities(self, candidates: Candidates) -> Objective:
        def vulnerability_count(candidate: Candidate) -> int:
            return len(self.source.vulnerabilities(candidate) or ()) if self.source.is_known(candidate) else 0

        return _counting("vulnerabilities", candidates, vulnerability_count)

    def _sizes(self, candidates: Candidates) -> Objective:
        """Return the known bytes to download; each iteration may have read more of them."""
        return _counting("size", candidates, self._bytes)

    def _bytes(self, candidate: Candidate) -> int:
        return self.source.size(candidate) or 0

    def limits(self, candidates: Candidates) -> Limits:
        """Return what is excluded."""
        if len(candidates) not in self._limits:
            self._limits[len(candidates)] = self._excluded(candidates)
        limits = self._limits[len(candidates)]
        if self.max_size is None:
            return limits
        budget = Budget(costs=self._sizes(candidates).costs, most=self.max_size)
        return replace(limits, budgets=(budget,))

    def _excluded(self, candidates: Candidates) -> Limits:
        forbidden = {
            (name, c.version): f"{v.message} ({v.source})"
            for name, offered in candidates.items()
            for c in offered
            for v in self.rules.judge(name, c.version)
            if v.severity == "forbidden"
        }
        for name, offered in candidates.items():
            untried = (c for c in offered if self.is_untried_sdist(c))
            forbidden |= {(name, c.version): _UNTRIED.format(name=name) for c in untried}
        exclusive: list[tuple[tuple[frozenset[Choice], ...], str]] = []
        for rule in self.rules.conflicts:
            choices = self._matching(candidates, rule.package, rule.versions)
            other_choices = self._matching(candidates, rule.other, rule.other_versions)
            if rule.severity == "forbidden" and choices and other_choices:
                exclusive.append(((choices, other_choices), f"{rule.message} ({rule.source})"))
        exclusive += [((ones, others), reason) for ones, others, reason in self.builds.mismatches(candidates)[0]]
        for refused in self.change.refused if self.change else ():
            if all(name in candidates for name, _ in refused):
                exclusive.append(
                    (
                        tuple(frozenset({choice}) for choice in sorted(refused)),
                        "the gate does not accept this combination",
                    )
                )
        return Limits(forbidden=forbidden, exclusive=tuple(exclusive))

    def best_speed_steps(self, stack: Iterable[Candidate]) -> Mapping[str, int]:
        """Return the gain of the fastest candidate of each measured framework of a stack, in steps."""
        return self._comparison.objective(self._offered(stack))[1]

    def has_upload_times(self, stack: Iterable[Candidate]) -> bool:
        """Whether a build of each release of a stack has an upload time."""
        return all(
            c.file.uploaded or any(o.file.uploaded for o in self.source.candidates(c.name) if _is_same(o, c))
            for c in stack
            if c.direct is None
        )

    def libyears(self, stack: Iterable[Candidate]) -> float:
        """Return how far a stack is behind the newest candidates, summed over its packages, in years."""
        behind, source = self._freshness_cache.hours_behind, self.source
        return sum(behind(c.name, source.candidates(c.name))[c.version] for c in stack) / HOURS_A_YEAR

    def _matching(self, candidates: Candidates, package: str, specifier: str) -> frozenset[Choice]:
        name = NormalizedName(package)
        return frozenset((name, c.version) for c in candidates.get(name, ()) if self.rules.admits(specifier, c.version))

    def _prices(self, candidates: Candidates) -> Objective:
        costs: dict[Choice, int] = {}
        for name, offered in candidates.items():
            failures = self.estimator.failures(name)
            for candidate in offered:
                price = sum(v.severity == "discouraged" for v in self.rules.judge(name, candidate.version))
                price += _FAILURE_COST * (str(candidate.version) in failures)
                if price:
                    costs[name, candidate.version] = price
        pairs: dict[tuple[Choice, PairedChoice], int] = {
            (choice, other_choice): 1
            for rule in self.rules.conflicts
            if rule.severity == "discouraged"
            for choice in self._matching(candidates, rule.package, rule.versions)
            for other_choice in self._matching(candidates, rule.other, rule.other_versions)
        }
        for ones, others, _ in self.builds.mismatches(candidates)[1]:
            pairs |= {(choice, other_choice): 1 for choice in ones for other_choice in others}
        return Objective(name="rules", costs=costs, pairs=pairs)

    @property
    def _comparison(self) -> SpeedComparison:
        settings, estimator = self.settings, self.estimator
        return SpeedComparison(
            estimator=estimator,
            reference=(self.reference or NO_PACKAGES).versions,
            min_gain=self.min_gain,
            settings=(lambda candidates, over: settings.best_by_version(candidates, estimator, over))
            if settings is not None
            else None,
        )

    def _offered(self, stack: Iterable[Candidate]) -> Candidates:
        """Return the candidates of the packages of a stack and of the reference."""
        names = sorted({c.name for c in (*(self.reference or ()), *stack)})
        return {name: self.source.candidates(name) for name in names}

    def _speed(self, candidates: Candidates) -> Objective:
        objective, _ = self._comparison.objective(candidates)
        objective = replace(objective, together=self.uncounted)
        return self.slowdowns.added_to(objective, candidates)


def untried_sdists(stack: Iterable[Candidate], policy: CandidatePolicy) -> tuple[Candidate, ...]:
    """Return the packages of a stack that are sdists whose build was not tried, without those that the user agreed to.

    Args:
        stack: The stack.
        policy: Which files the user admits as candidates.
    """
    if policy.build_sdists:
        return ()
    return tuple(c for c in stack if c.is_sdist and c.direct is None and policy.allows_wheels(c.name))


def _counting(name: str, candidates: Candidates, count: Callable[[Candidate], int]) -> Objective:
    """Return an objective whose cost is a count of each candidate."""
    counts = ((package, c.version, count(c)) for package, offered in candidates.items() for c in offered)
    return Objective(name=name, costs={(package, version): number for package, version, number in counts if number})


def _is_same(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates are builds of one release."""
    return one.version.public == other.version.public


_HOUR = 3600.0
HOURS_A_YEAR = 365.25 * 24
HOURS_PER_RELEASE = 30 * 24
"""Age that one release counts as, a month, if the index gives no upload times."""


def hours_behind(offered: Sequence[Candidate]) -> dict[Version, int]:
    """Return how many hours each version of a package is behind the newest, by upload time.

    An older version never counts as fresher than a newer one, even if it is a later patch of an older series, and
    consecutive versions differ by at least an hour. The builds of a release are equally fresh: its time is that of the
    first upload, because some indexes give no times. If no build of some release has one, a release counts as a month.

    Args:
        offered: Candidates, newest first.
    """
    uploads: dict[str, float | None] = {}
    for candidate in offered:
        release, uploaded = candidate.version.public, candidate.file.uploaded
        times = [time for time in (uploads.get(release), _timestamp(uploaded)) if time is not None]
        uploads[release] = min(times, default=None)
    has_uploads = None not in uploads.values()
    newest = next(iter(uploads.values()), None) or 0.0
    behind: dict[str, int] = {}
    hours = 0
    for place, (release, upload) in enumerate(uploads.items()):
        if not has_uploads:
            hours = place * HOURS_PER_RELEASE
        elif place:
            hours = max(hours + 1, round((newest - (upload or 0.0)) / _HOUR))
        behind[release] = hours
    return {candidate.version: behind[candidate.version.public] for candidate in offered}


def _timestamp(uploaded: str | None) -> float | None:
    return datetime.fromisoformat(uploaded).timestamp() if uploaded else None

"""The objectives: costs of rules, speed and freshness, by which stacks are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, get_args

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import NO_PACKAGES, Candidate, CandidatePolicy, CandidateStack
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.costs import Bound, Candidates, Choice, Objective
from advisor.resolve.score.setting_choice import TargetSettings
from advisor.resolve.score.slowdowns import Slowdowns
from advisor.resolve.score.speed_comparison import SpeedComparison
from knowledge.catalogue.rule_book import RuleBook
from knowledge.domain.ratio import MIN_GAIN, Ratio
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

_HOUR = 3600.0
HOURS_A_YEAR = 365.25 * 24
HOURS_PER_RELEASE = 30 * 24
"""Age that one release counts as, a month, if the index gives no upload times."""
_ANY_CANDIDATE = CandidatePolicy()


def hours_behind(offered: Iterable[Candidate]) -> dict[Version, int]:
    """Return how many hours each version of a package is behind the newest, by upload time.

    An older version never counts as fresher than a newer one, even if it is a later patch of an older series, and
    consecutive versions differ by an hour or more. The builds of a release are equally fresh: the first upload decides,
    because some indexes give no times. If no build of some release has a time, a release counts as a month.
    """
    offered = sorted({c.version: c for c in offered}.values(), key=lambda c: c.version, reverse=True)
    uploads: dict[str, float | None] = {}
    for candidate in offered:
        release, uploaded = candidate.release, candidate.file.uploaded
        time = datetime.fromisoformat(uploaded).timestamp() if uploaded else None
        uploads[release] = min((t for t in (uploads.get(release), time) if t is not None), default=None)
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
    return {candidate.version: behind[candidate.release] for candidate in offered}


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

    :class:`~advisor.resolve.score.criterion_costs.CriterionCosts` computes the costs for one search.

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
        names: The criteria, in order; by default the objective's.
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
        ages: Candidates of each package with their ages, for all scores that are derived from each other.
    """

    objective: ObjectiveName
    builds: TargetBuilds
    estimator: Estimator
    source: IndexCandidates
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
    ages: dict[NormalizedName, tuple[Sequence[Candidate], dict[Version, int]]] = field(default_factory=dict, repr=False)

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
        offered, comparison = self.offered(stack), self._comparison
        objective, best_steps = comparison.objective(offered)
        names = {c.name for c in stack}
        most = sum(steps for name, steps in best_steps.items() if steps > 0 or name in names)
        total = self.speed(offered)
        of_slowdowns = total.value(self.reference) - objective.value(self.reference)
        steps = most + of_slowdowns - total.value(stack)
        if steps <= 0 or comparison.counted(*self.whole_gain(stack, only_counted=True)) > 0:
            return None
        measured = {name for name, _ in total.costs} | {n for pair in total.pairs for n, _ in pair}
        choices = frozenset((c.name, c.version) for c in stack if c.name in measured)
        return replace(self, uncounted={**self.uncounted, choices: self.uncounted.get(choices, 0) + steps})

    def with_speed_bound(self, bounds: Sequence[Bound], stack: Sequence[Candidate]) -> tuple[Bound, ...]:
        """Return the bounds of a stack that was found without speed, with the bound of its speed."""
        value = self.speed(self.offered(stack)).value(stack)
        names = [name for name in self.ordered_names if name in {"speed", *(b.objective for b in bounds)}]
        by_name = {b.objective: b for b in bounds} | {"speed": Bound(objective="speed", value=value, bound=0)}
        return tuple(by_name[name] for name in names)

    def whole_gain(self, stack: CandidateStack, *, only_counted: bool = False) -> tuple[Ratio, int]:
        """Return what a stack gains over the reference, both with their best settings, and how many versions compare.

        With `only_counted`, packages whose own gain does not count add their uncertainty alone.
        """
        versions, before = stack.versions, (self.reference or NO_PACKAGES).versions
        gain, comparisons = self._comparison.gain(versions, self.offered(stack), only_counted=only_counted)
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
        return self.is_above_max_size(sum(map(self.known_bytes, stack)))

    def is_above_max_size(self, download: int) -> bool:
        """Whether a number of bytes is above the limit of the download."""
        return self.max_size is not None and download > self.max_size

    @property
    def ordered_names(self) -> tuple[str, ...]:
        """The criteria in order, with the criteria of the smallest change of a lock."""
        names = self.names
        if self.change is None:
            return names
        place = names.index("freshness-direct")
        return ("changes", *names[:place], "freshness-new", "added", *names[place:])

    def known_bytes(self, candidate: Candidate) -> int:
        """Return the known bytes to download for a candidate."""
        return self.source.size(candidate) or 0

    def best_speed_steps(self, stack: Iterable[Candidate]) -> Mapping[str, int]:
        """Return the gain of the fastest candidate of each measured framework of a stack, in steps."""
        return self._comparison.objective(self.offered(stack))[1]

    def has_upload_times(self, stack: Iterable[Candidate]) -> bool:
        """Whether a build of each release of a stack has an upload time."""
        return all(
            c.file.uploaded or any(o.file.uploaded for o in self.source.candidates(c.name) if o.release == c.release)
            for c in stack
            if c.direct is None
        )

    def hours_behind(self, name: NormalizedName, offered: Sequence[Candidate]) -> dict[Version, int]:
        """Return how many hours each version of a package is behind the newest; computed once for the same ones."""
        if name not in self.ages or self.ages[name][0] is not offered:
            self.ages[name] = (offered, hours_behind(offered))
        return self.ages[name][1]

    def libyears(self, stack: Iterable[Candidate]) -> float:
        """Return how far a stack is behind the newest candidates, summed over its packages, in years."""
        every = (self.hours_behind(c.name, self.source.candidates(c.name))[c.version] for c in stack)
        return sum(every) / HOURS_A_YEAR

    @property
    def _comparison(self) -> SpeedComparison:
        return SpeedComparison(
            estimator=self.estimator,
            reference=(self.reference or NO_PACKAGES).versions,
            min_gain=self.min_gain,
            settings=self.settings,
        )

    def offered(self, stack: Iterable[Candidate]) -> Candidates:
        """Return the candidates of the packages of a stack and of the reference."""
        names = sorted({c.name for c in (*(self.reference or ()), *stack)})
        return {name: self.source.candidates(name) for name in names}

    def speed(self, candidates: Candidates) -> Objective:
        """Return steps of speed behind the fastest candidates, also by documented slow-downs."""
        objective, _ = self._comparison.objective(candidates)
        objective = replace(objective, together=self.uncounted)
        return self.slowdowns.added_to(objective, candidates)


def untried_sdists(stack: Iterable[Candidate], policy: CandidatePolicy) -> tuple[Candidate, ...]:
    """Return the packages of a stack that are sdists whose build was not tried, if the user did not agree to them."""
    if policy.build_sdists:
        return ()
    return tuple(c for c in stack if c.is_sdist and c.direct is None and policy.allows_wheels(c.name))

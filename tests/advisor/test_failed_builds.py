"""Older versions of failed builds are chosen only where a requirement excludes the newer one: against brute force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.resolve.candidates.problem import Candidate, Dependency, NoStackError
from advisor.resolve.explanation.conflict import find_conflict
from advisor.resolve.optimum.baseline import BaselineLimitError, resolve_baseline
from tests.advisor.factories import empty_estimator
from tests.advisor.small_problems import (
    NAMES,
    Ages,
    Releases,
    ReleaseSource,
    Requirements,
    Stack,
    VersionSet,
    criteria_for,
    plain,
    problem,
    request_of,
    solve_problem,
    stacks,
)
from tests.examples import examples

Failed = frozenset[tuple[str, int]]


class FailedBuilds(ReleaseSource):
    """Candidates of which some cannot be built without a package of the stack."""

    def __init__(
        self, releases: Releases, failed: Failed, roots: Mapping[str, VersionSet], *, is_read: bool = True
    ) -> None:
        super().__init__(releases)
        if is_read:
            # The search reads no further versions to find one that excludes a failed build: here, it knows all of them.
            self.fetch(c for name in releases for c in self.candidates(canonicalize_name(name)))
        self._failed = failed
        self._roots = roots

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        self.fetched.add(candidate.file.url)
        if (candidate.name, candidate.version.major) in self._failed:
            return None
        return super().dependencies(candidate, extra)

    def failed_newer(self, candidate: Candidate) -> Sequence[Version]:
        newer = sorted(v for name, v in self._failed if name == candidate.name and v > candidate.version.major)
        root = self._roots.get(candidate.name)
        return [Version(str(v)) for v in newer if root is None or v in root.admitted]


def is_admitted(stack: Stack, releases: Releases, roots: dict[str, VersionSet], failed: Failed) -> bool:
    """Whether a stack has no failed build, and each older version of one only where a requirement excludes that."""
    visited: set[tuple[str, bool]] = set()
    demands: list[tuple[str, VersionSet]] = []
    queue = [("", name, version_set) for name, version_set in roots.items()]
    while queue:
        parent, name, version_set = queue.pop()
        if parent != name:
            demands.append((name, version_set))
        for extra in (False, True)[: 1 + version_set.extra]:
            if (name, extra) not in visited:
                visited.add((name, extra))
                queue += [(name, *item) for item in releases[name][stack[name]][extra].items()]
    for name, version in stack.items():
        of_others = [version_set for n, version_set in demands if n == name]
        failed_here = [v for n, v in failed if n == name and v >= version]
        if version in failed_here or any(all(v in of.admitted for of in of_others) for v in failed_here):
            return False
    return True


versions = st.integers(1, 4)
below = st.integers(1, 3).map(lambda least: VersionSet(frozenset(range(1, least + 1))))
gaps = st.builds(VersionSet, st.frozensets(versions, min_size=2), st.booleans())
any_version = VersionSet(frozenset(range(1, 5)))


@st.composite
def some_releases(draw: st.DrawFn) -> Releases:
    """Releases whose requirements often exclude new versions, without circles."""
    releases: Releases = {}
    for name in NAMES:
        later = [n for n in NAMES if n > name]
        needs: st.SearchStrategy[Requirements] = st.just({})
        if later:
            needs = st.dictionaries(st.sampled_from(later), below | gaps, max_size=2)
        releases[name] = draw(st.dictionaries(versions, st.tuples(needs, needs), min_size=2, max_size=4))
    return releases


@settings(max_examples=examples(240))
@given(
    releases=some_releases(),
    names=st.sets(st.sampled_from("abc"), min_size=1),
    number=st.fixed_dictionaries(dict.fromkeys("bcd", st.integers(0, 2))),
    explicit=st.integers(1, 3),
)
def test_a_stack_satisfies_the_rule_and_is_the_newest_unless_that_needs_an_older_sdist(
    releases: Releases, names: set[str], number: dict[str, int], explicit: int
) -> None:
    roots = dict.fromkeys(sorted(names), any_version)
    failed = frozenset((name, v) for name, n in number.items() for v in sorted(releases[name])[::-1][:n])
    source = FailedBuilds(releases, failed, roots)
    criteria = criteria_for(roots, source, empty_estimator(), "latest")
    admitted = [stack for stack in stacks(releases, roots) if is_admitted(stack, releases, roots, failed)]
    best = min(admitted, key=Ages(roots, source).rank, default=None)
    is_older = best is not None and any(best.get(name, v) < v for name, v in failed)
    event("none" if best is None else "older than a failed build" if is_older else "newest")

    optimum = solve_problem(roots, source, criteria, explicit)
    conflict = find_conflict(request_of(roots, FailedBuilds(releases, failed, roots), criteria))

    # The search does not choose other versions of other packages only because they exclude a failed build.
    assert optimum is None or plain(optimum) in admitted
    assert optimum is None or not optimum.proven or plain(optimum) == best
    if not is_older:
        assert (None if optimum is None else plain(optimum)) == best
        assert best is None or conflict is None
    try:
        baseline = resolve_baseline(problem(roots), FailedBuilds(releases, failed, roots))
        newest = {str(c.name): c.version.major for c in baseline}
    except BaselineLimitError:
        event("left to the search by the plain resolver")
        return
    except NoStackError:
        newest = {}
    assert newest in admitted or (not newest and not admitted)


@settings(max_examples=examples(120))
@given(
    releases=some_releases(),
    names=st.sets(st.sampled_from("abc"), min_size=1),
    number=st.fixed_dictionaries(dict.fromkeys("bcd", st.integers(0, 2))),
)
def test_a_stack_is_called_proven_only_if_no_unread_requirement_could_admit_a_better_one(
    releases: Releases, names: set[str], number: dict[str, int]
) -> None:
    roots = dict.fromkeys(sorted(names), any_version)
    failed = frozenset((name, v) for name, n in number.items() for v in sorted(releases[name])[::-1][:n])
    source = FailedBuilds(releases, failed, roots, is_read=False)
    criteria = criteria_for(roots, source, empty_estimator(), "latest")
    admitted = [stack for stack in stacks(releases, roots) if is_admitted(stack, releases, roots, failed)]
    best = min(admitted, key=Ages(roots, source).rank, default=None)

    optimum = solve_problem(roots, source, criteria, 1)

    assert optimum is None or plain(optimum) in admitted
    if optimum is not None and optimum.proven:
        event("proven, although a build failed" if failed else "proven")
        assert plain(optimum) == best


def test_an_extra_that_nobody_requires_excludes_nothing() -> None:
    releases: Releases = {
        "a": {1: ({"b": VersionSet(frozenset({1}), extra=True)}, {}), 2: ({}, {})},
        "b": {1: ({}, {"c": VersionSet(frozenset({1, 2}))})},
        "c": {2: ({}, {}), 3: ({}, {})},
        "d": {1: ({}, {})},
    }
    roots = dict.fromkeys("abc", VersionSet(frozenset({1, 2, 3})))
    source = FailedBuilds(releases, frozenset({("c", 3)}), roots)

    optimum = solve_problem(roots, source, criteria_for(roots, source, empty_estimator(), "latest"))

    assert optimum is not None
    assert plain(optimum) == {"a": 1, "b": 1, "c": 2}


def test_packages_that_only_require_each_other_exclude_nothing() -> None:
    only = VersionSet(frozenset({1}))
    releases: Releases = {
        "a": {1: ({"b": only}, {}), 2: ({}, {})},
        "b": {1: ({"d": only, "c": VersionSet(frozenset({1, 2}))}, {})},
        "c": {2: ({}, {}), 3: ({}, {})},
        "d": {1: ({"b": only}, {})},
    }
    roots = dict.fromkeys("ac", VersionSet(frozenset({1, 2, 3})))
    source = FailedBuilds(releases, frozenset({("c", 3)}), roots)

    optimum = solve_problem(roots, source, criteria_for(roots, source, empty_estimator(), "latest"))

    assert optimum is None or plain(optimum) == {"a": 1, "b": 1, "c": 2, "d": 1}


def test_the_plain_resolver_sees_what_excludes_a_version_of_a_package_that_is_required_with_an_extra() -> None:
    releases: Releases = {
        "a": {1: ({"c": VersionSet(frozenset({1, 2})), "d": VersionSet(frozenset({1}))}, {})},
        "b": {1: ({}, {})},
        "c": {2: ({}, {}), 3: ({}, {})},
        "d": {1: ({"c": VersionSet(frozenset({1, 2, 3}), extra=True)}, {})},
    }
    roots = {"a": VersionSet(frozenset({1}))}

    baseline = resolve_baseline(problem(roots), FailedBuilds(releases, frozenset({("c", 3)}), roots))

    assert {str(c.name): c.version.major for c in baseline} == {"a": 1, "c": 2, "d": 1}

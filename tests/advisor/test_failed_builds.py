"""Older versions of failed builds are chosen only where a requirement excludes the newer one: against brute force."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import event, given, settings
from hypothesis import strategies as st
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.baseline import BaselineLimitError, NoStackError, resolve_baseline
from advisor.resolve.conflict import find_conflict
from advisor.resolve.problem import Candidate, Dependency
from tests.advisor.factories import empty_estimator
from tests.advisor.small_problems import (
    NAMES,
    NEWEST,
    Ages,
    Releases,
    ReleaseSource,
    Requirements,
    Stack,
    VersionSet,
    criteria_for,
    plain,
    problem,
    problems,
    solve_problem,
    some_roots,
    stacks,
)
from tests.examples import examples

Failed = frozenset[tuple[str, int]]


class FailedBuilds(ReleaseSource):
    """Candidates of which some cannot be built without a package of the stack."""

    def __init__(self, releases: Releases, failed: Failed, roots: Mapping[str, VersionSet]) -> None:
        super().__init__(releases)
        self._failed = failed
        self._roots = roots

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        self.fetched.add(candidate.file.url)
        if (candidate.name, candidate.version.major) in self._failed:
            return None
        return super().dependencies(candidate, extra)

    def failed_newer(self, candidate: Candidate) -> Version | None:
        newer = [v for name, v in self._failed if name == candidate.name and v > candidate.version.major]
        if not newer or (candidate.name in self._roots and min(newer) not in self._roots[candidate.name].admitted):
            return None
        return Version(str(min(newer)))


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
        newer = min((v for n, v in failed if n == name and v >= version), default=None)
        if newer is not None and all(newer in version_set.admitted for n, version_set in demands if n == name):
            return False
        if newer == version:
            return False
    return True


def _later(name: str, *requirements: Requirements) -> tuple[Requirements, Requirements]:
    own, of_extra = ({n: v for n, v in required.items() if n > name} for required in requirements)
    return own, of_extra


@settings(max_examples=examples(400))
@given(
    releases=problems,
    roots=some_roots,
    failed=st.frozensets(st.tuples(st.sampled_from(NAMES), st.integers(2, NEWEST)), min_size=1, max_size=6),
    explicit=st.integers(1, 3),
)
def test_the_stack_is_the_newest_of_brute_force(
    releases: Releases, roots: dict[str, VersionSet], failed: Failed, explicit: int
) -> None:
    # Without circles: there, the model lets packages that nothing needs exclude a version, too.
    releases = {name: {v: _later(name, *both) for v, both in versions.items()} for name, versions in releases.items()}
    failed = frozenset((name, version) for name, version in failed if version in releases[name])
    source = FailedBuilds(releases, failed, roots)
    criteria = criteria_for(roots, source, empty_estimator(), "latest")
    admitted = [stack for stack in stacks(releases, roots) if is_admitted(stack, releases, roots, failed)]
    older = [s for s in admitted if any(v < w for n, v in s.items() for m, w in failed if m == n)]
    event(f"an older version is admitted: {bool(older)}")

    optimum = solve_problem(roots, source, criteria, explicit)
    conflict = find_conflict(problem(roots), FailedBuilds(releases, failed, roots), limits=criteria.limits)

    assert (optimum is None) == (not admitted) == (conflict is not None)
    if optimum is not None:
        ages = Ages(roots, source, criteria)
        assert plain(optimum) == min(admitted, key=ages.rank)
    try:
        baseline = resolve_baseline(problem(roots), FailedBuilds(releases, failed, roots))
        newest = {str(c.name): c.version.major for c in baseline}
    except BaselineLimitError:
        return
    except NoStackError:
        newest = {}
    assert newest in admitted or (not newest and not admitted)

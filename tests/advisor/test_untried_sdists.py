"""An optimum never rests on an sdist whose build was not tried: compared with brute force, and end to end."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.domain.time_limit import TimeLimit
from advisor.resolve.candidates.problem import Candidate, CandidatePolicy, CandidateStack
from advisor.resolve.recommendation.problem_variants import ProblemVariant, Selection, compare_variants
from advisor.resolve.score.criteria import HOURS_PER_RELEASE
from tests.advisor.factories import builds_of, empty_estimator
from tests.advisor.small_problems import (
    Releases,
    ReleaseSource,
    VersionSet,
    criteria_for,
    few_versions,
    many_stacks,
    plain,
    problems,
    request_of,
    roots_with_a,
    solve_problem,
    some_roots,
    stacks,
)
from tests.conftest import Advisor
from tests.examples import examples
from tests.package_index import PackageIndex

HERE = ("--hardware", "cpu-zen4", "--python", "3.12")
LARGE = "\n".join(map(str, range(100_000)))

sdists = st.frozensets(st.tuples(st.sampled_from(("a", "b", "c", "d")), st.integers(1, 6)), max_size=12)
some_versions = st.dictionaries(st.sampled_from("abcd"), few_versions, min_size=2)
many_sdists = st.frozensets(st.tuples(st.sampled_from("abcd"), few_versions), min_size=4, max_size=12)


class SdistSource(ReleaseSource):
    """Candidates of which some are sdists."""

    def __init__(self, releases: Releases, sdists: frozenset[tuple[str, int]]) -> None:
        super().__init__(releases)
        self._sdists = sdists

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        return tuple(
            replace(c, file=replace(c.file, filename=f"{name}-{c.version}.tar.gz"))
            if (name, c.version.major) in self._sdists
            else c
            for c in super().candidates(name)
        )


@settings(max_examples=examples(80))
@given(
    releases=problems,
    roots=some_roots,
    sdists=sdists,
    baseline=st.dictionaries(st.sampled_from(("a", "b", "c", "d")), st.integers(1, 6)),
    consent=st.sampled_from(["", "build", "no-binary", "all"]),
)
def test_the_stack_is_the_best_of_brute_force_without_untried_sdists(
    releases: Releases,
    roots: dict[str, VersionSet],
    sdists: frozenset[tuple[str, int]],
    baseline: dict[str, int],
    consent: str,
) -> None:
    excepted = {"build": "abcd", "no-binary": "b", "all": "abcd"}.get(consent, "")
    policy = CandidatePolicy(
        build_sdists=consent == "build",
        no_binary=frozenset({"no-binary": {"b"}, "all": {":all:"}}.get(consent, ())),
    )

    def is_untried(name: str, version: int) -> bool:
        return (name, version) in sdists and name not in excepted and baseline.get(name) != version

    def cost(stack: Mapping[str, int]) -> tuple[int, ...]:
        behind = {name: sum(v > version for v in releases[name]) for name, version in stack.items()}
        direct = sum(behind[name] for name in roots if name in behind)
        return (0, 0, direct * HOURS_PER_RELEASE, 0, sum(behind.values()) * HOURS_PER_RELEASE)

    admitted = [s for s in stacks(releases, roots) if not any(is_untried(n, v) for n, v in s.items())]
    source = SdistSource(releases, sdists)
    before = (c for name, v in baseline.items() for c in source.candidates(canonicalize_name(name)))
    criteria = criteria_for(
        roots,
        source,
        empty_estimator(),
        "latest",
        baseline=CandidateStack(c for c in before if c.version == Version(str(baseline[c.name]))),
        policy=policy,
    )

    optimum = solve_problem(roots, source, criteria)

    if optimum is None:
        assert not admitted
        return

    assert optimum.proven
    assert {str(c.name): c.version.major for c in optimum.stack} in admitted
    assert tuple(bound.value for bound in optimum.bounds) == min(map(cost, admitted))


@settings(max_examples=examples(200))
@given(
    several=st.tuples(many_stacks, many_stacks),
    roots=roots_with_a,
    sdists_of_each=st.tuples(many_sdists, many_sdists),
    baselines=st.tuples(some_versions, some_versions),
)
def test_the_best_of_two_interpreters_is_the_one_with_fewer_untried_sdists(
    several: tuple[Releases, Releases],
    roots: dict[str, VersionSet],
    sdists_of_each: tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]],
    baselines: tuple[dict[str, int], dict[str, int]],
) -> None:
    """Each interpreter has its own releases and wheels; its plain resolver may take an sdist."""

    def hours(number: int, names: Iterable[str], stack: Mapping[str, int], *, of_all: bool) -> int:
        """Return how far packages are behind the newest release for this interpreter, or that for any of them."""
        own = {name: several[number][name] for name in names}
        behind = sum(v > stack[name] for name, offered in own.items() for v in offered)
        newer = sum(v > max(own[name]) for name in own for v in {v for releases in several for v in releases[name]})
        return HOURS_PER_RELEASE * (behind + of_all * newer)

    def age(number: int, stack: Mapping[str, int], *, of_all: bool = False) -> tuple[int, int]:
        direct = [name for name in roots if name in stack]
        others = stack.keys() - set(direct)
        behind = hours(number, direct, stack, of_all=of_all)
        return behind, behind + hours(number, others, stack, of_all=False)

    def untried(number: int, stack: Mapping[str, int], excepted: Mapping[str, int]) -> int:
        return sum((n, v) in sdists_of_each[number] and excepted.get(n) != v for n, v in stack.items())

    best: dict[int, list[tuple[int, tuple[int, int]]]] = {}
    for number, releases in enumerate(several):
        admitted = [s for s in stacks(releases, roots) if not untried(number, s, baselines[number])]
        newest = [s for s in admitted if age(number, s) == min(age(number, other) for other in admitted)]
        # Stacks of one age may differ in their sdists.
        best |= {number: [(untried(number, s, {}), age(number, s, of_all=True)) for s in newest]} if newest else {}
    event("interpreters with a stack: " + ", ".join(map(str, best)))
    assume(best)

    comparison = compare_variants(
        [variant_of(n, several[n], roots, sdists_of_each[n], baselines[n]) for n in (0, 1)],
        limit=TimeLimit(60),
        direct=map(canonicalize_name, roots),
    )

    solved = {int(s.variant.label): plain(s.optimum) for s in comparison.solved}
    scores = {n: (untried(n, stack, {}), age(n, stack, of_all=True)) for n, stack in solved.items()}
    event(f"untried: {sorted(count for count, _ in scores.values())}")
    assert scores.keys() == best.keys()
    assert all(score in best[number] for number, score in scores.items())
    assert int(comparison.solved[0].variant.label) == min(scores, key=lambda number: (scores[number], number))


def variant_of(
    number: int,
    releases: Releases,
    roots: Mapping[str, VersionSet],
    sdists: frozenset[tuple[str, int]],
    baseline: Mapping[str, int],
) -> ProblemVariant:
    """Build the problem of an interpreter."""
    source, builds = SdistSource(releases, sdists), builds_of()
    before = CandidateStack(
        c for n, v in baseline.items() for c in source.candidates(canonicalize_name(n)) if c.version.major == v
    )
    score = criteria_for(roots, source, empty_estimator(), "latest", builds=builds, baseline=before)
    selection = Selection(request=request_of(roots, source, score))
    return ProblemVariant(label=str(number), select=lambda: selection)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "requirements.txt").write_text("model\n")
    return tmp_path


def versions(result: str) -> dict[str, str]:
    return {package["name"]: package["version"] for package in json.loads(result)["stack"]["packages"]}


def test_a_limit_of_the_size_is_not_kept_with_an_old_sdist(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    index.add("model", "2.0", code=LARGE)
    index.add_sdist("model", "0.1")
    arguments = ("advise", "--index-url", index.url, *HERE, "--max-size", "100kB", "--format", "json", "--dry-run")

    refused = advisor(*arguments, cwd=project)
    agreed = advisor(*arguments, "--build-sdists", cwd=project)
    requested = advisor(*arguments, "--no-binary", "model", cwd=project)

    assert refused.returncode == 3
    assert "no stack with at most 100 kB to download satisfies the requirements" in refused.stderr
    assert versions(agreed.stdout) == versions(requested.stdout) == {"model": "0.1"}


def test_an_sdist_that_the_baseline_contains_is_taken(advisor: Advisor, index: PackageIndex, project: Path) -> None:
    index.add("model", "2.0", ["tool"])
    index.add_sdist("tool", "1.0")

    result = advisor("advise", "--index-url", index.url, *HERE, "--format", "json", "--dry-run", cwd=project)

    assert versions(result.stdout) == {"model": "2.0", "tool": "1.0"}


def test_a_rule_does_not_lead_to_an_older_sdist_without_consent(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    (project / "requirements.txt").write_text("jax\nopt-einsum\n")
    index.add("opt-einsum", "2.0")
    index.add("jax", "0.5.0")  # Forbidden together with this opt-einsum.
    index.add_sdist("jax", "0.4.20")
    index.add("jaxlib", "0.4.20")
    arguments = ("advise", "--index-url", index.url, *HERE, "--format", "json", "--dry-run")

    refused = advisor(*arguments, cwd=project)
    agreed = advisor(*arguments, "--build-sdists", cwd=project)

    assert refused.returncode == 3
    assert "there is no stack without a build: `jax 0.4.20` has no wheel for the target" in refused.stderr
    assert "--build-sdists" in refused.stderr
    assert versions(agreed.stdout)["jax"] == "0.4.20"


def test_a_locked_sdist_stays_when_a_lock_is_updated(advisor: Advisor, index: PackageIndex, project: Path) -> None:
    index.add("other", "1.0")
    index.add_sdist("model", "0.1")
    here = ("--index-url", index.url, *HERE)
    assert advisor("advise", *here, "-o", "pylock.toml", cwd=project).returncode == 0
    index.add("model", "2.0")
    (project / "requirements.txt").write_text("model\nother\n")

    result = advisor("advise", "--update", *here, cwd=project)

    assert result.returncode == 0, result.stderr
    assert "0.1" in (project / "pylock.toml").read_text()
    assert "other" in (project / "pylock.toml").read_text()


@pytest.fixture
def old_wheels(index: PackageIndex, project: Path) -> Path:
    """A project that requires a package with wheels for Python 3.11 and 3.12 only, and an sdist."""
    for python in ("cp311", "cp312"):
        index.add("model", "1.0", tag=f"{python}-{python}-manylinux_2_28_x86_64")
    index.add_sdist("model", "1.0")
    return project


def recommended_python(advisor: Advisor, index: PackageIndex, project: Path, *options: str) -> tuple[str, str]:
    """Return the interpreter of the lock, and the text of the report."""
    result = advisor(
        *("advise", "--index-url", index.url, "--hardware", "cpu-zen4", "--details", "-o", "pylock.toml", *options),
        cwd=project,
    )
    assert result.returncode == 0, result.stderr
    lock = tomllib.loads((project / "pylock.toml").read_text())
    return lock["requires-python"], " ".join(result.stdout.split())


def test_an_interpreter_with_wheels_is_better_than_a_newer_one_that_needs_an_untried_build(
    advisor: Advisor, index: PackageIndex, old_wheels: Path
) -> None:
    python, report = recommended_python(advisor, index, old_wheels, "--python", "best")
    agreed, _ = recommended_python(advisor, index, old_wheels, "--python", "best", "--no-binary", "model")

    assert "3.12" in python
    assert "Python 3.14: no wheel of `model 1.0`, and the build was not tried" in report
    assert "3.12" not in agreed


def test_a_build_that_every_interpreter_needs_is_no_reason_against_the_newest(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    index.add_sdist("model", "1.0")

    assert "3.15" in recommended_python(advisor, index, project, "--python", "best")[0]


def test_a_locked_sdist_is_no_reason_for_an_interpreter_that_has_to_build_it(
    advisor: Advisor, index: PackageIndex, old_wheels: Path
) -> None:
    recommended_python(advisor, index, old_wheels, "--python", "3.12")

    assert "3.12" in recommended_python(advisor, index, old_wheels, "--python", "best")[0]


def test_the_interpreter_that_the_project_forces_is_one_with_wheels(
    advisor: Advisor, index: PackageIndex, old_wheels: Path
) -> None:
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    index.add_sdist("other", "1.0")
    (old_wheels / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\ndependencies = ["model", "other"]\n'
        f'requires-python = ">=3.11,!={running}.*"\n'
    )

    python, _ = recommended_python(advisor, index, old_wheels)

    assert ("3.11" if running == "3.12" else "3.12") in python


def test_the_hint_about_an_interpreter_prefers_one_with_wheels(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    index.add("model", "1.0", ["tool"], requires_python="!=3.12.*")
    index.add("tool", "1.0", tag="cp313-cp313-manylinux_2_28_x86_64")
    index.add_sdist("tool", "1.0")

    result = advisor("advise", "--index-url", index.url, *HERE, "--dry-run", cwd=project)

    assert result.returncode == 3
    # Python 3.11, which is tried first, has only the sdist.
    assert "there is a stack for Python 3.13" in result.stderr


def test_a_replacement_with_a_wheel_is_better_than_a_package_that_needs_an_untried_build(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    (project / "requirements.txt").write_text("opencv-python\n")
    index.add_sdist("opencv-python", "5.0")
    index.add("opencv-python-headless", "4.12")
    (project / "pyproject.toml").write_text(
        '[tool.advisor.replace-packages]\nopencv-python = "opencv-python-headless"\n'
    )
    arguments = ("advise", "--index-url", index.url, *HERE, "--format", "json", "--dry-run")

    result = advisor(*arguments, cwd=project)
    agreed = advisor(*arguments, "--build-sdists", cwd=project)

    assert versions(result.stdout) == {"opencv-python-headless": "4.12"}
    assert versions(agreed.stdout) == {"opencv-python": "5.0"}

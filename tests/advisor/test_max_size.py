"""The limit of the download and the objective `size`: compared with brute force, and end to end."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.words import parse_size
from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.score.criteria import HOURS_PER_RELEASE
from advisor.resolve.score.criterion_costs import CriterionCosts
from tests.advisor.factories import build_problem, empty_estimator
from tests.advisor.small_problems import (
    Releases,
    ReleaseSource,
    VersionSet,
    criteria_for,
    problems,
    solve_problem,
    some_roots,
    stacks,
)
from tests.conftest import Advisor
from tests.examples import examples
from tests.package_index import PackageIndex

Sizes = dict[tuple[str, int], int | None]

choices = st.tuples(st.sampled_from(("a", "b", "c", "d")), st.integers(1, 6))
some_sizes = st.dictionaries(choices, st.one_of(st.none(), st.integers(0, 4000)), max_size=16)


class SizedSource(ReleaseSource):
    """Candidates whose size is on their page, or is only known after a request."""

    def __init__(self, releases: Releases, sizes: Sizes) -> None:
        super().__init__(releases)
        self._sizes = sizes

    def stated_size(self, name: NormalizedName, version: Version) -> int | None:
        # The page of `a` states no sizes.
        return None if name == "a" else self._sizes.get((name, version.major))

    def size(self, candidate: Candidate) -> int | None:
        if candidate.name == "a" and not self.is_known(candidate):
            return None
        return self._sizes.get((candidate.name, candidate.version.major))


@settings(max_examples=examples(60))
@given(
    releases=problems,
    roots=some_roots,
    sizes=some_sizes,
    most=st.one_of(st.none(), st.integers(0, 12_000)),
    explicit=st.integers(1, 4),
)
def test_the_stack_is_that_of_brute_force(
    releases: Releases, roots: dict[str, VersionSet], sizes: Sizes, most: int | None, explicit: int
) -> None:
    def download(stack: dict[str, int]) -> int:
        return sum(sizes.get((name, v)) or 0 for name, v in stack.items())

    def cost(stack: dict[str, int]) -> tuple[int, ...]:
        behind = {name: sum(v > version for v in releases[name]) for name, version in stack.items()}
        direct = sum(behind[name] for name in roots if name in behind)
        hours = sum(behind.values()) * HOURS_PER_RELEASE
        return (0, 0, direct * HOURS_PER_RELEASE, download(stack), 0, hours)

    fitting = [s for s in stacks(releases, roots) if most is None or download(s) <= most]
    source = SizedSource(releases, sizes)
    criteria = replace(criteria_for(roots, source, empty_estimator(), "size"), max_size=most)

    optimum = solve_problem(roots, source, criteria, explicit)

    if optimum is None:
        assert not fitting
        return

    assert tuple(bound.value for bound in optimum.bounds) == min(map(cost, fitting))
    assert {str(c.name): c.version.major for c in optimum.stack} in fitting
    assert optimum.proven


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2_000_000_000), ("1.5 GiB", 1_610_612_736), ("500 kB", 500_000), ("2", None), ("-1GB", None), ("", None)],
)
def test_sizes_are_read_with_their_unit(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.fixture
def sized(index: PackageIndex) -> PackageIndex:
    """An index whose newest release is larger than the one before."""
    index.add("app", "1.0", ["model"], code="a" * 1_000)
    index.add("model", "1.0", code="\n".join(map(str, range(50_000))))
    index.add("model", "2.0", code="\n".join(map(str, range(400_000))))
    return index


def write_project(folder: Path, settings_text: str = "") -> Path:
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\ndependencies = ["app"]\n[tool.advisor]\n{settings_text}\n'
    )
    return folder


def locked(folder: Path) -> dict[str, str]:
    return {p["name"]: p["version"] for p in tomllib.loads((folder / "pylock.toml").read_text())["packages"]}


HERE = ("--hardware", "cpu-zen4", "--python", "3.12")


def sizes_of(index: PackageIndex) -> dict[str, int]:
    return {name.split("-")[1]: len(content) for name, content in index.files.items() if name.startswith("model-")}


@pytest.mark.parametrize("states_sizes", [True, False])
def test_the_limit_is_kept_and_priced(
    advisor: Advisor, sized: PackageIndex, tmp_path: Path, states_sizes: bool
) -> None:
    sized.json = states_sizes  # Pages in HTML state no sizes.
    folder = write_project(tmp_path / "p", 'max-size = "1MB"')
    here = ("--index-url", sized.url, *HERE)

    assert advisor("advise", *here, cwd=folder).returncode == 0

    assert locked(folder) == {"app": "1.0", "model": "1.0"}
    prices = json.loads(advisor("prices", *here, "--no-pythons", "--format", "json", cwd=folder).stdout)["prices"]
    limit = next(price for price in prices if price["constraint"].startswith("--max-size"))
    assert limit["constraint"] == "--max-size 1.0 MB"
    assert limit["changes"] == [["model", "1.0", "2.0"]]
    assert limit["libyears"] > 0 or not states_sizes


def test_a_limit_that_nothing_satisfies_names_the_smallest_possible_download(
    advisor: Advisor, sized: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p")

    result = advisor("advise", "--index-url", sized.url, *HERE, "--max-size", "2kB", cwd=folder)

    assert result.returncode == 3
    assert not (folder / "pylock.toml").exists()
    assert "no stack with at most 2.0 kB to download satisfies the requirements" in result.stderr
    assert "the smallest possible stack has 2 packages with" in result.stderr
    enough = re.search(r"`--max-size (\d+kB)`", result.stderr)
    assert enough is not None
    assert advisor("advise", "--index-url", sized.url, *HERE, "--max-size", enough[1], cwd=folder).returncode == 0


def test_the_limit_is_kept_to_the_byte(advisor: Advisor, sized: PackageIndex, tmp_path: Path) -> None:
    folder = write_project(tmp_path / "p")
    here = ("--index-url", sized.url, *HERE)
    wheels = [name for name in sized.files if name.endswith(".whl") and not name.startswith("model-2")]
    smallest = sum(len(sized.files[name]) for name in wheels)

    above = advisor("advise", *here, "--max-size", f"{(smallest - 1) / 1000}kB", cwd=folder)

    assert above.returncode == 3
    assert f"no stack with at most {smallest - 1:,} bytes to download" in above.stderr
    assert f"2 packages with {smallest:,} bytes" in above.stderr
    assert advisor("advise", *here, "--max-size", f"{smallest / 1000}kB", cwd=folder).returncode == 0


def test_a_limit_without_unit_is_an_error(advisor: Advisor, sized: PackageIndex, tmp_path: Path) -> None:
    folder = write_project(tmp_path / "p")

    result = advisor("advise", "--index-url", sized.url, *HERE, "--max-size", "2", cwd=folder)

    assert result.returncode == 2
    assert "`2` is not a size" in result.stderr
    assert "`--max-size 2GB`" in result.stderr


def test_the_objective_takes_smaller_dependencies(advisor: Advisor, sized: PackageIndex, tmp_path: Path) -> None:
    folder = write_project(tmp_path / "p")

    assert advisor("advise", "--index-url", sized.url, *HERE, "--objective", "size", cwd=folder).returncode == 0

    assert locked(folder) == {"app": "1.0", "model": "1.0"}


def test_a_baseline_that_a_rule_forbids_does_not_hide_that_the_rest_is_too_large(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("app", "1.0", ["jax", "opt-einsum"])
    index.add("opt-einsum", "2.0")
    index.add("jax", "0.5.0")  # Forbidden together with this opt-einsum.
    index.add("jax", "0.4.20", code="\n".join(map(str, range(400_000))))
    index.add("jaxlib", "0.4.20")
    folder = write_project(tmp_path / "p")

    result = advisor("advise", "--index-url", index.url, *HERE, "--max-size", "100kB", cwd=folder)

    assert result.returncode == 3
    assert "no stack with at most 100 kB to download satisfies the requirements" in result.stderr
    assert "the smallest possible stack has 4 packages with" in result.stderr


def test_a_limit_that_the_baseline_exceeds_is_kept_with_the_best_stack_below_it(
    advisor: Advisor, sized: PackageIndex, tmp_path: Path
) -> None:
    sized.add("model", "0.5")  # The smallest, but not the best below the limit.
    folder = write_project(tmp_path / "p")

    result = advisor("advise", "--index-url", sized.url, *HERE, "--max-size", "1MB", cwd=folder)

    assert result.returncode == 0
    assert "optimal for the score" in result.stdout
    assert locked(folder) == {"app": "1.0", "model": "1.0"}


def test_a_long_chain_of_newer_versions_takes_few_iterations() -> None:
    conflicting = 100
    releases: Releases = {
        "c": {
            v: ({"b": VersionSet(frozenset({1 if v <= conflicting else 2}))}, {}) for v in range(1, conflicting + 11)
        },
        "b": {1: ({}, {}), 2: ({}, {})},
    }
    # The oldest is the smallest, and the smallest that is possible is far from it.
    source = SizedSource(releases, {("c", v): 1000 * v for v in releases["c"]})
    criteria = replace(criteria_for({}, source, empty_estimator(), "size"), names=("size",))

    optimum = optimise(build_problem("c", "b==2"), source, CriterionCosts(criteria), start=())

    assert {str(c.name): c.version.major for c in optimum.stack} == {"c": conflicting + 1, "b": 2}
    assert optimum.proven
    assert optimum.iterations < 15

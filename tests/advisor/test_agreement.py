"""The same versions for several targets: compared with brute force on random small problems, and end to end."""

from __future__ import annotations

import itertools
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from advisor.domain.time_limit import TimeLimit
from advisor.resolve.candidates.problem import NoStackError
from advisor.resolve.optimum.request import ResolutionRequest, solve
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.recommendation.agreement import agree, differing
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.recommendation.recommend import make_request
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.criteria import HOURS_PER_RELEASE
from knowledge.catalogue.rule_book import RuleBook
from tests.advisor.factories import MACHINE, build_problem, score_of
from tests.advisor.package_problems import DictionarySource, Releases, problems, stacks
from tests.conftest import Advisor
from tests.examples import examples
from tests.package_index import PackageIndex


def request_for(releases: Releases, roots: tuple[str, ...]) -> ResolutionRequest:
    problem, rules = build_problem(*roots), RuleBook((), MACHINE)
    source = DictionarySource(releases, problem)
    score = score_of(problem, source, "latest", builds=TargetBuilds((), rules, MACHINE))
    return make_request(problem, score, Effort())


@settings(max_examples=examples(40))
@given(
    by_target=st.lists(problems, min_size=2, max_size=3),
    roots=st.sampled_from([("app",), ("app", "lib"), ("jax", "tf")]),
)
def test_as_few_versions_differ_as_brute_force_finds(by_target: list[Releases], roots: tuple[str, ...]) -> None:
    def cost(chosen: tuple[dict[str, int], ...]) -> tuple[int, int, int]:
        different = sum(
            name in other and one[name] != other[name]
            for one, other in itertools.combinations(chosen, 2)
            for name in one
        )
        behind = [
            {name: sum(v > version for v in releases[name]) for name, version in stack.items()}
            for releases, stack in zip(by_target, chosen, strict=True)
        ]
        direct = sum(b[name] for b in behind for name in roots)
        return different, direct * HOURS_PER_RELEASE, sum(sum(b.values()) for b in behind) * HOURS_PER_RELEASE

    possible = [list(stacks(releases, roots, "", "tf")) for releases in by_target]
    try:
        requests = [request_for(releases, roots) for releases in by_target]
    except NoStackError:
        assert not all(possible)
        return
    solved = {str(number): Selection(request=request).solve() for number, request in enumerate(requests)}

    agreement = agree(solved, limit=TimeLimit(60))

    best = [solve(agreement.requests[name]) for name in solved]
    combination = tuple({str(c.name): c.version.major for c in optimum.stack} for optimum in best)
    assert cost(combination) == min(map(cost, itertools.product(*possible)))
    assert agreement.proven
    assert agreement.after == differing(
        [(agreement.requests[name], optimum.stack) for name, optimum in zip(solved, best, strict=True)]
    )
    assert set(agreement.after) <= {canonicalize_name(name) for stack in combination for name in stack}


TARGETS = """
[tool.advisor.targets.laptop]
hardware = "cpu-zen4"
python = "3.12"
[tool.advisor.targets.cluster]
hardware = "cpu-neoverse-v1"
python = "3.12"
"""


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project for two processors; the newest version of a package has no wheel for one of them."""
    index.add("frame", "1.0")
    index.add("frame", "2.0", tag="cp312-cp312-manylinux_2_28_x86_64", uploaded="2026-01-01T00:00:00Z")
    index.add("tool", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    index.add("tool", "2.0", tag="cp312-cp312-manylinux_2_28_aarch64")
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\ndependencies = ["frame", "tool"]\n{TARGETS}'
    )
    return folder


def locked(folder: Path, target: str) -> dict[str, str]:
    text = (folder / f"pylock.{target}.toml").read_text()
    return {p["name"]: p["version"] for p in tomllib.loads(text)["packages"]}


def test_all_targets_get_the_same_versions_where_possible(advisor: Advisor, index: PackageIndex, project: Path) -> None:
    here = ("--index-url", index.url)
    assert advisor("advise", *here, cwd=project).returncode == 0
    assert locked(project, "laptop") == {"frame": "2.0", "tool": "1.0"}

    result = advisor("advise", *here, "--targets", "all", cwd=project)

    assert result.returncode == 0, result.stderr
    assert locked(project, "laptop") == {"frame": "1.0", "tool": "1.0"}
    assert locked(project, "cluster") == {"frame": "1.0", "tool": "2.0"}
    text = " ".join(result.stdout.split())
    assert "1 package differs between the targets: `tool`; 2 differ if each target has its own best stack" in text
    assert "`frame` 2.0 -> 1.0" in text.partition(" laptop ")[2]
    assert " cluster no cost" in text
    assert advisor("check", *here, cwd=project).returncode == 0


def test_the_agreement_is_part_of_the_json_report(advisor: Advisor, index: PackageIndex, project: Path) -> None:
    result = advisor(
        "advise", "--index-url", index.url, "--targets", "all", "--format", "json", "--dry-run", cwd=project
    )

    agreement = json.loads(result.stdout)["agreement"]
    assert (agreement["before"], agreement["after"], agreement["proven"]) == (["frame", "tool"], ["tool"], True)
    laptop = agreement["costs"]["laptop"]
    assert laptop["changes"] == [{"name": "frame", "before": "2.0", "after": "1.0"}]
    assert laptop["libyears"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--targets", "some"), "`--targets some` is not known"),
        (("--targets", "all", "--target", "laptop"), "`--targets all` and `--target` contradict each other"),
        (("--targets", "all", "--hardware", "h100"), "`--targets all` and `--hardware` contradict each other"),
    ],
)
def test_contradictory_targets_are_an_error(
    advisor: Advisor, index: PackageIndex, project: Path, words: tuple[str, ...], message: str
) -> None:
    result = advisor("advise", "--index-url", index.url, *words, cwd=project)

    assert result.returncode == 2
    assert message in result.stderr


def test_one_target_is_not_enough(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("frame\n")

    result = advisor("advise", "--index-url", index.url, "--targets", "all", cwd=tmp_path)

    assert result.returncode == 2
    assert "`--targets all` needs several targets" in result.stderr

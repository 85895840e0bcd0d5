"""Options that standards and other tools define: indexes, overrides, sdists; objectives; damaged files."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import CandidatePolicy, NoStackError, ResolutionProblem
from advisor.resolve.optimum.request import solve
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.recommendation import recommend as recommend_module
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.recommendation.recommend import make_request, recommend
from advisor.resolve.score.criteria import ObjectiveName
from tests.advisor.factories import (
    FixedScores,
    build_client,
    build_problem,
    build_request,
    recommend_stack,
    score_of,
    versions_of,
)
from tests.package_index import PackageIndex


@pytest.fixture
def other() -> Iterator[PackageIndex]:
    """A second index."""
    with PackageIndex() as served:
        yield served


def stack_from(configuration: IndexConfiguration, cache: Path, problem: ResolutionProblem) -> dict[str, str]:
    client = IndexClient(configuration, cache=DiskCache(cache))
    source = IndexCandidates(client, problem)
    request = make_request(problem, score_of(problem, source, "latest"), Effort())
    return versions_of(recommend(Selection(request=request)).optimum.stack)


def test_only_the_first_index_with_a_package_is_used(index: PackageIndex, other: PackageIndex, tmp_path: Path) -> None:
    index.add("private", "9.0")  # An attacker's package on the public index.
    index.add("public", "1.0")
    other.add("private", "1.0")
    both = IndexConfiguration(default=index.url, extra=(other.url,))
    problem = build_problem("private", "public")

    assert stack_from(both, tmp_path / "1", problem) == {"private": "1.0", "public": "1.0"}
    assert stack_from(replace(both, strategy="unsafe-best-match"), tmp_path / "2", problem)["private"] == "9.0"


def test_only_a_bound_package_comes_from_its_index(index: PackageIndex, other: PackageIndex, tmp_path: Path) -> None:
    index.add("torch", "2.9.0", ["helper"])
    index.add("helper", "1.0")
    other.add("torch", "2.8.0+cu126", ["helper"])
    other.add("helper", "5.0")
    bound = IndexConfiguration(default=index.url, bindings={"torch": other.url})

    assert stack_from(bound, tmp_path, build_problem("torch")) == {"torch": "2.8.0+cu126", "helper": "1.0"}


def test_an_override_replaces_every_requirement_on_its_package(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b<2", "c"])
    for version in ("1.0", "2.0"):
        index.add("b", version)
    index.add("c", "1.0")
    overrides = tuple(
        RootRequirement(requirement=Requirement(text), origin="override")
        for text in ("b>=2", "c; sys_platform == 'never'")
    )
    problem = replace(build_problem("a", "b==1.0"), overrides=overrides).with_overridden_roots()

    advice, _ = recommend_stack(index, tmp_path, problem)

    assert versions_of(advice.optimum.stack) == {"a": "1.0", "b": "2.0"}


BACKEND = """
def _write(folder):
    import os
    os.makedirs(os.path.join(folder, "a-1.0.dist-info"))
    with open(os.path.join(folder, "a-1.0.dist-info", "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: a\\nVersion: 1.0\\nRequires-Dist: b\\n")
    return "a-1.0.dist-info"

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    return _write(metadata_directory)

def build_wheel(*_, **__):
    raise SystemExit("not needed")
"""


def add_dynamic_sdist(index: PackageIndex, backend: str = BACKEND) -> None:
    """Add an sdist whose requirements are known only from its build backend."""
    content = io.BytesIO()
    parts = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: a\nVersion: 1.0\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": backend,
    }
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in parts.items():
            member = tarfile.TarInfo(f"a-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    index.add_file("a", "a-1.0.tar.gz", content.getvalue())


def test_an_sdist_is_built_only_with_build_sdists(index: PackageIndex, tmp_path: Path) -> None:
    add_dynamic_sdist(index)
    index.add("b", "1.0")

    with pytest.raises(NoStackError, match="the requirements of `a 1.0` are only known after a build") as refused:
        recommend_stack(index, tmp_path / "1", build_problem("a"))
    advice, _ = recommend_stack(index, tmp_path / "2", build_problem("a", policy=CandidatePolicy(build_sdists=True)))

    assert refused.value.details == ("only an sdist of `a` 1.0 fits: a-1.0.tar.gz",)
    assert refused.value.hint.startswith("`--build-sdists` builds them, as pip and uv do")
    assert versions_of(advice.optimum.stack) == {"a": "1.0", "b": "1.0"}
    assert {f.code for f in advice.findings} == {"ADV103"}


def test_builds_are_not_blamed_for_another_conflict(index: PackageIndex, tmp_path: Path) -> None:
    add_dynamic_sdist(index)
    index.add("b", "1.0", ["c<1"])
    index.add("c", "2.0")

    with pytest.raises(NoStackError, match="no set of versions satisfies the requirements") as refused:
        recommend_stack(index, tmp_path, build_problem("a", "b"))

    assert "so no version of `c` satisfies all of this" in " ".join(refused.value.details)


def test_a_conflict_after_the_first_rounds_is_explained(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("b", "1.0", ["c<1"])
    index.add("c", "2.0")
    monkeypatch.setattr(recommend_module, "FIRST_ROUNDS", 1)
    monkeypatch.setattr(recommend_module, "is_contradictory", lambda _: False)

    with pytest.raises(NoStackError) as refused:
        recommend_stack(index, tmp_path, build_problem("b"))

    assert "so no version of `c` satisfies all of this" in " ".join(refused.value.details)


def test_an_sdist_whose_build_fails_is_not_a_candidate(index: PackageIndex, tmp_path: Path) -> None:
    add_dynamic_sdist(index, 'raise RuntimeError("no compiler here")')

    with pytest.raises(NoStackError) as caught:
        recommend_stack(index, tmp_path, build_problem("a", policy=CandidatePolicy(build_sdists=True)))

    assert "building the metadata of `a-1.0.tar.gz` failed" in " ".join(caught.value.details)


def test_objective_stable_prefers_old_and_measured_versions(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", uploaded="2025-01-01T00:00:00Z")
    index.add("a", "2.0", uploaded="2025-03-01T00:00:00Z")
    index.add("a", "3.0", uploaded="2025-06-01T00:00:00Z")
    problem = build_problem("a")
    arguments = {"objective": "stable", "young_after": "2025-05-01T00:00:00+00:00"}

    old_enough = solve(
        build_request(index, tmp_path, problem, objective="stable", young_after=arguments["young_after"])
    )
    measured = solve(
        build_request(
            index,
            tmp_path,
            problem,
            objective="stable",
            young_after=arguments["young_after"],
            estimator=FixedScores({("a", "1.0"): 0.0}),
        )
    )

    assert versions_of(old_enough.stack) == {"a": "2.0"}
    assert versions_of(measured.stack) == {"a": "1.0"}


def test_objective_stable_avoids_admitted_prereleases(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0rc1")
    problem = build_problem("a", policy=CandidatePolicy(prereleases=True))

    assert versions_of(solve(build_request(index, tmp_path, problem, objective="latest")).stack) == {"a": "2.0rc1"}
    assert versions_of(solve(build_request(index, tmp_path, problem, objective="stable")).stack) == {"a": "1.0"}


def test_objective_security_avoids_vulnerabilities_even_from_the_cache(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0", "3.0", "4.0"):
        index.add("a", version)
    index.vulnerabilities = {("a", "4.0"): ["CVE-1"], ("a", "3.0"): ["CVE-1", "CVE-2"], ("a", "2.0"): []}
    problem = build_problem("a")

    online = solve(build_request(index, tmp_path, problem, objective="security"))
    client = build_client(index, tmp_path, offline=True)
    source = IndexCandidates(client, problem, advisories=True)

    assert versions_of(online.stack) == {"a": "2.0"}
    assert online.bounds[0].objective == "vulnerabilities"
    assert [source.vulnerabilities(c) for c in source.candidates(problem.roots[0].name)][:3] == [
        ("CVE-1",),
        ("CVE-1", "CVE-2"),
        (),
    ]


def test_a_file_that_disappears_between_two_requests_is_skipped(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0")
    index.separate_metadata = False
    del index.files["a-2.0-py3-none-any.whl"]

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}
    assert any(f.code == "ADV107" and "no longer exists" in f.message for f in advice.findings)


def test_a_wheel_that_is_not_an_archive_is_skipped(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.separate_metadata = False
    index.add_file("a", "a-2.0-py3-none-any.whl", b"not a zip file at all")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}
    assert any(f.code == "ADV107" and "not a readable wheel" in f.message for f in advice.findings)


def test_a_wheel_with_metadata_of_another_version_is_skipped(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0", metadata="Metadata-Version: 2.1\nName: a\nVersion: 7.0\n")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}
    assert any("metadata and file name disagree" in f.message for f in advice.findings)


def test_versions_that_are_not_pep_440_are_listed_and_skipped(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add_file("a", "a-2.0-final-py3-none-any.whl", b"")
    index.add_file("a", "a-newest.tar.gz", b"")

    advice, source = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}
    assert {(s.reason, s.count) for s in source.skipped()} == {("file name or version is not standard", 2)}


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ('python_version < "abc"', False),
        ('platform_release >= "5"', False),
        ('extra == ""', True),
        ('os_name in "posix nt"', True),
    ],
)
def test_unusual_markers_are_evaluated_for_the_target(
    index: PackageIndex, tmp_path: Path, marker: str, holds: bool
) -> None:
    index.add("a", "1.0", [f"b; {marker}"])
    index.add("b", "1.0")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack) == ({"a": "1.0", "b": "1.0"} if holds else {"a": "1.0"})


def test_the_cuda_version_of_a_local_version_is_reported(index: PackageIndex, tmp_path: Path) -> None:
    from knowledge.domain.stack import carried_cuda

    index.add("torch", "2.8.0+cu126")

    advice, _ = recommend_stack(index, tmp_path, build_problem("torch"))

    assert carried_cuda((c.name, c.version) for c in advice.optimum.stack) == ("12.6", None)
    assert advice.optimum.stack[0].version == Version("2.8.0+cu126")


@pytest.mark.parametrize(("objective", "lack"), [("security", "vulnerability record"), ("stable", "upload time")])
def test_an_objective_without_data_of_the_index_is_reported(
    index: PackageIndex, tmp_path: Path, objective: ObjectiveName, lack: str
) -> None:
    index.add("a", "1.0", uploaded=None)

    request = build_request(index, tmp_path, build_problem("a"), objective=objective)
    findings = recommend(Selection(request=request)).findings

    assert [f.code for f in findings] == ["ADV108"]
    assert f"no {lack} for 1 of 1 packages" in findings[0].message

"""Selection of candidates from the files of an index: yanked files, pre-releases, hashes, wheels and sdists."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, CandidatePolicy, Dependency, ResolutionProblem
from advisor.resolve.optimum.baseline import resolve_baseline
from tests.advisor.factories import build_client, build_problem
from tests.package_index import PackageIndex

A = canonicalize_name("a")


def list_candidates(index: PackageIndex, cache: Path, problem: ResolutionProblem) -> tuple[list[str], dict[str, int]]:
    """Return the file names of the candidates of `a`, newest first, and the number of skipped files by reason."""
    source = IndexCandidates(build_client(index, cache), problem)
    names = [candidate.file.filename for candidate in source.candidates(A)]
    return names, {skipped.reason: skipped.count for skipped in source.skipped()}


def wheel(version: str) -> str:
    return f"a-{version}-py3-none-any.whl"


@pytest.mark.parametrize(
    ("requirement", "admitted"),
    [
        ("a", False),
        ("a>=2", False),
        ("a==2.0", True),
        ("a===2.0", True),
        ("a~=2.0", False),
        # A prefix match does not count as a pin (PEP 592).
        ("a==2.*", False),
        ("a==1.0", False),
    ],
)
def test_a_yanked_version_is_a_candidate_only_if_it_is_pinned(
    index: PackageIndex, tmp_path: Path, requirement: str, admitted: bool
) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0", yanked=True)

    names, skipped = list_candidates(index, tmp_path, build_problem(requirement))

    assert names == ([wheel("2.0")] if admitted else []) + [wheel("1.0")]
    assert skipped == ({} if admitted else {"yanked": 1})


def test_a_retained_yanked_version_is_a_candidate(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", yanked=True)
    index.add("a", "2.0", yanked=True)

    names, skipped = list_candidates(
        index, tmp_path, build_problem("a", policy=CandidatePolicy(retained=frozenset({(A, Version("1.0"))})))
    )

    assert names == [wheel("1.0")]
    assert skipped == {"yanked": 1}


@pytest.mark.parametrize(
    ("requirement", "policy", "admitted"),
    [
        ("a", CandidatePolicy(), False),
        ("a>=1", CandidatePolicy(), False),
        ("a>=2.0rc1", CandidatePolicy(), True),
        ("a", CandidatePolicy(prereleases=True), True),
        ("a", CandidatePolicy(retained=frozenset({(A, Version("2.0rc1"))})), True),
    ],
)
def test_a_pre_release_is_a_candidate_only_if_it_is_requested(
    index: PackageIndex, tmp_path: Path, requirement: str, policy: CandidatePolicy, admitted: bool
) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0rc1")

    names, skipped = list_candidates(index, tmp_path, build_problem(requirement, policy=policy))

    assert names == ([wheel("2.0rc1")] if admitted else []) + [wheel("1.0")]
    assert skipped == ({} if admitted else {"pre-release": 1})


def test_pre_releases_are_candidates_if_there_are_no_other_versions(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0b1")
    index.add("a", "1.0rc1")

    assert list_candidates(index, tmp_path, build_problem("a")) == ([wheel("1.0rc1"), wheel("1.0b1")], {})


def test_only_files_with_the_required_hashes_are_candidates(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0", "3.0"):
        index.add("a", version)
    hashes = {entry["filename"]: entry["hashes"]["sha256"] for entry in index.entries["a"]}
    problem = build_problem("a", "a")
    one, other = problem.roots
    roots = (
        replace(one, hashes=frozenset({hashes[wheel("1.0")], hashes[wheel("2.0")]})),
        replace(other, hashes=frozenset({hashes[wheel("2.0")], hashes[wheel("3.0")]})),
    )

    names, skipped = list_candidates(index, tmp_path, replace(problem, roots=roots))

    assert names == [wheel("2.0")]
    assert skipped == {"hash differs from the required ones": 2}


WHEELS, SDISTS = [wheel("2.0"), wheel("1.0")], ["a-3.0.tar.gz", "a-2.0.tar.gz"]


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        (CandidatePolicy(), ["a-3.0.tar.gz", *WHEELS]),
        (CandidatePolicy(no_binary=frozenset({"b"}), only_binary=frozenset({"c"})), ["a-3.0.tar.gz", *WHEELS]),
        (CandidatePolicy(no_binary=frozenset({"a"})), SDISTS),
        (CandidatePolicy(no_binary=frozenset({":all:"})), SDISTS),
        (CandidatePolicy(only_binary=frozenset({"a"})), WHEELS),
        (CandidatePolicy(only_binary=frozenset({":all:"})), WHEELS),
    ],
)
def test_a_wheel_is_preferred_to_an_sdist_and_either_can_be_excluded(
    index: PackageIndex, tmp_path: Path, policy: CandidatePolicy, names: list[str]
) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0")
    index.add_sdist("a", "2.0")
    index.add_sdist("a", "3.0")

    assert list_candidates(index, tmp_path, build_problem("a", policy=policy))[0] == names


def test_the_most_specific_wheel_with_the_highest_build_is_used(index: PackageIndex, tmp_path: Path) -> None:
    for tag in (
        "py3-none-any",
        "cp312-cp312-manylinux_2_17_x86_64",
        "cp312-cp312-manylinux_2_28_x86_64",
        "cp312-cp312-manylinux_2_35_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
    ):
        index.add("a", "1.0", tag=tag)
    best = "a-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    index.add_file("a", best.replace("1.0-", "1.0-2-"), b"")
    index.add_file("a", best.replace("1.0-", "1.0-1-"), b"")

    names, skipped = list_candidates(index, tmp_path, build_problem("a"))

    assert names == [best.replace("1.0-", "1.0-2-")]
    assert skipped == {"no wheel for the target": 2}


def test_files_without_an_upload_time_are_excluded_by_exclude_newer(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", uploaded="2025-02-28T23:59:59Z")
    index.add("a", "2.0", uploaded="2025-03-01T01:00:00+01:00")
    index.add("a", "3.0", uploaded="2025-03-01T00:00:01Z")
    index.add("a", "4.0", uploaded=None)

    names, skipped = list_candidates(
        index, tmp_path, build_problem("a", policy=CandidatePolicy(exclude_newer="2025-03-01T00:00:00+00:00"))
    )

    assert names == [wheel("2.0"), wheel("1.0")]
    assert skipped == {"newer than `--exclude-newer`": 1, "no upload time, which `--exclude-newer` needs": 1}


def test_cached_candidates_are_the_same_as_computed_ones(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    index.add("a", "2.0", requires_python=">=3.13")
    index.add("a", "3.0")
    index.add_file("a", "a-3.0-1-py3-none-any.whl", b"")
    index.add("a", "4.0", yanked=True)

    first = list_candidates(index, tmp_path, build_problem("a"))
    again = list_candidates(index, tmp_path, build_problem("a"))

    assert first == (
        ["a-3.0-1-py3-none-any.whl"],
        {"no wheel for the target": 1, "requires another Python": 1, "yanked": 1},
    )
    assert again == first


def read_metadata(index: PackageIndex) -> set[str]:
    """Return the packages and versions whose metadata was requested."""
    paths = [path.rpartition("/")[2] for path in index.authorizations if path.endswith(".metadata")]
    return {"-".join(name.split("-")[:2]) for name in paths}


def test_metadata_is_read_ahead_of_the_versions_that_requirements_admit(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b==1.0", "c[fast]>=1", "d<2"])
    for name in ("b", "c", "d", "e"):
        for version in ("1.0", "2.0"):
            index.add(name, version, ['e==1.0; extra == "fast"'] if name == "c" else [], extras=["fast"])
    client = build_client(index, tmp_path)

    IndexCandidates(client, build_problem("a")).prefetch([A])

    needed = {"a-1.0", "b-1.0", "c-2.0", "d-1.0", "e-1.0"}
    end = time.monotonic() + 10
    while not read_metadata(index) >= needed and time.monotonic() < end:
        time.sleep(0.01)
    client.close()
    assert read_metadata(index) == needed


def test_the_way_back_to_an_old_version_reads_more_versions_at_once(index: PackageIndex, tmp_path: Path) -> None:
    index.add("b", "1.0")
    index.add("b", "2.0")
    for number in range(1, 40):
        index.add("a", f"{number}.0", ["b==2.0"] if number > 1 else [])
    problem = build_problem("a", "b==1.0")
    source = IndexCandidates(build_client(index, tmp_path), problem)
    waits: list[Version] = []
    read, known = source.dependencies, set[str]()

    def dependencies(candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        if candidate.file.identity not in source._client._metadata.started() and candidate.file.url not in known:
            waits.append(candidate.version)
        known.add(candidate.file.url)
        return read(candidate, extra)

    with patch.object(source, "dependencies", dependencies):
        stack = resolve_baseline(problem, source)

    assert [str(c.version) for c in stack if c.name == "a"] == ["1.0"]
    # Only those of the newest version were not requested before they were needed.
    assert len(waits) <= 2

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.resolve.candidates.problem import CandidatePolicy, NoStackError
from advisor.resolve.optimum.baseline import VerificationError, verify
from knowledge.catalogue.rules import ConflictRule
from tests.advisor.factories import FixedScores, build_problem, recommend_stack, versions_of
from tests.package_index import PackageIndex

CRASH = ConflictRule(
    kind="conflict",
    id="a-b",
    severity="forbidden",
    package="a",
    versions=">=2",
    other="b",
    other_versions=">=2",
    message="they crash",
    source="https://example.org",
)


def test_without_observations_the_newest_version_is_recommended(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version, ["b"])
        index.add("b", version)

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack) == versions_of(advice.baseline) == {"a": "2.0", "b": "2.0"}
    assert advice.optimum.proven


def test_a_faster_version_is_recommended_over_a_newer_one(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0", "3.0"):
        index.add("a", version)

    advice, _ = recommend_stack(
        index, tmp_path, build_problem("a"), estimator=FixedScores({("a", "1.0"): 0.2, ("a", "2.0"): 0.1})
    )

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}
    assert versions_of(advice.baseline) == {"a": "3.0"}


def test_less_than_one_percent_does_not_outweigh_freshness(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version)

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"), estimator=FixedScores({("a", "1.0"): 0.004}))

    assert versions_of(advice.optimum.stack) == {"a": "2.0"}


def test_a_package_that_nothing_requires_is_not_installed_for_its_speed(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["fast"])
    index.add("a", "2.0")
    index.add("fast", "1.0")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"), estimator=FixedScores({("fast", "1.0"): 5.0}))

    assert versions_of(advice.optimum.stack) == {"a": "2.0"}


def test_a_version_with_a_recorded_failure_is_avoided(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version)

    advice, _ = recommend_stack(
        index, tmp_path, build_problem("a"), estimator=FixedScores({}, {"a": {"2.0": "crashed in block b1"}})
    )

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}


def test_a_forbidden_pair_is_avoided_and_reported(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version)
        index.add("b", version)
    advice, _ = recommend_stack(index, tmp_path, build_problem("a", "b"), rules=(CRASH,))

    assert sorted(versions_of(advice.optimum.stack).values()) == ["1.0", "2.0"]
    assert any(f.code == "ADV101" and "they crash" in f.message for f in advice.findings)


def test_rules_that_exclude_every_stack_are_named(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "2.0")
    index.add("b", "2.0")
    with pytest.raises(NoStackError, match="and the rules") as caught:
        recommend_stack(index, tmp_path, build_problem("a", "b"), rules=(CRASH,))

    assert "and they crash (https://example.org)" in caught.value.details


def test_a_dependency_is_backtracked_over_many_versions(index: PackageIndex, tmp_path: Path) -> None:
    for minor in range(40):
        index.add("a", f"1.{minor}", ["c<2"] if minor else [])
        index.add("b", f"1.{minor}", ["c>=2"])
    index.add("c", "1.0")
    index.add("c", "2.0")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a", "b"))

    assert versions_of(advice.optimum.stack) == {"a": "1.0", "b": "1.39", "c": "2.0"}
    assert advice.optimum.proven


def test_requirements_of_extras_are_resolved(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b[fast]"])
    index.add("b", "1.0", ['c; extra == "fast"', 'd; extra == "slow"'], extras=["fast", "slow"])
    index.add("c", "1.0")
    index.add("d", "1.0")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"))

    assert set(versions_of(advice.optimum.stack)) == {"a", "b", "c"}


def test_an_extra_that_does_not_exist_is_a_finding(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a[none]"))

    assert [f.code for f in advice.findings] == ["ADV104"]


def test_constraints_limit_without_requiring(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b"])
    for name in ("b", "z"):
        index.add(name, "1.0")
        index.add(name, "2.0")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a", constraints=("b<2", "z<2")))

    assert versions_of(advice.optimum.stack) == {"a": "1.0", "b": "1.0"}


def test_a_cycle_of_requirements_is_resolved(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b"])
    index.add("b", "1.0", ["a"])

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"))

    assert set(versions_of(advice.optimum.stack)) == {"a", "b"}


def test_two_requirements_on_one_package_both_apply(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b>=1", "b>=0.5", "b<2"])
    for version in ("0.7", "1.5", "2.5"):
        index.add("b", version)

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack)["b"] == "1.5"


def test_a_version_with_malformed_metadata_is_skipped(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0", metadata="Metadata-Version: 2.1\nName: a\nVersion: 2.0\nRequires-Dist: b>>1\n")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}
    assert any(f.code == "ADV107" for f in advice.findings)


def test_a_wheel_for_another_python_is_not_a_candidate(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", requires_python=">=3.8")
    index.add("a", "2.0", requires_python=">=3.13")
    index.add("a", "3.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    index.add("a", "4.0", tag="cp312-cp312-manylinux_2_35_x86_64")

    advice, source = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}
    assert {s.reason for s in source.skipped()} == {"requires another Python", "no wheel for the target"}


def test_files_uploaded_after_exclude_newer_are_ignored(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", uploaded="2025-01-01T00:00:00Z")
    index.add("a", "2.0", uploaded="2025-06-01T00:00:00Z")
    policy = CandidatePolicy(exclude_newer="2025-03-01T00:00:00+00:00")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a", policy=policy))

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}


def test_an_sdist_with_static_metadata_is_a_candidate_and_a_finding(index: PackageIndex, tmp_path: Path) -> None:
    index.add_sdist("a", "1.0")
    index.add_sdist("a", "2.0", metadata_version="2.1")

    advice, source = recommend_stack(index, tmp_path, build_problem("a"))

    assert versions_of(advice.optimum.stack) == {"a": "1.0"}
    assert {f.code for f in advice.findings} == {"ADV103", "ADV107"}
    assert "only known after a build" in source.skipped()[0].reason


def test_the_error_of_an_unknown_package_names_its_line(index: PackageIndex, tmp_path: Path) -> None:
    with pytest.raises(NoStackError, match="package `tensorflwo`, required by line 1, is not on any configured index"):
        recommend_stack(index, tmp_path, build_problem("tensorflwo"))


def test_a_conflict_names_packages_and_their_requirements(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["c<2"])
    index.add("b", "1.0", ["c>=2"])
    index.add("c", "1.0")
    index.add("c", "2.0")

    with pytest.raises(NoStackError) as caught:
        recommend_stack(index, tmp_path, build_problem("a", "b"))

    assert caught.value.details == (
        "you require `a` (line 1)",
        "you require `b` (line 2)",
        "and `a` 1.0 requires `c<2`",
        "and `b` 1.0 requires `c>=2`",
        "so no version of `c` satisfies all of this",
    )


def test_verification_refuses_a_stack_with_an_unmet_requirement(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b<2"])
    index.add("b", "1.0")
    index.add("b", "2.0")
    advice, source = recommend_stack(index, tmp_path, build_problem("a"))
    other_stack = tuple(source.candidates(c.name)[0] for c in advice.optimum.stack)

    with pytest.raises(VerificationError, match="violates a requirement: .*b<2"):
        verify(build_problem("a"), source, other_stack)


def test_verification_refuses_additional_and_missing_packages(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b"])
    index.add("b", "1.0")
    index.add("c", "1.0")
    advice, source = recommend_stack(index, tmp_path, build_problem("a"))
    surplus = source.candidates(canonicalize_name("c"))[0]
    (without,) = (c for c in advice.optimum.stack if c.name == "a")

    verify(build_problem("a"), source, advice.optimum.stack)
    with pytest.raises(VerificationError, match=r"packages that nothing requires: \['c'\]"):
        verify(build_problem("a"), source, (*advice.optimum.stack, surplus))
    with pytest.raises(VerificationError):
        verify(build_problem("a"), source, (without,))


def test_the_same_inputs_give_the_same_stack_from_any_cache(index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "2.0", "3.0"):
        index.add("a", version, [f"c<{version}"])
        index.add("b", version, ["c"])
        index.add("c", version)

    cold, _ = recommend_stack(index, tmp_path, build_problem("a", "b"))
    warm, _ = recommend_stack(index, tmp_path, build_problem("a", "b"))

    assert cold == warm

"""Two stacks and the stacks between them: each has all that its packages require."""

from __future__ import annotations

from itertools import product

import hypothesis
from hypothesis import strategies
from packaging.requirements import Requirement

from advisor.experiment.bisection import Combination
from advisor.experiment.stack_pair import StackPair
from advisor.resolve.candidates.problem import CandidateStack
from tests.advisor.stack_pairs import Requirements, end, pair


def texts(stacks: StackPair) -> list[list[str]]:
    return [[difference.text for difference in group] for group in stacks.groups]


def combinations(stacks: StackPair) -> list[Combination]:
    """Return all combinations in which no group lacks another one that it needs."""
    drawn = (
        frozenset(number for number, is_bad in enumerate(sides) if is_bad)
        for sides in product((False, True), repeat=len(stacks.groups))
    )
    return [chosen for chosen in drawn if all(stacks.needs[number] <= chosen for number in chosen)]


def test_packages_that_require_equal_releases_are_one_group() -> None:
    required = {("a", "1"): ["b==1"], ("a", "2"): ["b==2"]}
    stacks = pair(end({"a": "1", "b": "1", "c": "1"}), end({"a": "2", "b": "2", "c": "2"}), required)

    assert texts(stacks) == [["a 1 -> 2", "b 1 -> 2"], ["c 1 -> 2"]]


def test_packages_that_need_each_other_come_after_what_they_need() -> None:
    required = {("a", "1"): ["c==1"], ("a", "2"): ["c==2"], ("c", "2"): ["d>=2"]}
    stacks = pair(end(dict.fromkeys("abcd", "1")), end(dict.fromkeys("abcd", "2")), required)

    assert texts(stacks) == [["b 1 -> 2"], ["d 1 -> 2"], ["a 1 -> 2", "c 1 -> 2"]]
    assert stacks.needs == (frozenset(), frozenset(), frozenset({1}))


def test_a_lower_bound_orders_two_packages_and_leaves_them_apart() -> None:
    required = {("a", "2"): ["b>=2"]}
    stacks = pair(end({"a": "1", "b": "1"}), end({"a": "2", "b": "2"}), required)

    assert texts(stacks) == [["b 1 -> 2"], ["a 1 -> 2"]]
    assert stacks.needs == (frozenset(), frozenset({0}))


def test_a_requirement_that_a_lock_itself_violates_orders_nothing() -> None:
    required = {("a", "2"): ["b<2"]}
    stacks = pair(end({"a": "1", "b": "2"}), end({"a": "2", "b": "3"}), required)

    assert stacks.needs == (frozenset(), frozenset())


def test_a_new_package_comes_with_what_requires_it() -> None:
    stacks = pair(end({"a": "1"}), end({"a": "2", "b": "1"}), {("a", "2"): ["b"]})

    assert texts(stacks) == [["b absent -> 1"], ["a 1 -> 2"]]
    assert stacks.needs == (frozenset(), frozenset({0}))
    assert [c.name for c in stacks.arm(frozenset()).stack] == ["a"]


def test_equal_versions_with_other_files_are_builds() -> None:
    stacks = pair(end({"a": "1"}, sha256="0" * 64), end({"a": "1"}, sha256="f" * 64))

    assert texts(stacks) == [["a 1 (00000000) -> 1 (ffffffff)"]]
    assert stacks.has_equal_versions
    assert stacks.all[0].pin == ""


def test_settings_change_alone() -> None:
    stacks = pair(end({"a": "1"}, settings={"threads": 1}), end({"a": "1"}, settings={"threads": 2, "isa": "avx2"}))

    assert texts(stacks) == [["isa absent -> avx2"], ["threads 1 -> 2"]]
    assert stacks.arm(frozenset({0})).settings == {"isa": "avx2", "threads": 1}


def test_the_interpreter_changes_alone_with_the_files_for_it() -> None:
    good = end({"a": "1", "b": "1"}, python="3.10", compiled="a")
    stacks = pair(good, end({"a": "2", "b": "2"}, python="3.11", compiled="a"))

    assert texts(stacks)[0] == ["python 3.10 -> 3.11"]
    assert stacks.needs == (frozenset(), frozenset(), frozenset())
    arm = stacks.arm(frozenset({0}))
    assert arm.python == "3.11"
    assert [c.file.filename for c in arm.stack] == ["a-1-3.11.whl", "b-1-py3.whl"]


def test_a_package_without_a_file_for_the_other_interpreter_changes_with_it() -> None:
    good, bad = end({"a": "1"}, python="3.10", compiled="a"), end({"a": "2"}, python="3.11", compiled="a")
    stacks = pair(good, bad, has_files=False)

    assert texts(stacks) == [["python 3.10 -> 3.11", "a 1 -> 2"]]


def test_what_only_one_interpreter_requires_comes_with_it() -> None:
    required = {("a", "1"): ["b; python_version < '3.11'"]}
    stacks = pair(end({"a": "1", "b": "1"}, python="3.10"), end({"a": "1"}, python="3.11"), required)

    # Without `b`, `a` needs the new interpreter.
    assert texts(stacks) == [["python 3.10 -> 3.11"], ["b 1 -> absent"]]
    assert stacks.needs == (frozenset(), frozenset({0}))


def test_the_name_of_a_combination_says_what_differs_from_the_nearer_stack() -> None:
    stacks = pair(end({"a": "1", "b": "1", "c": "1"}), end({"a": "2", "b": "2", "c": "2"}))

    labels = [stacks.arm(frozenset(numbers)).label for numbers in ((), (0,), (0, 1), (0, 1, 2))]
    assert labels == ["good", "good with a==2", "bad with c==1", "bad"]


VERSIONS = strategies.sampled_from(["1", "2"])
NAMES = ["a", "b", "c", "d"]
SPECIFIERS = strategies.sampled_from(["==1", "==2", ">=2", "<2", ""])
REQUIREMENTS = strategies.dictionaries(
    strategies.tuples(strategies.sampled_from(NAMES), VERSIONS),
    strategies.lists(strategies.builds("{}{}".format, strategies.sampled_from(NAMES), SPECIFIERS), max_size=2),
)


@hypothesis.given(REQUIREMENTS)
def test_every_combination_satisfies_what_both_stacks_satisfy(required: dict[tuple[str, str], list[str]]) -> None:
    stacks = pair(end(dict.fromkeys(NAMES, "1")), end(dict.fromkeys(NAMES, "2")), required)
    hypothesis.assume(not any(_violations(stacks.arm(c).stack, required) for c in (frozenset(), _all(stacks))))

    for combination in combinations(stacks):
        assert _violations(stacks.arm(combination).stack, required) == []


def _all(stacks: StackPair) -> Combination:
    return frozenset(range(len(stacks.groups)))


def _violations(stack: CandidateStack, required: Requirements) -> list[str]:
    requirements = (
        (f"{name} {version}", Requirement(text))
        for name, version in stack.versions.items()
        for text in required.get((name, str(version)), ())
    )
    return [
        f"{package} requires {requirement}"
        for package, requirement in requirements
        if not requirement.specifier.contains(stack.versions[requirement.name])
    ]

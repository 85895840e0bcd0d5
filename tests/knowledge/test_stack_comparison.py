"""Comparisons of selected stacks, in the blocks that measured all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from knowledge.domain.observation import Observation
from knowledge.evidence.compare import compare_block
from knowledge.evidence.stacks import NotComparableError, compare_stacks
from tests.knowledge.samples import block


def three_stacks() -> list[Observation]:
    """A block of three stacks; NumPy 2.0.0 is the reference."""
    return list(block({"2.0.0": 1.0, "1.26.4": 1.1, "1.25.0": 1.32}))


def test_two_stacks_of_a_block_are_compared_although_neither_is_its_reference() -> None:
    result = compare_stacks(three_stacks(), stacks=["numpy==1.26.4", "numpy==1.25.0"])

    (comparison,) = result.comparisons
    versions = [o.stack.version_of("numpy") for o in (comparison.observation, comparison.reference)]
    assert versions == ["1.25.0", "1.26.4"]
    assert comparison.speedup == pytest.approx(1.2, rel=0.01)
    assert comparison.low < 1.2 < comparison.high
    assert comparison.rounds == 6


def test_the_first_stack_is_the_reference() -> None:
    there, back = (
        compare_stacks(three_stacks(), stacks=names).comparisons[0]
        for names in (["numpy==1.26.4", "numpy==1.25.0"], ["numpy==1.25.0", "numpy==1.26.4"])
    )

    assert there.ratio.mean == pytest.approx(-back.ratio.mean)
    assert there.ratio.half_width == pytest.approx(back.ratio.half_width, rel=0.5)


def test_the_ratio_is_estimated_as_if_the_stack_were_the_reference() -> None:
    rows = [replace(o, reference=o.stack.version_of("numpy") == "1.26.4") for o in three_stacks()]
    as_reference = [c for c in compare_block(rows) if c.observation.stack.version_of("numpy") == "1.25.0"]

    result = compare_stacks(three_stacks(), stacks=["numpy==1.26.4", "numpy==1.25.0"])

    assert [c.ratio for c in result.comparisons] == [c.ratio for c in as_reference]


def test_the_reference_of_the_block_stays_the_reference_if_it_is_selected() -> None:
    result = compare_stacks(three_stacks(), stacks=["numpy==1.25.0", "numpy==2.0.0", "numpy==1.26.4"])

    assert [c.reference.stack.version_of("numpy") for c in result.comparisons] == ["2.0.0", "2.0.0"]


def test_drift_of_the_machine_does_not_change_the_ratio_of_two_stacks() -> None:
    drifting = block({"2.0.0": 1.0, "1.26.4": 1.1, "1.25.0": 1.32}, drift=0.5)

    (comparison,) = compare_stacks(drifting, stacks=["numpy==1.26.4", "numpy==1.25.0"]).comparisons

    assert comparison.speedup == pytest.approx(1.2, rel=0.01)


def test_rounds_under_unequal_conditions_are_reported_with_both_stacks() -> None:
    rows = [
        replace(o, environment={"cpu_governor": "powersave" if o.arm == 2 and o.round < 2 else "performance"})
        for o in three_stacks()
    ]

    result = compare_stacks(rows, stacks=["numpy==1.26.4", "numpy==1.25.0"])

    assert [c.rounds for c in result.comparisons] == [4]
    assert len(result.refused) == 1
    assert "`numpy 1.25.0`" in result.refused[0]
    assert "cpu_governor powersave against performance" in result.refused[0]


def test_stacks_without_two_rounds_under_equal_conditions_are_refused_with_the_reason() -> None:
    rows = [
        replace(o, environment={"cpu_governor": "powersave" if o.arm == 2 else "performance"}) for o in three_stacks()
    ]

    with pytest.raises(NotComparableError, match="fewer than two rounds") as refused:
        compare_stacks(rows, stacks=["numpy==1.26.4", "numpy==1.25.0"])

    assert "cpu_governor powersave against performance" in refused.value.hint


def test_one_stack_alone_is_refused() -> None:
    with pytest.raises(NotComparableError, match="only `numpy==1.26.4`"):
        compare_stacks(three_stacks(), stacks=["numpy==1.26.4"])

"""The recommended stack of the gate is remembered while nothing that it depends on changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from packaging.version import Version

from advisor.gate.recommendation import find_recommended_stack
from advisor.index.client import IndexClient
from advisor.resolve.score.predictor import Predictor
from tests.advisor.factories import build_client, build_problem
from tests.package_index import PackageIndex


class Gate:
    """Asks for the recommended stack, with some inputs changed, and counts the searches."""

    def __init__(self, client: IndexClient) -> None:
        self.client = client
        self.searches = 0
        self.stopped = ""

    def ask(self, *, evidence: str = "e", requirement: str = "a", criteria: object = ("performance",)) -> None:
        """Ask for the recommended stack."""
        predictor = cast(Predictor, SimpleNamespace(evidence_state=evidence))
        best = find_recommended_stack(
            build_problem(requirement), self.client, predictor, criteria=criteria, solve=self._search
        )

        assert best.versions == {"a": Version("1.0")}

    def _search(self) -> Any:
        self.searches += 1
        stack = SimpleNamespace(versions={"a": Version("1.0")})
        optimum = SimpleNamespace(stack=stack, stopped=self.stopped, proven=True)
        return SimpleNamespace(loaded_packages={"a"}), SimpleNamespace(optimum=optimum)


@pytest.fixture
def gate(index: PackageIndex, tmp_path: Path) -> Gate:
    """A gate with an index of one package."""
    index.add("a", "1.0")
    return Gate(build_client(index, tmp_path / "cache", refresh=True))


def test_an_equal_question_needs_no_second_search(gate: Gate) -> None:
    gate.ask()
    gate.ask()

    assert gate.searches == 1


def new_release(gate: Gate, index: PackageIndex, cache: Path) -> None:
    """Let another command see a new release."""
    index.add("a", "2.0")
    gate.client = build_client(index, cache, refresh=True)


def other_configuration(gate: Gate, index: PackageIndex, cache: Path) -> None:
    """Configure the client otherwise."""
    gate.client.configuration = replace(gate.client.configuration, strategy="unsafe-best-match")


@pytest.mark.parametrize("change", [new_release, other_configuration])
def test_another_index_needs_another_search(
    gate: Gate, index: PackageIndex, tmp_path: Path, change: Callable[[Gate, PackageIndex, Path], None]
) -> None:
    gate.ask()
    change(gate, index, tmp_path / "cache")
    gate.ask()

    assert gate.searches == 2


@pytest.mark.parametrize("other", [{"evidence": "f"}, {"requirement": "a>=1"}, {"criteria": ("latest",)}])
def test_each_part_of_the_question_needs_another_search(gate: Gate, other: dict[str, Any]) -> None:
    gate.ask()
    gate.ask(**other)

    assert gate.searches == 2


def test_a_search_without_criteria_or_without_an_end_is_not_remembered(gate: Gate) -> None:
    gate.ask(criteria=None)
    gate.ask(criteria=None)
    gate.stopped = "stopped at the time limit"
    gate.ask()
    gate.ask()

    assert gate.searches == 4

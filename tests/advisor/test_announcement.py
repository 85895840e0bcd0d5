"""Conflicts are printed before the search for a hint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from advisor.domain.progress import announcing, set_announcer
from advisor.domain.requirement import RootRequirement
from advisor.resolve.candidates.problem import NoStackError
from advisor.resolve.explanation import no_stack
from advisor.resolve.optimum.request import ResolutionRequest
from knowledge.domain.errors import AdvisorError
from tests.advisor.factories import build_problem, recommend_stack
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def printed() -> Iterator[list[str]]:
    """Messages of the errors that were announced."""
    messages: list[str] = []

    def keep(error: AdvisorError) -> None:
        messages.append(error.message)

    set_announcer(keep)
    yield messages
    set_announcer(None)


@pytest.mark.parametrize("requirements", [("a<2", "b"), ("a>5",)])
@pytest.mark.parametrize("enabled", [True, False])
def test_a_conflict_is_announced_before_the_search_for_the_cheapest_change(
    index: PackageIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    printed: list[str],
    requirements: tuple[str, ...],
    enabled: bool,
) -> None:
    for version in ("1.0", "2.0"):
        index.add("a", version)
    index.add("b", "1.0", ["a>=2"])
    at_the_search: list[int] = []

    def search(_: ResolutionRequest, roots: Sequence[RootRequirement]) -> str:
        at_the_search.append(len(printed))
        return "a change"

    monkeypatch.setattr(no_stack, "_cheapest_change", search)

    with announcing(enabled=enabled), pytest.raises(NoStackError) as raised:
        recommend_stack(index, tmp_path, build_problem(*requirements))

    assert at_the_search == [int(enabled)]
    assert printed == ["no set of versions satisfies the requirements"] * enabled
    assert raised.value.announced == enabled
    assert raised.value.hint == "a change"


def test_an_announced_error_is_printed_once(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    (tmp_path / "requirements.txt").write_text("a>5\n")

    result = advisor("advise", "--hardware", "cpu-zen4", "--python", "3.12", "--index-url", index.url, cwd=tmp_path)

    assert result.returncode == 3
    assert result.stderr.count("error: no set of versions") == 1
    assert result.stderr.count("you require `a>5`") == 1
    assert result.stderr.count("hint: ") == 1
    assert result.stderr.index("error: ") < result.stderr.index("hint: ")

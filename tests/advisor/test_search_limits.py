"""Searches that end early, with a limit of the download or several ways to state a problem: no false proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import NormalizedName

from advisor.api.answer_memory import AnswerMemory, RememberedAnswer
from advisor.api.options import IndexOptions, ProjectFiles, ProjectOptions, TargetOptions
from advisor.api.session import open_session
from advisor.domain.time_limit import INTERRUPTED, TimeLimit
from advisor.domain.words import size_text
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import AllowedReplacements, Candidate, CandidateStack, SizeLimitError
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.optimum.request import ResolutionRequest, solve
from advisor.resolve.optimum.result import Optimum, SearchLimitError, StackTooLargeError
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.optimum.stages import Stages
from advisor.resolve.recommendation.package_choices import with_best_packages
from advisor.resolve.recommendation.problem_variants import ProblemVariant, Selection, compare_variants
from advisor.resolve.recommendation.recommend import recommend
from advisor.resolve.score.costs import Candidates, Limits, Objective
from advisor.resolve.score.criterion_costs import CriterionCosts
from knowledge.catalogue.builds import Replacement
from tests.advisor.factories import build_problem, build_request, versions_of, with_max_size
from tests.advisor.small_problems import FixedCosts
from tests.package_index import PackageIndex

REPLACEMENT = Replacement(
    kind="replacement", id="b", package="big", replacement="small", modules=("big",), when="any", source="https://a"
)
ALLOWED = AllowedReplacements(by_name={NormalizedName("big"): NormalizedName("small")})


@pytest.fixture
def sized_request(index: PackageIndex, tmp_path: Path) -> ResolutionRequest:
    """A project of one package whose older releases are smaller."""
    index.add("a", "3.0", code="\n".join(map(str, range(100_000))))
    index.add("a", "2.0", code="\n".join(map(str, range(10_000))))
    index.add("a", "1.0", code="#")
    return build_request(index, tmp_path, build_problem("a"))


def size_of(request: ResolutionRequest, version: str) -> int:
    candidates = request.source.candidates(NormalizedName("a"))
    return next(c.file.size or 0 for c in candidates if str(c.version) == version)


def interrupt_searches(monkeypatch: pytest.MonkeyPatch, *numbers: int, by: type[BaseException]) -> None:
    """End some searches, by their number, before they begin, as Ctrl-C or a limit does."""
    calls = [0]

    def search(*arguments: Any, **options: Any) -> Optimum:
        calls[0] += 1
        if calls[0] in numbers:
            raise by("ended")
        return optimise(*arguments, **options)

    monkeypatch.setattr("advisor.resolve.optimum.request.optimise", search)


def test_a_search_that_nothing_was_loaded_for_returns_no_stack(sized_request: ResolutionRequest) -> None:
    forbidden = sized_request.baseline

    class Interrupted(IndexCandidates):
        def fetch(self, candidates: object) -> None:
            raise KeyboardInterrupt

    source = Interrupted.__new__(Interrupted)
    source.__dict__.update(sized_request.source.__dict__)

    def limits(candidates: Candidates) -> Limits:
        return Limits(forbidden={(c.name, c.version): "r" for offered in candidates.values() for c in offered})

    with pytest.raises(KeyboardInterrupt):
        optimise(
            sized_request.problem,
            source,
            FixedCosts(lambda _: [Objective(name="rules")], limits),
            start=forbidden,
            effort=Effort(limit=TimeLimit(keeps_result=True)),
        )


def test_a_stack_that_the_requirements_exclude_is_no_result_at_the_limit(sized_request: ResolutionRequest) -> None:
    older = sized_request.with_problem(build_problem("a<3"))

    with pytest.raises(SearchLimitError, match="stopped at the time limit of 0 s"):
        solve(replace(older, effort=Effort(limit=TimeLimit(0.0))))


def test_an_optimal_stack_survives_an_interruption_while_ties_are_broken(
    sized_request: ResolutionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Stages) -> Mapping[NormalizedName, Candidate]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Stages, "prefer_newest", interrupted)
    request = with_max_size(sized_request, size_of(sized_request, "2.0"))
    start = CandidateStack(c for c in request.source.candidates(NormalizedName("a")) if str(c.version) == "1.0")

    optimum = solve(replace(request, effort=Effort(limit=TimeLimit(keeps_result=True))).with_score(baseline=start))

    assert versions_of(optimum.stack) == {"a": "2.0"}
    assert (optimum.proven, optimum.unique) == (True, False)


def test_a_limit_that_nothing_satisfies_is_named_even_if_the_smallest_stack_was_not_found_first(
    sized_request: ResolutionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = with_max_size(sized_request, size_of(sized_request, "1.0") - 1)
    interrupt_searches(monkeypatch, 1, by=SearchLimitError)

    with pytest.raises(StackTooLargeError) as raised:
        solve(request)

    assert versions_of(raised.value.smallest.stack) == {"a": "1.0"}


def test_a_stopped_search_for_the_smallest_stack_says_what_is_proven(
    sized_request: ResolutionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = size_of(sized_request, "1.0")
    request = with_max_size(sized_request, least // 2)

    def search(*arguments: Any, **options: Any) -> Optimum:
        optimum = optimise(*arguments, **options)
        bounds = (replace(optimum.bounds[0], value=10 * least, bound=least - 1),)
        return replace(optimum, stack=request.baseline, bounds=bounds, stopped="stopped at the time limit of 150 s")

    monkeypatch.setattr("advisor.resolve.optimum.request.optimise", search)

    with pytest.raises(SizeLimitError) as raised:
        recommend(Selection(request=request))

    assert raised.value.details[0].startswith("the smallest stack that was found has 1 package")
    assert raised.value.details[1] == (
        "a smaller one may exist, because the search for it was stopped at the time limit of 150 s; "
        f"proven: every stack has at least {size_text(least - 1)}"
    )


def test_ctrl_c_in_the_search_for_the_smallest_stack_ends_the_program_if_there_is_none_below_the_limit(
    sized_request: ResolutionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(
        with_max_size(sized_request, size_of(sized_request, "2.0")), effort=Effort(limit=TimeLimit(keeps_result=True))
    )
    original, calls = CriterionCosts.objectives, [0]

    def objectives(self: CriterionCosts, candidates: Candidates) -> object:
        calls[0] += 1
        if calls[0] == 1:
            raise KeyboardInterrupt
        return original(self, candidates)

    monkeypatch.setattr(CriterionCosts, "objectives", objectives)

    with pytest.raises(KeyboardInterrupt):
        solve(request)


@pytest.mark.parametrize(("by", "stopped"), [(SearchLimitError, ""), (KeyboardInterrupt, INTERRUPTED)])
def test_what_was_not_compared_is_no_proof(
    index: PackageIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: type[BaseException],
    stopped: str,
) -> None:
    index.add("big", "1.0")
    index.add("small", "1.0")
    effort = Effort(limit=TimeLimit(keeps_result=True))
    request = replace(build_request(index, tmp_path, build_problem("big"), builds=(REPLACEMENT,)), effort=effort)
    complete = recommend(with_best_packages(request, ALLOWED))
    assert versions_of(complete.optimum.stack) == {"small": "1.0"}
    assert complete.optimum.proven
    if by is KeyboardInterrupt:
        original, calls = CriterionCosts.objectives, [0]

        def objectives(self: CriterionCosts, candidates: Candidates) -> object:
            calls[0] += 1
            if calls[0] == 2:
                raise KeyboardInterrupt
            return original(self, candidates)

        monkeypatch.setattr(CriterionCosts, "objectives", objectives)
    else:
        interrupt_searches(monkeypatch, 1, by=by)

    advice = recommend(with_best_packages(request, ALLOWED))

    assert not advice.optimum.proven
    assert advice.optimum.not_compared == "1 of 2 combinations of replacements were not compared"
    assert advice.optimum.stopped == stopped
    assert [f.message for f in advice.findings if f.code == "ADV106"] == [
        "not proven to be optimal for the score: 1 of 2 combinations of replacements were not compared"
    ]


def test_a_size_error_claims_no_proof_if_a_replacement_was_not_compared(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("big", "1.0", code="#" * 400_000)
    index.add("small", "1.0", code="#")
    request = with_max_size(build_request(index, tmp_path, build_problem("big"), builds=(REPLACEMENT,)), 300_000)
    assert versions_of(with_best_packages(request, ALLOWED).solve().stack) == {"small": "1.0"}
    interrupt_searches(monkeypatch, 1, 2, by=SearchLimitError)

    with pytest.raises(SizeLimitError) as raised:
        recommend(with_best_packages(request, ALLOWED))

    assert "was found: 1 of 2 combinations of replacements were not compared" in raised.value.message
    assert raised.value.details[0].startswith("the smallest stack that was found")


def test_a_variant_that_was_compared_only_in_part_may_be_better(
    sized_request: ResolutionRequest,
) -> None:
    complete = Selection(request=sized_request)
    partly = replace(complete, not_compared="1 of 2 combinations of replacements were not compared")
    variants = [
        ProblemVariant(label="a", select=lambda: complete),
        ProblemVariant(label="b", select=lambda: partly),
    ]

    comparison = compare_variants(variants, limit=TimeLimit(), direct=())

    assert (len(comparison.solved), comparison.undecided) == (2, 1)


def test_a_stack_with_more_than_is_needed_is_no_result_at_the_limit(index: PackageIndex, tmp_path: Path) -> None:
    index.add("app", "1.0", ["a"])
    index.add("a", "1.0")
    request = build_request(index, tmp_path, build_problem("app"))
    index.add("b", "1.0")
    wider = build_request(index, tmp_path, build_problem("app", "b"))

    late = replace(request, effort=Effort(limit=TimeLimit(0.0))).with_score(baseline=wider.baseline)

    with pytest.raises(SearchLimitError):
        solve(late)


def test_ctrl_c_keeps_the_interpreters_so_far(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("a", "1.0")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.12"\ndependencies = ["a"]\n'
    )
    files, target = ProjectFiles(directory=tmp_path), TargetOptions(hardware="cpu-zen4", python="best")
    indexes = IndexOptions(index_url=index.url, cache_directory=tmp_path / "cache")
    with open_session(ProjectOptions(files=files, target=target, indexes=indexes)) as session:
        session.keeps_result = True
        interrupt_searches(monkeypatch, 2, by=KeyboardInterrupt)

        optimum = session.recommend().optimum

    assert versions_of(optimum.stack) == {"a": "1.0"}
    assert optimum.stopped == INTERRUPTED
    assert not optimum.proven
    assert "interpreters were not compared completely" in optimum.not_compared


def test_an_answer_that_compared_only_a_part_is_not_remembered(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("opencv-python", "4.0")
    index.add("opencv-python-headless", "4.0")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\ndependencies = ["opencv-python"]\n'
        '[tool.advisor]\nreplace-packages = { opencv-python = "opencv-python-headless" }\n'
    )
    files, target = ProjectFiles(directory=tmp_path), TargetOptions(hardware="cpu-zen4", python="3.12")
    indexes = IndexOptions(index_url=index.url, cache_directory=tmp_path / "cache")

    def remembered_after(search_that_ends: int) -> bool:
        with (
            monkeypatch.context() as patch,
            open_session(ProjectOptions(files=files, target=target, indexes=indexes)) as session,
        ):
            interrupt_searches(patch, search_that_ends, by=SearchLimitError)
            memory = AnswerMemory(session.inputs, format="text", outputs=[Path("pylock.toml")])
            session.remember(memory, RememberedAnswer(report="the report", locks={}))
            return memory.recall() is not None

    assert not remembered_after(1)
    assert remembered_after(0)

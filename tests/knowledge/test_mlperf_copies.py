"""A log that several rounds contain counts once, in whatever order the rounds are imported."""

from __future__ import annotations

import importlib.resources
import shutil
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.mlperf_data import without_details
from knowledge.domain.observation import Observation
from knowledge.evidence.mlperf import score_submissions
from knowledge.exchange.files import read_lines, read_observations
from knowledge.exchange.mlperf.results import (
    TRAINING,
    ContentCounter,
    content_key,
    distinct_results,
)
from knowledge.exchange.mlperf.tree import read_results
from knowledge.store.engine import open_knowledge_base
from tests.conftest import Advisor
from tests.knowledge.mlperf_files import INFERENCE_TREE, TRAINING_TREE


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two trees: round v4.1, and a round v5.0 that repeats logs of it under other names."""
    folder = tmp_path_factory.mktemp("trees")
    shutil.unpack_archive(TRAINING_TREE, folder)
    earlier, later = folder / "v4.1", folder / "v5.0"
    repeated = later / "Copycat" / "results" / "box" / "retinanet"
    shutil.copytree(earlier / "NVIDIA" / "results" / "eos_ngc24.09_pytorch" / "ssd", repeated)
    # Two more logs of another submission of the earlier round, between new ones.
    for number in (1, 2):
        source = earlier / "ASUSTeK" / "results" / "ESC_N8_E11" / "ssd" / f"result_{number}.txt"
        target = later / "NVIDIA" / "results" / "nyx_n1_ngc25.04_pytorch" / "retinanet" / f"result_{number + 4}.txt"
        shutil.copyfile(source, target)
    return earlier, later


@pytest.fixture(scope="module")
def observations(trees: tuple[Path, Path]) -> tuple[Observation, ...]:
    return tuple(o for tree in trees for o in read_results(tree).observations)


def test_copies_have_the_content_key_of_their_original(observations: tuple[Observation, ...]) -> None:
    keys = [content_key(o) for o in observations]

    assert len(keys) - len(set(keys)) == 7
    copies = [o for o in observations if o.environment["submitter"] == "Copycat"]
    assert {content_key(o) for o in copies} <= {content_key(o) for o in observations if o not in copies}


@given(data=st.data())
def test_any_order_gives_the_same_results_and_scores(
    data: st.DataObject, observations: tuple[Observation, ...]
) -> None:
    shuffled = data.draw(st.permutations(observations))

    counter = ContentCounter()
    copies = sum(counter.add([o]) for o in shuffled)

    assert copies == 7
    assert distinct_results(shuffled) == distinct_results(observations)
    assert _scores(shuffled) == _scores(observations)


def test_a_copy_counts_for_the_earliest_round(observations: tuple[Observation, ...]) -> None:
    scores = {(s.round_, s.submitter): s for s in score_submissions(observations) if s.benchmark == "retinanet"}

    assert ("v5.0", "Copycat") not in scores
    assert (scores["v4.1", "NVIDIA"].runs, scores["v5.0", "NVIDIA"].runs) == (5, 5)


def test_the_order_of_imports_does_not_matter(trees: tuple[Path, Path], tmp_path: Path) -> None:
    imports = [tuple(read_results(tree).observations) for tree in trees]

    results = []
    for number, order in enumerate(permutations(imports)):
        with open_knowledge_base(str(tmp_path / f"{number}.sqlite"), shipped=False) as store:
            counts = [store.add(part).added for part in order]
            stored = list(store.observations(indicator=TRAINING))
        results.append((sum(counts), _scores(stored), [o.identity for o in distinct_results(stored)]))

    assert results[0] == results[1]


def test_the_command_says_how_many_results_are_copies(advisor_here: Advisor, trees: tuple[Path, Path]) -> None:
    both = advisor_here("knowledge", "import-mlperf", str(trees[0]), str(trees[1]))
    again = advisor_here("knowledge", "import-mlperf", str(trees[1]))

    first, second = both.stdout.splitlines()
    assert "added, 0 already stored, 0 left out" in first
    assert second.endswith("left out; 7 are copies of another result and count once")
    assert "0 added" in again.stdout


def test_a_result_without_details_is_a_copy_of_the_whole_one(observations: tuple[Observation, ...]) -> None:
    inference = read_results(INFERENCE_TREE).observations

    for o in (*observations, *inference):
        assert content_key(without_details(o)) == content_key(o)
        assert not any(":" in name for name in without_details(o).environment)
    short = tuple(map(without_details, observations))
    assert _scores((*observations, *short)) == _scores(observations)


def test_records_of_the_first_importer_are_recognised(observations: tuple[Observation, ...]) -> None:
    earlier = [
        replace(o, environment={k: v for k, v in o.environment.items() if k != "mlperf_reader"}, framework="unknown")
        for o in observations
    ]

    assert [o.framework for o in distinct_results((*earlier, *observations))] == [
        o.framework for o in distinct_results(observations)
    ]


def test_shipped_files_contain_each_log_once() -> None:
    every: list[Observation] = []
    for file in importlib.resources.files("knowledge.data").iterdir():
        if file.name.startswith("mlperf-"):
            every += read_observations(read_lines(file.read_bytes(), where=file.name), where=file.name)

    assert len({content_key(o) for o in every}) == len(every) >= 1925


def _scores(observations: object) -> list[tuple[object, ...]]:
    return [
        (s.round_, s.submitter, s.system, s.benchmark, s.minutes, s.runs, s.failed)
        for s in score_submissions(observations)  # type: ignore[arg-type]
    ]

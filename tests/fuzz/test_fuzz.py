"""Each parser reads a damaged document or refuses it with a documented error."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzz.harness import ENDLESS_SECONDS, MOST_BYTES, Report
from tests.fuzz.mutations import mutate
from tests.fuzz.parsers import PARSERS
from tests.fuzz.reading import read

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", PARSERS)
def test_a_valid_document_is_read(name: str) -> None:
    refused = [read(name, seed) for seed in PARSERS[name].seeds()]

    # The first document may contain every key, including refused ones.
    assert not all(refused)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_inputs_of_the_corpus_are_read_or_refused(path: Path) -> None:
    read(path.parent.name, path.read_bytes())


@pytest.mark.parametrize("name", PARSERS)
def test_a_damaged_document_is_read_or_refused(name: str) -> None:
    parser = PARSERS[name]
    seeds = list(parser.seeds())

    @settings(
        max_examples=examples(40),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.sampled_from(seeds), number=st.integers(min_value=0, max_value=2**32))
    def check(seed: bytes, number: int) -> None:
        read(name, mutate(seed, parser.kind, random.Random(number)))

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_ten_thousand_damaged_documents_stay_within_the_limits(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", name, "--inputs", "10000", "--keep", str(tmp_path)]
    # The command's own limit would be a timing assertion; this one only ends endless inputs.
    command += ["--most-seconds", str(ENDLESS_SECONDS)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    print(result.stderr, result.stdout)
    report = Report(**json.loads(result.stdout))

    assert report.inputs == 10_000
    assert report.failures == {}, f"the inputs are in {tmp_path}"
    assert report.peak_bytes <= MOST_BYTES

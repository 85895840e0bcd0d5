from __future__ import annotations

import importlib.resources
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.domain.errors import InputError
from knowledge.exchange.files import read_lines, read_observations, write_observations
from tests.knowledge.samples import observation

DATA = importlib.resources.files("knowledge.data")
SHIPPED = sorted(file.name for file in DATA.iterdir() if file.name.endswith((".jsonl", ".jsonl.gz")))


@given(
    seconds=st.floats(min_value=1e-9, max_value=1e6),
    round=st.integers(0, 99),
    version=st.sampled_from(["1.26.4", "2.0.0", "2.13.0+cpu"]),
    status=st.sampled_from(["ok", "crashed", "import-error"]),
)
def test_written_observations_are_read_back_unchanged(seconds: float, round: int, version: str, status: str) -> None:
    one = observation(version, seconds=seconds, round=round, status=status)  # type: ignore[arg-type]

    assert list(read_observations(write_observations([one]), where="file")) == [one]


def test_a_stack_and_a_machine_are_written_once() -> None:
    lines = list(write_observations([observation(round=0), observation(round=1)]))

    assert [json.loads(line)["kind"] for line in lines] == ["stack", "hardware", "observation", "observation"]


def test_records_keep_the_keys_that_earlier_versions_wrote() -> None:
    record = json.loads(list(write_observations([observation(arm=3)]))[-1])["record"]

    assert record["slot"] == 3
    assert "arm" not in record


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda line: line[: len(line) // 2], "not a record"),
        (lambda line: line.replace('"round":0', '"round":1'), "does not match its hash"),
        (lambda line: line.replace('"schema":1', '"schema":7'), "schema 7 is not 1"),
        (lambda line: line.replace('"slot":0', '"slot":"first"'), "field `slot`"),
        (lambda line: line.replace('"samples":[1.0,', '"samples":[-1.0,'), "not a positive number"),
        (lambda line: line.replace('"samples":[1.0,', '"samples":[NaN,'), "not a positive number"),
        (lambda line: line.replace('"samples":[1.0,', '"samples":[Infinity,'), "not a positive number"),
        (lambda line: line.replace('"warmup_seconds":0.0', '"warmup_seconds":-1.0'), "`warmup_seconds` is -1.0"),
        (lambda line: line.replace('"flops":0.0', '"flops":NaN'), "`flops` is nan"),
        (lambda line: line.replace('"loops":1', '"loops":-1'), "is negative"),
        (lambda line: "[" * 100_000, "not a record"),
        (lambda line: "7", "not a record"),
        (lambda line: line.replace('"status":"ok"', '"status":"crashed"'), "with 3 samples"),
        (lambda line: line.replace('"kind":"observation"', '"kind":"gossip"'), "kind `gossip`"),
    ],
)
def test_a_damaged_line_is_reported_with_its_number(damage: object, reason: str) -> None:
    lines = list(write_observations([observation()]))
    lines[2] = damage(lines[2])  # type: ignore[operator]

    with pytest.raises(InputError, match="o.jsonl:3: not a record of an observation file") as caught:
        list(read_observations(lines, where="o.jsonl"))

    assert reason in caught.value.message


@pytest.mark.parametrize("name", SHIPPED)
def test_each_shipped_line_is_valid_and_what_would_be_written(name: str) -> None:
    # They are stored without checks: see `knowledge.store.ingest.add_shipped_lines`.
    lines = list(read_lines(DATA.joinpath(name).read_bytes(), where=name))
    with_identities = not name.startswith(("published-", "mlperf-"))

    written = write_observations(read_observations(lines, where=name), with_identities=with_identities)

    assert list(written) == lines


def test_a_line_without_hash_is_the_same_observation() -> None:
    lines = list(write_observations([observation()], with_identities=False))

    assert json.loads(lines[2]).keys() == {"kind", "record"}
    assert [o.identity for o in read_observations(lines, where="o.jsonl")] == [observation().identity]

"""The summary of a knowledge base equals a count of its observations, and the queries that need it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knowledge.domain.errors import InputError
from knowledge.domain.observation import NO_FAILURE, Observation
from knowledge.store.base import Coverage, QuarantinedObservation
from knowledge.store.coverage import label_of
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.examples import examples
from tests.knowledge.next_revision import older_knowledge
from tests.knowledge.samples import MACHINE, RUN, observation
from tests.knowledge.shipped_stores import content_of, shipped, small_files

RUNS = (
    RUN,
    # Another run with the same label.
    replace(RUN, parameters={**RUN.parameters, "m": "8"}),
    # PostgreSQL has no text with NUL; quotes and braces must not end the run.
    replace(RUN, name="sort", parameters={"text": 'NUL \0, quote ", end },"loops":1'}),
)
VARIED = [
    replace(
        observation(
            round=number,
            arm=number % 2,
            block=f"b{number % 2}",
            status="ok" if number % 5 else "crashed",
            hardware=replace(MACHINE, memory_bytes=number % 2),
        ),
        indicator=RUNS[number % 3],
        started_at=f"2026-01-{31 - number:02}T00:00:00Z",
        environment={"indicator": '"indicator":{'},
    )
    for number in range(18)
]
SETS = [shipped("one.jsonl", VARIED[start : start + 8]) for start in (0, 3, 6)]
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["add", "deliver", "quarantine"]), st.lists(st.sampled_from(VARIED), max_size=6)),
    st.tuples(st.just("remove"), st.sampled_from(["b0", "b1"])),
    st.tuples(st.just("ship"), st.sampled_from(SETS)),
    st.just(("release", None)),
)
FINEST = ("block", "hardware", "framework", "indicator", "label", "device")


def counted(store: SqlKnowledgeBase) -> list[Coverage]:
    """Count the observations one by one."""
    groups: dict[tuple[str, ...], list[Observation]] = {}
    for o in store.observations():
        label = o.indicator.label.replace("\0", "\ufffd")
        key = (o.block, o.hardware.identity, o.framework, o.indicator.name, label, o.indicator.device)
        groups.setdefault(key, []).append(o)
    return [
        Coverage(
            key=key,
            observations=len(some),
            succeeded=sum(o.status == "ok" for o in some),
            failed=sum(o.status not in NO_FAILURE for o in some),
            first=min(o.started_at for o in some),
            newest=max(o.started_at for o in some),
        )
        for key, some in sorted(groups.items())
    ]


def change(store: SqlKnowledgeBase, action: str, value: object) -> None:
    """Change a knowledge base in one of the possible ways."""
    if action == "ship":
        store.add_shipped([value], version=1)  # type: ignore[list-item]
    elif action == "remove":
        store.remove([str(value)])
    elif action == "release":
        store.release([entry.observation.identity for entry in store.quarantined()])
    elif action == "quarantine":
        store.add(
            (),
            quarantine=[
                QuarantinedObservation(observation=o, source="lab", reason="too fast", received_at=o.started_at)
                for o in value  # type: ignore[attr-defined]
            ],
        )
    else:
        store.add(value, source="lab" if action == "deliver" else "")  # type: ignore[arg-type]


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, min_size=1, max_size=10))
def test_the_coverage_is_that_of_a_count_after_any_sequence_of_changes(
    actions: list[tuple[str, object]], store: SqlKnowledgeBase
) -> None:
    for action, value in actions:
        change(store, action, value)

        assert list(store.coverage(FINEST)) == counted(store), action
    assert list(store.find_damage()) == []
    content, stored = store.content(), list(store.observations())
    assert dict(content.observations) == Counter(o.status for o in stored)
    assert dict(content.indicators) == Counter(f"{o.indicator.name} numpy/cpu" for o in stored)


def test_the_coverage_is_grouped_by_dimensions_and_restricted_to_values(store: SqlKnowledgeBase) -> None:
    store.add(VARIED[:2])
    store.add([replace(VARIED[2], block="b3")], source="lab")
    sort = VARIED[2].indicator

    assert [(c.key, c.observations, c.succeeded) for c in store.coverage(("source", "block"))] == [
        (("", "b0"), 1, 0),
        (("", "b1"), 1, 1),
        (("lab", "b3"), 1, 1),
    ]
    assert [c.key for c in store.coverage(("indicator",))] == [("matmul",), ("sort",)]
    assert [c.key for c in store.coverage(("block",), label=sort.label, device="cpu")] == [("b3",)]
    assert [c.key for c in store.coverage(("block",), source="lab")] == [("b3",)]
    assert store.coverage((), hardware=VARIED[0].hardware.identity) == (
        Coverage(
            key=(), observations=2, succeeded=1, failed=1, first="2026-01-29T00:00:00Z", newest="2026-01-31T00:00:00Z"
        ),
    )
    assert store.coverage((), framework="torch") == store.coverage(("block",), framework="torch") == ()


@pytest.mark.parametrize("call", [{"by": ("colour",)}, {"by": (), "colour": "red"}])
def test_an_unknown_dimension_is_an_error_that_names_the_others(call: dict[str, object], tmp_path: Path) -> None:
    with (
        open_knowledge_base(str(tmp_path / "k.sqlite"), shipped=False) as store,
        pytest.raises(InputError, match="`colour` is not a dimension") as caught,
    ):
        store.coverage(**call)  # type: ignore[arg-type]

    assert "`hardware`, `framework`, `indicator`" in str(caught.value.hint)


def test_the_labels_in_documents_are_those_of_the_observations() -> None:
    stored = [o for file in small_files() for o in content_of(file)]

    assert [label_of(o.document) for o in stored] == [o.indicator.label for o in stored]


@pytest.mark.parametrize(
    "change", ["observations = observations + 1", "newest = '2027-01-01'", "label = 'other'", "status = 'crashed'"]
)
def test_a_wrong_summary_is_damage(change: str, store: SqlKnowledgeBase) -> None:
    store.add(VARIED)
    with store._engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE coverage SET {change} WHERE block = 'b1' AND status = 'ok'"))

    assert list(store.find_damage()) == ["the coverage of block `b1` does not match its intact observations"]


def test_an_absent_summary_is_damage(store: SqlKnowledgeBase) -> None:
    store.add(VARIED)
    with store._engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM coverage WHERE block = 'b0'"))

    assert list(store.find_damage()) == ["the coverage of block `b0` does not match its intact observations"]


def test_older_tables_get_the_coverage_of_their_observations(tmp_path: Path) -> None:
    with open_knowledge_base(str(older_knowledge(tmp_path / "k.sqlite")), shipped=False) as store:
        assert [c.observations for c in store.coverage(("block",))] == [8, 1, 1]
        assert list(store.coverage(FINEST)) == counted(store)


def test_older_tables_of_a_server_get_the_coverage_of_their_observations(address: str) -> None:
    with open_knowledge_base(address, shipped=False) as store:
        store.add(VARIED)
        with store._engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE coverage"))
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '0101'"))

    with open_knowledge_base(address, shipped=False) as store:
        assert list(store.coverage(FINEST)) == counted(store)
        assert len(list(store.coverage(FINEST))) > 3


@pytest.mark.parametrize("document", ["''", "replace(document, '\"version\":1', '\"version\":')", "'{\"indicator\":{'"])
def test_older_tables_with_a_damaged_document_can_be_opened_and_its_block_removed(
    document: str, tmp_path: Path
) -> None:
    path = older_knowledge(tmp_path / "k.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE observation SET document = {document} WHERE block = 'b3'")

    with open_knowledge_base(str(path), shipped=False) as store:
        assert [c.key for c in store.coverage(("block",))] == [("b1",), ("b2",)]
        assert any("its content does not match its hash" in sentence for sentence in store.find_damage())
        store.remove(["b3"])
        assert list(store.find_damage()) == []


def test_an_observation_is_returned_by_its_identity_or_a_prefix(store: SqlKnowledgeBase) -> None:
    store.add(VARIED)
    identity = VARIED[3].identity

    assert store.find_observation(identity) == store.find_observation(identity[:8]) == VARIED[3]
    for absent in (identity[:7], "", f"{identity}0", "0" * 64, "%" * 64, f"{identity[:8]}g"):
        assert store.find_observation(absent) is None


def test_no_observation_is_returned_for_a_prefix_of_two(store: SqlKnowledgeBase) -> None:
    store.add(VARIED)
    with store._engine.begin() as connection:
        connection.execute(sa.text("UPDATE observation SET id = 'abcdef01' || substr(id, 9) WHERE round IN (3, 4)"))

    assert store.find_observation("abcdef01") is None
    assert store.find_observation(f"abcdef01{VARIED[3].identity[8:]}") is not None


def test_observations_are_read_by_label_and_arms(store: SqlKnowledgeBase) -> None:
    store.add(VARIED)

    for run in RUNS:
        expected = [o for o in VARIED if o.indicator.label == run.label]
        assert sorted(store.observations(label=run.label), key=lambda o: o.round) == expected
        assert list(store.observations(block="b0", label=run.label, arms=(0, 7))) == [o for o in expected if not o.arm]
        assert list(store.observations(block="b0", label=run.label, arms=(1,))) == []
    assert list(store.observations(label="conv2d@1[] float32 numpy/cpu")) == []
    assert list(store.observations(arms=())) == []


def test_a_machine_and_a_stack_are_returned_by_their_identities(store: SqlKnowledgeBase) -> None:
    store.add([observation()])

    assert store.machine(MACHINE.identity) == MACHINE
    assert store.stack(observation().stack.identity) == observation().stack
    assert (store.machine(observation().stack.identity), store.stack(MACHINE.identity)) == (None, None)

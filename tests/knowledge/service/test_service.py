"""The HTTP interface of the service."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import requests

from knowledge.domain.observation import Observation
from knowledge.exchange.files import observation_file, read_observations
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.samples import block, observation
from tests.knowledge.service.conftest import Post


def get(service: str, path: str, token: str | None) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return requests.get(f"{service}{path}", headers=headers, timeout=30)


def identities(store: SqlKnowledgeBase) -> set[str]:
    return {o.identity for o in store.observations()}


def test_a_repeated_delivery_is_stored_once(post: Post, store: SqlKnowledgeBase) -> None:
    sent = tuple(block({"2.0.0": 1.0, "2.1.0": 1.2}))

    first = post(observation_file(sent))
    again = post(observation_file(sent))

    assert first.status_code == again.status_code == 200
    assert first.json() == {"added": len(sent), "known": 0, "quarantined": []}
    assert again.json() == {"added": 0, "known": len(sent), "quarantined": []}
    assert identities(store) == {o.identity for o in sent}
    assert store.blocks()[0].source == "lab-a"


def test_observations_are_returned_as_they_were_delivered(post: Post, service: str, token: str) -> None:
    sent = tuple(block({"2.0.0": 1.0}))
    post(observation_file(sent))

    lines = get(service, "/observations?block=b1", token).text.splitlines()
    none = get(service, "/observations?block=b9", token)
    blocks = get(service, "/blocks", token).json()
    stacks = get(service, "/stacks?package=numpy", token).json()
    machines = get(service, "/hardware", token).json()

    assert {o.identity for o in read_observations(lines, where="answer")} == {o.identity for o in sent}
    assert (none.status_code, none.text) == (200, "")
    assert [(b["name"], b["observations"], b["source"]) for b in blocks] == [("b1", len(sent), "lab-a")]
    assert [s["id"] for s in stacks] == [sent[0].stack.identity]
    assert [m["id"] for m in machines] == [sent[0].hardware.identity]


def test_an_implausible_observation_is_reported(post: Post) -> None:
    answer = post(observation_file([observation(), observation(seconds=2.0)])).json()

    assert answer["added"] == 1
    assert "measured already" in answer["quarantined"][0]["reason"]


def _sound() -> bytes:
    return observation_file([observation()])


def _changed(content: bytes) -> bytes:
    return content.replace(b'"loops":1', b'"loops":2')


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"no json\n", 422, "not a record"),
        (b'{"kind": "observation"}\n', 422, "not a record"),
        (_sound()[: len(_sound()) // 2], 422, "not a record"),
        (_changed(_sound()), 422, "does not match its hash"),
        (observation_file([observation("9.9.9")]).splitlines()[-1], 422, "is missing in the lines before it"),
        (b"\xff\xfe\n", 422, "not UTF-8"),
        (b"[" * 100_000, 422, "not a record"),
        (b"x" * 2_000_001, 413, "larger than"),
    ],
)
def test_a_malformed_or_oversized_delivery_changes_nothing(
    post: Post, store: SqlKnowledgeBase, content: bytes, status: int, message: str
) -> None:
    other = observation_file([observation(block="b2")])

    answer = post(other + content if status == 422 else content)

    assert answer.status_code == status
    assert message in answer.json()["message"]
    assert identities(store) == set()


def test_other_content_types_are_refused(post: Post, store: SqlKnowledgeBase) -> None:
    assert post(_sound(), kind="application/json").status_code == 415
    assert post(_sound(), **{"Content-Encoding": "gzip"}).status_code == 415
    assert identities(store) == set()


def test_a_valid_token_is_required(post: Post, service: str, store: SqlKnowledgeBase, token: str) -> None:
    reader, _ = store.create_token(role="reader", source="someone")
    ended, _ = store.create_token(role="runner", source="lab-b", days=0.0)
    revoked, record = store.create_token(role="runner", source="lab-c")
    store.revoke_token(record.id)

    answers = [post(_sound(), token=t) for t in (None, "wrong", ended, revoked, reader)]

    assert [a.status_code for a in answers] == [401, 401, 401, 401, 403]
    assert answers[0].headers["WWW-Authenticate"] == "Bearer"
    assert "expired" in answers[2].json()["message"]
    assert "revoked" in answers[3].json()["message"]
    assert identities(store) == set()
    assert get(service, "/blocks", None).status_code == 401
    assert get(service, "/blocks", reader).status_code == 200
    assert [get(service, path, None).status_code for path in ("/", "/docs", "/health", "/metrics")] == [200] * 4


def test_a_token_is_not_stored_or_logged(
    post: Post, store: SqlKnowledgeBase, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        post(_sound())
        answer = post(b"no json", token=token)

    stored = json.dumps([str(t) for t in store.tokens()])
    assert token not in caplog.text + answer.text + stored
    assert store.find_token(token) is not None
    assert store.find_token(token + "x") is None


def test_a_token_expires(store: SqlKnowledgeBase) -> None:
    _, record = store.create_token(role="reader", source="s", days=1)

    assert record.valid(datetime.now(UTC) + timedelta(hours=23))
    assert not record.valid(datetime.now(UTC) + timedelta(hours=25))


@pytest.mark.slow
def test_no_observation_of_thirty_two_clients_is_lost(post: Post, store: SqlKnowledgeBase) -> None:
    def client(number: int) -> list[Observation]:
        # Each client delivers a block of its own and a shared block; it sends each delivery twice.
        own = [observation(round=r, block=f"own-{number}") for r in range(4)]
        shared = [observation(round=r, block="shared") for r in range(4)]
        for o in (*own, *shared):
            for _ in range(2):
                assert post(observation_file([o])).status_code == 200
        return own + shared

    with ThreadPoolExecutor(32) as pool:
        sent = {o.identity for delivered in pool.map(client, range(32)) for o in delivered}

    assert len(sent) == 33 * 4
    assert identities(store) == sent
    assert store.quarantined() == ()
    assert list(store.find_damage()) == []


def test_metrics_are_in_prometheus_format(post: Post, service: str) -> None:
    post(_sound())
    post(observation_file([observation(seconds=3.0)]))

    text = get(service, "/metrics", None).text

    assert 'seshat_observations{status="ok"} 1.0' in text
    assert 'seshat_received_observations_total{outcome="added",source="lab-a"} 1.0' in text
    assert 'seshat_quarantined_observations{source="lab-a"} 1.0' in text
    assert 'seshat_requests_total{method="POST",path="/observations",status="200"} 2.0' in text

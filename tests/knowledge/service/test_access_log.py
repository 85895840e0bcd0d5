"""The access log of the service: one JSON line for each request with its sender and result, without secrets."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from knowledge.exchange.files import observation_file
from knowledge.store.base import Content, KnowledgeBaseError
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.samples import observation
from tests.knowledge.service.conftest import serving


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlKnowledgeBase]:
    """A knowledge base on SQLite only: the log does not depend on the database."""
    with open_knowledge_base(str(tmp_path / "k.sqlite"), shipped=False) as opened:
        yield opened


def records(caplog: pytest.LogCaptureFixture, number: int) -> list[dict[str, Any]]:
    """Return the lines of the log as records; a line is written after its response was sent."""
    deadline = time.monotonic() + 30
    while True:
        lines = [r.getMessage() for r in caplog.records if r.name == "knowledge.service.access"]
        if len(lines) >= number or time.monotonic() > deadline:
            assert len(lines) == number
            return [json.loads(line) for line in lines]
        time.sleep(0.01)


def test_the_log_of_a_delivery_has_sender_request_and_counts(
    service: str, store: SqlKnowledgeBase, caplog: pytest.LogCaptureFixture
) -> None:
    token, stored_token = store.create_token(role="runner", source="lab-a")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
    content = observation_file([observation(), observation(seconds=2.0)])

    with caplog.at_level(logging.INFO):
        requests.post(f"{service}/observations?x=secret", data=content, headers=headers, timeout=30)
        (record,) = records(caplog, 1)

    assert record.pop("seconds") > 0
    assert record.pop("time").endswith("+00:00")
    assert record == {
        "client": "127.0.0.1",
        "token": stored_token.id,
        "source": "lab-a",
        "method": "POST",
        "route": "/observations",
        "status": 200,
        "complete": True,
        "added": 1,
        "known": 0,
        "quarantined": 1,
    }
    assert {r.levelname for r in caplog.records if r.name == "knowledge.service.access"} == {"INFO"}


def test_the_log_of_a_refused_token_has_address_and_reason(
    service: str, store: SqlKnowledgeBase, caplog: pytest.LogCaptureFixture
) -> None:
    ended, expired = store.create_token(role="runner", source="lab-b", days=0.0)
    revoked_token, revoked = store.create_token(role="runner", source="lab-c")
    store.revoke_token(revoked.id)
    reader, reading = store.create_token(role="reader", source="lab-d")
    tokens = ("seshat_guessed", ended, revoked_token, reader)
    sent = [None, "Basic bWU6aXQ=", *(f"Bearer {token}" for token in tokens)]

    with caplog.at_level(logging.INFO):
        for header in sent:
            headers = {"Authorization": header} if header else {}
            requests.post(f"{service}/observations", headers=headers, timeout=30)
        entries = records(caplog, 6)

    assert [(r["status"], r["error"], r.get("token"), r["reason"]) for r in entries] == [
        (401, "no-token", None, "no Authorization header"),
        (401, "no-token", None, "no bearer token in the Authorization header"),
        (401, "no-token", None, "unknown token"),
        (401, "token-ended", expired.id, f"expired at {expired.expires_at}"),
        (401, "token-ended", revoked.id, "revoked"),
        (403, "not-allowed", reading.id, "role `reader`"),
    ]
    assert {r["client"] for r in entries} == {"127.0.0.1"}
    assert {r["route"] for r in entries} == {"/observations"}
    assert {r.levelname for r in caplog.records if r.name == "knowledge.service.access"} == {"WARNING"}


def test_no_secret_is_in_any_log(service: str, store: SqlKnowledgeBase, caplog: pytest.LogCaptureFixture) -> None:
    token, _ = store.create_token(role="runner", source="lab-a")
    secrets = [token, "seshat_guessed", "bWU6aXQ=", "seshat_in_the_address", "seshat_in_a_header"]

    with caplog.at_level(logging.DEBUG):
        for header in (f"Bearer {token}", "Bearer seshat_guessed", "Basic bWU6aXQ=", f"Bearer {token} {token}"):
            headers = {"Authorization": header, "X-Token": "seshat_in_a_header"}
            requests.get(f"{service}/blocks?token=seshat_in_the_address", headers=headers, timeout=30)
            requests.post(f"{service}/observations", data=token.encode(), headers=headers, timeout=30)
            requests.get(f"{service}/{token}", headers=headers, timeout=30)
        records(caplog, 12)

    logged = "\n".join(f"{r.getMessage()} {r.exc_text or ''} {r.__dict__}" for r in caplog.records)
    # The log of the client contains the addresses of its requests.
    ours = "\n".join(line for line in logged.split("\n") if "urllib3" not in line)
    assert [secret for secret in secrets if secret in ours] == []
    assert "Bearer" not in ours


def test_a_client_cannot_add_lines_to_the_log(service: str, caplog: pytest.LogCaptureFixture) -> None:
    forged = '1.2.3.4", "status": 200}\x85{"client": "' + "x" * 5000

    with caplog.at_level(logging.INFO):
        requests.get(f"{service}/blocks", headers={"X-Forwarded-For": forged.encode("latin-1")}, timeout=30)
        requests.get(f"{service}/no%0Asuch%0A%22page", timeout=30)
        requests.request("BREW", f"{service}/blocks", timeout=30)
        entries = records(caplog, 3)

    lines = [r.getMessage() for r in caplog.records if r.name == "knowledge.service.access"]
    assert [len(line.splitlines()) for line in lines] == [1, 1, 1]
    assert max(map(len, lines)) < 1000
    assert [(r["status"], r["route"], r["method"]) for r in entries] == [
        (401, "/blocks", "GET"),
        (404, "other", "GET"),
        (405, "/blocks", "other"),
    ]


def test_the_log_of_a_failed_response_has_the_reason(
    store: SqlKnowledgeBase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> str:
        raise KnowledgeBaseError("the knowledge base `postgresql://me@host/k` could not be read: gone")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("with something private")

    token, record = store.create_token(role="reader", source="lab-a")
    with serving(store) as service, caplog.at_level(logging.INFO):
        monkeypatch.setattr(store, "revision", away)
        monkeypatch.setattr(store, "stacks", broken)
        answers = [
            requests.get(f"{service}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=30)
            for path in ("/health", "/stacks")
        ]
        unavailable, failed = records(caplog, 2)
        text = requests.get(f"{service}/metrics", timeout=30).text

    assert [a.status_code for a in answers] == [503, 500]
    assert "host" not in answers[0].text
    assert (unavailable["error"], "could not be read: gone" in unavailable["reason"]) == ("knowledge-base", True)
    assert (failed["status"], failed["token"], failed["error"]) == (500, record.id, "ZeroDivisionError")
    assert "private" not in json.dumps(failed)
    assert 'seshat_request_seconds_count{method="GET",path="/stacks",status="500"} 1.0' in text


def test_latencies_are_counted_by_route_and_status(service: str, store: SqlKnowledgeBase) -> None:
    token, _ = store.create_token(role="reader", source="lab-a")
    for header in ({}, {"Authorization": f"Bearer {token}"}, {"Authorization": f"Bearer {token}"}):
        requests.get(f"{service}/blocks", headers=header, timeout=30)
    requests.get(f"{service}/nowhere/{token}", timeout=30)

    text = requests.get(f"{service}/metrics", timeout=30).text

    assert 'seshat_request_seconds_count{method="GET",path="/blocks",status="200"} 2.0' in text
    assert 'seshat_request_seconds_count{method="GET",path="/blocks",status="401"} 1.0' in text
    assert 'seshat_request_seconds_bucket{le="60.0",method="GET",path="/blocks",status="200"} 2.0' in text
    assert 'seshat_request_seconds_count{method="GET",path="other",status="404"} 1.0' in text
    assert token not in text


def test_health_and_repeated_metrics_do_not_count_observations_again(
    store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add([observation()])
    counted = []
    whole = store.content
    monkeypatch.setattr(store, "content", lambda: counted.append(1) or whole())  # type: ignore[func-returns-value]

    with serving(store) as service:
        healthy = [requests.get(f"{service}/health", timeout=30).json() for _ in range(5)]
        after_health = len(counted)
        figures = [requests.get(f"{service}/metrics", timeout=30).text for _ in range(5)]

    assert {h["status"] for h in healthy} == {"ok"}
    assert healthy[0]["revision"] == whole().revision
    assert after_health == 0
    assert len(counted) == 1
    assert all('seshat_observations{status="ok"} 1.0' in text for text in figures)


def test_metrics_that_failed_are_computed_again(store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> Content:
        raise KnowledgeBaseError("gone")

    whole = store.content
    with serving(store) as service:
        monkeypatch.setattr(store, "content", away)
        first = requests.get(f"{service}/metrics", timeout=30)
        monkeypatch.setattr(store, "content", whole)
        then = requests.get(f"{service}/metrics", timeout=30)

    assert (first.status_code, then.status_code) == (503, 200)
    assert "seshat_blocks 0.0" in then.text


def test_the_program_writes_the_log_to_its_error_output(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'k.sqlite'}"
    with open_knowledge_base(address, shipped=False) as store:
        token, record = store.create_token(role="reader", source="lab-a")
    environment = {**os.environ, "ADVISOR_KNOWLEDGE": address}
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "advisor", "serve", "--port", "0"], env=environment, stderr=file, stdout=file
        )
        try:
            deadline = time.monotonic() + 60
            while "http://" not in log.read_text() and time.monotonic() < deadline:
                time.sleep(0.05)
            service = log.read_text().split()[-1]
            for sent in (token, "seshat_guessed"):
                requests.get(f"{service}/blocks", headers={"Authorization": f"Bearer {sent}"}, timeout=30)
        finally:
            process.terminate()
            process.wait(30)

    text = log.read_text()
    entries = [json.loads(line) for line in text.split("\n") if line.startswith("{")]
    assert [(r["status"], r.get("token"), r.get("reason")) for r in entries] == [
        (200, record.id, None),
        (401, None, "unknown token"),
    ]
    assert token not in text
    assert "guessed" not in text
    # The knowledge base was closed: after a stop by systemd or Kubernetes there is one file, without a journal.
    assert process.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.sqlite", "log"]

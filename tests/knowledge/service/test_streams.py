"""Answers that are sent while they are read: clients that go away or stop reading cost the others nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import struct
import time
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from knowledge.domain.observation import Observation
from knowledge.service import streams
from knowledge.service.streams import StreamQuota
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.samples import observation

RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def large(store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> SqlKnowledgeBase:
    """A knowledge base whose answer does not fit what lies between two sockets."""
    from dataclasses import replace

    store.add(replace(observation(round=n, status="crashed"), failure="x" * 1_000_000) for n in range(24))
    return store


def reading(service: str, token: str) -> socket.socket:
    """Begin to read observations."""
    opened = socket.create_connection(("127.0.0.1", urlsplit(service).port or 0), timeout=30)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.sendall(f"GET /observations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    assert opened.recv(12) in (b"HTTP/1.1 200", b"HTTP/1.1 429")
    return opened


def works(service: str, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}"}
    return all(requests.get(f"{service}{path}", headers=headers, timeout=20).ok for path in ("/health", "/blocks"))


def test_an_aborted_request_releases_its_connection(
    large: SqlKnowledgeBase, service: str, token: str, request: pytest.FixtureRequest
) -> None:
    # The collector would close what is left over, at a time that nobody knows.
    request.addfinalizer(gc.enable)
    gc.disable()
    for _ in range(20):
        with reading(service, token) as opened:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        assert works(service, token)

    deadline = time.monotonic() + 30
    while (status := _status(service, token)) == 429 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert status == 200


def _status(service: str, token: str) -> int:
    answer = requests.get(
        f"{service}/observations?block=none", headers={"Authorization": f"Bearer {token}"}, timeout=20
    )
    return answer.status_code


def test_clients_that_do_not_read_do_not_block_others(large: SqlKnowledgeBase, service: str, token: str) -> None:
    others = [large.create_token(role="reader", source=f"lab-{n}")[0] for n in range(4)]
    with ExitStack() as stack:
        for one in (token, *others):
            for _ in range(streams.MOST_STREAMS_PER_TOKEN):
                stack.enter_context(reading(service, one))

        refused = requests.get(f"{service}/observations", headers={"Authorization": f"Bearer {token}"}, timeout=20)

        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "5"
        assert json.loads(refused.text)["error"] == "too-many-streams"
        assert works(service, token)


def test_responses_that_never_start_do_not_count_towards_the_quota(
    store: SqlKnowledgeBase, service: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> Generator[Observation, None, None]:
        raise KnowledgeBaseError("gone")
        yield

    monkeypatch.setattr(store, "observations", fail)

    assert [_status(service, token) for _ in range(streams.MOST_STREAMS_PER_TOKEN + 1)] == [503] * (
        streams.MOST_STREAMS_PER_TOKEN + 1
    )


def test_a_token_has_a_quota_of_streams() -> None:
    quota = StreamQuota()

    assert [quota.reserve("a") for _ in range(5)] == [True] * 4 + [False]
    assert [quota.reserve("b") for _ in range(5)] == [True] * 4 + [False]
    assert not quota.reserve("c")
    quota.release("a")
    assert quota.reserve("c")


def test_the_quota_is_released_if_the_database_fails() -> None:
    ended: list[str] = []

    def lines() -> Generator[str, None, None]:
        try:
            yield "a\n"
            yield "b\n"
        finally:
            raise KnowledgeBaseError("the connection is lost")

    opened = lines()
    answer = streams.StreamedLines(
        next(opened), opened, media_type="text/plain", on_close=lambda: ended.append("ended")
    )

    async def send(message: Any) -> None:
        if message.get("body"):
            raise OSError("connection reset")

    async def receive() -> Any:
        await asyncio.sleep(3600)

    with pytest.raises(KnowledgeBaseError):
        asyncio.run(answer({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send))

    assert ended == ["ended"]


@pytest.mark.parametrize(
    ("end", "version"),
    [
        ("stall", "2.3"),
        ("disconnect", "2.3"),
        ("complete", "2.3"),
        ("stall", "2.4"),
        ("reset", "2.4"),
        ("complete", "2.4"),
    ],
)
def test_a_response_ends_when_its_client_disconnects(monkeypatch: pytest.MonkeyPatch, end: str, version: str) -> None:
    monkeypatch.setattr(streams, "SEND_SECONDS", 0.05)
    ended: list[str] = []

    def lines() -> Generator[str, None, None]:
        try:
            yield "a\n"
            yield "b\n"
        finally:
            ended.append("closed")

    opened = lines()
    answer = streams.StreamedLines(
        next(opened), opened, media_type="text/plain", on_close=lambda: ended.append("ended")
    )
    sent: list[Any] = []

    async def send(message: Any) -> None:
        if message.get("body"):
            if end in ("stall", "disconnect"):
                await asyncio.sleep(3600)
            if end == "reset":
                raise OSError("connection reset")
        sent.append(message)

    async def receive() -> Any:
        await asyncio.sleep(0 if end == "disconnect" else 3600)
        return {"type": "http.disconnect"}

    asyncio.run(answer({"type": "http", "asgi": {"spec_version": version}}, receive, send))

    assert ended == ["closed", "ended"]
    assert [message.get("body") for message in sent[1:]] == ([b"a\n", b"b\n", b""] if end == "complete" else [])


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_an_answer_that_is_read_slowly_ends(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(streams, "STREAM_SECONDS", 0.2)
    ended: list[str] = []

    def lines() -> Generator[str, None, None]:
        try:
            for _ in range(500):
                yield "a\n"
        finally:
            ended.append("closed")

    opened = lines()
    answer = streams.StreamedLines(
        next(opened), opened, media_type="text/plain", on_close=lambda: ended.append("ended")
    )
    sent: list[Any] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(0.01)
        sent.append(message)

    async def receive() -> Any:
        await asyncio.sleep(3600)

    asyncio.run(answer({"type": "http", "asgi": {"spec_version": version}}, receive, send))

    assert ended == ["closed", "ended"]
    assert 1 < len(sent) < 100
    assert all(message.get("more_body") for message in sent[1:])


def test_a_client_that_reads_slowly_gets_no_complete_answer(
    large: SqlKnowledgeBase, service: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAM_SECONDS", 0.5)
    request = f"GET /observations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    received = bytearray()

    with socket.create_connection(("127.0.0.1", urlsplit(service).port or 0), timeout=30) as opened:
        opened.sendall(request.encode())
        time.sleep(2)
        while content := opened.recv(2**20):
            received += content

    assert 0 < len(received) < 24_000_000
    assert not received.endswith(b"0\r\n\r\n")
    assert _status(service, token) == 200

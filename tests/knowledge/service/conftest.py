"""A running service on every database."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
import uvicorn

from knowledge.service.app import create_app
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import Indicators


@contextmanager
def serving(store: SqlKnowledgeBase, *, most_bytes: int = 2_000_000, port: int = 0) -> Iterator[str]:
    """Serve a knowledge base on loopback, and yield the address."""
    with serving_app(create_app(store, Indicators(), most_bytes=most_bytes), port=port) as address:
        yield address


@contextmanager
def serving_app(app: Any, *, port: int = 0) -> Iterator[str]:
    """Serve an application on loopback, and yield the address."""
    listening = socket.create_server(("127.0.0.1", port), backlog=512)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", proxy_headers=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@pytest.fixture
def service(store: SqlKnowledgeBase) -> Iterator[str]:
    with serving(store) as address:
        yield address


@pytest.fixture
def token(store: SqlKnowledgeBase) -> str:
    """A token with the role ``runner``."""
    return store.create_token(role="runner", source="lab-a")[0]


Post = Callable[..., requests.Response]


@pytest.fixture
def post(service: str, token: str) -> Post:
    """Deliver a body."""

    def send(
        content: bytes | str, *, token: str | None = token, kind: str = "application/x-ndjson", **more: str
    ) -> requests.Response:
        headers = {"Content-Type": kind, **more, **({"Authorization": f"Bearer {token}"} if token else {})}
        return requests.post(f"{service}/observations", data=content, headers=headers, timeout=30)

    return send

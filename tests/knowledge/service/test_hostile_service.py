"""A server that is not a knowledge service, or sends invalid data: an error message, and a limit to the bytes read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from knowledge.domain.errors import InputError
from knowledge.service import client
from knowledge.service.client import KnowledgeService, validated
from knowledge.service.messages import DeliveryReceipt
from tests.conftest import Advisor
from tests.package_index import PackageIndex

ENTRY = {"name": "b1", "observations": 1, "digest": "d", "source": "s"}
ANSWERS = {
    "page": b"<html>",
    "object": b'{"a":1}',
    "fields": b'[{"name":1}]',
    "types": json.dumps([{**ENTRY, "observations": "x"}]).encode(),
    "negative": json.dumps([{**ENTRY, "observations": -1}]).encode(),
    "deep": b"[" * 200_000,
    "surrogate": json.dumps([{**ENTRY, "name": "\ud800"}]).encode(),
    "number": b'[{"name":"b","observations":%s,"digest":"d","source":"s"}]' % (b"9" * 5000),
    "text": b"\xff\xfe",
}


@pytest.fixture
def server() -> Iterator[PackageIndex]:
    with PackageIndex() as opened:
        yield opened


def service_of(server: PackageIndex) -> KnowledgeService:
    return KnowledgeService(server.url.removesuffix("/simple/"), "t", waits=())


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_invalid_list_of_blocks_is_an_error_message(server: PackageIndex, kind: str) -> None:
    server.raw["/blocks"] = (ANSWERS[kind], {})

    with pytest.raises(InputError, match="did not answer as a knowledge base's service") as caught:
        service_of(server).blocks()

    assert len(caught.value.message) < 500


@pytest.mark.parametrize("body", [b"[]", b'{"added":1}', b'{"added":1,"known":0,"quarantined":[{"id":1}]}', b"x"])
def test_an_invalid_receipt_is_an_error_message(body: bytes) -> None:
    with pytest.raises(InputError, match="did not answer as a knowledge base's service"):
        validated(DeliveryReceipt, body, "https://k.example")


@pytest.mark.parametrize("path", ["/blocks", "/observations?block=b1"])
def test_a_response_is_read_up_to_a_limit(server: PackageIndex, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RESPONSE_BYTES", 2**20)
    monkeypatch.setattr(client, "_BLOCK_BYTES", 2**20)
    server.raw[path] = (gzip.compress(b" " * (2**20 + 1)), {"Content-Encoding": "gzip"})
    service = service_of(server)

    with pytest.raises(InputError, match="is larger than 1 MiB"):
        service.blocks() if path == "/blocks" else list(service.observations("b1"))


def test_a_response_that_is_compressed_more_than_once_is_refused(server: PackageIndex) -> None:
    server.raw["/blocks"] = (gzip.compress(gzip.compress(b"[]")), {"Content-Encoding": "gzip, gzip"})

    with pytest.raises(InputError, match="compressed more than once"):
        service_of(server).blocks()


def test_a_long_error_of_a_service_is_shortened() -> None:
    problem = json.dumps({"message": "x" * 10_000, "hint": "y" * 10_000}).encode()

    class Refusing(PackageIndex):
        def answer(self, path: str, headers: dict[str, str]) -> tuple[int, bytes, str, dict[str, str]]:
            return 422, problem, "application/json", {}

    with Refusing() as refusing, pytest.raises(InputError) as caught:
        service_of(refusing).blocks()

    assert len(caught.value.message) < 500
    assert len(caught.value.hint) < 500


def test_the_command_line_prints_an_error_message(advisor_here: Advisor, server: PackageIndex) -> None:
    server.raw["/blocks"] = (b"[" * 200_000, {})

    pulled = advisor_here("knowledge", "pull", server.url.removesuffix("/simple/"))

    assert (pulled.returncode, "Traceback" in pulled.stderr) == (2, False)
    assert "hint: check that it is the address of a knowledge base's service" in pulled.stderr

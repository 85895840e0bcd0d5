"""Push and pull between two knowledge bases over a service: merging, resumption and failures."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from knowledge.domain.errors import InputError
from knowledge.domain.observation import BENCHMARK
from knowledge.exchange.admission import Admission
from knowledge.service import client
from knowledge.service.client import KnowledgeService, ServiceUnavailableError, TokenError, pull, push
from knowledge.service.messages import DeliveryReceipt
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import Indicators
from tests.conftest import Advisor
from tests.knowledge.samples import RUN, block, observation
from tests.knowledge.service.conftest import serving


@pytest.fixture
def mine(tmp_path: Path) -> Iterable[SqlKnowledgeBase]:
    """Another knowledge base."""
    with open_knowledge_base(str(tmp_path / "mine.sqlite"), shipped=False) as opened:
        yield opened


def fetch(service: KnowledgeService, store: SqlKnowledgeBase) -> DeliveryReceipt:
    admission = Admission(store, Indicators(), source=service.name)
    return pull(service, store, admission.add, progress=lambda _: None)


def digest(store: SqlKnowledgeBase) -> str:
    return store.content().digest


def test_two_knowledge_bases_become_one(
    mine: SqlKnowledgeBase, store: SqlKnowledgeBase, service: str, token: str
) -> None:
    mine.add([*block({"2.0.0": 1.0, "2.1.0": 1.1}, name="mine"), *block({"2.0.0": 1.0}, name="both")])
    store.add([*block({"2.0.0": 1.0, "2.2.0": 0.9}, name="theirs"), *block({"2.0.0": 1.0}, name="both")])
    remote = KnowledgeService(service, token)

    there = push(mine, remote, progress=lambda _: None)
    here = fetch(remote, mine)
    again = push(mine, remote, progress=lambda _: None)

    assert (there.added, here.added) == (12, 12)
    assert (again.added, again.known) == (0, 0)
    assert digest(mine) == digest(store)
    assert {b.name: b.source for b in mine.blocks()} == {"mine": "", "both": "", "theirs": "127.0.0.1"}
    assert {b.name: b.source for b in store.blocks()} == {"mine": "lab-a", "both": "", "theirs": ""}


def test_blocks_of_benchmarks_are_not_pushed(
    mine: SqlKnowledgeBase, store: SqlKnowledgeBase, service: str, token: str
) -> None:
    run = replace(RUN, name=BENCHMARK, backend="program", dtype="any", parameters={"project": "secret"})
    mine.add(block({"2.0.0": 1.0}, name="public"))
    mine.add(replace(o, indicator=run) for o in block({"2.0.0": 1.0}, name="private"))
    messages: list[str] = []

    result = push(mine, KnowledgeService(service, token), progress=messages.append)

    assert result.added == 6
    assert [b.name for b in store.blocks()] == ["public"]
    assert messages == ["private: not delivered: benchmarks of projects are private", "public"]


def test_an_interrupted_push_continues(
    mine: SqlKnowledgeBase, store: SqlKnowledgeBase, service: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_PART_BYTES", 2000)
    mine.add(block({"2.0.0": 1.0, "2.1.0": 1.1}, rounds=20))
    remote = KnowledgeService(service, token)
    deliver = remote.deliver
    sent: list[bytes] = []

    def cut(content: bytes) -> DeliveryReceipt:
        if len(sent) == 3:
            raise KeyboardInterrupt
        sent.append(content)
        return deliver(content)

    monkeypatch.setattr(remote, "deliver", cut)
    with pytest.raises(KeyboardInterrupt):
        push(mine, remote, progress=lambda _: None)
    half = store.content()
    monkeypatch.setattr(remote, "deliver", deliver)
    rest = push(mine, remote, progress=lambda _: None)

    assert 0 < dict(half.observations)["ok"] < 40
    assert rest.added + rest.known == 40
    assert digest(mine) == digest(store)


def test_a_push_waits_for_a_service_that_restarts(mine: SqlKnowledgeBase, store: SqlKnowledgeBase, token: str) -> None:
    mine.add(block({"2.0.0": 1.0}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    deliveries: list[DeliveryReceipt] = []
    remote = KnowledgeService(f"http://127.0.0.1:{port}", token, waits=(0.2,) * 50)
    thread = threading.Thread(target=lambda: deliveries.append(push(mine, remote, progress=lambda _: None)))
    thread.start()
    time.sleep(0.5)
    with serving(store, port=port):
        thread.join(30)

    assert deliveries[0].added == 6


def test_an_unavailable_service_is_an_error_message(mine: SqlKnowledgeBase) -> None:
    mine.add([observation()])
    # Port 9 discards: nothing listens there.
    remote = KnowledgeService("http://127.0.0.1:9", "t", waits=(0.01,))

    with pytest.raises(ServiceUnavailableError, match=r"`http://127.0.0.1:9` cannot be used: it cannot be reached"):
        push(mine, remote, progress=lambda _: None)


def test_an_invalid_token_is_an_error_message(mine: SqlKnowledgeBase, service: str, store: SqlKnowledgeBase) -> None:
    ended, _ = store.create_token(role="runner", source="s", days=0)

    with pytest.raises(TokenError, match="the request has no valid token"):
        push(mine, KnowledgeService(service, "wrong"), progress=lambda _: None)
    with pytest.raises(TokenError, match="expired"):
        push(mine, KnowledgeService(service, ended), progress=lambda _: None)


def test_a_push_with_a_reader_s_token_is_refused_although_the_service_has_every_block(
    mine: SqlKnowledgeBase, service: str, store: SqlKnowledgeBase
) -> None:
    mine.add(block({"2.0.0": 1.0}))
    store.add(block({"2.0.0": 1.0}))
    reader, _ = store.create_token(role="reader", source="s")

    with pytest.raises(TokenError, match="may only read") as refused:
        push(mine, KnowledgeService(service, reader), progress=lambda _: None)

    assert refused.value.exit_code == 4
    assert "`runner`" in refused.value.hint


def test_a_push_without_new_observations_adds_none(
    mine: SqlKnowledgeBase, service: str, store: SqlKnowledgeBase, token: str
) -> None:
    mine.add(block({"2.0.0": 1.0}))
    store.add(block({"2.0.0": 1.0}))

    delivery = push(mine, KnowledgeService(service, token), progress=lambda _: None)

    assert delivery == DeliveryReceipt(added=0, known=0, quarantined=[])


@pytest.mark.parametrize("address", ["knowledge", "ftp://host", "https://user:secret@host"])
def test_an_invalid_address_is_an_error_message(address: str) -> None:
    with pytest.raises(InputError):
        KnowledgeService(address, "t")


def test_commands_pull_push_and_set_the_trust_of_a_source(
    advisor_here: Advisor, store: SqlKnowledgeBase, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add([*block({"2.0.0": 1.0}, name="theirs"), observation(block="odd", seconds=1e-9, round=0)])
    token, _ = store.create_token(role="reader", source="me")
    monkeypatch.setenv("ADVISOR_TOKEN", token)

    pulled = advisor_here("knowledge", "pull", service, "--source", "lab-b")
    refused = advisor_here("knowledge", "push", service)
    listed = advisor_here("knowledge", "source", "list")
    weighed = advisor_here("knowledge", "source", "trust", "lab-b", "0.5")
    wrong = advisor_here("knowledge", "source", "trust", "lab-b", "2")

    assert "fetched: 7 added" in pulled.stdout, pulled.stderr
    assert (refused.returncode, "may only read" in refused.stderr) == (4, True)
    assert "lab-b  trust 1  7 observations in 2 blocks" in listed.stdout
    assert "trusted with 0.5" in weighed.stdout
    assert wrong.returncode == 2


def test_commands_manage_tokens_and_quarantine(advisor_here: Advisor, tmp_path: Path) -> None:
    from knowledge.exchange.files import observation_file

    (tmp_path / "twice.jsonl").write_bytes(observation_file([observation(), observation(seconds=5.0)]))
    imported = advisor_here("knowledge", "import", "twice.jsonl", "--source", "lab-b")
    listing = advisor_here("knowledge", "quarantine", "list")
    identity = listing.stdout.split()[0]
    nothing = advisor_here("knowledge", "quarantine", "drop")
    unknown = advisor_here("knowledge", "quarantine", "accept", "zzz")
    accepted = advisor_here("knowledge", "quarantine", "accept", identity)
    empty = advisor_here("knowledge", "quarantine", "list")

    assert "1 added, 0 already stored, 1 quarantined" in imported.stdout
    assert "was measured already" in listing.stdout
    assert (nothing.returncode, unknown.returncode) == (2, 2)
    assert "1 accepted" in accepted.stdout
    assert "the quarantine is empty" in empty.stdout

    created = advisor_here("knowledge", "token", "create", "lab-c", "--days", "30")
    wrong = advisor_here("knowledge", "token", "create", "lab-c", "--role", "king")
    token_id = created.stderr.split("`")[1]
    revoked = advisor_here("knowledge", "token", "revoke", token_id)
    listed = advisor_here("knowledge", "token", "list")
    missing = advisor_here("knowledge", "token", "revoke", "zz")

    assert created.stdout.startswith("seshat_")
    assert wrong.returncode == missing.returncode == 2
    assert revoked.returncode == 0
    assert "revoked" in listed.stdout
    assert created.stdout.strip() not in listed.stdout

"""The service conforms to its OpenAPI document for generated requests, and stores nothing invalid."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from knowledge.service.app import create_app
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import Indicators
from tests.examples import examples
from tests.knowledge.conftest import SQLITE_FIRST
from tests.knowledge.samples import block


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Send generated text as it is."""
    return str(value).encode("utf-8", "surrogatepass")


@SQLITE_FIRST
def test_every_response_matches_the_openapi_document(store: SqlKnowledgeBase) -> None:
    store.add(block({"2.0.0": 1.0}))
    token, _ = store.create_token(role="runner", source="lab-a")
    before = store.content()
    document = schemathesis.openapi.from_asgi("/openapi.json", create_app(store, Indicators()))
    operations: list[Any] = [result.ok() for result in document.get_all_operations() if isinstance(result, Ok)]
    answered = {(operation.method.upper(), operation.path): _ask(operation, token) for operation in operations}

    assert {path for _, path in answered} == {
        "/health",
        "/metrics",
        "/blocks",
        "/hardware",
        "/observations",
        "/stacks",
    }
    assert store.content() == before
    assert store.quarantined() == ()
    # Reads succeed, and generated observations are refused.
    assert all(200 in statuses for (method, _), statuses in answered.items() if method == "GET")
    assert 422 in answered["POST", "/observations"]


def _ask(operation: Any, token: str) -> set[int]:
    """Send valid and invalid requests to an operation; return the statuses of the responses."""
    statuses: set[int] = set()

    @settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        # Checked against the document: statuses, content types, schemas, methods, and that a token is required.
        # A request can match the document and be refused: a schema cannot describe hashes.
        passed = [positive_data_acceptance] if case.method == "POST" else []
        answer = case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, excluded_checks=passed)
        statuses.add(answer.status_code)

    send()
    return statuses

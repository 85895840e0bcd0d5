"""The service against its own OpenAPI document: whatever is sent, it answers as documented and stores nothing odd."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from knowledge.service.app import create_app
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import Indicators
from tests.knowledge.samples import block


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Send generated text as it is."""
    return str(value).encode("utf-8", "surrogatepass")


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
    # Readers are answered, and not only refused; what is made up is no observation.
    assert {asked for asked, statuses in answered.items() if 200 not in statuses and asked[0] == "GET"} == set()
    assert 422 in answered["POST", "/observations"]


def _ask(operation: Any, token: str) -> set[int]:
    """Send what fits the document to an operation, and what does not; return the statuses of the answers."""
    statuses: set[int] = set()

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        # Checked against the document: statuses, types, schemas, methods, and that a token is asked for.
        # Lines that fit the document are no observations yet: hashes cannot be said in a schema.
        passed = [positive_data_acceptance] if case.method == "POST" else []
        answer = case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, excluded_checks=passed)
        statuses.add(answer.status_code)

    send()
    return statuses

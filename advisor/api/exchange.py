"""Observations to and from the service of another knowledge base."""

from __future__ import annotations

from collections.abc import Callable

from advisor.api.stores import AdmittingSink, Warn, log_warning, open_writable_store
from knowledge.service import client
from knowledge.service.client import KnowledgeService
from knowledge.service.messages import DeliveryReceipt

__all__ = ["DeliveryReceipt", "pull", "push"]


def push(url: str, token: str, *, knowledge: str | None, progress: Callable[[str], None]) -> DeliveryReceipt:
    """Deliver the observations that a service does not have; see :func:`knowledge.service.client.push`."""
    service = KnowledgeService(url, token)
    with open_writable_store(knowledge) as store:
        return client.push(store, service, progress=progress)


def pull(
    url: str,
    token: str,
    *,
    source: str | None,
    knowledge: str | None,
    progress: Callable[[str], None],
    warn: Warn = log_warning,
) -> DeliveryReceipt:
    """Fetch the observations that a service has and a knowledge base does not; see :func:`push`.

    The source is the name of who delivers the observations, by default the name of the service.
    """
    service = KnowledgeService(url, token)
    with open_writable_store(knowledge) as store:
        sink = AdmittingSink(store, source=source or service.name, warn=warn)
        return client.pull(service, store, sink.add, progress=progress)

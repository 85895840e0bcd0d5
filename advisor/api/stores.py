"""Knowledge bases: open them to read or to add observations, and quarantine observations that are not plausible."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from advisor.domain.words import count
from advisor.user_directories import readable_address
from knowledge.domain.observation import Observation
from knowledge.exchange.admission import Admission, AdmissionResult
from knowledge.store.base import KnowledgeBase
from knowledge.store.state_hash import default_address
from pi_runners.catalogue import Indicators

if TYPE_CHECKING:
    from knowledge.store.sql import SqlKnowledgeBase

logger = logging.getLogger(__name__)


def open_readable_store(address: str | None) -> SqlKnowledgeBase:
    """Open a knowledge base that is only read, by default the user's own.

    If that does not exist and cannot be created, the observations that ship with the program take its place.

    Raises:
        KnowledgeBaseError: If it cannot be opened.
    """
    return _open(readable_address(address))


def open_writable_store(address: str | None) -> SqlKnowledgeBase:
    """Open a knowledge base to add observations to, by default the user's own.

    Raises:
        KnowledgeBaseError: If it cannot be opened.
    """
    return _open(address or default_address())


def _open(address: str) -> SqlKnowledgeBase:
    # Only here: `advisor pi status` reads no knowledge base, and SQLAlchemy takes most of its start.
    from knowledge.store.engine import open_knowledge_base

    return open_knowledge_base(address)


Warn = Callable[[str, str], None]
"""Receives a warning and a hint, which may be empty."""


def log_warning(message: str, hint: str) -> None:
    """Log a warning with its hint."""
    logger.warning("%s", f"{message}; {hint}" if hint else message)


@dataclass(frozen=True)
class AdmittingSink:
    """Adds observations to a knowledge base, and warns of quarantined ones.

    Attributes:
        store: The knowledge base.
        source: Name of who delivers the observations; empty for the knowledge base's own.
        warn: Receives a warning if observations are quarantined.
    """

    store: KnowledgeBase
    _: KW_ONLY
    source: str = ""
    warn: Warn = log_warning

    def add(self, observations: Iterable[Observation], *, shipped: Collection[str] = ()) -> AdmissionResult:
        """Store plausible observations, and quarantine the others (:class:`knowledge.exchange.admission.Admission`)."""
        result = Admission(self.store, Indicators(), source=self.source).add(observations, shipped=shipped)
        warn_of_quarantine([(q.observation.identity, q.reason) for q in result.quarantined], self.warn)
        return result


def warn_of_quarantine(entries: Sequence[tuple[str, str]], warn: Warn) -> None:
    """Warn of quarantined observations, identities with reasons, with the first reason."""
    if entries:
        warn(
            f"{count(len(entries), 'observation')} quarantined; the first because: {entries[0][1]}",
            "`advisor knowledge quarantine list` prints the reasons; `accept` stores them, `drop` deletes them",
        )

"""Adds observations to a knowledge base: plausible ones are stored, the others are quarantined with a warning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from advisor.domain.words import count

if TYPE_CHECKING:
    from knowledge.domain.observation import Observation
    from knowledge.exchange.admission import AdmissionResult
    from knowledge.store.base import KnowledgeBase

logger = logging.getLogger(__name__)

Warn = Callable[[str, str], None]
"""Receives a warning and a hint, which may be empty."""


def log_warning(message: str, hint: str) -> None:
    """Log a warning with its hint."""
    logger.warning("%s", f"{message}; {hint}" if hint else message)


class AdmittingSink:
    """Adds observations to a knowledge base, and warns of quarantined ones."""

    def __init__(self, store: KnowledgeBase, *, source: str = "", warn: Warn = log_warning) -> None:
        """Store the parameters.

        Args:
            store: The knowledge base.
            source: Name of who delivers the observations; empty for the knowledge base's own.
            warn: Receives a warning if observations are quarantined.
        """
        from knowledge.exchange.admission import Admission
        from pi_runners.catalogue import Indicators

        self._admission = Admission(store, Indicators(), source=source)
        self._warn = warn

    def add(self, observations: Iterable[Observation], *, shipped: Collection[str] = ()) -> AdmissionResult:
        """Store plausible observations, and quarantine the others (:class:`knowledge.exchange.admission.Admission`)."""
        result = self._admission.add(observations, shipped=shipped)
        warn_of_quarantine([(q.observation.identity, q.reason) for q in result.quarantined], self._warn)
        return result


def warn_of_quarantine(entries: Sequence[tuple[str, str]], warn: Warn) -> None:
    """Warn of quarantined observations, with the first reason.

    Args:
        entries: Identity of each observation, with the reason.
        warn: Receives the warning, unless there are no entries.
    """
    if entries:
        warn(
            f"{count(len(entries), 'observation')} quarantined; the first because: {entries[0][1]}",
            "`advisor knowledge quarantine list` prints the reasons; `accept` stores them, `drop` deletes them",
        )

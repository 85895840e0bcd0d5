"""A dashboard for a team, with observations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.dashboard import jobs
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.advisor.dashboard.dashboards import TeamDashboard, team_dashboard
from tests.knowledge.samples import block

ANSWER: dict[str, Any] = {
    "title": "torch 2.9",
    "html": "<p>an advice</p>",
    "text": "an advice",
    "document": {"stack": []},
    "lock": 'lock-version = "1.0"\n',
    "constraints": ["numpy<2"],
    "prices": [],
    "gain": None,
    "is_complete": True,
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlKnowledgeBase]:
    """A knowledge base with one block, on SQLite only: the dashboard does not depend on the database."""
    with open_knowledge_base(str(tmp_path / "k.sqlite"), shipped=False) as opened:
        opened.add(tuple(block({"2.0.0": 1.0, "2.1.0": 1.2})), source="lab-a")
        yield opened


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The questions that workers get, which answer at once."""
    workers_got: list[dict[str, Any]] = []

    def answers(question: dict[str, Any]) -> Iterator[dict[str, Any]]:
        workers_got.append(question)
        yield dict(ANSWER)

    monkeypatch.setattr(jobs, "_answers", answers)
    return workers_got


@pytest.fixture
def team(store: SqlKnowledgeBase, questions: list[dict[str, Any]]) -> Iterator[TeamDashboard]:
    """A dashboard where people sign in with a token."""
    with team_dashboard(store) as opened:
        yield opened

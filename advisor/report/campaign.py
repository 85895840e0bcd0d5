"""Status of a campaign as plain text."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.campaign.status import COLUMNS, CampaignStatus, Row


def text(status: CampaignStatus) -> str:
    """Return the status of a campaign as plain text."""
    measured = f"{status.measured} of {status.total.total()} measured"
    lines = [f"{status.name}: {status.state}, {measured} ({status.folder})", ""]
    lines += _table("stack", status.stacks)
    if status.nodes:
        lines += ["", *_table("node", status.nodes)]
    counts = ", ".join(f"{count} {name}" for name, count in status.observations.items())
    lines += ["", f"observations: {counts or 'none yet'}", *status.remarks]
    return "\n".join(lines)


def _table(title: str, rows: Iterable[Row]) -> list[str]:
    rows = tuple(rows)
    width = max(len(title), *(len(row.name) for row in rows))
    head = f"{title:{width}}" + "".join(f"  {column:>7}" for column in COLUMNS)
    return [head, *(f"{r.name:{width}}" + "".join(f"  {r.counts[c] or '-':>7}" for c in COLUMNS) for r in rows)]

"""Show the progress and the result of a campaign."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import typer

from advisor.cli.console import redraw, say

if TYPE_CHECKING:
    from advisor.api.campaign_session import CampaignSession
    from advisor.campaign.status import CampaignStatus


def progress_display() -> Callable[[CampaignStatus], None]:
    """Return a function that shows a status: in place on a terminal, elsewhere a line whenever the counts change."""
    from advisor.campaign.status import COLUMNS
    from advisor.report.campaign import text

    if sys.stderr.isatty():
        return lambda status: redraw(text(status), err=True)
    last: list[Mapping[str, int]] = []

    def line(status: CampaignStatus) -> None:
        counts = status.total
        if not last or last[-1] != counts:
            last.append(counts)
            states = ", ".join(f"{counts[name]} {name}" for name in COLUMNS if counts[name])
            where = ", ".join(row.name for row in status.nodes if row.counts["running"])
            say(f"[{status.measured}/{counts.total()}] {states}{f' (on {where})' if where else ''}")

    return line


def print_result(campaign: CampaignSession, status: CampaignStatus, *, detach: bool = False) -> None:
    """Print the status of a campaign that was coordinated, and what to do next.

    Args:
        campaign: The campaign.
        status: Its status.
        detach: Whether the command did not wait for the tasks.
    """
    from advisor.report.campaign import text

    typer.echo(text(status))
    if status.state == "complete":
        for name in campaign.block_names():
            typer.echo(f"  advisor pi show {name}")
    elif detach:
        say(f"submitted; follow it with `advisor pi status {status.name} --watch`")
    else:
        say(
            "not complete; the observations so far are stored; "
            f"try again with `advisor pi retry {status.name} --failed`"
        )

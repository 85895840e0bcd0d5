"""`advisor pi history`: how the speed of this machine changed over time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.measurements.options import HistoryOptions
from advisor.cli.console import report_layout, say
from advisor.cli.options import FormatOption, KnowledgeOption, expand_options, print_either
from advisor.cli.workload import write_plot
from advisor.report.history import MOST_PLOTTED, history_plot, history_record, history_text

_PANEL_ROWS = 8


@expand_options
def history(
    options: HistoryOptions,
    format: FormatOption = "text",
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw it, too.")] = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Print the history of each indicator: when its speed changed, by how much, and what else changed then."""
    histories = api.history.history(options, knowledge=knowledge)
    print_either(format, history_record(histories), history_text(histories, report_layout()))
    if plot is not None and histories:
        # Those with the newest changes.
        newest = sorted(histories, key=lambda own: [c.time for c in own.changes][-1:], reverse=True)[:MOST_PLOTTED]
        if left := len(histories) - len(newest):
            say(f"{left} series left out of the plot: select with `--indicator`, `--framework`, `--machine`")
        write_plot(plot, history_plot(newest), _PANEL_ROWS * len(newest), panels=len(newest))

"""Histories of measurements: when the speed of a machine changed, and what else changed then."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from packaging.utils import canonicalize_name

from advisor.api.measurements.options import HistoryOptions
from advisor.api.stores import open_readable_store
from knowledge.domain.errors import InputError, suggest
from knowledge.evidence.history import SeriesFilter
from knowledge.evidence.history_changes import SeriesHistory, load_histories
from knowledge.store.base import KnowledgeBase


def history(
    options: HistoryOptions | None = None, *, knowledge: str | None = None, now: datetime | None = None
) -> tuple[SeriesHistory, ...]:
    """Return histories of measurements, with the changes of speed in each.

    Args:
        options: Which histories; by default all of the user's own machines.
        knowledge: Address of the knowledge base; by default the user's own.
        now: The present time, after which no point can be; by default that of this machine.

    Returns:
        The histories, by machine, framework and indicator; without ``since``, also those whose speed never changed.

    Raises:
        InputError: If nothing was measured of what the options name, or since their date (exit code 2).
        KnowledgeBaseError: If the knowledge base cannot be read (exit code 4).
    """
    options = options or HistoryOptions()
    selection = SeriesFilter(
        indicator=options.indicator,
        framework=options.framework,
        machine=options.machine,
        stack=options.stack,
        with_shipped=options.with_shipped,
    )
    with open_readable_store(knowledge) as store:
        histories = load_histories(store, selection, now=now)
        if not histories and selection != SeriesFilter(with_shipped=options.with_shipped):
            raise _nothing_measured(store, options, now)
    if options.since is None or not histories:
        return histories
    since = options.since
    newest = max(own.series.points[-1].time for own in histories)
    if newest < since:
        raise InputError(
            f"nothing was measured since {since:%Y-%m-%d %H:%M}",
            hint=f"the newest measurement is of {newest:%Y-%m-%d %H:%M}",
        )
    return tuple(
        replace(own, changes=tuple(change for change in own.changes if change.time >= since))
        for own in histories
        if own.series.points[-1].time >= since
    )


def _nothing_measured(store: KnowledgeBase, options: HistoryOptions, now: datetime | None) -> InputError:
    """Return the error that names the first option to which no measurement applies."""
    every = [own.series for own in load_histories(store, SeriesFilter(with_shipped=options.with_shipped), now=now)]
    if not every:
        return InputError(
            "the knowledge base has no history of this user's machines",
            hint="`advisor pi run` measures, and `--with-shipped` reads what ships with the program",
        )
    for name, value, choices in (
        ("indicator", options.indicator, {own.key.label.partition("@")[0] for own in every}),
        ("framework", canonicalize_name(options.framework), {own.key.framework for own in every}),
        ("machine", options.machine, {own.key.machine for own in every}),
    ):
        if value and value not in choices:
            return InputError(f"nothing was measured of the {name} `{value}`", hint=suggest(value, sorted(choices)))
    return InputError(
        "nothing was measured to which all options apply", hint="omit one of `--indicator`, `--framework`, `--stack`"
    )

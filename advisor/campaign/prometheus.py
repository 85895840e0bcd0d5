"""Metrics in Prometheus' text format, for the textfile collector of node_exporter."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.campaign.status import CampaignStatus
from knowledge.domain import metrics
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.extras import needs_extra
from knowledge.domain.metrics import FAILED_TASKS, CampaignTasks
from knowledge.domain.observation import Observation
from knowledge.domain.shared_files import write_atomically
from knowledge.store.base import KnowledgeBase
from pi_runners.execution.campaign import ObservationSink

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

StatusReader = Callable[[], CampaignStatus]
"""Returns the current status of a campaign."""


class PrometheusSink:
    """Hands observations on, and replaces a file with the newest results after every process."""

    def __init__(
        self, sink: ObservationSink, path: Path, *, store: KnowledgeBase, campaign: StatusReader | None = None
    ) -> None:
        """Prepare to write metrics.

        Args:
            sink: Stores the observations.
            path: The file.
            store: The knowledge base that the observations are stored in, and that the newest results come from.
            campaign: Returns the status of the campaign that measures; ``None`` if there is none.
        """
        with needs_extra("prometheus", "`--prometheus`"):
            import prometheus_client  # noqa: F401 - a missing package is reported before anything is measured
        self._sink = sink
        self._path = path
        self._store = store
        self._campaign = campaign
        self._runs: Counter[str] = Counter()
        self._telemetry: dict[str, float] = {}

    def add(self, observations: Iterable[Observation]) -> None:
        """Store first, then write."""
        observations = tuple(observations)
        self._sink(observations)
        for o in observations:
            self._runs[o.status] += 1
            if o.samples:
                # A figure that the newest run lacks, such as energy, must not be that of an earlier run.
                self._telemetry = {name: value for name, value in o.telemetry.items() if name in metrics.TELEMETRY}
        self.write()

    def write(self) -> None:
        """Replace the file.

        Raises:
            UnavailableError: If it cannot be written.
        """
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(_Families(tuple(self._families())))
        try:
            write_atomically(self._path, generate_latest(registry))
        except InputError as error:
            raise UnavailableError(error.message, hint="name a file that can be, with `--prometheus`") from None

    def _families(self) -> Iterator[Family]:
        from knowledge.evidence.newest_results import newest_results
        from knowledge.service.metric_families import campaign_families, family, result_families

        now = datetime.now(UTC)
        yield from result_families(newest_results(self._store, now=now, host=platform.node()))
        if self._campaign is not None:
            yield from campaign_families([campaign_tasks(self._campaign(), time=now.timestamp())])
        yield family(metrics.RUNS, (((status,), number) for status, number in sorted(self._runs.items())))
        for name, value in sorted(self._telemetry.items()):
            yield family(metrics.TELEMETRY[name], [((), value)])


class _Families:
    """Families that were computed before."""

    def __init__(self, families: tuple[Family, ...]) -> None:
        self._families = families

    def collect(self) -> tuple[Family, ...]:
        return self._families


def campaign_tasks(status: CampaignStatus, *, time: float) -> CampaignTasks:
    """Return the tasks of a campaign that last changed at a time, in seconds since 1970."""
    # If nobody coordinates an incomplete campaign, nobody runs its waiting tasks.
    is_abandoned = status.state == "incomplete"
    states = Counter("abandoned" if is_abandoned and t.state == "waiting" else str(t.state) for t in status.tasks)
    return CampaignTasks(name=status.name, time=time, tasks={**dict.fromkeys(FAILED_TASKS, 0), **states})


@contextmanager
def prometheus_file(
    sink: ObservationSink, path: Path | None, *, store: KnowledgeBase, campaign: StatusReader | None = None
) -> Iterator[ObservationSink]:
    """Yield the sink that also writes a file, which is written a last time at the end: also if that is a failure.

    Arguments are as of :class:`PrometheusSink`; without a file, the sink itself is yielded.
    """
    if path is None:
        yield sink
        return
    writer = PrometheusSink(sink, path, store=store, campaign=campaign)
    try:
        yield writer.add
    finally:
        writer.write()

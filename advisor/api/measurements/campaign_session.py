"""A campaign with its directory: run it, retry it, cancel it, collect its observations, delete the directory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from advisor.api.options import at_least_one
from advisor.api.stores import AdmittingSink, Warn, log_warning, open_writable_store
from advisor.campaign.coordinator import Coordinator
from advisor.campaign.directory import CampaignDirectory, CampaignPlan, block_name
from advisor.campaign.engines import Engine, open_engine
from advisor.campaign.prometheus import prometheus_file
from advisor.campaign.status import CampaignStatus, campaign_status
from advisor.domain.words import count
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.observation import Observation
from knowledge.domain.shared_files import read_bytes
from pi_runners.execution.environment import remove_environment
from pi_runners.executors.kubernetes import KubernetesExecutor
from pi_runners.executors.local import LocalExecutor
from pi_runners.executors.manifests import write_manifests

_PATIENCE_SECONDS = 60.0
"""Time that another coordinator has to cancel its tasks."""


def _ignore(_: object) -> None:
    """Ignore a report."""


@dataclass(frozen=True, kw_only=True)
class CollectionResult:
    """What a collection stored.

    Attributes:
        status: Status of the campaign.
        stored: Number of results that were stored.
        waiting: Number of results that could not be stored yet.
    """

    status: CampaignStatus
    stored: int
    waiting: int


@dataclass(frozen=True, kw_only=True)
class CampaignSession:
    """A campaign with its directory.

    Attributes:
        directory: The campaign directory.
        plan: The blocks that the campaign measures.
        knowledge: Address of the knowledge base; ``None`` for the user's own.
        engine: Engine that runs the tasks; ``None`` for the engine of the last submission.
        warn: Receives each temporary problem: a message and a hint, which may be empty.
    """

    directory: CampaignDirectory
    plan: CampaignPlan
    knowledge: str | None = None
    engine: Engine | None = None
    warn: Warn = log_warning

    def status(self) -> CampaignStatus:
        """Return the progress of the campaign, with the state of its tasks in the engines."""
        coordinator = self._reader()
        coordinator.poll()
        return campaign_status(coordinator)

    def stored_status(self) -> CampaignStatus:
        """Return the progress of the campaign according to the files in its directory and processes of this machine."""
        coordinator = self._reader()
        coordinator.poll(engine="local")
        return campaign_status(coordinator)

    def run(
        self,
        *,
        attempts: int = 3,
        detach: bool = False,
        keep_environments: bool = False,
        prometheus: Path | None = None,
        progress: Callable[[str], None] = _ignore,
        report: Callable[[CampaignStatus], None] = _ignore,
    ) -> CampaignStatus:
        """Run the campaign, or continue it after an interruption, until no task runs or waits.

        Args:
            attempts: Give up on a task after this many attempts without a new result.
            detach: Whether to submit the tasks and return.
            keep_environments: Whether environments on this machine stay after the campaign is complete.
            prometheus: File that holds the newest figures for node_exporter; ``None`` writes no such file.
            progress: Called with a short text for each block and for each problem of a task.
            report: Called with the status after each poll of the engine. If it raises an exception, the tasks continue:
                another call follows them.

        Returns:
            The status; its ``state`` is ``complete`` if every stack was measured and stored.

        Raises:
            InputError: If another process coordinates the campaign, or no engine is known (exit code 2).
            UnavailableError: If the engine or the knowledge base is not available (exit code 4).
        """
        at_least_one("attempts", attempts)
        engine = self.engine or self._open_engine(None, {})
        if not self.directory.exists:
            # A campaign that cannot be submitted from here leaves no directory.
            engine.executor.check()
        with self._coordinator(attempts=attempts, prometheus=prometheus) as coordinator:
            coordinator.resume(retry=False)
            for block in self.plan.blocks:
                progress(f"block `{block.name}`: {count(len(block.arms), 'arm')}, {count(block.rounds, 'round')}")
            status = _coordinate(coordinator, engine, detach=detach, progress=progress, report=report)
        if status.state == "complete" and not keep_environments and isinstance(engine.executor, LocalExecutor):
            for lock in (arm.lock for block in self.plan.blocks for arm in block.arms):
                remove_environment(lock, Path(engine.executor.options.environments))
        return status

    def retry(
        self,
        *,
        failed: bool = False,
        executor: str | None = None,
        options: Mapping[str, str] | None = None,
        attempts: int = 3,
        progress: Callable[[str], None] = _ignore,
        report: Callable[[CampaignStatus], None] = _ignore,
    ) -> CampaignStatus:
        """Submit missing tasks again, and wait until no task runs or waits.

        A stack that crashed or could not be installed is an observation, and is not measured again.

        Args:
            failed: Whether tasks that were given up are submitted, too.
            executor: Another executor than before: ``local``, ``slurm`` or ``kubernetes``.
            options: Options of the executor that replace the earlier ones.
            attempts: Give up on a task after this many attempts without a new result.
            progress: Called with a short text for each problem of a task.
            report: Called with the status after each poll of the engine.

        Returns:
            The status; its ``state`` is ``complete`` if every stack was measured and stored.

        Raises:
            InputError: If another process coordinates the campaign, or an option is wrong (exit code 2).
            UnavailableError: If the engine or the knowledge base is not available (exit code 4).
        """
        engine = self._open_engine(executor, options or {})
        with self._coordinator(attempts=attempts) as coordinator:
            coordinator.resume(retry=failed)
            return _coordinate(coordinator, engine, detach=False, progress=progress, report=report)

    def cancel(self) -> int:
        """Cancel running and waiting tasks; the observations so far are stored.

        Returns:
            The number of stored results.

        Raises:
            InputError: If the campaign was never run (exit code 2).
            UnavailableError: If the process that coordinates the campaign does not cancel it (exit code 4).
        """
        self._check_exists()
        (self.directory.path / "cancelled").touch()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        # The process that coordinates the campaign sees the file, and cancels the tasks.
        while self._reader().is_coordinated:
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"the process that looks after `{self.plan.name}` does not end it",
                    hint="end that process, then try again",
                )
            time.sleep(0.5)
        with self._coordinator() as coordinator:
            coordinator.cancel()
            while coordinator.step(None) and coordinator.is_active:
                time.sleep(0.2)
            return len(self.directory.cells(self.directory.stored))

    def collect(self, logs: Sequence[Path] = ()) -> CollectionResult:
        """Store the observations so far; nothing is submitted.

        Args:
            logs: Files with the output of tasks.

        Returns:
            The status, and how many results were stored.

        Raises:
            InputError: If a file cannot be read, the campaign never ran, or another process coordinates it (exit code
                2).
            KnowledgeBaseError: If the knowledge base cannot be opened (exit code 4).
        """
        self._check_exists()
        directory = self.directory
        with self._coordinator() as coordinator:
            before = len(directory.cells(directory.stored))
            for path in logs:
                coordinator.read_output(read_bytes(path).decode("utf-8", "replace"))
            coordinator.step(None)
            return CollectionResult(
                status=campaign_status(coordinator),
                stored=len(directory.cells(directory.stored)) - before,
                waiting=len(directory.cells(directory.spool)),
            )

    def forget(self, *, force: bool = False) -> None:
        """Delete the directory of the campaign; its observations stay in the knowledge base.

        Args:
            force: Whether to delete it also if tasks run, or results were not stored in the knowledge base.

        Raises:
            InputError: If the campaign was never run, another process coordinates it, tasks run, or results were not
                stored (exit code 2).
        """
        self._check_exists()
        name, directory = self.plan.name, self.directory
        with directory.lock_coordinator() as is_free:
            if not is_free:
                raise InputError(
                    f"another process coordinates campaign `{name}`", hint="cancel it with `advisor pi cancel`"
                )
            if not force and directory.cells(directory.spool):
                raise InputError(
                    f"campaign `{name}` has results that are not stored",
                    hint="store them with `advisor pi collect`, or add `--force`",
                )
            if not force and self._reader().is_active:
                raise InputError(
                    f"campaign `{name}` has tasks that run or wait",
                    hint="cancel them with `advisor pi cancel`, or add `--force`",
                )
            shutil.rmtree(directory.path)

    def block_names(self) -> tuple[str, ...]:
        """Return the names of the campaign's blocks on the machines that ran them."""
        cells = self.directory.cells(self.directory.stored)
        return tuple(dict.fromkeys(block_name(self.plan.blocks[cell.block], cell.machine) for cell in cells))

    def observations(self) -> tuple[Observation, ...]:
        """Return the campaign's observations in the knowledge base.

        Raises:
            KnowledgeBaseError: If the knowledge base cannot be opened (exit code 4).
        """
        with open_writable_store(self.knowledge) as store:
            return tuple(o for name in self.block_names() for o in store.observations(block=name))

    def render(self, folder: Path) -> str:
        """Write the Kubernetes manifests of the whole campaign, with a kustomization; nothing is submitted.

        Args:
            folder: Directory of the manifests; it is created.

        Returns:
            The value of the label ``app.kubernetes.io/instance`` of all pods.

        Raises:
            InputError: If the executor is not Kubernetes, or the directory cannot be written (exit code 2).
        """
        engine = self.engine or self._open_engine(None, {})
        if not isinstance(engine.executor, KubernetesExecutor):
            raise InputError("only Kubernetes has manifests", hint="add `--executor kubernetes`")
        self.directory.create(self.plan)
        tasks = tuple(range(len(self.plan.tasks)))
        batch = engine.batch(self.directory, self.plan.name, number="001", tasks=tasks)
        write_manifests(folder, engine.executor.manifests(batch))
        return batch.name

    def _check_exists(self) -> None:
        if not self.directory.exists:
            raise InputError(f"campaign `{self.plan.name}` was never run", hint="run it with `advisor pi campaign`")

    def _reader(self) -> Coordinator:
        """Return a coordinator that only reads."""
        return Coordinator(self.directory, self.plan, warn=self.warn)

    @contextmanager
    def _coordinator(self, *, attempts: int = 3, prometheus: Path | None = None) -> Iterator[Coordinator]:
        """Yield the only coordinator of the campaign."""
        with ExitStack() as opened:
            store = opened.enter_context(open_writable_store(self.knowledge))
            sink = AdmittingSink(store, warn=self.warn).add
            self.directory.create(self.plan)
            if not opened.enter_context(self.directory.lock_coordinator()):
                raise InputError(
                    f"another process coordinates the campaign in `{self.directory.path}`",
                    hint="`advisor pi status --watch` follows it, `advisor pi cancel` ends it",
                )
            coordinator = Coordinator(self.directory, self.plan, attempts=attempts, warn=self.warn)
            coordinator.sink = opened.enter_context(
                prometheus_file(sink, prometheus, store=store, campaign=lambda: campaign_status(coordinator))
            )
            coordinator.import_results(store)
            yield coordinator

    def _open_engine(self, executor: str | None, options: Mapping[str, str]) -> Engine:
        """Return an executor's engine; by default the engine of the last submission."""
        last = next(reversed(self._reader().submissions()), None)
        if last is None and executor is None:
            raise InputError(f"nothing of `{self.plan.name}` was submitted", hint="name an `--executor`")
        name = executor or (last.engine if last else "")
        before = last.options if last and last.engine == name else {}
        changes = {key.replace("-", "_"): value for key, value in options.items()}
        return open_engine(name, {**before, **changes}, self.directory, self.plan)


def _coordinate(
    coordinator: Coordinator,
    engine: Engine,
    *,
    detach: bool,
    progress: Callable[[str], None],
    report: Callable[[CampaignStatus], None],
) -> CampaignStatus:
    """Coordinate a campaign until no task runs or waits."""
    remarks: set[str] = set()
    try:
        waiting = coordinator.step(engine)
        while waiting and not detach:
            status = campaign_status(coordinator)
            report(status)
            for remark in set(status.remarks) - remarks:
                progress(remark)
            remarks.update(status.remarks)
            time.sleep(engine.executor.poll_seconds)
            waiting = coordinator.step(engine)
        report(status := campaign_status(coordinator))
    except KeyboardInterrupt:
        if engine.executor.cancel_on_interrupt:
            coordinator.cancel()
            coordinator.collect()
            progress("interrupted: the observations so far are stored; the same command continues")
        else:
            progress("interrupted: the tasks continue; the same command follows them, `advisor pi cancel` cancels them")
        raise
    return status

"""Run the arms of an experiment on a cluster: several rounds at once, each as a task of a small campaign."""

from __future__ import annotations

import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from advisor.api.measurements.campaign_session import CampaignSession
from advisor.api.measurements.campaigns import campaigns_directory
from advisor.api.measurements.laboratory import ProjectLaboratory
from advisor.api.measurements.measured_program import MeasuredProgram
from advisor.api.measurements.options import ExperimentOptions
from advisor.campaign.directory import CampaignDirectory, CampaignPlan
from advisor.campaign.engines import open_engine
from advisor.campaign.status import CampaignStatus
from advisor.domain.progress import activity, progress
from advisor.experiment.experiment import CONTROL, REFERENCE, ArmRun
from advisor.project.metadata.copy import pack_copy
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from pi_runners.execution.campaign import Block
from pi_runners.executors.kubernetes import KubernetesExecutor

_ROUNDS_AT_ONCE = 4
_MOST_USELESS = 3
"""Batches without a run that counts, one after the other, after which an experiment gives up."""


class _OverTimeError(Exception):
    """Raised when the budget ends while a batch runs."""


@dataclass(kw_only=True)
class ClusterLaboratory(ProjectLaboratory):
    """Runs rounds of a project's arms on machines that an executor chooses.

    The program is one of :func:`packed_program`. The campaigns are in the directory of all campaigns, which the nodes
    of Slurm must see; a pod of Kubernetes gets what it needs.
    """

    rounds_at_once: int = _ROUNDS_AT_ONCE
    builds_here: bool = False
    _batches: int = field(default=0, init=False)
    _useless: int = field(default=0, init=False)
    _nodes: HardwareProfile | None = field(default=None, init=False)
    _status: CampaignStatus | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Begin; a project that is too large for the executor is refused."""
        super().__post_init__()
        self._end = time.monotonic() + (self.options.budget_seconds or 0.0)
        benchmark = self.block.benchmark
        if benchmark is not None:
            # Each task builds its environments, so the first run of an arm fills the caches.
            own = replace(benchmark, warmup_runs=max(1, benchmark.warmup_runs))
            self.block = replace(self.block, benchmark=own)
        self._session(self.block)

    @property
    def hardware(self) -> HardwareProfile:
        """The machines that the arms run on: those of most runs of the first batch."""
        return self._nodes or super().hardware

    def earlier_runs(self, arm: int) -> Iterator[tuple[int, ArmRun]]:
        """Return the runs of an arm in earlier experiments on the same machines, once these are known."""
        return iter(()) if self._nodes is None else super().earlier_runs(arm)

    def run_rounds(self, numbers: Sequence[int], arms: Sequence[int]) -> Iterator[tuple[int, int, ArmRun]]:
        """Run rounds as tasks of a campaign; yield the runs with their rounds and arms.

        Raises:
            KeyboardInterrupt: After Ctrl-C: the tasks are cancelled, and the runs that had ended were yielded.
            UnavailableError: If several batches in a row had no run that counts, or none until the end of the budget.
        """
        self._batches += 1
        planned = {}
        for arm in arms:
            own = self.locked_arm(max(arm, REFERENCE))
            if reason := self.excess(own):
                yield numbers[0], arm, ArmRun(seconds=None, failure=reason, is_untried=True)
            else:
                planned[arm] = own
        arms = [*planned]
        block = replace(
            self.block,
            name=f"{self.block.name.lower()}-{self._batches}",
            arms=tuple(
                replace(own, number=place, reference=arm == REFERENCE)
                for place, (arm, own) in enumerate(planned.items())
            ),
            rounds=len(numbers),
        )
        session, is_known = self._session(block), self._nodes is not None
        started = time.monotonic()
        is_interrupted = self._run_batch(session)
        seconds = (time.monotonic() - started) / len(arms)
        self._seconds |= {max(arm, REFERENCE): seconds for arm in arms}
        results = {
            (numbers[number], arms[place]): run for (number, place), run in self._runs(session.observations()).items()
        }
        if not is_known:
            yield from self._recall()
        for (number, arm), run in results.items():
            yield number, arm, run
        if is_interrupted:
            raise KeyboardInterrupt
        self._check(session, [*results.values()])

    def _session(self, block: Block) -> CampaignSession:
        """Return the campaign of a batch."""
        plan = CampaignPlan(name=block.name, blocks=(block,))
        home = campaigns_directory(self.knowledge) / self.block.name.lower()
        directory = CampaignDirectory(home / f"batch-{self._batches}")
        engine = open_engine(self.options.executor, self.options.engine, directory, plan)
        return CampaignSession(directory=directory, plan=plan, knowledge=self.knowledge, engine=engine)

    def _run_batch(self, session: CampaignSession) -> bool:
        """Run a batch until all tasks have ended, the budget ends, or Ctrl-C, which it returns."""
        try:
            with activity("batch %d on %s", self._batches, self.options.executor):
                # Tasks that fail are not repeated: the next batch has other rounds.
                session.run(
                    attempts=1,
                    keep_environments=True,
                    progress=lambda text: progress("%s", text),
                    report=self._check_time,
                )
        except (KeyboardInterrupt, _OverTimeError) as error:
            session.cancel()
            return isinstance(error, KeyboardInterrupt)
        return False

    def _check_time(self, status: CampaignStatus) -> None:
        self._status = status
        if time.monotonic() > self._end:
            raise _OverTimeError

    def _runs(self, observations: Sequence[Observation]) -> dict[tuple[int, int], ArmRun]:
        """Return what the runs of a batch say of their arms, by round and place of the arm."""
        runs: dict[tuple[int, int], list[Observation]] = defaultdict(list)
        kinds = Counter(o.hardware.identity for o in observations)
        if kinds and self._nodes is None:
            most = kinds.most_common(1)[0][0]
            self._nodes = next(o.hardware for o in observations if o.hardware.identity == most)
        for observation in observations:
            runs[observation.round, observation.arm].append(observation)
        return {key: self._run_of(own) for key, own in sorted(runs.items())}

    def _recall(self) -> Iterator[tuple[int, int, ArmRun]]:
        """Yield the runs of earlier experiments."""
        for arm in (CONTROL, *range(len(self.arms))):
            for number, run in self.earlier_runs(arm):
                yield number, arm, run

    def _run_of(self, observations: Sequence[Observation]) -> ArmRun:
        """Return what a run says of its arm; one on a machine of another kind says nothing."""
        if observations[0].hardware.identity != self.hardware.identity:
            return ArmRun(seconds=None, disturbance="it ran on a machine of another kind")
        return self.result_of(observations)

    def _check(self, session: CampaignSession, runs: Sequence[ArmRun]) -> None:
        """Give up if several batches in a row had no run that counts, or none until the end of the budget."""
        if any(not run.disturbance for run in runs):
            self._useless = 0
            return
        self._useless += 1
        is_over = self._nodes is None and time.monotonic() > self._end
        if self._useless < _MOST_USELESS and not is_over:
            return
        remarks = () if self._status is None else self._status.remarks
        reasons = dict.fromkeys(run.disturbance for run in runs) or remarks or ("no task has ended",)
        which = "no run has ended in the budget" if is_over else f"none of the last {_MOST_USELESS} batches was of use"
        hint = self.disturbance.remedy if runs and self.disturbance else ""
        raise UnavailableError(
            f"{which}: {'; '.join(reasons)}",
            hint=hint or f"`{session.directory.batches}` has the output of the tasks; `--engine` selects other nodes",
        )


@contextmanager
def packed_program(
    program: MeasuredProgram, options: ExperimentOptions, knowledge: str | None
) -> Iterator[MeasuredProgram]:
    """Yield a program for a :class:`ClusterLaboratory`: its project is an archive, which the tasks unpack.

    Raises:
        InputError: If an option is wrong, downloads cannot be limited, or the archive cannot be written.
        UnavailableError: If the executor cannot be used from here.
    """
    folder = campaigns_directory(knowledge)
    plan = CampaignPlan(name="experiment", blocks=())
    executor = open_engine(options.executor, options.engine, CampaignDirectory(folder), plan).executor
    has_cache = not isinstance(executor, KubernetesExecutor) or executor.options.uv_cache_claim
    if options.max_download_bytes is not None and not has_cache:
        raise InputError(
            "`--max-download` needs a cache on Kubernetes: each pod would download its wheels again",
            hint="name a volume for it, as `--engine uv-cache-claim=NAME`, or leave out `--max-download`",
        )
    executor.check()
    if program.benchmark is None:
        yield program
        return
    archive = folder / f"project-{secrets.token_hex(4)}.zip"
    try:
        pack_copy(program.benchmark.directory, archive)
        yield replace(program, benchmark=replace(program.benchmark, directory=archive))
    finally:
        archive.unlink(missing_ok=True)

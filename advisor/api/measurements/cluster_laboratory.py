"""Run the arms of an experiment on a cluster: several rounds at once, each as a task of a small campaign."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from advisor.api.measurements.campaign_session import CampaignSession
from advisor.api.measurements.campaigns import campaigns_directory
from advisor.api.measurements.laboratory import ProjectLaboratory
from advisor.campaign.directory import CampaignDirectory, CampaignPlan
from advisor.campaign.engines import open_engine
from advisor.experiment.experiment import REFERENCE, ArmRun
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation

_ROUNDS_AT_ONCE = 4


@dataclass(kw_only=True)
class ClusterLaboratory(ProjectLaboratory):
    """Runs rounds of a project's arms on machines that an executor chooses; their tasks share a file system.

    The campaigns are in the directory of all campaigns, which all machines must see.
    """

    rounds_at_once: int = _ROUNDS_AT_ONCE
    _batches: int = field(default=0, init=False)
    _machine: str = field(default="", init=False)

    def __post_init__(self) -> None:
        """Begin; the copy of the project moves to where the tasks see it."""
        super().__post_init__()
        self._home = campaigns_directory(self.knowledge) / self.block.name.lower()
        if self.options.executor == "kubernetes":
            raise InputError(
                "`--measure` needs an executor whose tasks share a file system with this machine",
                hint="take `--executor slurm`, or measure on one machine",
            )
        benchmark = self.block.benchmark
        if benchmark is not None:
            shared = self._home / "project"
            shutil.copytree(benchmark.directory, shared, symlinks=True)
            # Each task builds its environments, so the first run of an arm fills the caches.
            own = replace(benchmark, directory=shared, warmup_runs=max(1, benchmark.warmup_runs))
            self.block = replace(self.block, benchmark=own)

    @property
    def machine(self) -> str:
        """Identity of the machines that the arms run on."""
        return self._machine or super().machine

    def run_rounds(self, numbers: Sequence[int], arms: Sequence[int]) -> Iterator[tuple[int, int, ArmRun]]:
        """Run rounds as tasks of a campaign; yield the runs with their rounds and arms."""
        self._batches += 1
        planned = {arm: self.locked_arm(max(arm, REFERENCE)) for arm in arms}
        planned = {
            arm: replace(own, number=place, reference=arm == REFERENCE)
            for place, (arm, own) in enumerate(planned.items())
        }
        name = f"{self.block.name.lower()}-{self._batches}"
        block = replace(self.block, name=name, arms=tuple(planned.values()), rounds=len(numbers))
        plan = CampaignPlan(name=name, blocks=(block,))
        directory = CampaignDirectory(self._home / f"batch-{self._batches}")
        engine = open_engine(self.options.executor, self.options.engine, directory, plan)
        session = CampaignSession(directory=directory, plan=plan, knowledge=self.knowledge, engine=engine)
        started = time.monotonic()
        session.run(keep_environments=True)
        seconds = (time.monotonic() - started) / len(arms)
        self._seconds |= {max(arm, REFERENCE): seconds for arm in arms}
        runs: dict[tuple[int, int], list[Observation]] = defaultdict(list)
        for observation in session.observations():
            runs[observation.round, observation.arm].append(observation)
        by_number = {own.number: arm for arm, own in planned.items()}
        for (number, place), observations in sorted(runs.items()):
            yield numbers[number], by_number[place], self._run_of(observations)

    def _run_of(self, observations: Sequence[Observation]) -> ArmRun:
        """Return what a run says of its arm; one on a machine of another kind than the first says nothing."""
        identity = observations[0].hardware.identity
        self._machine = self._machine or identity
        if identity != self._machine:
            return ArmRun(seconds=None, disturbance="it ran on a machine of another kind")
        return self.result_of(observations)

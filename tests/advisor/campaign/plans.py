"""A campaign's plan for one machine, and the processes of its workers."""

from __future__ import annotations

from dataclasses import replace

import psutil

from advisor.campaign.directory import CampaignPlan
from knowledge.domain.hardware import HardwareProfile
from pi_runners.execution.campaign import Block
from pi_runners.plan.matrix import Arm
from tests.advisor.campaign.conftest import Bench
from tests.knowledge.samples import MACHINE, RUN
from tests.pi_runners.campaigns import lock


def build_plan(hardware: HardwareProfile = MACHINE, device: str = "cpu", rounds: int = 1) -> CampaignPlan:
    arm = Arm(
        number=0,
        lock=lock("numpy==2.0.0"),
        framework="numpy",
        reference=True,
        indicators=(replace(RUN, device=device),),
    )
    return CampaignPlan(name="c", blocks=(Block(name="b", arms=(arm,), rounds=rounds, hardware=hardware),))


def workers(bench: Bench) -> list[psutil.Process]:
    """Return the worker processes of a bench."""
    processes = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if "work" in words and str(bench.folder) in " ".join(words) and process.name() != "slurmstepd":
                processes.append(process)
        except psutil.Error:
            continue
    return processes

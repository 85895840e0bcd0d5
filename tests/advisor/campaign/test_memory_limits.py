"""The memory limit of a process, from the memory that an engine gives to its task."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.campaign.directory import CampaignDirectory
from advisor.campaign.engines import open_engine
from knowledge.domain.errors import InputError
from tests.advisor.campaign.plans import build_plan


@pytest.mark.parametrize(
    ("engine", "memory", "gigabytes"),
    [
        ("slurm", "16G", "15.462"),
        ("slurm", "1000", "0.944"),
        ("slurm", "2T", "1979.121"),
        ("kubernetes", "8Gi", "7.731"),
        ("kubernetes", "8G", "7.200"),
        ("kubernetes", "500M", "0.450"),
    ],
)
def test_the_memory_limit_of_a_process_is_90_percent_of_its_task(
    tmp_path: Path, engine: str, memory: str, gigabytes: str
) -> None:
    directory = CampaignDirectory(tmp_path)
    options = {"memory": memory, "image": "x"} if engine == "kubernetes" else {"memory": memory}
    command = open_engine(engine, options, directory, build_plan()).command

    assert command[command.index("--memory-limit") + 1] == gigabytes
    with pytest.raises(InputError, match="is not a valid memory size"):
        open_engine(engine, {**options, "memory": "much"}, directory, build_plan())

"""Each executor, ready to run a batch here."""

from __future__ import annotations

import pytest

from pi_runners.executors.base import Executor
from pi_runners.executors.local import LocalExecutor
from pi_runners.executors.slurm import SlurmExecutor, SlurmOptions
from tests.pi_runners.executors.engines import on_kubernetes


@pytest.fixture(params=["local", "slurm", "kubernetes"])
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "local":
        return LocalExecutor()
    if request.param == "slurm":
        request.getfixturevalue("slurm")
        return SlurmExecutor(SlurmOptions(exclusive=False))
    return on_kubernetes(request.getfixturevalue("kubernetes"))

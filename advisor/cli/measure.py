"""What the commands that measure share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.console import say
from advisor.cli.options import open_store
from advisor.cli.user_directories import cache_directory

if TYPE_CHECKING:
    from advisor.index.client import IndexClient
    from knowledge.domain.hardware import HardwareProfile
    from knowledge.domain.observation import Observation
    from pi_runners.campaign import Block

MemoryLimitOption = Annotated[
    float | None,
    typer.Option("--memory-limit", metavar="GB", min=0.01, help="Kill a process that holds more memory than this."),
]
KeepOption = Annotated[
    bool,
    typer.Option("--keep-environments/--remove-environments", help="Keep environments for the next block."),
]
BudgetOption = Annotated[
    float | None,
    typer.Option("--disk-budget", metavar="GB", min=0.001, help="Refuse what would take more disk than this."),
]
PrometheusOption = Annotated[
    Path | None,
    typer.Option("--prometheus", metavar="FILE", help="Keep the newest figures in a file for node_exporter."),
]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", help="Also write the observations to a file.")]


def disk_budget(gigabytes: float | None) -> float | None:
    """Return a budget in bytes."""
    return None if gigabytes is None else gigabytes * 1e9


def choose_device(choice: str, hardware: HardwareProfile) -> str:
    """Return ``cpu`` or ``cuda``.

    Raises:
        InputError: If there is no such device, here or at all.
    """
    from knowledge.domain.errors import InputError

    if choice not in ("auto", "cpu", "cuda"):
        raise InputError(f"there is no device `{choice}`", hint="take `auto`, `cpu` or `cuda`")
    if choice == "cuda" and hardware.gpu is None:
        raise InputError("this machine has no NVIDIA GPU that the driver knows", hint="measure with `--device cpu`")
    return choice if choice != "auto" else ("cuda" if hardware.gpu else "cpu")


@contextmanager
def interruptible(how_to_go_on: str) -> Iterator[None]:
    """Say how to go on when the user interrupts."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted: what was measured is kept; {how_to_go_on}")
        raise


def run_and_report(
    blocks: Sequence[Block],
    *,
    client: IndexClient,
    knowledge: str | None,
    cache_dir: Path | None,
    keep_environments: bool,
    budget_bytes: float | None,
    prometheus: Path | None,
    output: Path | None,
    progress: Callable[[str], None],
) -> tuple[Observation, ...]:
    """Run what is missing of some blocks, and return all their observations, oldest first."""
    from advisor.campaign.plan import check_disk, estimate
    from advisor.report.prometheus import PrometheusSink
    from pi_runners.campaign import measured_cells, not_among, run_block
    from pi_runners.subprocess_runner import FreshProcesses

    environments = cache_directory(cache_dir) / "environments"
    if budget_bytes is not None:
        check_disk([estimate(b, client, {}) for b in blocks], environments, budget_bytes=budget_bytes)
    with open_store(knowledge) as store:
        for block in blocks:
            done = measured_cells(block, store.observations(block=block.name))
            run_block(
                block,
                sink=store if prometheus is None else PrometheusSink(store, prometheus),
                runner=FreshProcesses(),
                environments=environments,
                is_missing=not_among(done),
                keep_environments=keep_environments,
                progress=progress,
            )
        observations = tuple(o for block in blocks for o in store.observations(block=block.name))
    if output is not None:
        write_output(output, observations)
    return observations


def write_output(output: Path, observations: Iterable[Observation]) -> None:
    """Write an observation file."""
    from knowledge.domain.atomic_file import write_atomically
    from knowledge.exchange.files import observation_file

    write_atomically(output, observation_file(observations))

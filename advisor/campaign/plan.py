"""Turns a matrix file into the blocks of a campaign, and lists what is left out with the reasons."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.campaign.directory import CampaignPlan, DroppedCombination
from advisor.campaign.stack_lock import LOADGEN, StackLocker
from advisor.index.client import IndexClient
from advisor.index.pages.page import DistributionFile
from advisor.resolve.candidates.problem import NoStackError
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import MEASURED
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import Observation
from pi_runners.execution.campaign import Block
from pi_runners.execution.environment import FullDiskError, LockedPackage, StackLock, locked_stack
from pi_runners.plan.matrix import Arm, check_fit, framework_of, plan_arms
from pi_runners.plan.matrix_file import Combination, Matrix

_PROCESS_SECONDS = 4.0
_WARM_UP_SAMPLES = 8
_BEFORE_SAMPLES_SECONDS = 0.3
_UNPACKED_FACTOR = 4.0
"""Unpacked size divided by the size of a wheel, if it cannot be read; 4.0 to 4.5 for TensorFlow and NumPy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCost:
    """Estimated cost of a block.

    Attributes:
        processes: Number of processes that are started.
        runs: Number of indicator runs.
        download_bytes: Size of the wheels of all stacks, each counted once; wheels in uv's cache are not downloaded.
        disk_bytes: Unpacked size of the same wheels; environments are hard links to uv's cache.
        seconds: Duration.
    """

    processes: int
    runs: int
    download_bytes: float
    disk_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignTarget:
    """What a campaign is planned for.

    Attributes:
        hardware: The machine.
        python: Interpreter for a matrix that names none: a path or a version.
        repetition: Number of the repetition; each repetition has blocks of its own.
        is_remote: Whether the campaign runs on other machines, where interpreters named by version are looked up.
    """

    hardware: HardwareProfile
    python: str
    repetition: int = 1
    is_remote: bool = False

    def campaign_name(self, matrix: Matrix) -> str:
        """Return the name of the campaign of a matrix."""
        content = content_hash([matrix.source, self.hardware.identity, self.python])
        return f"{matrix.name}-{content[:8]}-{self.repetition}"


def choose_device(choice: str, hardware: HardwareProfile) -> str:
    """Return ``cpu`` or ``cuda``.

    Raises:
        InputError: If there is no such device, here or at all.
    """
    if choice not in ("auto", "cpu", "cuda"):
        raise InputError(f"there is no device `{choice}`", hint="take `auto`, `cpu` or `cuda`")
    if choice == "cuda" and hardware.gpu is None:
        raise InputError("this machine has no NVIDIA GPU that the driver knows", hint="measure with `--device cpu`")
    return choice if choice != "auto" else hardware.device


def plan_campaign(
    matrix: Matrix,
    target: CampaignTarget,
    *,
    client: IndexClient,
    max_runs: int,
    progress: Callable[[str], None] = lambda _: None,
) -> CampaignPlan:
    """Expand a matrix and lock every stack. Combinations that cannot be resolved are dropped; nothing is installed.

    Args:
        matrix: The contents of the matrix file.
        target: What the campaign is planned for.
        client: The indexes.
        max_runs: Maximum number of indicator runs in a round.
        progress: Called with a short text before each lock.

    Raises:
        InputError: If the machine does not have the device, or no combination can be resolved.
    """
    hardware, device = target.hardware, choose_device(matrix.content.device, target.hardware)
    locker = StackLocker(client, hardware, is_remote=target.is_remote)
    combinations = matrix.combinations(locker.versions_of, (target.python,), max_runs=max_runs)
    for combination in combinations:
        backend = MEASURED[framework_of(combination.requirements)]
        check_fit(combination.cases, matrix.content.dtypes, hardware, device=device, backends=[backend])
    groups: dict[tuple[str, str], list[tuple[StackLock, Combination]]] = defaultdict(list)
    dropped: dict[DroppedCombination, None] = {}
    for combination, lock in _locked(combinations, locker, progress):
        if isinstance(lock, DroppedCombination):
            dropped[lock] = None
        else:
            groups[MEASURED[framework_of(lock.requested)], combination.python].append((lock, combination))
    if not groups:
        raise InputError(
            f"no combination of the matrix `{matrix.name}` can be resolved; the first: {next(iter(dropped)).reason}",
            hint="`advisor pi plan` lists the dropped combinations with the reasons",
        )
    title = target.campaign_name(matrix)
    blocks = tuple(
        _block(
            matrix,
            members,
            name=f"{title}-{backend}" + ("" if "/" in python else f"-py{python}"),
            hardware=hardware,
            device=device,
            locker=locker,
        )
        for (backend, python), members in groups.items()
    )
    return CampaignPlan(name=title, blocks=blocks, dropped=tuple(dropped))


def _locked(
    combinations: Iterable[Combination], locker: StackLocker, progress: Callable[[str], None]
) -> Iterator[tuple[Combination, StackLock | DroppedCombination]]:
    """Yield each combination with its lock; combinations that differ in settings or indicators have one lock."""
    locks: dict[tuple[object, ...], StackLock | DroppedCombination] = {}
    for combination in combinations:
        key = (combination.requirements, combination.python, combination.cuda, combination.cudnn)
        if key not in locks:
            progress(f"locking {combination.label}")
            locks[key] = _lock(combination, locker)
        yield combination, locks[key]


def _lock(combination: Combination, locker: StackLocker) -> StackLock | DroppedCombination:
    try:
        lock = locker.lock(combination.requirements, combination.python, cudnn=combination.cudnn)
    except NoStackError as error:
        return DroppedCombination(label=combination.label, reason=error.message)
    cuda = locked_stack(lock, "3").cuda
    if combination.cuda is not None and (cuda or "") != combination.cuda:
        actual = f"CUDA {cuda}" if cuda else "no CUDA"
        reason = f"`{lock.label}` contains {actual}, not {combination.cuda}"
        return DroppedCombination(label=combination.label, reason=reason)
    return lock


def _block(
    matrix: Matrix,
    members: Sequence[tuple[StackLock, Combination]],
    *,
    name: str,
    hardware: HardwareProfile,
    device: str,
    locker: StackLocker,
) -> Block:
    content = matrix.content
    arms: list[Arm] = []
    # Stacks may have indicators of their own: those with equal indicators are planned together, with one reference.
    by_cases: dict[str, list[tuple[StackLock, Combination]]] = defaultdict(list)
    for lock, combination in members:
        by_cases[str(combination.cases)].append((lock, combination))
    for group in by_cases.values():
        arms += plan_arms(
            [(lock, combination.settings) for lock, combination in group],
            group[0][1].cases,
            dtypes=content.dtypes,
            device=device,
            control=True,
            first=len(arms),
        )
    limit = content.memory_limit_gigabytes
    return Block(
        name=name,
        arms=tuple(arms),
        rounds=content.rounds,
        hardware=hardware,
        samples=content.samples,
        min_seconds=content.min_time,
        timeout_seconds=content.timeout,
        memory_limit_bytes=None if limit is None else limit * 1e9,
        instruments=lock_loadgen(arms, locker),
    )


def lock_loadgen(arms: Iterable[Arm], locker: StackLocker) -> StackLock | None:
    """Return the lock of MLCommons' LoadGen; `None` if no arm needs it or it has no compatible wheel."""
    for arm in arms:
        if any(run.name == "inference" for run in arm.indicators):
            try:
                return locker.lock([LOADGEN], arm.lock.python)
            except NoStackError:
                return None
    return None


def estimate(block: Block, client: IndexClient, history: Mapping[str, float]) -> BlockCost:
    """Estimate the cost of a block.

    Args:
        block: The block.
        client: The indexes, for the sizes of wheels.
        history: Seconds that a run of an indicator took so far, by the indicator's label.
    """
    wheels = {package.url: package for arm in block.arms for package in arm.lock.packages}
    download = disk = 0.0
    for package in wheels.values():
        download += package.size or 0
        disk += client.unpacked_size(locked_file(package)) or _UNPACKED_FACTOR * (package.size or 0)
    default_seconds = _BEFORE_SAMPLES_SECONDS + (block.samples + _WARM_UP_SAMPLES) * block.min_seconds
    runs = [run for arm in block.arms for run in arm.indicators]
    measured_arms = [arm for arm in block.arms if arm.indicators]
    seconds = sum(history.get(run.label, default_seconds) for run in runs) + _PROCESS_SECONDS * len(measured_arms)
    return BlockCost(
        processes=block.rounds * len(measured_arms),
        runs=block.rounds * len(runs),
        download_bytes=download,
        disk_bytes=disk,
        seconds=block.rounds * seconds,
    )


def locked_file(package: LockedPackage) -> DistributionFile:
    """Return the file that a package of a lock is installed from."""
    return DistributionFile(
        filename=package.url.rpartition("/")[2],
        url=package.url,
        index=package.package.index,
        sha256=package.sha256,
        size=package.size,
    )


def run_seconds_by_label(observations: Iterable[Observation]) -> dict[str, float]:
    """Return the mean duration of the runs of each indicator, in seconds, by label."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for observation in observations:
        if observation.status == "ok":
            seconds[observation.indicator.label].append(
                observation.warmup_seconds + observation.loops * sum(observation.samples) + _BEFORE_SAMPLES_SECONDS
            )
    return {label: sum(values) / len(values) for label, values in seconds.items()}


def check_disk(estimates: Iterable[BlockCost], place: Path, *, budget_bytes: float | None) -> None:
    """Check that the environments of a campaign fit on the disk and into the disk budget.

    Args:
        estimates: Estimated costs of the blocks.
        place: Directory of the environments; it need not exist.
        budget_bytes: Maximum disk usage; `None` for no maximum.

    Raises:
        InputError: If they exceed the budget.
        FullDiskError: If the disk has too little free space.
    """
    needed_bytes = sum(estimate.disk_bytes for estimate in estimates)
    if budget_bytes is not None and needed_bytes > budget_bytes:
        raise InputError(
            f"the campaign's environments need about {needed_bytes / 1e9:.1f} GB, "
            f"the budget is {budget_bytes / 1e9:.1f} GB",
            hint="narrow the versions, split the matrix, or raise `--disk-budget`",
        )
    existing = next(p for p in (place, *place.parents) if p.exists())
    free_bytes = shutil.disk_usage(existing).free
    if needed_bytes > free_bytes:
        raise FullDiskError(
            f"the campaign's environments need about {needed_bytes / 1e9:.1f} GB; "
            f"`{existing}` has {free_bytes / 1e9:.1f} GB left",
            hint="free disk space, narrow the versions, or choose another directory with `--cache-dir`",
        )

"""From a matrix file to the blocks of a campaign, with the reason of everything that is left out."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.campaign.stack_lock import LOADGEN, StackLocker
from advisor.index.client import IndexClient
from advisor.index.page import DistributionFile
from advisor.resolve.baseline import Impossible
from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import Observation
from pi_runners.campaign import Block
from pi_runners.environment import FullDiskError, LockedPackage, StackLock, locked_stack
from pi_runners.matrix import Arm, check_fit, framework_of, plan_arms
from pi_runners.matrix_file import Combination, Matrix
from pi_runners.vocabulary import FRAMEWORKS

_PROCESS_SECONDS = 4.0
_WARM_UP_SAMPLES = 8
_BEFORE_SAMPLES_SECONDS = 0.3
_UNPACKED_FACTOR = 4.0
"""Unpacked size over size of a wheel, where it cannot be read; TensorFlow's and NumPy's are 4.0 to 4.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A combination that is not measured.

    Attributes:
        label: What it would have been.
        reason: Why it is not.
    """

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Blocks to run, one for each backend and interpreter.

    Attributes:
        name: Name of the campaign, which the names of its blocks begin with.
        blocks: What to run.
        dropped: What is left out.
    """

    name: str
    blocks: tuple[Block, ...]
    dropped: tuple[Dropped, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCost:
    """What a block takes, estimated.

    Attributes:
        processes: How many processes are started.
        runs: How many times an indicator is run.
        download_bytes: Wheels of all stacks, each once; what uv has in its cache is not fetched again.
        disk_bytes: The same wheels unpacked; environments are hard links to uv's cache.
        seconds: How long it runs.
    """

    processes: int
    runs: int
    download_bytes: float
    disk_bytes: float
    seconds: float


def plan_campaign(
    matrix: Matrix,
    *,
    client: IndexClient,
    hardware: HardwareProfile,
    device: str,
    python: str,
    most: int,
    repetition: int = 1,
    elsewhere: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Campaign:
    """Expand a matrix and lock every stack; what cannot resolve is dropped before anything is installed.

    Args:
        matrix: What the file says.
        client: The indexes.
        hardware: This machine.
        device: ``cpu`` or ``cuda``.
        python: Interpreter where the matrix names none.
        most: Most indicator runs a round.
        repetition: Which repetition; each has blocks of its own.
        elsewhere: Whether it runs on other machines, where interpreters that are named by version are looked for.
        progress: Called before each lock.

    Raises:
        InputError: If nothing is left.
    """
    locker = StackLocker(client, hardware, elsewhere=elsewhere)
    combinations = matrix.combinations(locker.versions_of, (python,), most=most)
    for combination in combinations:
        backend = FRAMEWORKS[framework_of(combination.requirements)]
        check_fit(combination.cases, matrix.content.dtypes, hardware, device=device, backends=[backend])
    locks: dict[tuple[object, ...], StackLock | Dropped] = {}
    groups: dict[tuple[str, str], list[tuple[StackLock, Combination]]] = defaultdict(list)
    dropped: list[Dropped] = []
    for combination in combinations:
        key = (combination.requirements, combination.python, combination.cuda, combination.cudnn)
        if key not in locks:
            progress(f"locking {combination.label}")
            locks[key] = _lock(combination, locker)
        lock = locks[key]
        if isinstance(lock, Dropped):
            if lock not in dropped:
                dropped.append(lock)
            continue
        groups[FRAMEWORKS[framework_of(lock.requested)], combination.python].append((lock, combination))
    if not groups:
        raise InputError(
            f"matrix `{matrix.name}` expands to nothing that can be resolved; first: {dropped[0].reason}",
            hint="`advisor pi plan` lists what is dropped, and why",
        )
    title = campaign_name(matrix, hardware=hardware, python=python, repetition=repetition)
    blocks = tuple(
        _block(
            matrix,
            members,
            name=_name(title, backend, version),
            device=device,
            hardware=hardware,
            locker=locker,
        )
        for (backend, version), members in groups.items()
    )
    return Campaign(name=title, blocks=blocks, dropped=tuple(dropped))


def campaign_name(matrix: Matrix, *, hardware: HardwareProfile, python: str, repetition: int) -> str:
    """Return the name of a matrix' campaign: another one for other hardware, another interpreter, or a repetition."""
    return f"{matrix.name}-{content_hash([matrix.source, hardware.identity, python])[:8]}-{repetition}"


def _name(campaign: str, backend: str, python: str) -> str:
    version = "" if "/" in python else f"-py{python}"
    return f"{campaign}-{backend}{version}"


def _lock(combination: Combination, locker: StackLocker) -> StackLock | Dropped:
    try:
        lock = locker.lock(combination.requirements, combination.python, cudnn=combination.cudnn)
    except Impossible as error:
        return Dropped(label=combination.label, reason=error.message)
    carried = locked_stack(lock, "3").cuda
    if combination.cuda is not None and (carried or "") != combination.cuda:
        found = f"carries CUDA {carried}" if carried else "carries no CUDA"
        return Dropped(label=combination.label, reason=f"`{lock.label}` {found}, not {combination.cuda}")
    return lock


def _block(
    matrix: Matrix,
    members: Sequence[tuple[StackLock, Combination]],
    *,
    name: str,
    device: str,
    hardware: HardwareProfile,
    locker: StackLocker,
) -> Block:
    content = matrix.content
    arms: list[Arm] = []
    # Stacks may have indicators of their own; each kind is planned alone, and the first one holds the reference.
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
        instruments=lock_instruments(arms, locker),
    )


def lock_instruments(arms: Iterable[Arm], locker: StackLocker) -> StackLock | None:
    """Return the lock of MLCommons' LoadGen, or none where no arm needs it or no wheel of it fits."""
    for arm in arms:
        if any(run.name == "inference" for run in arm.indicators):
            try:
                return locker.lock([LOADGEN], arm.lock.python)
            except Impossible:
                return None
    return None


def estimate(block: Block, client: IndexClient, history: Mapping[str, float]) -> BlockCost:
    """Estimate what a block takes.

    Args:
        block: The block.
        client: Knows the sizes of wheels.
        history: Seconds that a run of an indicator took before, by its label.
    """
    wheels = {package.url: package for arm in block.arms for package in arm.lock.packages}
    download = disk = 0.0
    for package in wheels.values():
        download += package.size or 0
        disk += client.unpacked_size(locked_file(package)) or _UNPACKED_FACTOR * (package.size or 0)
    each = _BEFORE_SAMPLES_SECONDS + (block.samples + _WARM_UP_SAMPLES) * block.min_seconds
    runs = [run for arm in block.arms for run in arm.indicators]
    working = [arm for arm in block.arms if arm.indicators]
    seconds = sum(history.get(run.label, each) for run in runs) + _PROCESS_SECONDS * len(working)
    return BlockCost(
        processes=block.rounds * len(working),
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


def history_of(observations: Iterable[Observation]) -> dict[str, float]:
    """Return how long runs of indicators took, the mean by label."""
    taken: dict[str, list[float]] = defaultdict(list)
    for o in observations:
        if o.status == "ok":
            taken[o.indicator.label].append(o.warmup_seconds + o.loops * sum(o.samples) + _BEFORE_SAMPLES_SECONDS)
    return {label: sum(values) / len(values) for label, values in taken.items()}


def check_disk(estimates: Iterable[BlockCost], place: Path, *, budget_bytes: float | None) -> None:
    """Refuse a campaign that does not fit on the disk, or into the budget.

    Raises:
        InputError: If it exceeds the budget.
        FullDiskError: If there is less room than it takes.
    """
    needed = sum(e.disk_bytes for e in estimates)
    if budget_bytes is not None and needed > budget_bytes:
        raise InputError(
            f"the campaign's environments take about {needed / 1e9:.1f} GB, the budget is {budget_bytes / 1e9:.1f} GB",
            hint="narrow the versions, split the matrix, or raise `--disk-budget`",
        )
    existing = next(p for p in (place, *place.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise FullDiskError(
            f"the campaign's environments take about {needed / 1e9:.1f} GB; `{existing}` has {free / 1e9:.1f} GB left",
            hint="make room, narrow the versions, or name another place with `--cache-dir`",
        )

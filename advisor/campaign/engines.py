"""Engines by name: an executor with its options and the command that starts a worker."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from advisor.campaign.directory import CampaignDirectory, CampaignPlan
from advisor.domain.words import quoted, size_text
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError, suggest
from knowledge.domain.identity import content_hash
from knowledge.records import RecordError, value_from
from pi_runners.executors.base import TASK_NUMBER, Batch, Executor
from pi_runners.executors.kubernetes import KubernetesExecutor
from pi_runners.executors.local import LocalExecutor, LocalOptions
from pi_runners.executors.manifests import INPUTS, SCRATCH, KubernetesOptions
from pi_runners.executors.slurm import SlurmExecutor, SlurmOptions

_MEMORY_SHARE = 0.9
"""Part of a task's memory that a measured process may use."""
_MOST_PROJECT_BYTES = 600_000
"""Size of a packed project on Kubernetes; the rest of a ConfigMap is for the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An executor with everything that a campaign needs to run its tasks there.

    Attributes:
        executor: Runs the tasks; its name and options suffice to open the engine again.
        command: Command of each task.
        inputs: Files that a task reads.
    """

    executor: Executor
    command: tuple[str, ...]
    inputs: tuple[Path, ...] = ()

    def batch(self, directory: CampaignDirectory, campaign: str, *, number: str, tasks: tuple[int, ...]) -> Batch:
        """Return a batch of a campaign. The same number gives the same name, by which the engine can look it up."""
        # Two directories of one campaign get different names.
        suffix = content_hash(str(directory.path))[:6]
        name = re.sub(r"[^a-z0-9]+", "-", campaign.lower()).strip("-")[:36].rstrip("-")
        return Batch(
            name=f"{name}-{suffix}-{number}",
            command=self.command,
            tasks=tasks,
            folder=directory.batches / number / "engine",
            home=directory.path,
            inputs=self.inputs,
        )


def open_engine(name: str, options: Mapping[str, Any], directory: CampaignDirectory, plan: CampaignPlan) -> Engine:
    """Return the engine of a name of :data:`ENGINES`, with options of the command line or of an earlier engine.

    Raises:
        InputError: If there is no such engine, or an option does not exist or is invalid.
    """
    if name not in ENGINES:
        raise InputError(f"there is no executor `{name}`", hint=f"choose one of {quoted(ENGINES)}")
    return ENGINES[name](options, directory, plan)


def own_interpreter(executor: str) -> str:
    """Return the interpreter of stacks that name none: this one, or its version, of which an image has its own."""
    return f"{sys.version_info.major}.{sys.version_info.minor}" if executor == "kubernetes" else sys.executable


def _local(options: Mapping[str, Any], directory: CampaignDirectory, plan: CampaignPlan) -> Engine:
    directory_name = _options(LocalOptions, options, "local").environments
    # Tasks run in other directories than this command.
    environments = Path(directory_name).absolute() if directory_name else cache_directory(None) / "environments"
    local_options = LocalOptions(environments=str(environments))
    arguments = ("--environments", local_options.environments, "--keep-environments")
    return Engine(executor=LocalExecutor(local_options), command=(*_worker(sys.executable, directory), *arguments))


def _slurm(options: Mapping[str, Any], directory: CampaignDirectory, plan: CampaignPlan) -> Engine:
    slurm_options = _options(SlurmOptions, options, "slurm")
    environments = ("--environments", slurm_options.scratch) if slurm_options.scratch else ()
    command = (*_worker(slurm_options.python or sys.executable, directory), *environments)
    command = (*command, *_limit(slurm_options.memory, "slurm"))
    return Engine(executor=SlurmExecutor(slurm_options), command=command, inputs=_projects(plan))


def _kubernetes(options: Mapping[str, Any], directory: CampaignDirectory, plan: CampaignPlan) -> Engine:
    kubernetes_options: KubernetesOptions = _options(KubernetesOptions, options, "kubernetes")
    if not kubernetes_options.image:
        raise InputError(
            "executor `kubernetes` needs an image",
            hint="build and push the Containerfile, then add `--engine image=NAME`",
        )
    runs = (run for block in plan.blocks for arm in block.arms for run in arm.indicators)
    if not kubernetes_options.gpus and any(run.device == "cuda" for run in runs):
        kubernetes_options = replace(kubernetes_options, gpus=1)
    for lock in (arm.lock for block in plan.blocks for arm in block.arms):
        if "/" in lock.python:
            raise InputError(
                f"`{lock.python}` is an interpreter of this machine, not of the image",
                hint="plan with a version that the image has, such as `--python 3.12`",
            )
    packed = directory.path / "campaign.json.gz"
    for project in _projects(plan):
        _check_size(project)
    command = ["advisor", "pi", "work", f"{SCRATCH}/campaign", TASK_NUMBER, "--plan", f"{INPUTS}/{packed.name}"]
    command += ["--environments", f"{SCRATCH}/environments", "--print"]
    command += _limit(kubernetes_options.memory, "kubernetes")
    command += ["--push", kubernetes_options.push] if kubernetes_options.push else []
    return Engine(
        executor=KubernetesExecutor(kubernetes_options, plan.blocks[0].hardware if plan.blocks else None),
        command=tuple(command),
        inputs=(packed, *_projects(plan)),
    )


def _projects(plan: CampaignPlan) -> tuple[Path, ...]:
    """Return the packed projects of the benchmarks in a plan."""
    return tuple(block.benchmark.directory for block in plan.blocks if block.benchmark)


def _check_size(project: Path) -> None:
    """Refuse a packed project that does not fit in a ConfigMap; it is removed after the experiment."""
    size = project.stat().st_size if project.exists() else 0
    if size > _MOST_PROJECT_BYTES:
        raise InputError(
            f"the project has {size_text(size)} when compressed, and Kubernetes can pass at most "
            f"{size_text(_MOST_PROJECT_BYTES)} to a pod",
            hint="let git ignore large files that the benchmark does not need, or take `--executor slurm`",
        )


ENGINES: Mapping[str, Callable[[Mapping[str, Any], CampaignDirectory, CampaignPlan], Engine]] = {
    "local": _local,
    "slurm": _slurm,
    "kubernetes": _kubernetes,
}
"""Functions that return an engine, by the name of its executor."""


def _limit(memory: str, engine: str) -> tuple[str, ...]:
    """Return a memory limit for a process, which is lower than the limit of its task.

    So a process that uses too much memory gives an observation, instead of ending the task.
    """
    if not memory:
        return ()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMGT]?)(i?)[bB]?", memory)
    if match is None:
        raise InputError(
            f"option `memory` of executor `{engine}`: `{memory}` is not a valid memory size", hint="write it as `16G`"
        )
    # Slurm has binary units, and a number without a unit is in megabytes; Kubernetes distinguishes `G` and `Gi`.
    slurm = engine == "slurm"
    base = 1024 if slurm or match[3] else 1000
    unit = match[2].upper() or ("M" if slurm else "")
    task_bytes = float(match[1]) * base ** " KMGT".index(unit or " ")
    return ("--memory-limit", f"{_MEMORY_SHARE * task_bytes / 1e9:.3f}")


def _worker(python: str, directory: CampaignDirectory) -> tuple[str, ...]:
    return (python, "-m", "advisor", "pi", "work", str(directory.path), TASK_NUMBER)


def _options(options_class: Any, options: Mapping[str, Any], engine: str) -> Any:
    """Convert options, whose values may be text, to the option class of an engine; refuse other ones."""
    names = [f.name.replace("_", "-") for f in fields(options_class)]
    for name in options:
        if name.replace("_", "-") not in names:
            raise InputError(f"executor `{engine}` has no option `{name}`", hint=suggest(name, names))
    try:
        return value_from(options_class, {name.replace("-", "_"): value for name, value in options.items()})
    except RecordError as error:
        raise InputError(
            f"option `{error.place.partition('.')[0]}` of executor `{engine}`: {error.reason}",
            hint="`docs/reference/executors.md` describes every option",
        ) from None

"""Engines by name: an executor with its options, and how a worker is started there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from advisor.campaign.directory import CampaignPlan, Home
from knowledge.domain.errors import InputError
from pi_runners.executors.base import TASK_NUMBER, Executor

_SHARE = 0.9
"""Of a task's memory, for what it measures."""

ENGINES = ("local", "slurm", "kubernetes")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """What a batch asks of this machine; it is never submitted elsewhere.

    Attributes:
        environments: Where environments are built, shared by the tasks.
    """

    environments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where a campaign runs.

    Attributes:
        name: Its name.
        options: Its options, JSON-ready: with the name, all that is needed to find it again.
        executor: Runs the tasks.
        command: What each task runs.
        inputs: Files that a task reads.
        seconds: How often it is asked how things are.
        ends_with_us: Whether its tasks are to end when the user interrupts.
    """

    name: str
    options: Mapping[str, Any]
    executor: Executor
    command: tuple[str, ...]
    inputs: tuple[Path, ...]
    seconds: float
    ends_with_us: bool


def open_engine(name: str, options: Mapping[str, Any], home: Home, plan: CampaignPlan) -> Engine:
    """Return an engine.

    Args:
        name: One of :data:`ENGINES`.
        options: As they were given, or as an engine has them.
        home: The campaign's folder.
        plan: The campaign's plan.

    Raises:
        InputError: If there is no such engine, or an option is not one of its own.
    """
    makers: dict[str, Callable[[Mapping[str, Any], Home, CampaignPlan], Engine]] = {
        "local": _local,
        "slurm": _slurm,
        "kubernetes": _kubernetes,
    }
    if name not in makers:
        raise InputError(f"there is no executor `{name}`", hint=f"take one of {', '.join(f'`{n}`' for n in ENGINES)}")
    return makers[name](options, home, plan)


def _local(options: Mapping[str, Any], home: Home, plan: CampaignPlan) -> Engine:
    from pi_runners.executors.local import LocalExecutor

    chosen = _options(LocalOptions, options, "local")
    return Engine(
        name="local",
        options=asdict(chosen),
        executor=LocalExecutor(),
        command=(*_worker(sys.executable, home), "--environments", chosen.environments, "--keep-environments"),
        inputs=(),
        seconds=0.3,
        ends_with_us=True,
    )


def _slurm(options: Mapping[str, Any], home: Home, plan: CampaignPlan) -> Engine:
    from pi_runners.executors.slurm import SlurmExecutor, SlurmOptions

    chosen = _options(SlurmOptions, options, "slurm")
    place = ("--environments", chosen.scratch) if chosen.scratch else ()
    limit = _limit(chosen.memory, "slurm")
    return Engine(
        name="slurm",
        options=asdict(chosen),
        executor=SlurmExecutor(chosen),
        command=(*_worker(chosen.python or sys.executable, home), *place, *limit),
        inputs=(),
        seconds=2.0,
        ends_with_us=False,
    )


def _kubernetes(options: Mapping[str, Any], home: Home, plan: CampaignPlan) -> Engine:
    from pi_runners.executors.kubernetes import KubernetesExecutor
    from pi_runners.executors.manifests import INPUTS, SCRATCH, KubernetesOptions

    chosen: KubernetesOptions = _options(KubernetesOptions, options, "kubernetes")
    if not chosen.image:
        raise InputError(
            "executor `kubernetes` needs an image", hint="build the Containerfile, push it, name `--engine image=NAME`"
        )
    runs = (run for block in plan.blocks for arm in block.arms for run in arm.indicators)
    if not chosen.gpus and any(run.device == "cuda" for run in runs):
        chosen = replace(chosen, gpus=1)
    for lock in (arm.lock for block in plan.blocks for arm in block.arms):
        if "/" in lock.python:
            raise InputError(
                f"`{lock.python}` is an interpreter of this machine, not of the image",
                hint="plan with a version that the image has, such as `--python 3.12`",
            )
    packed = home.folder / "campaign.json.gz"
    command = ["advisor", "pi", "work", f"{SCRATCH}/campaign", TASK_NUMBER, "--plan", f"{INPUTS}/{packed.name}"]
    command += ["--environments", f"{SCRATCH}/environments", "--print"]
    command += [*_limit(chosen.memory, "kubernetes"), *(("--push", chosen.push) if chosen.push else ())]
    return Engine(
        name="kubernetes",
        options=asdict(chosen),
        executor=KubernetesExecutor(chosen, plan.blocks[0].hardware if plan.blocks else None),
        command=tuple(command),
        inputs=(packed,),
        seconds=2.0,
        ends_with_us=False,
    )


def _limit(memory: str, engine: str) -> tuple[str, ...]:
    """Return a limit of a process below that of its task, so that what takes too much is an observation, not a loss.

    Raises:
        InputError: If it is no amount of memory.
    """
    if not memory:
        return ()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMGT]?)(i?)[bB]?", memory)
    if found is None:
        raise InputError(f"option `memory` of executor `{engine}`: `{memory}` is no amount", hint="write it as `16G`")
    # Slurm's units are binary, its plain number counts megabytes; Kubernetes tells `G` and `Gi` apart.
    slurm = engine == "slurm"
    base = 1024 if slurm or found[3] else 1000
    unit = found[2].upper() or ("M" if slurm else "")
    held = float(found[1]) * base ** " KMGT".index(unit or " ")
    return ("--memory-limit", f"{_SHARE * held / 1e9:.3f}")


def _worker(python: str, home: Home) -> tuple[str, ...]:
    return (python, "-m", "advisor", "pi", "work", str(home.folder), TASK_NUMBER)


def _options(kind: Any, given: Mapping[str, Any], engine: str) -> Any:
    """Read options, whose values may be text.

    Raises:
        InputError: If there is no such option, or its value is of the wrong kind.
    """
    from pydantic import TypeAdapter, ValidationError

    known = [f.name.replace("_", "-") for f in fields(kind)]
    for name in given:
        if name.replace("_", "-") not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=1)
            raise InputError(
                f"executor `{engine}` has no option `{name}`",
                hint=f"did you mean `{near[0]}`?" if near else f"it has {', '.join(known)}",
            )
    try:
        return TypeAdapter(kind).validate_python({name.replace("-", "_"): value for name, value in given.items()})
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"option `{first['loc'][0]}` of executor `{engine}`: {first['msg'].lower()}",
            hint="`docs/reference/executors.md` tells every option",
        ) from None

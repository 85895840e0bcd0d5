"""Runs batches on Slurm, through ``sbatch``, ``squeue`` and ``scancel``: a batch is a job array.

What a task does and how it ended is asked of ``squeue``. Slurm forgets ended jobs after ``MinJobAge``; so each task
also leaves the exit status of its command in the batch's folder, which must be on a file system that all nodes share.

Sources: sbatch(1), srun(1), squeue(1), job_array.html, and the job states of ``squeue --helpstate``
(https://slurm.schedmd.com/archive/slurm-22.05.11/).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from knowledge.domain.errors import InputError
from knowledge.domain.lines import lines_of
from pi_runners.executors.base import Batch, ExecutorError, RefusedError, State, TaskStatus, shell_command, tail_of

_MOST_OUTPUT = 64 * 1024 * 1024
_SECONDS = 60
_MEMORY = re.compile(r"exceeded memory limit[^,\n]*|oom[-_]kill[^\n]*|Out Of Memory", re.IGNORECASE)
_INDEX = "${SLURM_ARRAY_TASK_ID}"

_STATES: dict[str, State] = {
    "PENDING": "queued",
    "CONFIGURING": "queued",
    "REQUEUED": "queued",
    "REQUEUE_FED": "queued",
    "REQUEUE_HOLD": "queued",
    "SPECIAL_EXIT": "queued",
    "RESV_DEL_HOLD": "queued",
    "RUNNING": "running",
    "COMPLETING": "running",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "RESIZING": "running",
    "COMPLETED": "done",
    "FAILED": "failed",
    "TIMEOUT": "timed-out",
    "DEADLINE": "timed-out",
    "OUT_OF_MEMORY": "out-of-memory",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "NODE_FAIL": "lost",
    "BOOT_FAIL": "lost",
    "PREEMPTED": "lost",
}

# What sbatch says, and what to do about it.
_REFUSALS = (
    (r"partition", "`sinfo` lists the partitions; name one with `--engine partition=NAME`"),
    (r"QOS|account|limit|quota", "the cluster's limits refuse it: ask for less, or name `--engine account=NAME`"),
    (r"gres|generic resource", "`sinfo -o '%P %G'` lists what the nodes have; change `--engine gres=...`"),
    (r"feature|node configuration|memory specification", "no node of the partition is like that: ask for less"),
    (r"permission|denied|authori[sz]", "your user may not submit there: ask the cluster's operator"),
    (r"unrecognized option", "this Slurm lacks that option; containers need the Pyxis plug-in (`--container-image`)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """What a batch asks of Slurm.

    Attributes:
        partition: Partition; the cluster's default one where none is named.
        account: Account that is charged.
        qos: Quality of service.
        constraint: Features that a node must have.
        gres: Generic resources of each task, such as ``gpu:1``.
        nodelist: Only on these nodes.
        exclude: Not on these nodes.
        exclusive: Whether a task has its node to itself, so that nothing runs beside a measurement.
        cpus: Processors of each task; all of the node's where it is exclusive and none is named.
        memory: Memory of each task, such as ``16G``.
        minutes: Longest time of a task; the partition's default where none is named.
        at_most: So many tasks at a time.
        cpu_bind: How processes are bound to processors (``srun --cpu-bind``).
        mem_bind: How memory is bound to NUMA nodes (``srun --mem-bind``); empty leaves it to the cluster.
        container_image: Image to run in (``srun --container-image``, with the Pyxis plug-in).
        container_mounts: What the container sees of the node (``--container-mounts``); the campaign's folder always.
        python: Interpreter on the nodes that has this program; the one that runs it here where none is named.
        scratch: Folder of a node for environments; ``$TMPDIR`` or ``/tmp`` where none is named.
        uv_cache: Folder of uv's cache, shared or a node's own; the user's where none is named.
        setup: Shell line that runs before each task, such as ``module load python``.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = ""
    nodelist: str = ""
    exclude: str = ""
    exclusive: bool = True
    cpus: int = 0
    memory: str = ""
    minutes: int = 0
    at_most: int = 0
    cpu_bind: str = "cores"
    mem_bind: str = ""
    container_image: str = ""
    container_mounts: str = ""
    python: str = ""
    scratch: str = ""
    uv_cache: str = ""
    setup: str = ""


class SlurmExecutor:
    """A Slurm cluster; see :mod:`pi_runners.executors.base` for the contract."""

    sees_files = True

    def __init__(self, options: SlurmOptions | None = None) -> None:
        self.options = options or SlurmOptions()

    def check(self) -> None:
        """Check that Slurm is installed; see :meth:`Executor.check`."""
        _require("sbatch")

    def submit(self, batch: Batch) -> str:
        """Submit a job array, unless the cluster has one of that name."""
        if found := self.find(batch):
            return found
        try:
            arguments = self.arguments(batch)
            batch.folder.mkdir(parents=True, exist_ok=True)
            script = batch.folder / "job.sh"
            script.write_bytes(os.fsencode(self.script(batch)))
            # For people: what was asked for beside the script.
            (batch.folder / "sbatch.json").write_text(json.dumps(arguments, indent=1), encoding="utf-8")
        except OSError as error:
            raise ExecutorError(f"`{batch.folder}` cannot be written: {error.strerror}") from None
        done = _ask("sbatch", "--parsable", *arguments, "--", str(script))
        handle = done.partition(";")[0].strip()
        if not handle.isdigit():
            raise ExecutorError(f"`sbatch` answered with no job number: {handle!r}")
        return handle

    def find(self, batch: Batch) -> str | None:
        """Return the array's number where the cluster knows the batch's name."""
        found = _ask("squeue", "--noheader", "--states=all", "--me", f"--name={batch.name}", "--format=%F").split()
        return found[0] if found else None

    def poll(self, batch: Batch, handle: str) -> tuple[TaskStatus, ...]:
        """Return the status of every task."""
        told = self._told(batch, handle)
        return tuple(_explained(batch, told.get(task) or self._left(batch, task)) for task in batch.tasks)

    def cancel(self, batch: Batch, handle: str) -> None:
        """End every task that has not ended."""
        (batch.folder / "cancelled").touch()
        try:
            _ask("scancel", f"--name={batch.name}", handle)
        except ExecutorError as error:
            # There is nothing to cancel where the cluster has forgotten all of it.
            if "invalid job id" not in error.message.lower():
                raise

    def output(self, batch: Batch, handle: str, task: int) -> str:
        """Return what a task has written so far."""
        return tail_of(batch.folder / f"task-{task}.log", _MOST_OUTPUT)

    def arguments(self, batch: Batch) -> list[str]:
        """Return the options of ``sbatch`` for a job array.

        They are no ``#SBATCH`` lines of the script: there, a value with a space or a newline would be several options.

        Raises:
            InputError: If the folder cannot be named to ``sbatch``.
        """
        o = self.options
        tasks = ",".join(map(str, batch.tasks)) + (f"%{o.at_most}" if o.at_most else "")
        minutes = o.minutes or (batch.seconds is not None and max(1, -(-int(batch.seconds) // 60)))
        memory = o.memory or (batch.memory_bytes is not None and f"{int(batch.memory_bytes // 1_000_000)}M")
        values = {
            "job-name": batch.name,
            "array": tasks,
            "output": f"{_pattern(batch)}/task-%a.log",
            "open-mode": "append",
            "partition": o.partition,
            "account": o.account,
            "qos": o.qos,
            "constraint": o.constraint,
            "gres": o.gres,
            "nodelist": o.nodelist,
            "exclude": o.exclude,
            "cpus-per-task": o.cpus,
            "mem": memory,
            "time": minutes,
        }
        words = [f"--{name}={value}" for name, value in values.items() if value]
        return [*words, "--nodes=1", "--ntasks=1", "--requeue", *(["--exclusive"] if o.exclusive else [])]

    def script(self, batch: Batch) -> str:
        """Return the batch script of a job array.

        Raises:
            InputError: If the campaign's folder cannot be named to a container.
        """
        o = self.options
        # A command comes first: what follows is not searched for options.
        lines = [f"status={shlex.quote(str(batch.folder))}/exit-{_INDEX}"]
        if o.uv_cache:
            lines.append(f"export UV_CACHE_DIR={shlex.quote(o.uv_cache)}")
        if o.setup:
            lines.append(o.setup)
        lines += [
            'rm -f -- "$status"',
            self._step(batch),
            "code=$?",
            # Whole or not at all, also on a network file system.
            'echo "$code $SLURMD_NODENAME" > "$status.$SLURM_JOB_ID" && mv -- "$status.$SLURM_JOB_ID" "$status"',
            "exit $code",
        ]
        return "\n".join(["#!/bin/bash", *lines, ""])

    def _step(self, batch: Batch) -> str:
        o = self.options
        words = ["srun", "--ntasks=1"]
        # A step does not inherit the processors of its batch job since Slurm 22.05.
        words += [f"--cpus-per-task={o.cpus}"] if o.cpus else []
        words += [f"--cpu-bind={o.cpu_bind}"] if o.cpu_bind else []
        words += [f"--mem-bind={o.mem_bind}"] if o.mem_bind else []
        if o.container_image:
            mounts = [_mount(batch.home), *([o.container_mounts] if o.container_mounts else [])]
            words += [f"--container-image={o.container_image}", f"--container-mounts={','.join(mounts)}"]
        return f"{shlex.join(words)} -- {shell_command(batch, _INDEX)}"

    def _told(self, batch: Batch, handle: str) -> dict[int, TaskStatus]:
        """Return what the cluster says of an array's tasks; nothing of those that it has forgotten.

        A controller that lost its files counts jobs from one again: a number alone may be another batch's.
        """
        of_batch = (f"--jobs={handle}", f"--name={batch.name}")
        try:
            lines = _ask("squeue", "--noheader", "--states=all", "--array", *of_batch, "--format=%K|%T|%N|%r")
        except ExecutorError as error:
            if "invalid job id" in error.message.lower():
                return {}
            raise
        told = {}
        for line in lines_of(lines):
            task, state, node, reason = line.split("|", 3)
            if task.isdigit():
                told[int(task)] = TaskStatus(
                    task=int(task),
                    state=_STATES.get(state, "running"),
                    node=node,
                    reason="" if reason in ("None", "Resources", "Priority") else reason,
                )
        return told

    def _left(self, batch: Batch, task: int) -> TaskStatus:
        """Return what a task left in the batch's folder, where the cluster has forgotten it."""
        code, _, node = tail_of(batch.folder / f"exit-{task}", 200).strip().partition(" ")
        if code == "0":
            return TaskStatus(task=task, state="done", node=node)
        if code.isdigit():
            return TaskStatus(task=task, state="failed", node=node, reason=f"exit status {code}")
        if (batch.folder / "cancelled").exists():
            return TaskStatus(task=task, state="cancelled")
        return TaskStatus(task=task, state="lost", reason="the cluster no longer knows it, and it left no exit status")


def _explained(batch: Batch, status: TaskStatus) -> TaskStatus:
    """Tell a task that was killed for its memory from one that failed: without control groups Slurm only prints it."""
    if status.state != "failed":
        return status
    said = _MEMORY.search(tail_of(batch.folder / f"task-{status.task}.log", 4000))
    return replace(status, state="out-of-memory", reason=said[0]) if said else status


def _pattern(batch: Batch) -> str:
    """Return the folder as a file name pattern of sbatch, in which ``%`` begins a field.

    Raises:
        InputError: If it holds a backslash, after which sbatch reads no fields.
    """
    text = str(batch.folder)
    if "\\" in text:
        raise InputError(
            f"`{text}` holds a backslash, which sbatch does not take in a folder", hint="name another `--home`"
        )
    return text.replace("%", "%%")


def _mount(folder: Path) -> str:
    """Return what shows a folder at the same place in a container.

    Raises:
        InputError: If its name would be read as several places.
    """
    if re.search("[:,]", str(folder)):
        raise InputError(
            f"`{folder}` holds a colon or a comma, which `--container-mounts` does not take in a folder",
            hint="name another `--home`",
        )
    return f"{folder}:{folder}"


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise RefusedError(
            f"Slurm is not installed here: there is no `{program}`",
            hint="run this on a login node of the cluster, or measure with `--executor local`",
        )


def _ask(program: str, *arguments: str) -> str:
    """Run one of Slurm's programs and return what it printed.

    Raises:
        ExecutorError: If it is not there, does not answer, or refuses.
    """
    _require(program)
    try:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            # Another language's messages would not be understood, and variables of a surrounding job would be obeyed.
            env={k: v for k, v in os.environ.items() if not k.startswith(("SBATCH_", "SQUEUE_"))} | {"LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        told = (error.stderr or b"").decode("utf-8", "replace").strip().splitlines()
        raise ExecutorError(
            f"Slurm does not answer: `{program}` gave nothing in {_SECONDS} seconds{': ' + told[0] if told else ''}",
            hint="what was submitted goes on; the same command follows it when the controller is back",
        ) from None
    if done.returncode:
        raise _refused(program, done.stderr)
    return done.stdout


def _refused(program: str, text: str) -> ExecutorError:
    lines = [re.sub(rf"^{program}: (error: )?", "", line).strip() for line in text.strip().splitlines()]
    cause = "; ".join(dict.fromkeys(line for line in lines if line and not line.startswith("Try ")))
    if re.search(r"unable to contact|connection refused|configuration source|communication", cause, re.IGNORECASE):
        return ExecutorError(
            f"Slurm's controller cannot be reached: {cause}",
            hint="what was submitted goes on; the same command follows it when the controller is back",
        )
    hint = next((hint for pattern, hint in _REFUSALS if re.search(pattern, cause, re.IGNORECASE)), "")
    return RefusedError(f"Slurm refuses (`{program}`): {cause}", hint=hint)

"""Runs batches on Slurm, through ``sbatch``, ``squeue`` and ``scancel``: a batch is a job array.

``squeue`` reports the states of the tasks. Slurm forgets ended jobs after ``MinJobAge``, so each task also writes
the exit status of its command into the batch's directory, which must be on a file system that all nodes share.

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

from knowledge.domain.documents import lines_of
from knowledge.domain.errors import InputError
from pi_runners.executors.base import (
    Batch,
    EngineState,
    Executor,
    ExecutorError,
    RefusedError,
    TaskStatus,
    shell_command,
    tail_of,
)

_SECONDS = 60
_MEMORY = re.compile(r"exceeded memory limit[^,\n]*|oom[-_]kill[^\n]*|Out Of Memory", re.IGNORECASE)
_INDEX = "${SLURM_ARRAY_TASK_ID}"
_SAME_NAMES = ("partition", "account", "qos", "constraint", "gres", "nodelist", "exclude")
"""Options that are options of ``sbatch``, too."""

_STATES: dict[str, EngineState] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"), "queued"),
    **dict.fromkeys(("SPECIAL_EXIT", "RESV_DEL_HOLD"), "queued"),
    **dict.fromkeys(("COMPLETED",), "done"),
    **dict.fromkeys(("FAILED",), "failed"),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), "timed-out"),
    **dict.fromkeys(("OUT_OF_MEMORY",), "out-of-memory"),
    **dict.fromkeys(("CANCELLED", "REVOKED"), "cancelled"),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "PREEMPTED"), "lost"),
}
"""States by their names in Slurm; the others, such as ``COMPLETING`` and ``SUSPENDED``, are ``running``."""

# Patterns in the error messages of sbatch, each with a hint for the user.
_REFUSALS = (
    (r"partition", "`sinfo` lists the partitions; choose one with `--engine partition=NAME`"),
    (
        r"QOS|account|limit|quota",
        "a limit of the cluster is exceeded: request less, or choose an account with `--engine account=NAME`",
    ),
    (r"gres|generic resource", "`sinfo -o '%P %G'` lists the resources of the nodes; change `--engine gres=...`"),
    (r"feature|node configuration|memory specification", "no node of the partition has these features: request less"),
    (
        r"permission|denied|authori[sz]",
        "your account has no permission to submit there: ask the cluster's administrator",
    ),
    (r"unrecognized option", "this Slurm does not support that option; `--container-image` needs the Pyxis plug-in"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """Options of a batch on Slurm.

    Attributes:
        partition: Partition; by default the cluster's default partition.
        account: Account to charge.
        qos: Quality of service.
        constraint: Features that a node must have.
        gres: Generic resources of each task, such as ``gpu:1``.
        nodelist: Nodes to use; by default all.
        exclude: Nodes not to use.
        exclusive: Whether to reserve the whole node for each task, so that nothing else runs during a measurement.
        cpus: Number of processors of each task; by default all processors of an exclusive node.
        memory: Memory of each task, such as ``16G``.
        minutes: Time limit of a task in minutes; by default the partition's limit.
        at_most: Maximum number of concurrent tasks; by default no limit.
        cpu_bind: Binding of processes to processors (``srun --cpu-bind``).
        mem_bind: Binding of memory to NUMA nodes (``srun --mem-bind``); by default the cluster's setting.
        container_image: Container image to run in (``srun --container-image``, needs the Pyxis plug-in).
        container_mounts: Additional mounts (``--container-mounts``) in addition to the campaign's directory.
        python: Interpreter on the nodes in which this program is installed; by default the path of the current one.
        scratch: Directory on a node for environments; by default ``$TMPDIR`` or ``/tmp``.
        uv_cache: Directory of uv's cache, shared or local to a node; by default the user's cache.
        setup: Shell command to run before each task, such as ``module load python``.
    """

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


class SlurmExecutor(Executor):
    """A Slurm cluster."""

    name = "slurm"

    def __init__(self, options: SlurmOptions | None = None) -> None:
        self.options = options or SlurmOptions()

    def check(self) -> None:
        _require("sbatch")
        _run("sinfo", "--noheader")

    def submit(self, batch: Batch) -> str:
        if existing := self.find(batch):
            return existing
        try:
            arguments = self.arguments(batch)
            batch.folder.mkdir(parents=True, exist_ok=True)
            script = batch.folder / "job.sh"
            script.write_bytes(os.fsencode(self.script(batch)))
            # For troubleshooting: the options are not in the script.
            (batch.folder / "sbatch.json").write_text(json.dumps(arguments, indent=1), encoding="utf-8")
        except OSError as error:
            raise ExecutorError(f"`{batch.folder}` cannot be written: {error.strerror}") from None
        output = _run("sbatch", "--parsable", *arguments, "--", str(script))
        handle = output.partition(";")[0].strip()
        if not handle.isdigit():
            raise ExecutorError(f"`sbatch` returned no job number: {handle!r}")
        return handle

    def find(self, batch: Batch) -> str | None:
        numbers = _run("squeue", "--noheader", "--states=all", "--me", f"--name={batch.name}", "--format=%F").split()
        return numbers[0] if numbers else None

    def poll(self, batch: Batch, handle: str) -> tuple[TaskStatus, ...]:
        statuses = self._queue_statuses(batch, handle)
        return tuple(
            _with_memory_cause(batch, statuses.get(task) or self._status_from_file(batch, task)) for task in batch.tasks
        )

    def cancel(self, batch: Batch, handle: str) -> None:
        # The folder is absent if the array was found by its name.
        batch.folder.mkdir(parents=True, exist_ok=True)
        (batch.folder / "cancelled").touch()
        _run("scancel", f"--name={batch.name}", handle)

    def arguments(self, batch: Batch) -> list[str]:
        """Return the options of ``sbatch`` for a job array.

        They are not ``#SBATCH`` lines in the script: there, a space or newline in a value would start another option.

        Raises:
            InputError: If ``sbatch`` does not support the name of the directory.
        """
        o = self.options
        # In this pattern, `%` starts a field, and a backslash makes sbatch ignore the fields.
        folder = _supported(batch.folder, "\\", "a backslash", "sbatch").replace("%", "%%")
        tasks = ",".join(map(str, batch.tasks)) + (f"%{o.at_most}" if o.at_most else "")
        values = {
            "job-name": batch.name,
            "array": tasks,
            "output": f"{folder}/task-%a.log",
            "open-mode": "append",
            **{name: getattr(o, name) for name in _SAME_NAMES},
            "cpus-per-task": o.cpus,
            "mem": o.memory,
            "time": o.minutes,
        }
        words = [f"--{name}={value}" for name, value in values.items() if value]
        return [*words, "--nodes=1", "--ntasks=1", "--requeue", *(["--exclusive"] if o.exclusive else [])]

    def script(self, batch: Batch) -> str:
        """Return the batch script of a job array.

        Raises:
            InputError: If container mounts do not support the name of the campaign's directory.
        """
        o = self.options
        # A command comes first: after it, sbatch does not look for `#SBATCH` options.
        lines = [f"status={shlex.quote(str(batch.folder))}/exit-{_INDEX}"]
        if o.uv_cache:
            lines.append(f"export UV_CACHE_DIR={shlex.quote(o.uv_cache)}")
        if o.setup:
            lines.append(o.setup)
        lines += [
            'rm -f -- "$status"',
            self._step(batch),
            "code=$?",
            # A rename is atomic, also on a network file system.
            'echo "$code $SLURMD_NODENAME" > "$status.$SLURM_JOB_ID" && mv -- "$status.$SLURM_JOB_ID" "$status"',
            "exit $code",
        ]
        return "\n".join(["#!/bin/bash", *lines, ""])

    def _step(self, batch: Batch) -> str:
        o = self.options
        words = ["srun", "--ntasks=1"]
        # Since Slurm 22.05, a step does not inherit the number of processors of its job.
        bindings = {"cpus-per-task": o.cpus, "cpu-bind": o.cpu_bind, "mem-bind": o.mem_bind}
        words += [f"--{name}={value}" for name, value in bindings.items() if value]
        if o.container_image:
            paths = (batch.home, *batch.inputs)
            own = [_supported(path, ":,", "a colon or a comma", "`--container-mounts`") for path in paths]
            mounts = ",".join(filter(None, (*(f"{path}:{path}" for path in own), o.container_mounts)))
            words += [f"--container-image={o.container_image}", f"--container-mounts={mounts}"]
        return f"{shlex.join(words)} -- {shell_command(batch, _INDEX)}"

    def _queue_statuses(self, batch: Batch, handle: str) -> dict[int, TaskStatus]:
        """Return the statuses that the cluster reports, by task; tasks that it has forgotten are absent.

        The job is selected by number and name: a controller that lost its state counts jobs from 1 again, so the number
        alone may belong to another batch.
        """
        selection = (f"--jobs={handle}", f"--name={batch.name}")
        statuses = {}
        lines = _run("squeue", "--noheader", "--states=all", "--array", *selection, "--format=%K|%T|%N|%r")
        for line in lines_of(lines):
            task, state, node, reason = line.split("|", 3)
            if task.isdigit():
                statuses[int(task)] = TaskStatus(
                    task=int(task),
                    state=_STATES.get(state, "running"),
                    node=node,
                    reason="" if reason in ("None", "Resources", "Priority") else reason,
                )
        return statuses

    def _status_from_file(self, batch: Batch, task: int) -> TaskStatus:
        """Return the status of a task that the cluster has forgotten, from the exit status that the task wrote."""
        code, _, node = tail_of(batch.folder / f"exit-{task}", 200).strip().partition(" ")
        if code == "0":
            return TaskStatus(task=task, state="done", node=node)
        if code.isdigit():
            return TaskStatus(task=task, state="failed", node=node, reason=f"exit status {code}")
        if (batch.folder / "cancelled").exists():
            return TaskStatus(task=task, state="cancelled")
        return TaskStatus(
            task=task, state="lost", reason="the cluster has no record of it, and it wrote no exit status"
        )


def _with_memory_cause(batch: Batch, status: TaskStatus) -> TaskStatus:
    """Return ``out-of-memory`` for a failed task whose output says so: without control groups, only that says it."""
    if status.state != "failed":
        return status
    match = _MEMORY.search(tail_of(batch.log_file(status.task), 4000))
    return replace(status, state="out-of-memory", reason=match[0]) if match else status


def _supported(path: Path, characters: str, name: str, program: str) -> str:
    """Return a path as text; refuse one with a character that a program does not support."""
    if any(character in str(path) for character in characters):
        raise InputError(
            f"`{path}` contains {name}, which {program} does not support in a path",
            hint="choose another directory with `--home`",
        )
    return str(path)


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise RefusedError(
            f"Slurm is not installed on this machine: `{program}` was not found",
            hint="run this on a login node of the cluster, or measure with `--executor local`",
        )


def _run(program: str, *arguments: str) -> str:
    """Run one of Slurm's programs and return its standard output; empty if the cluster has forgotten the job.

    Raises:
        RefusedError: If the program is not installed or rejects the request.
        ExecutorError: If the controller does not answer.
    """
    _require(program)
    try:
        process = subprocess.run(
            [program, *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            # English messages, and no options from the environment of a surrounding job.
            env={k: v for k, v in os.environ.items() if not k.startswith(("SBATCH_", "SQUEUE_"))} | {"LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        error_lines = (error.stderr or b"").decode("utf-8", "replace").strip().splitlines()
        detail = f": {error_lines[0]}" if error_lines else ""
        raise ExecutorError(
            f"Slurm does not answer: `{program}` printed nothing in {_SECONDS} seconds{detail}",
            hint="submitted tasks continue; repeat the command when the controller is reachable again",
        ) from None
    if process.returncode and "invalid job id" not in process.stderr.lower():
        raise _error_from(program, process.stderr)
    return process.stdout


def _error_from(program: str, text: str) -> ExecutorError:
    lines = [re.sub(rf"^{program}: (error: )?", "", line).strip() for line in text.strip().splitlines()]
    cause = "; ".join(dict.fromkeys(line for line in lines if line and not line.startswith("Try ")))
    if re.search(r"unable to contact|connection refused|configuration source|communication", cause, re.IGNORECASE):
        return ExecutorError(
            f"Slurm's controller cannot be reached: {cause}",
            hint="submitted tasks continue; repeat the command when the controller is reachable again",
        )
    hint = next((hint for pattern, hint in _REFUSALS if re.search(pattern, cause, re.IGNORECASE)), "")
    return RefusedError(f"Slurm refuses (`{program}`): {cause}", hint=hint)

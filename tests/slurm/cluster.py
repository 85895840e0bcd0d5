"""A real Slurm cluster of two nodes on this machine, each with one processor.

    python -m tests.slurm.cluster start FOLDER     prints the SLURM_CONF to use
    python -m tests.slurm.cluster stop FOLDER

It needs the programs of Slurm and MUNGE (Debian: ``slurm-wlm`` and ``munge``) and root; ``stop`` ends all processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil

NODES = ("n1", "n2")
PARTITION = "pi"
_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "munged")
# slurmctld reports a node that does not answer after SlurmdTimeout.
_CONFIGURATION = """
ClusterName=pi
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge/socket,cred_expire=5
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SlurmdTimeout=30
MinJobAge=30
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2,requeue_delay=0
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{second}] CPUs=1 RealMemory=2000 State=UNKNOWN
PartitionName=pi Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=closed Nodes=ALL MaxTime=60 State=UP AllowGroups=group-without-members
"""


def missing_requirement() -> str | None:
    """Return why no cluster can be started on this machine; ``None`` if one can."""
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"Slurm is not installed: {', '.join(absent)} not found"
    if os.geteuid() != 0:
        return "starting a Slurm cluster needs root"
    return None


class Cluster:
    """A running Slurm cluster with its own folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def configuration(self) -> Path:
        """Path of the configuration, for ``SLURM_CONF``."""
        return self.root / "slurm.conf"

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of a program that uses this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.configuration)}

    def start(self) -> None:
        """Start MUNGE, the controller and the nodes, and wait until the nodes are idle."""
        for name in ("state", "log", "munge", *(f"spool.{node}" for node in NODES)):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        # MUNGE refuses a socket below a folder that other users can write to.
        os.chmod(self.root, 0o755)
        controller, first = _free_ports()
        text = _CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            root=self.root,
            controller=controller,
            first=first,
            second=first + 1,
        )
        self.configuration.write_text(text.lstrip())
        self._start_munge()
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        deadline = time.monotonic() + 60
        while self._run("sinfo", "-h", "-o", "%T").strip() != "idle":
            if time.monotonic() > deadline:
                raise RuntimeError(f"the nodes of Slurm did not come up; see {self.root}/log")
            time.sleep(0.2)

    def stop(self) -> None:
        """Kill all processes of the cluster and its jobs."""
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        # Jobs that a controller lost still run below daemons that do not have the cluster's variables.
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == str(self.configuration):
                    for member in (*(p for p in process.parents() if p.name() == "slurmstepd"), process):
                        member.kill()

    def start_controller(self) -> None:
        """Start slurmctld."""
        self._run("slurmctld")

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node, and resume the node if it was down."""
        # Each node gets its own processor if there are several and tasks are not bound (`--cpu-bind=none`): Slurm
        # itself would bind the tasks of both nodes to the first processor.
        processor = NODES.index(node) % (os.cpu_count() or 1)
        self._run("taskset", "--cpu-list", str(processor), "slurmd", "-N", node)
        # `scontrol` fails if the node has already resumed by itself.
        with contextlib.suppress(RuntimeError):
            self._run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def heal(self) -> None:
        """Resume the nodes that the controller has drained, as an operator does."""
        for node in NODES:
            with contextlib.suppress(RuntimeError):
                if "DRAIN" in self._run("scontrol", "show", "node", node):
                    self._run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def kill_controller(self) -> None:
        """Kill slurmctld with SIGKILL, and wait until it has ended."""
        controllers = self._find_processes("slurmctld")
        self._kill("slurmctld")
        psutil.wait_procs(controllers, timeout=60)

    def forget_jobs(self) -> None:
        """Delete the jobs that a killed controller has saved, as if it had been killed before it saved any."""
        for path in (self.root / "state").glob("job_state*"):
            path.unlink()

    def wait_until_saved(self, job: str) -> None:
        """Wait until the controller has saved the current state of a job, which takes it a few seconds.

        The comment of the job is changed last: once it is saved, everything before it is saved, too.
        """
        comment = uuid.uuid4().hex
        self._run("scontrol", "update", f"JobId={job}", f"Comment={comment}")
        deadline = time.monotonic() + 60
        while comment.encode() not in self._saved_jobs():
            if time.monotonic() > deadline:
                raise RuntimeError(f"slurmctld did not save job {job}; see {self.root}/log")
            time.sleep(0.1)

    def _saved_jobs(self) -> bytes:
        # slurmctld replaces the file, which is absent for a moment.
        with contextlib.suppress(FileNotFoundError):
            return (self.root / "state" / "job_state").read_bytes()
        return b""

    def kill_daemon(self, node: str) -> None:
        """Kill the slurmd of a node with SIGKILL; its jobs continue."""
        self._kill("slurmd", node)

    def kill_node(self, node: str) -> None:
        """Kill the slurmd and all job processes of a node, and report the node to the controller as down."""
        jobs = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                variables = process.environ()
                if (variables.get("SLURM_CONF"), variables.get("SLURMD_NODENAME")) == (str(self.configuration), node):
                    jobs += [process, *(p for p in process.parents() if p.name() == "slurmstepd")]
        # All are suspended before the first is killed: a running daemon would report that its job failed.
        processes = (*self._find_processes("slurmd", node), *jobs)
        for action in (psutil.Process.suspend, psutil.Process.kill):
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    action(process)
        self._run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")

    def _start_munge(self) -> None:
        folder = self.root / "munge"
        key = folder / "key"
        if not key.exists():
            key.write_bytes(os.urandom(128))
            key.chmod(0o600)
        names = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={folder / name}" for option, name in names.items()]
        self._run("munged", "--force", f"--key-file={key}", *options)

    def _run(self, *command: str) -> str:
        completed = subprocess.run(command, env=self.variables, capture_output=True, text=True, check=False, timeout=60)
        if completed.returncode:
            raise RuntimeError(f"{command[0]} failed: {completed.stderr.strip()}")
        return completed.stdout

    def _kill(self, program: str, node: str = "") -> None:
        for process in self._find_processes(program, node):
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def _find_processes(self, program: str, node: str = "") -> list[psutil.Process]:
        matches = []
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                is_on_node = not node or node in words or any(w.endswith(f"spool.{node}") for w in words)
                if process.name() == program and is_on_node:
                    matches.append(process)
        return matches

    def _processes(self) -> list[psutil.Process]:
        """Return the daemons that were started with the configuration of this cluster."""
        daemons = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_own = process.environ().get("SLURM_CONF") == str(self.configuration)
                if is_own and (process.name().startswith("slurm") or process.name() == "munged"):
                    daemons.append(process)
        return daemons


def _free_ports() -> tuple[int, int]:
    """Return a port for the controller, and the first of two consecutive ports for the nodes."""
    while True:
        with socket.socket() as a, socket.socket() as b, socket.socket() as c:
            a.bind(("127.0.0.1", 0))
            b.bind(("127.0.0.1", 0))
            first = b.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                c.bind(("127.0.0.1", first + 1))
                return a.getsockname()[1], first


def main() -> None:
    """Start or stop a cluster in a folder."""
    verb, folder = sys.argv[1:]
    cluster = Cluster(Path(folder).absolute())
    if verb == "start":
        if reason := missing_requirement():
            sys.exit(reason)
        cluster.start()
        print(f"export SLURM_CONF={cluster.configuration}")
    elif verb == "stop":
        cluster.stop()
    else:
        sys.exit("usage: python -m tests.slurm.cluster start|stop FOLDER")


if __name__ == "__main__":
    main()

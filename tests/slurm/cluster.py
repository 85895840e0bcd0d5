"""Starts and stops a real Slurm of two nodes on this machine, each with one processor.

    python -m tests.slurm.cluster start FOLDER     prints the SLURM_CONF to use
    python -m tests.slurm.cluster stop FOLDER

It needs Slurm's and MUNGE's programs (Debian: ``slurm-wlm`` and ``munge``) and root; nothing of it outlives ``stop``.
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
# What slurmctld says of nodes that do not answer comes after SlurmdTimeout.
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
PartitionName=closed Nodes=ALL MaxTime=60 State=UP AllowGroups=nobody-is-in-this-group
"""


def missing() -> str | None:
    """Return why no cluster can be started here, or none."""
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"Slurm is not installed: there is no {', '.join(absent)}"
    if os.geteuid() != 0:
        return "starting a Slurm cluster for the tests needs root"
    return None


class Cluster:
    """A running Slurm in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def configuration(self) -> Path:
        """The file that ``SLURM_CONF`` must name."""
        return self.root / "slurm.conf"

    @property
    def variables(self) -> dict[str, str]:
        """Environment of a program that uses this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.configuration)}

    def start(self) -> None:
        """Start MUNGE, the controller and the nodes, and wait until the nodes are idle."""
        for name in ("state", "log", "munge", *(f"spool.{node}" for node in NODES)):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        # MUNGE refuses a socket below a folder that others may write to.
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
        """End everything, jobs too."""
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        # What a controller forgot runs on below daemons that carry no variables of the cluster.
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == str(self.configuration):
                    for end in (*(p for p in process.parents() if p.name() == "slurmstepd"), process):
                        end.kill()

    def start_controller(self) -> None:
        """Start slurmctld."""
        self._run("slurmctld")

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node, and take it into service again if it was lost."""
        # Each node has a processor of its own, where there are several and tasks are not bound (`--cpu-bind=none`):
        # Slurm itself would bind the tasks of both to the first.
        place = NODES.index(node) % (os.cpu_count() or 1)
        self._run("taskset", "--cpu-list", str(place), "slurmd", "-N", node)
        # It may have come back by itself: then there is nothing to resume.
        with contextlib.suppress(RuntimeError):
            self._run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def heal(self) -> None:
        """Take nodes into service again that the controller has drained, as an operator does who looked at them."""
        for node in NODES:
            with contextlib.suppress(RuntimeError):
                if "DRAIN" in self._run("scontrol", "show", "node", node):
                    self._run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def kill_controller(self) -> None:
        """Kill slurmctld with SIGKILL; return when it is gone."""
        controllers = self._named("slurmctld")
        self._kill("slurmctld")
        psutil.wait_procs(controllers, timeout=60)

    def forget_jobs(self) -> None:
        """Delete what a killed controller has saved of jobs, as if it had died before it saved any."""
        for path in (self.root / "state").glob("job_state*"):
            path.unlink()

    def wait_until_saved(self, job: str) -> None:
        """Wait until the controller's files hold what it knows of a job now; it writes them a few seconds later.

        A comment is changed last, so files that hold the comment hold everything before it.
        """
        mark = uuid.uuid4().hex
        self._run("scontrol", "update", f"JobId={job}", f"Comment={mark}")
        deadline = time.monotonic() + 60
        while mark.encode() not in self._saved_jobs():
            if time.monotonic() > deadline:
                raise RuntimeError(f"slurmctld did not save job {job}; see {self.root}/log")
            time.sleep(0.1)

    def _saved_jobs(self) -> bytes:
        # The file is replaced by another, and is absent for a moment.
        with contextlib.suppress(FileNotFoundError):
            return (self.root / "state" / "job_state").read_bytes()
        return b""

    def kill_daemon(self, node: str) -> None:
        """Kill the slurmd of a node with SIGKILL; its jobs run on."""
        self._kill("slurmd", node)

    def kill_node(self, node: str) -> None:
        """Kill the slurmd of a node and all processes of its jobs; the controller notices through its monitoring."""
        jobs = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                variables = process.environ()
                where = variables.get("SLURM_CONF"), variables.get("SLURMD_NODENAME")
                if where == (str(self.configuration), node):
                    jobs += [process, *(p for p in process.parents() if p.name() == "slurmstepd")]
        # They end at the same instant: a daemon that sees its job die reports that the job failed.
        processes = (*self._named("slurmd", node), *jobs)
        for end in (psutil.Process.suspend, psutil.Process.kill):
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    end(process)
        self._run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")

    def _start_munge(self) -> None:
        place = self.root / "munge"
        key = place / "key"
        if not key.exists():
            key.write_bytes(os.urandom(128))
            key.chmod(0o600)
        names = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={place / name}" for option, name in names.items()]
        self._run("munged", "--force", f"--key-file={key}", *options)

    def _run(self, *command: str) -> str:
        completed = subprocess.run(command, env=self.variables, capture_output=True, text=True, check=False, timeout=60)
        if completed.returncode:
            raise RuntimeError(f"{command[0]} failed: {completed.stderr.strip()}")
        return completed.stdout

    def _kill(self, program: str, node: str = "") -> None:
        for process in self._named(program, node):
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def _named(self, program: str, node: str = "") -> list[psutil.Process]:
        processes = []
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                matches = process.name() == program
                if matches and (not node or node in words or any(w.endswith(f"spool.{node}") for w in words)):
                    processes.append(process)
        return processes

    def _processes(self) -> list[psutil.Process]:
        """Return the processes of this cluster: those that were started with its configuration."""
        processes = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("SLURM_CONF") == str(self.configuration)
                if ours and (process.name().startswith("slurm") or process.name() == "munged"):
                    processes.append(process)
        return processes


def _free_ports() -> tuple[int, int]:
    """Return a port for the controller, and the first of two neighbouring ones for the nodes."""
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
        if reason := missing():
            sys.exit(reason)
        cluster.start()
        print(f"export SLURM_CONF={cluster.configuration}")
    elif verb == "stop":
        cluster.stop()
    else:
        sys.exit("start or stop")


if __name__ == "__main__":
    main()

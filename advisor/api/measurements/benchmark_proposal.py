"""Propose a benchmark for a project, try it, and write it into `pyproject.toml`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from advisor.api.measurements.benchmark import lock_baseline, open_benchmark
from advisor.api.measurements.options import EnvironmentOptions, SamplingOptions
from advisor.api.options import ProjectOptions
from advisor.project.benchmark import check_benchmark
from advisor.project.benchmark_proposal.output import metrics_of_output
from advisor.project.benchmark_proposal.proposal import BenchmarkProposal, propose_benchmark
from advisor.project.benchmark_proposal.table import with_benchmark
from advisor.project.formats.pyproject import read_settings
from advisor.user_directories import cache_directory
from knowledge.domain.documents import lines_of
from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import read_bytes, write_atomically
from pi_runners.execution.benchmark import last_line
from pi_runners.execution.environment import build_environment
from pi_runners.execution.program_archive import write_program
from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessRequest

_SHORTEST_WORK_SECONDS = 1.0
_SHOWN_LINES = 10
_ENDINGS = {
    "time": "killed at its time limit",
    "memory": "killed above its memory limit (`--memory-limit`)",
    "disk": "it ended while the disk was full",
}
_MARK = "\ufeff"
"""Byte order mark, with which some editors start a file."""


class TrialError(InputError):
    """Raised when the command of a proposal gives no result.

    Attributes:
        details: The end of its output.
    """

    code = "trial-failed"

    def __init__(self, message: str, *, details: tuple[str, ...], hint: str) -> None:
        super().__init__(message, hint=hint)
        self.details = details


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTrial:
    """What one run of a proposed command showed.

    Attributes:
        python: Version of the interpreter.
        packages: The packages that the project requires, with the versions that it ran on.
        command_seconds: Duration of the command.
        startup_seconds: Duration of the start-up command; 0 without one.
        more_steps: Number of steps that would take long enough to be measured; 0 if they do, or no option limits them.
    """

    python: str
    packages: tuple[str, ...]
    command_seconds: float
    startup_seconds: float
    more_steps: int = 0

    @property
    def work_seconds(self) -> float:
        """Duration of the command without its start-up, in seconds."""
        return self.command_seconds - self.startup_seconds


def propose(
    directory: Path,
    *,
    script: str | None = None,
    command: str | None = None,
    steps: int | None = None,
    replaces: bool = False,
) -> BenchmarkProposal:
    """Propose a benchmark for a project; nothing is executed.

    Args:
        directory: The project.
        script: The program to run; by default the one that suits a benchmark best.
        command: The command; by default one with few steps is proposed.
        steps: Value of the option that limits the steps; by default a small one.
        replaces: Whether the project may have a benchmark already.

    Raises:
        InputError: If the project has a benchmark, or none can be proposed.
    """
    if not directory.is_dir():
        raise InputError(f"`{directory}` is not a directory")
    path = directory / "pyproject.toml"
    settings = read_settings(path) if path.is_file() else {}
    if "benchmark" in settings and not replaces:
        raise InputError(
            f"`{path}` defines a benchmark already",
            hint="`advisor pi run --benchmark` runs it; `--replace` replaces it by a proposal",
        )
    return propose_benchmark(directory, script=script, command=command, steps=steps)


def try_proposal(
    proposal: BenchmarkProposal, options: ProjectOptions, *, sampling: SamplingOptions, environment: EnvironmentOptions
) -> tuple[BenchmarkProposal, CommandTrial]:
    """Run the command of a proposal once in a copy of the project, on its baseline, which runs the project's code.

    The environment is the one of `pi run --benchmark`, and stays for it.

    Args:
        proposal: What to try.
        options: The project, its indexes, and the knowledge base.
        sampling: Time limit of a run, and memory limit.
        environment: Interpreter.

    Returns:
        The proposal with the metric in the output, and the trial.

    Raises:
        TrialError: If the command fails, or its steps are too short to be measured.
        InputError: If the project cannot be read or copied.
        NoStackError: If the project cannot be resolved.
        UnavailableError: If an index cannot be read, or the environment cannot be built.
    """
    environments = cache_directory(options.indexes.cache_directory) / "environments"
    with open_benchmark(options, environment.python, table=proposal.table) as setup:
        benchmark = setup.benchmark
        built = build_environment(lock_baseline(setup), environments)
        request = ProcessRequest(
            python=built.python,
            program=write_program(environments),
            content=benchmark.request(runs=1, timeout_seconds=sampling.timeout_seconds) | {"settings": {}},
            timeout_seconds=benchmark.process_seconds(runs=1, timeout_seconds=sampling.timeout_seconds),
            memory_limit_bytes=sampling.memory_limit_bytes,
            part="trial",
        )
        end = FreshProcesses().run(request)
    ending = _ENDINGS.get(end.ending, f"exit status {end.exit_status}")
    result = next(iter(end.results), None) or {"status": "crashed", "failure": f"{end.error_tail}\n{ending}"}
    if result["status"] != "ok":
        raise _failed(proposal, str(result["failure"]))
    required = {root.name for root in setup.context.problem.roots if not root.constraint}
    trial = CommandTrial(
        python=str(setup.context.target.python),
        packages=tuple(f"{p.name} {p.version}" for p in built.stack.packages if p.name in required),
        command_seconds=float(result["command_seconds"]),
        startup_seconds=float(result["startup_seconds"]),
    )
    proposal = proposal.with_metric(metrics_of_output(result["lines"]))
    return proposal, replace(trial, more_steps=_more_steps(proposal, trial))


def _failed(proposal: BenchmarkProposal, failure: str) -> TrialError:
    output = [line for line in lines_of(failure) if line.strip()]
    return TrialError(
        f"`{proposal.command.text}` gave no result: {last_line(failure)}",
        details=tuple(output[:-1][-_SHOWN_LINES:]),
        hint="correct it with `--command '...'`, or name another program with `--script`; its copy has no files that "
        "git ignores, and the environment only what the project requires",
    )


def _more_steps(proposal: BenchmarkProposal, trial: CommandTrial) -> int:
    """Return a number of steps that would take as long as the start-up, and a second; 0 if they do.

    Raises:
        TrialError: If the duration of the steps is to be measured, and is not longer than the start-up.
    """
    command = proposal.command
    needed = max(_SHORTEST_WORK_SECONDS, trial.startup_seconds if proposal.metric is None else 0.0)
    if command.steps is None or trial.work_seconds >= needed:
        return 0
    number = int(command.steps.value)
    # A duration of hundredths of a second says little about the steps.
    factor = min(20.0, needed / max(trial.work_seconds, 1e-3))
    more = command.startup_steps + round((number - command.startup_steps) * factor) + 1
    if proposal.metric is None and trial.work_seconds <= 0:
        raise TrialError(
            f"`{command.text}` took {trial.command_seconds:.2f} s, and with "
            f"`{' '.join(command.steps.option.words(command.startup_steps))}` {trial.startup_seconds:.2f} s: its steps "
            "are too short to be measured",
            details=(),
            hint=f"let it take more steps: `--steps {more}`",
        )
    return more


def check_open_values(proposal: BenchmarkProposal) -> None:
    """Refuse a command with values that only the user knows.

    Raises:
        InputError: If it has some.
    """
    command = proposal.command
    if command.open_values:
        raise InputError(
            f"`{command.text}` needs values that only you know: {', '.join(command.open_values)}",
            hint="write the command with `--command 'python ...'`, or name another program with `--script`",
        )


def write_proposal(directory: Path, proposal: BenchmarkProposal) -> Path:
    """Write the benchmark of a proposal into the project's `pyproject.toml`, which is created if there is none.

    Nothing else in the file changes.

    Returns:
        The file.

    Raises:
        InputError: If the file cannot be written, or not without changing something else.
    """
    check_open_values(proposal)
    check_benchmark(proposal.table)
    path = directory / "pyproject.toml"
    try:
        text = read_bytes(path).decode("utf-8") if path.exists() else ""
        mark = _MARK if text.startswith(_MARK) else ""
        changed = f"{mark}{with_benchmark(text.removeprefix(_MARK), proposal.table)}"
    except ValueError as error:
        raise InputError(f"`{path}` is not valid TOML: {error}") from None
    # A link stays one.
    write_atomically(path.resolve(), changed)
    return path

"""Runs a user's program with the profiler of its framework.

The program runs in its own environment and directory. The `sitecustomize` of `pi_runners.hooks` on its `PYTHONPATH`
installs hooks (`hooks`, and those in the folders of the frameworks), which count its steps, run the profiler during
some of them, write the trace, and end the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from knowledge.domain.errors import InputError, suggest
from knowledge.domain.frameworks import frameworks
from pi_runners.profile.events import require_reader
from pi_runners.profile.read import reader_of
from pi_runners.profile.summary import TraceSummary

DEFAULT_STEPS = 20
DEFAULT_WARM_UP = 5
DEFAULT_TIMEOUT_SECONDS = 600.0
_HOOKS = Path(__file__).parent / "hooks"
_START = _HOOKS.parents[1] / "hooks" / "sitecustomize.py"
_ROOT = "seshat_hooks"
"""Name that the package `pi_runners` has in the program: it contains the hooks only."""
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 15.0
"""How long a program may take to end after its last step, or after an interruption, before it is killed."""


class ProfileError(InputError):
    """Raised when a program could not be profiled."""

    code = "not-profiled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """A program to profile.

    Attributes:
        command: Program and arguments.
        directory: Working directory of the program: the project.
        steps: Steps to profile.
        warm_up: Steps before these.
        timeout_seconds: Time after which the program is interrupted.
        output: Where its output and error output go.
    """

    command: tuple[str, ...]
    directory: Path
    steps: int = DEFAULT_STEPS
    warm_up: int = DEFAULT_WARM_UP
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    output: TextIO | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramProfile:
    """The profile of a program.

    Attributes:
        summary: Content of the trace.
        versions: Versions of its packages and of Python.
        warnings: What the user should know, as sentences.
    """

    summary: TraceSummary
    versions: Mapping[str, str]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _End:
    reason: Literal["exit", "profiled", "timeout"]
    exit_status: int


def profile_program(request: ProfileRequest) -> ProgramProfile:
    """Run a program with the profiler of its framework.

    Args:
        request: The program.

    Raises:
        ProfileError: If it cannot be started, fails, or makes no steps.
        TraceError: If its trace is not valid.
    """
    require_reader()
    with tempfile.TemporaryDirectory(prefix="advisor-profile-") as scratch:
        end = _run(request, Path(scratch))
        reports = _reports(Path(scratch))
        report = max((r for r in reports if r["files"]), key=lambda r: int(r["steps"]), default=None)
        if report is None:
            raise _failure(request, end, reports)
        summary = reader_of(report["framework"]).read_profile(
            [Path(file) for file in report["files"]], steps=report["steps"], warm_up=request.warm_up
        )
    warnings = [*summary.warnings, *_warnings(request, report, reports, end)]
    return ProgramProfile(
        summary=summary, versions={"python": report["python"], **report["versions"]}, warnings=tuple(warnings)
    )


def _run(request: ProfileRequest, scratch: Path) -> _End:
    """Run the program until it ends, is profiled, or reaches its time limit; then end its whole process group."""
    bootstrap = scratch / "bootstrap"
    hooks = _copy_hooks(bootstrap)
    packages = {name: module for f in frameworks().values() for name, module in f.profile.get("packages", {}).items()}
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(bootstrap), os.environ.get("PYTHONPATH", "")])),
        "SESHAT_PROFILE_FRAMEWORKS": json.dumps({"hooks": hooks, "packages": packages}),
        "SESHAT_PROFILE_DIRECTORY": str(scratch),
        "SESHAT_PROFILE_STEPS": str(request.steps),
        "SESHAT_PROFILE_WARM_UP": str(request.warm_up),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        process = subprocess.Popen(
            request.command,
            cwd=request.directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=request.output,
            stderr=request.output,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise _missing_program(request) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ProfileError(f"`{request.command[0]}` could not be started: {reason}") from None
    try:
        end = _wait(process, scratch, request.timeout_seconds)
        if end.reason == "timeout":
            # Python raises `KeyboardInterrupt`, and writes the profile of the steps so far at exit.
            _signal(process, signal.SIGINT)
        if end.reason != "exit":
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
    finally:
        _signal(process, signal.SIGKILL)
        process.wait()
    return end


def _copy_hooks(folder: Path) -> dict[str, str]:
    """Copy the modules that run inside the program; return the module with the hooks of each imported module."""
    root, hooks = folder / _ROOT, {}
    shutil.copytree(_HOOKS, root / "profile" / "hooks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_START, folder)
    for framework in frameworks().values():
        target = root / "frameworks" / framework.name / "profile"
        for module, name in framework.profile.get("hooks", {}).items():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(framework.folder / "profile" / f"{name}.py", target)
            hooks[module] = f".frameworks.{framework.name}.profile.{name}"
    return hooks


def _wait(process: subprocess.Popen[bytes], scratch: Path, timeout_seconds: float) -> _End:
    deadline = time.monotonic() + timeout_seconds
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return _End("exit", process.wait(_POLL_SECONDS))
        if any(report["state"] == "complete" for report in _reports(scratch)):
            return _End("profiled", 0)
        if time.monotonic() > deadline:
            return _End("timeout", 0)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _missing_program(request: ProfileRequest) -> ProfileError:
    program = request.command[0]
    if "/" in program or shutil.which(program) is None:
        programs = ("python", "python3", "uv", "torchrun", "accelerate")
        hint = suggest(program, programs, otherwise="write the command as you type it, such as `-- python train.py`")
        return ProfileError(f"there is no program `{program}`", hint=hint)
    return ProfileError(f"there is no directory `{request.directory}`")


def _reports(scratch: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(scratch.glob("report-*.json"))]


def _failure(request: ProfileRequest, end: _End, reports: Sequence[dict[str, Any]]) -> ProfileError:
    """Return why there is no profile."""
    program = " ".join(request.command)
    failures = [report["reason"] for report in reports if report["state"] == "failed"]
    if failures:
        return ProfileError(f"the profiler failed in `{program}`: {failures[0]}")
    if end.reason == "exit" and end.exit_status:
        how = f"exit code {end.exit_status}" if end.exit_status > 0 else f"signal {-end.exit_status}"
        return ProfileError(
            f"`{program}` ended with {how} before it was profiled",
            hint="run it without `advisor` first; it needs the same arguments, files and environment",
        )
    count = max((report["steps"] for report in reports), default=0)
    needed = request.warm_up + 1
    when = f"in {request.timeout_seconds:g} s" if end.reason == "timeout" else "before it ended"
    if count:
        return ProfileError(
            f"`{program}` made {count} steps {when}; at least {needed} are needed",
            hint="let it run longer (`--timeout`), with more steps, or lower `--warm-up`",
        )
    return ProfileError(
        f"no step of a framework was seen in `{program}` {when}",
        hint="steps are: an optimizer step or model call of PyTorch, a batch of Keras, a call of `tf.function` or "
        "`jax.jit`, a run of ONNX Runtime. For other programs, record a trace and use `advisor workload import`",
    )


def _warnings(
    request: ProfileRequest, report: Mapping[str, Any], reports: Sequence[Mapping[str, Any]], end: _End
) -> Iterator[str]:
    if end.reason == "timeout":
        yield f"the program was interrupted after {request.timeout_seconds:g} s"
    if report["steps"] < request.steps:
        yield f"{report['steps']} steps were profiled instead of {request.steps}: the program made no more"
    others = sum(1 for other in reports if other["files"]) - 1
    if others:
        yield f"{others} more processes made steps; the profile is of one of them"

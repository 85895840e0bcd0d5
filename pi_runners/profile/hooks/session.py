"""Counts the steps of a program, and starts and stops a profiler around some of them."""

import atexit
import contextlib
import json
import os
import platform
import sys
import time
from typing import Any, Callable, Dict, List, Optional

REPORT = "report-{}.json"
_LIBRARIES = (
    "mkl", "intel-openmp", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cublas-cu11", "nvidia-cublas-cu12",
)  # fmt: skip
"""Distributions without Python modules whose versions are reported."""


class Profiler:
    """The profiler of a framework.

    Attributes:
        framework: Framework whose profiler it is.
    """

    framework = ""

    def start(self, result: Any) -> None:
        """Start before a step.

        Args:
            result: Result of the step before it, or ``None``.
        """
        raise NotImplementedError

    def step(self) -> None:
        """Mark the end of a step that is not the last one."""

    def stop(self, result: Any) -> List[str]:
        """Stop at the end of a step, and return the trace's files or directories.

        Args:
            result: Result of the step, or ``None``.
        """
        raise NotImplementedError


class Session:
    """The profile of one process. Only the process that created it is profiled, and not those that it forks.

    The steps of the source with the highest rank are counted: a training step is more than a call of a model.
    """

    def __init__(self, directory: str, steps: int, warm_up: int, packages: Dict[str, str]) -> None:
        """Prepare a profile.

        Args:
            directory: Directory of its files.
            steps: Steps to profile.
            warm_up: Steps before these.
            packages: Distributions whose versions are reported, with a module that must have been imported.
        """
        self.directory = directory
        self.packages = packages
        self.steps = steps
        self.warm_up = warm_up
        self._pid = os.getpid()
        self._rank = -1
        self._source: Any = None
        self._count = 0
        self._profiler: Optional[Profiler] = None
        self._is_done = self._is_complete = False
        atexit.register(self._finish_early)

    def path(self, name: str) -> str:
        """Return the path of a file or directory of this process in the directory of the profile."""
        return os.path.join(self.directory, "{}-{}".format(name, self._pid))

    def is_active(self) -> bool:
        """Return whether steps of this process are still counted."""
        return not self._is_done and os.getpid() == self._pid

    def end_step(self, rank: int, source: Any, profiler: Callable[[], Profiler], result: Any = None) -> None:
        """Count a step; start or stop the profiler.

        Args:
            rank: Rank of its kind of step.
            source: What made the step, such as an optimizer.
            profiler: Makes the profiler of its framework.
            result: Result of the step, or ``None``.

        Raises:
            SystemExit: After the last step.
        """
        if not self.is_active() or (self._profiler is not None and source != self._source):
            return
        if rank < self._rank or (rank == self._rank and source != self._source):
            return
        if rank > self._rank:
            self._rank, self._source, self._count = rank, source, 0
        self._count += 1
        self._guard(lambda: self._advance(profiler, result))
        if self._is_complete:
            # The program ends like after `sys.exit()`: it may clean up.
            raise SystemExit(0)

    def replace_source(self, rank: int, source: Any) -> None:
        """Count the steps of another source of the same rank from now on, unless the profiler runs."""
        if self._profiler is None and self._rank <= rank:
            self._rank, self._source, self._count = rank, source, 0

    def fail(self, error: BaseException) -> None:
        """Report that the profiler failed; the program continues without it."""
        self._is_done = True
        self._report("failed", [], 0, str(error) or type(error).__name__)
        sys.stderr.write("advisor: the profiler failed: {}\n".format(error))

    def _finish(self, files: List[str], steps: int, state: str) -> None:
        self._is_done = True
        self._report(state, files, steps, framework=self._profiler.framework if self._profiler else "")

    def _advance(self, make: Callable[[], Profiler], result: Any) -> None:
        if self._profiler is None and self._count >= self.warm_up:
            self._profiler = make()
            self._profiler.start(result)
        elif self._profiler is not None and self._count < self.warm_up + self.steps:
            self._profiler.step()
        elif self._profiler is not None:
            self._finish(self._profiler.stop(result), self.steps, "complete")
            self._is_complete = True

    def _finish_early(self) -> None:
        """Write what there is, if the program ends before the last step."""
        if not self.is_active():
            return
        steps = self._count - self.warm_up
        if self._profiler is not None and steps > 0:
            profiler = self._profiler
            self._guard(lambda: self._finish(profiler.stop(None), steps, "short"))
        elif self._count:
            self._report("too-short", [], self._count)

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self.fail(error)

    def _report(self, state: str, files: List[str], steps: int, reason: str = "", framework: str = "") -> None:
        document = {
            "state": state,
            "framework": framework,
            "files": files,
            "steps": steps,
            "reason": reason,
            "python": platform.python_version(),
            "versions": _versions(self.packages),
        }
        path = os.path.join(self.directory, REPORT.format(self._pid))
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(path + ".part", path)


def _versions(packages: Dict[str, str]) -> Dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    imported = [name for name, module in packages.items() if module in sys.modules]
    versions = {}
    for name in (*imported, *_LIBRARIES):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


class CallCounter:
    """Counts the outermost calls of compiled functions."""

    def __init__(self, session: Session, rank: int, make: Callable[[], Profiler]) -> None:
        self._session = session
        self._rank = rank
        self._make = make
        self._depth = 0
        self._longest = -1.0
        self._known = set()  # type: ignore[var-annotated]

    def call(self, source: Any, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function, and count the call.

        Args:
            source: What identifies the function.
            function: The function.
            *arguments: Its arguments.
            **named: Its named arguments.
        """
        if not self._session.is_active():
            return function(*arguments, **named)
        self._depth += 1
        start = time.perf_counter()
        try:
            result = function(*arguments, **named)
        finally:
            self._depth -= 1
        if not self._depth:
            if source not in self._known:
                self._known.add(source)
                seconds = time.perf_counter() - start
                # The first call compiles: the function with the longest one is the largest.
                if seconds > self._longest:
                    self._longest = seconds
                    self._session.replace_source(self._rank, source)
            self._session.end_step(self._rank, source, self._make, result)
        return result

"""A project's own benchmark: a command that is run on each stack, in a copy of the project."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from knowledge.catalogue.settings import ANY
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import BENCHMARK, IndicatorRun, Scalar

VERSION = 1
"""Version of the way a benchmark is run; raise it when its timings are no longer comparable."""
SECONDS = "s"
PROGRAM = "program"
"""Name of the backend of a benchmark, and of a program without a framework."""
_IDENTITY_DIGITS = 16
_COPY_SECONDS = 60.0
_SECONDS_PER_UNIT = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What a benchmark measures.

    Attributes:
        pattern: Regular expression with one group, which matches the number in one line of the output; empty for the
            duration of the command.
        unit: Unit of the number, such as ``images/s``.
        better: Whether a higher or a lower number is better.
        statistic: Which of several numbers counts, if the program prints it repeatedly; empty if it prints it once.
    """

    pattern: str = ""
    unit: str = SECONDS
    better: Literal["higher", "lower"] = "lower"
    statistic: Literal["", "median", "last"] = ""

    @property
    def seconds_per_unit(self) -> float:
        """Seconds in one unit of a duration; 1 for other units."""
        return _SECONDS_PER_UNIT.get(self.unit, 1.0)

    @property
    def is_duration(self) -> bool:
        """Whether the number is a duration."""
        return self.better == "lower" and self.unit in _SECONDS_PER_UNIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A command of a project with the files that it runs on.

    Attributes:
        project: Name of the project.
        command: Program and arguments; run without a shell in the top directory of the copy.
        startup: Command that starts up as ``command`` does and takes fewer steps; its duration is subtracted. Empty if
            nothing is subtracted.
        metric: What is measured.
        warmup_runs: Runs before the first sample in each process.
        files: SHA-256 of each file of the benchmark's identity, by its path in the project.
        directory: Copy of the project, which each round copies again; in the plan of a campaign, an archive of it.
        result: Regular expression with one group, which matches a number that the program computes, such as its loss;
            the last one is compared between arms of different precision. Empty if nothing is compared.
        options: Words that apply a setting at the end of the commands, by the setting as ``name=value`` or ``name=*``;
            ``{value}`` stands for the value.
    """

    project: str
    command: tuple[str, ...]
    metric: Metric
    warmup_runs: int
    files: Mapping[str, str]
    directory: Path
    startup: tuple[str, ...] = ()
    result: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Identity of the benchmark: equal if project, commands, metric and contents of the files are equal.

        An option changes what runs with its setting, and nothing else.
        """
        metric = [self.metric.pattern, self.metric.unit, self.metric.better]
        # What a benchmark does not have leaves its identity as it was.
        metric += [self.metric.statistic] if self.metric.statistic else []
        startup = [self.startup] if self.startup else []
        return content_hash([self.project, self.command, metric, self.files, *startup])[:_IDENTITY_DIGITS]

    def indicator_run(self, hardware: HardwareProfile) -> IndicatorRun:
        """Return what the observations of the benchmark on a machine contain in place of an indicator."""
        return IndicatorRun(
            name=BENCHMARK,
            version=VERSION,
            backend=PROGRAM,
            device=hardware.device,
            dtype="any",
            parameters={
                "project": self.project,
                "identity": self.identity,
                "unit": self.metric.unit,
                "better": self.metric.better,
            },
        )

    def options_of(self, settings: Mapping[str, Scalar]) -> dict[str, tuple[str, ...]]:
        """Return the words of the command that apply settings, by name of the setting; the other ones have none."""
        words = {
            name: self.options.get(f"{name}={v}", self.options.get(f"{name}={ANY}")) for name, v in settings.items()
        }
        return {
            name: tuple(word.replace("{value}", str(settings[name])) for word in listed)
            for name, listed in sorted(words.items())
            if listed is not None
        }

    def option_text(self, settings: Mapping[str, Scalar]) -> str:
        """Return the words of the command that apply settings, as text for a shell."""
        return shlex.join(sum(self.options_of(settings).values(), ()))

    def request(self, *, runs: int, timeout_seconds: float, options: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the request for the harness, JSON-ready.

        Args:
            runs: Runs after the warm-up; each is one sample.
            timeout_seconds: Maximum duration of one run.
            options: Words at the end of the commands.
        """
        return {
            "command": [*self.command, *options],
            "startup": [*self.startup, *options] if self.startup else [],
            "directory": str(self.directory),
            "files": dict(self.files),
            "pattern": self.metric.pattern,
            "better": self.metric.better,
            "statistic": self.metric.statistic,
            "result": self.result,
            "seconds_per_unit": self.metric.seconds_per_unit,
            "warmup_runs": self.warmup_runs,
            "runs": runs,
            "timeout_seconds": timeout_seconds,
        }

    def process_seconds(self, *, runs: int, timeout_seconds: float) -> float:
        """Return the maximum duration of a process that makes all runs of a round; see :meth:`request`."""
        commands = 2 if self.startup else 1
        return (self.warmup_runs + commands * runs) * timeout_seconds + _COPY_SECONDS


def last_line(text: str) -> str:
    """Return the last line of a text that is not empty; an empty text if there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""

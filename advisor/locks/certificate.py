"""The certificate of an experiment: what was measured for a lock, and how certain its choice is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from packaging.version import Version

from advisor.domain.words import count
from knowledge.domain.identity import content_hash
from knowledge.records import RecordError, value_from

TABLE_VERSION = 1
"""Version of the table that records a certificate."""
_DIGITS = 16
_MOST_LISTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What an experiment says about a lock.

    Attributes:
        machine: Identity of the machine.
        machine_name: Its processor or accelerator.
        program: Identity of what was measured; see :attr:`pi_runners.execution.benchmark.Benchmark.identity`.
        stack: Digest of the lock's versions and settings; see :func:`stack_digest`.
        measured_on: Date of the last run.
        arms: Number of arms that were considered, with the reference, without those that could not be tried.
        measured_arms: Number of those that ran.
        rounds: Number of rounds.
        minutes: Minutes that the experiment took, with those of earlier runs that count.
        speedup: Speed of the lock over the reference, the newest stack without settings.
        low: Lower end of its interval.
        high: Upper end of its interval.
        tolerance: By how much another arm may be faster, as a fraction.
        confidence: Probability that no arm is faster by more.
        is_certain: Whether this is certain; else some arms are open.
        open: Arms that may be faster by more than the tolerance.
        minutes_left: About how many more minutes would decide about these.
        untried: Arms that could not be tried, such as those whose environment exceeds a limit.
    """

    machine: str
    machine_name: str
    program: str
    stack: str
    measured_on: str
    arms: int
    measured_arms: int
    rounds: int
    minutes: float
    speedup: float
    low: float
    high: float
    tolerance: float
    confidence: float
    is_certain: bool
    open: tuple[str, ...] = ()
    minutes_left: float = 0.0
    untried: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What is certain, in words."""
        if self.is_certain:
            return (
                f"within {100 * self.tolerance:g} % of the best of {count(self.arms, 'arm')} with "
                f"{100 * self.confidence:g} % confidence"
            )
        number = len(self.open)
        others = f"{number} of {self.arms} arms may be more than {100 * self.tolerance:g} % faster"
        return f"not certain: {others}; about {count(max(1, round(self.minutes_left)), 'more minute')} would decide"

    def open_lines(self) -> Iterator[str]:
        """Yield what is open, in words."""
        if self.open:
            listed = ", ".join(f"`{label}`" for label in self.open[:_MOST_LISTED])
            more = f" and {len(self.open) - _MOST_LISTED} more" if len(self.open) > _MOST_LISTED else ""
            yield f"whether {listed}{more} is {100 * self.tolerance:g} % faster or more: repeat the command to continue"

    def table(self) -> dict[str, Any]:
        """Return the certificate as TOML values."""
        record = asdict(self) | {"open": list(self.open), "untried": list(self.untried)}
        return {"version": TABLE_VERSION, **{name.replace("_", "-"): value for name, value in record.items()}}

    def obstacle(self, *, machine: str, program: str, stack: str) -> str:
        """Return why the certificate says nothing about a lock on a machine; empty if it is valid."""
        if self.machine != machine:
            return f"it is of another machine ({self.machine_name})"
        if self.program != program:
            return "the program that was measured has changed"
        return "" if self.stack == stack else "the lock has other versions or settings than those that were measured"


def certificate_from(table: Mapping[str, Any]) -> Certificate:
    """Return the certificate of a table.

    Raises:
        RecordError: If it is not valid.
    """
    record = {str(name).replace("-", "_"): value for name, value in table.items()}
    if record.pop("version", None) != TABLE_VERSION:
        raise RecordError("version", f"it must be {TABLE_VERSION}")
    return value_from(Certificate, record)


def stack_digest(versions: Mapping[str, Version], settings: Mapping[str, Mapping[str, object]]) -> str:
    """Return a digest of versions by package, and of settings by framework and name."""
    packages = sorted([name, str(version)] for name, version in versions.items())
    values = sorted([framework, name, str(v)] for framework, named in settings.items() for name, v in named.items())
    return content_hash([packages, values])[:_DIGITS]

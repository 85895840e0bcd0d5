"""Effects of changes that the model of gains knows, with their variances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from knowledge.estimate.programs import Program
from knowledge.evidence.contrasts import Side


class Releases(NamedTuple):
    """What changes between two releases, as a random walk that stops after the last one.

    Attributes:
        last: Place of the last release.
    """

    last: float


Change = str | tuple[str, str] | Releases
"""What may differ between two stacks: a kind of change, one value of one setting, one version, or releases."""


class Term(NamedTuple):
    """An effect of a change that some programs and some machines share.

    Attributes:
        change: The change.
        programs: What programs share.
        machines: What machines share, or the identity of a machine.
    """

    change: Change
    programs: str
    machines: str


_SIZES = ("near", "linear")
PROCESSOR_TERMS: tuple[Term, ...] = tuple(
    Term(*names)
    for names in (
        *(("version", shared, "all") for shared in ("all", "architecture", "model", "size", *_SIZES)),
        ("version", "near", "kind"),
        ("version", "size", "kind"),
        ("version", "all", "machine"),
        ("version", "size", "machine"),
        *(("release", shared, "all") for shared in ("all", "architecture", "size", "near")),
        ("companion", "all", "all"),
        ("companion", "size", "all"),
        *(("setting", shared, "all") for shared in ("all", "mode", "architecture", "family", "model", "size", *_SIZES)),
        ("setting", "all", "kind"),
        ("setting", "near", "kind"),
        ("setting", "size", "kind"),
        ("setting", "size", "machine"),
        ("setting of a version", "all", "all"),
        ("setting of a version", "size", "all"),
        *(("pair", shared, "all") for shared in ("all", "architecture", "model", "size", *_SIZES)),
    )
)
"""Effects on processors."""
OWN, MEASURED_HERE = "own", "measured here"
"""How programs are the user's: the own program, and others that the user measured."""
OWN_VARIANCE = 0.15**2
"""Usual variance of what a minor release or a setting does only at the user's own program, or on the own machine; no
shipped measurement can show it: a judgement."""
OWN_TERMS: tuple[Term, ...] = tuple(
    Term(change, programs, shared)
    for programs in (OWN, MEASURED_HERE)
    for change in ("near version", "exact setting", "exact pair")
    for shared in ("all", "machine")
)
"""Effects at a program of the user, on all machines and on one: of all releases, each setting and each pair."""
LEAST_OWN = 1 / 16
"""Part of the usual variance that these effects always have: a judgement."""
OWN_FACTORS = (0.0, 1 / 4, 1.0, 4.0, 25.0, 100.0)
"""Factors on the usual variance of what own measurements show: the first, or the likeliest if the measurements are
unlikely with the first. So what agrees with other programs and machines widens nothing."""
ACCELERATOR_TERMS: tuple[Term, ...] = tuple(
    Term(*names)
    for names in (
        *(("version", shared, "all") for shared in ("all", "architecture", "family", "model", "size", "near")),
        ("version", "all", "similar"),
        ("version", "model", "similar"),
        ("version", "size", "machine"),
        ("companion", "all", "all"),
        *(("setting", shared, "units") for shared in ("all", "mode", "architecture", "family", "model")),
        *(
            ("setting", shared, "similar")
            for shared in ("all", "mode", "architecture", "family", "model", "near", "linear")
        ),
        ("setting", "model", "name"),
        ("setting", "size", "machine"),
        ("setting of a version", "all", "all"),
        ("setting of a version", "model", "all"),
        ("pair", "all", "units"),
        ("pair", "model", "units"),
    )
)
"""Effects on accelerators."""
Blend = tuple[tuple[float, Program], ...]
"""Programs with their shares of the time of one; most have one part."""
Pair = tuple[Side, Side]
"""A stack, and the one that it is compared with."""


def terms_of(device: str) -> tuple[Term, ...]:
    """Return the terms that are fitted for a device: ``cpu``, or another one."""
    return PROCESSOR_TERMS if device == "cpu" else ACCELERATOR_TERMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Variances:
    """Variances of the model, in squared natural-log units.

    Attributes:
        terms: Variance of each term.
        label: Variance of what one program has with one arm in one block only.
        arm: Variance of what all programs have with one arm in one block only.
        noise: Factor on the variance that was estimated from the rounds.
        scales: Standard deviation of the effect of each setting relative to the usual one, by ``name=value``.
        sources: Variance of a published ratio, by source; one that is not listed has the largest.
        software: Variance of what all programs of a source have with one software and its settings only, by source; one
            that is not listed has the largest.
    """

    terms: Mapping[Term, float]
    label: float
    arm: float
    noise: float
    scales: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, float] = field(default_factory=dict)
    software: Mapping[str, float] = field(default_factory=dict)

    def of_source(self, source: str) -> float:
        """Return the variance of a published ratio: nobody knows how an unknown publisher measures."""
        return self.sources.get(source, max(self.sources.values(), default=self.label))

    def of_software(self, source: str) -> float:
        """Return the variance of what all programs of a source have with one software."""
        return self.software.get(source, max(self.software.values(), default=0.0))

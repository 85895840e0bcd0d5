"""A finding of the gate: what is wrong, where, and how to know it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from advisor.gate.codes import Level
from knowledge.domain.identity import hash_of_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a finding points.

    Attributes:
        path: File, as it was opened; empty where there is none.
        line: Line from 1; 0 where that is not known.
    """

    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that the gate found.

    Attributes:
        code: Stable code.
        level: How much it weighs under the policy; errors fail the gate.
        message: One sentence, without a final full stop.
        place: Where it points.
        package: The package it is about, or empty.
        subject: What tells it from other findings of the same code and package, whatever their versions: a rule, an
            advisory, a requirement.
        targets: Names of the targets that it holds for.
        source: Where the fact comes from, or empty.
        versions: Name and version of the packages that make it; what else they are combined with does not matter.
        files: What it is about in particular, such as what a lock records of each file: a base has the same finding
            only where it has it of all of these.
    """

    code: str
    level: Level
    message: str
    place: Place = Place()
    package: str = ""
    subject: str = ""
    targets: tuple[str, ...] = ()
    source: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Hash by which a finding is known again when lines have moved and messages changed."""
        return hash_of_text("\n".join((self.code, self.place.path, self.package, self.subject)))

    @property
    def fails(self) -> bool:
        """Whether it fails the gate."""
        return self.level == "error"


_ORDER = {"error": 0, "warning": 1, "note": 2}


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in order, those that several targets share once."""
    alike: dict[Finding, list[str]] = {}
    for finding in findings:
        alike.setdefault(replace(finding, targets=()), []).extend(finding.targets)
    made = [replace(finding, targets=tuple(dict.fromkeys(targets))) for finding, targets in alike.items()]
    return tuple(
        sorted(made, key=lambda f: (_ORDER[f.level], f.place.path, f.place.line, f.code, f.package, f.message))
    )


def fingerprints(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the fingerprint of each finding, made different where several findings have the same."""
    seen: Counter[str] = Counter()
    found = []
    for finding in findings:
        own = finding.fingerprint
        found.append(hash_of_text(f"{own}\n{seen[own]}") if seen[own] else own)
        seen[own] += 1
    return tuple(found)

"""Findings of the gate: their kinds, where a finding is, and how to recognise it in the next run."""

from __future__ import annotations

import importlib.resources
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Self

import yaml

from knowledge.domain.identity import hash_of_text

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A kind of finding, with a default level that a policy can change.

    `why` is the meaning in full. `update` says whether other versions, or writing the lock again, can resolve it.
    """

    code: str
    name: str
    level: Level
    summary: str
    why: str
    remedy: str
    update: bool = False


@lru_cache(maxsize=1)
def all_codes() -> dict[str, Code]:
    """Return every kind of finding, by code, in order."""
    text = (importlib.resources.files("advisor.gate") / "codes.yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {entry["code"]: Code(**entry) for entry in entries}


def gate_codes() -> dict[str, Code]:
    """Return the kinds of findings that `advisor check` reports."""
    return {code: kind for code, kind in all_codes().items() if code < "ADV100"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The file, as it was opened, and the line (from 1; 0 if not known) that a finding points to; may be empty."""

    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The versions and files that cause a finding.

    Attributes:
        versions: Name and version of each package that is needed for the finding; the versions of all other packages
            make no difference.
        files: The entries that the finding is about, such as what a lock records of each file. A base has the same
            finding only if it has it for all of these entries.
    """

    versions: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, versions: Mapping[str, object], files: Iterable[str] = ()) -> Self:
        """Return the cause that consists of some versions, by package name, and some files."""
        return cls(versions=tuple((name, str(version)) for name, version in versions.items()), files=tuple(files))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem, or a remark, that the gate reports.

    Attributes:
        code: Stable code, such as ``ADV001``.
        level: ``error``, ``warning`` or ``note`` under the policy; errors fail the gate.
        message: One sentence, without a final full stop.
        place: The file and line that it points to.
        package: The package that it is about, or empty.
        subject: What distinguishes it from other findings of the same code and package, whatever their versions: a
            rule, an advisory, a requirement.
        targets: Names of the targets that it applies to.
        source: Where the fact comes from, or empty.
        cause: The versions and files that cause it.
    """

    code: str
    level: Level
    message: str
    place: Place = Place()
    package: str = ""
    subject: str = ""
    targets: tuple[str, ...] = ()
    source: str = ""
    cause: Cause = Cause()

    @property
    def fingerprint(self) -> str:
        """Hash that identifies the finding even if its line or message changes."""
        return hash_of_text("\n".join((self.code, self.place.path, self.package, self.subject)))

    @property
    def key(self) -> tuple[str, str, str]:
        """What it has in common with the same finding before a change, whatever the versions are."""
        return self.code, self.package, self.subject

    @property
    def fails(self) -> bool:
        """Whether it fails the gate."""
        return self.level == "error"


_ORDER = {"error": 0, "warning": 1, "note": 2}


def merge_targets(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings sorted by importance and place; a finding of several targets appears once and names them all."""
    alike: dict[Finding, list[str]] = {}
    for finding in findings:
        alike.setdefault(replace(finding, targets=()), []).extend(finding.targets)
    unique = [replace(finding, targets=tuple(dict.fromkeys(targets))) for finding, targets in alike.items()]
    return tuple(
        sorted(unique, key=lambda f: (_ORDER[f.level], f.place.path, f.place.line, f.code, f.package, f.message))
    )


def resolved_findings(before: Iterable[Finding], after: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings before a change that there are not after it, whatever the versions in them."""
    keys = {finding.key for finding in after}
    return tuple(finding for finding in before if finding.key not in keys)


def unique_fingerprints(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the fingerprint of each finding; equal fingerprints are made different by a counter."""
    counts: Counter[str] = Counter()
    unique = []
    for finding in findings:
        plain = finding.fingerprint
        unique.append(hash_of_text(f"{plain}\n{counts[plain]}") if counts[plain] else plain)
        counts[plain] += 1
    return tuple(unique)

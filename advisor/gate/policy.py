"""The policy of a project, `[tool.advisor.gate]`: what fails the gate, and exceptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from packaging.utils import canonicalize_name

from advisor.domain.words import parse_size, size_text
from advisor.gate.findings import Finding, Level, Place, gate_codes
from knowledge.domain.documents import lines_of
from knowledge.domain.errors import InputError, suggest

KEYS = ("fail", "extend-fail", "max-regression", "max-gap", "max-growth", "indexes", "ignore")
_IGNORE_KEYS = ("code", "package", "subject", "reason", "expires")
EXCEPTION_CODES = ("ADV020", "ADV021")
"""Codes of findings about the exceptions themselves."""
MAX_REGRESSION = 0.03
MAX_GAP = 0.10
_PERCENTAGE = re.compile(r"\s*(?P<number>\d{1,12}(?:\.\d{1,12})?)\s*%\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthLimit:
    """The allowed growth of the download, in bytes or as a fraction of the base's download; the other one is `None`."""

    size: int | None = None
    fraction: float | None = None

    @classmethod
    def parse(cls, text: str) -> GrowthLimit | None:
        """Return the limit that a text such as ``200 MB`` or ``10 %`` states; `None` if it states none."""
        if match := _PERCENTAGE.fullmatch(text):
            return cls(fraction=float(match["number"]) / 100)
        size = parse_size(text)
        return None if size is None else cls(size=size)

    def allows(self, growth: int, *, base: int) -> bool:
        """Whether a download may grow by some bytes, if the download of the base has so many bytes."""
        return growth <= (self.size if self.size is not None else (self.fraction or 0.0) * base)

    def __str__(self) -> str:
        return size_text(self.size) if self.size is not None else f"{100 * (self.fraction or 0.0):g} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignore:
    """An exception: findings that are ignored.

    Attributes:
        code: Code of the findings that it covers.
        package: Their package, or empty for any.
        subject: Their subject, such as an advisory, or empty for any.
        reason: Why they are ignored.
        expires: Last day on which it is valid, or `None`.
        line: Line of its reason in the file.
    """

    code: str
    reason: str
    package: str = ""
    subject: str = ""
    expires: date | None = None
    line: int = 0

    @property
    def identity(self) -> tuple[str, str]:
        """Package and subject of the findings that are about the exception itself."""
        return self.package, f"{self.code} {self.subject}".strip()

    def covers(self, finding: Finding) -> bool:
        """Whether it covers a finding."""
        return (
            self.code == finding.code
            and self.package in ("", finding.package)
            and self.subject in ("", finding.subject)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """The policy: which findings fail the gate.

    Attributes:
        fail: Codes that fail.
        max_regression: Allowed loss of speed compared with the base lock, as a fraction.
        max_gap: Allowed gain of speed of the recommended stack over the lock, as a fraction.
        max_growth: Allowed growth of the download compared with the base lock; `None` to allow any.
        indexes: Addresses that packages may come from; `None` for the configured indexes.
        ignores: Exceptions.
        path: The file that contains it.
    """

    fail: frozenset[str]
    max_regression: float = MAX_REGRESSION
    max_gap: float = MAX_GAP
    max_growth: GrowthLimit | None = None
    indexes: tuple[str, ...] | None = None
    ignores: tuple[Ignore, ...] = ()
    path: str = "pyproject.toml"

    def level_of(self, code: str) -> Level:
        """Return the level of findings of a code."""
        if code in self.fail:
            return "error"
        default = gate_codes()[code].level
        return "warning" if default == "error" else default

    def apply(self, findings: list[Finding], *, today: date) -> tuple[list[Finding], list[tuple[Finding, Ignore]]]:
        """Apply the exceptions that are valid on a day.

        Returns:
            The findings that no exception covers, with those about the exceptions themselves; and the findings that an
            exception covers, each with the exception.
        """
        valid = [i for i in self.ignores if i.expires is None or today <= i.expires]
        covering = {id(f): next((i for i in valid if i.covers(f)), None) for f in findings}
        reported = [f for f in findings if covering[id(f)] is None]
        ignored = [(f, ignore) for f in findings if (ignore := covering[id(f)]) is not None]
        used = {id(ignore) for _, ignore in ignored}
        for ignore in self.ignores:
            if ignore not in valid:
                reported.append(self._exception_finding(ignore, "ADV020", f"expired on {ignore.expires}"))
            elif id(ignore) not in used:
                reported.append(self._exception_finding(ignore, "ADV021", "covers no finding"))
        return reported, ignored

    def _exception_finding(self, ignore: Ignore, code: str, problem: str) -> Finding:
        scope = "".join(f" of `{part}`" for part in (ignore.package, ignore.subject) if part)
        package, subject = ignore.identity
        return Finding(
            code=code,
            level=self.level_of(code),
            message=f"the exception for {ignore.code}{scope} {problem} (its reason: {ignore.reason})",
            place=Place(path=self.path, line=ignore.line),
            package=package,
            subject=subject,
        )


def read_policy(table: Mapping[str, Any], *, path: str = "pyproject.toml", text: str = "") -> GatePolicy:
    """Read `[tool.advisor.gate]` from the table in a file; the text of the file gives line numbers.

    Raises:
        InputError: If a key does not exist, a value has the wrong type, or no lock could ever pass.
    """
    for key in table:
        if key not in KEYS:
            raise InputError(f"`{path}`: `[tool.advisor.gate]` has no key `{key}`", hint=suggest(key, KEYS))
    codes = gate_codes()
    fail = {code for code, about in codes.items() if about.level == "error"}
    if "fail" in table:
        fail = _codes(table["fail"], "fail", path)
    indexes = _texts(table["indexes"], "indexes", path) if "indexes" in table else None
    if indexes == []:
        raise InputError(
            f"`{path}`: `tool.advisor.gate.indexes` is empty, so no package could ever pass",
            hint="name the indexes that packages may come from, or remove the key",
        )
    ignores = table.get("ignore", [])
    if not isinstance(ignores, list) or not all(isinstance(entry, dict) for entry in ignores):
        raise InputError(f"`{path}`: `tool.advisor.gate.ignore` is not a list of tables", hint=_EXAMPLE)
    return GatePolicy(
        fail=frozenset(fail | _codes(table.get("extend-fail", []), "extend-fail", path)),
        max_regression=_fraction(table, "max-regression", MAX_REGRESSION, path),
        max_gap=_fraction(table, "max-gap", MAX_GAP, path),
        max_growth=_growth(table["max-growth"], path) if "max-growth" in table else None,
        indexes=None if indexes is None else tuple(indexes),
        ignores=tuple(_ignore(entry, path, text) for entry in ignores),
        path=path,
    )


def _codes(value: Any, key: str, path: str) -> set[str]:
    findings = gate_codes()
    codes: set[str] = set()
    for word in _texts(value, key, path):
        matching = {code for code, about in findings.items() if code.startswith(word) or about.name == word}
        if not word or not matching:
            raise InputError(
                f"`{path}`: `tool.advisor.gate.{key}` names `{word}`, which is not the code or the name of a finding",
                hint=suggest(word, [*findings, *(about.name for about in findings.values())]),
            )
        codes |= matching
    return codes


def _texts(value: Any, key: str, path: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise InputError(f"`{path}`: `tool.advisor.gate.{key}` is not a list of text", hint=f'write `{key} = ["..."]`')
    return value


def _fraction(table: Mapping[str, Any], key: str, default: float, path: str) -> float:
    value = table.get(key, default)
    where, hint = f"`{path}`: `tool.advisor.gate.{key} = {value!r}`", f'write `{key} = 0.05` or `{key} = "5 %"`'
    if isinstance(value, str) and (match := _PERCENTAGE.fullmatch(value)):
        value = float(match["number"]) / 100
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where} is not a fraction", hint=hint)
    if value < 0:
        raise InputError(f"{where} is negative, so even an unchanged lock would fail", hint=hint)
    if key == "max-regression" and value >= 1:
        raise InputError(f"{where} lets everything pass", hint=hint)
    return float(value)


def _growth(value: Any, path: str) -> GrowthLimit:
    limit = GrowthLimit.parse(value) if isinstance(value, str) else None
    if limit is None:
        raise InputError(
            f"`{path}`: `tool.advisor.gate.max-growth = {value!r}` is neither a size nor a percentage",
            hint='write `max-growth = "200 MB"` or `max-growth = "10 %"`',
        )
    return limit


_EXAMPLE = 'write `ignore = [{ code = "ADV009", package = "idna", reason = "not reachable", expires = 2027-01-31 }]`'


def _ignore(entry: Mapping[str, Any], path: str, text: str) -> Ignore:
    where = f"`{path}`: an entry of `tool.advisor.gate.ignore`"
    for key in entry:
        if key not in _IGNORE_KEYS:
            raise InputError(f"{where} has no key `{key}`", hint=suggest(key, _IGNORE_KEYS))
    for key in ("code", "reason"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise InputError(f"{where} has no `{key}`", hint=_EXAMPLE)
    codes = gate_codes()
    code = next((c for c, about in codes.items() if entry["code"] in (c, about.name)), None)
    if code is None:
        message = f"{where} names `{entry['code']}`, which is not the code or the name of a finding"
        raise InputError(message, hint=suggest(entry["code"], codes))
    expires = entry.get("expires")
    if isinstance(expires, str):
        try:
            expires = date.fromisoformat(expires)
        except ValueError:
            raise InputError(f"{where}: `expires = {expires!r}` is not a date", hint=_EXAMPLE) from None
    if expires is not None and type(expires) is not date:
        raise InputError(f"{where}: `expires` is not a date", hint=_EXAMPLE)
    return Ignore(
        code=code,
        reason=entry["reason"],
        package=canonicalize_name(str(entry.get("package", ""))),
        subject=str(entry.get("subject", "")),
        expires=expires,
        line=next((n for n, line in enumerate(lines_of(text), 1) if entry["reason"] in line), 0),
    )

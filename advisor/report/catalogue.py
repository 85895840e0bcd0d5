"""Lists of what can be measured, and of what can be set: indicators and run-time settings."""

from __future__ import annotations

from typing import Any

from knowledge.catalogue.settings import ANY, Setting, shipped_settings
from knowledge.domain.frameworks import frameworks
from pi_runners.indicators import INDICATORS, Indicator


def settings_text() -> str:
    """Return the list of run-time settings."""
    return "\n".join(
        f"{name}: {s.meaning}\n  values: {values_of(s)}; backends: {backends_of(s)}; on: {', '.join(s.devices)}"
        for name, s in shipped_settings().items()
    )


def indicator_records() -> list[dict[str, Any]]:
    """Return every indicator as JSON-ready values."""
    return [
        {
            "name": i.name,
            "version": i.version,
            "summary": i.summary,
            "corresponds": i.corresponds,
            "flops": i.flops_formula,
            "bytes": i.bytes_formula,
            "source": i.source,
            "sample": i.sample,
            "backends": i.backends(frameworks().values()),
            "devices": list(i.devices),
            "dtypes": list(i.dtypes),
            "parameters": {name: meaning_of(i, name) for name in i.parameters},
            "sets": {name: list(cases) for name, cases in i.sets.items()},
        }
        for i in INDICATORS.values()
    ]


def indicator_text(*, long: bool) -> str:
    """Return the list of indicators, with all details if it is long."""
    lines: list[str] = []
    for i in INDICATORS.values():
        backends = ", ".join(i.backends(frameworks().values()))
        lines.append(f"{i.name} (version {i.version}): {i.summary}")
        lines.append(f"  backends: {backends}; on: {', '.join(i.devices)}; {', '.join(i.dtypes)}")
        if not long:
            continue
        lines += [f"  flops: {i.flops_formula}", f"  bytes: {i.bytes_formula}", f"  source: {i.source}"]
        lines += [f"  corresponds to: {i.corresponds}", f"  a sample is: {i.sample}"]
        lines += [f"  parameter {name}: {meaning_of(i, name)}" for name in i.parameters]
        lines += [f"  {size}: {text_of_case(case)}" for size, cases in i.sets.items() for case in cases]
    return "\n".join(lines)


def backends_of(setting: Setting) -> str:
    """Return the backends of a setting, for people."""
    names = sorted(framework.backend for framework in setting.frameworks)
    return "all" if ANY in names else ", ".join(names)


def values_of(setting: Setting) -> str:
    """Return the values of a setting, for people."""
    return " or ".join(setting.choices) or f"an integer of at least {setting.least}"


def meaning_of(i: Indicator, name: str) -> str:
    """Return what a parameter of an indicator means, with its values and its default."""
    p = i.parameters[name]
    values = " or ".join(p.choices) if p.choices else f"{max(p.least, 0)} to {p.most}"
    default = "" if p.default in (None, -1, 0) else f"; default: {p.default}"
    return f"{p.meaning} ({values}{default})"


def text_of_case(case: dict[str, Any]) -> str:
    """Return the parameters of a case, for people."""
    return ", ".join(f"{name}={value}" for name, value in case.items())

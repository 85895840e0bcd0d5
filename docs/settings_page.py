"""Reference page of the run-time settings."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.report.catalogue import backends_of, values_of
from advisor.report.tables import table_lines
from knowledge.catalogue.settings import ANY, FrameworkSetting, Setting, SettingChoice, shipped_settings

_NUMBER = "N"
"""Stands for the value of a setting that is an integer."""


def settings_page() -> str:
    """Return the reference page of the run-time settings, as Markdown."""
    rows = [
        (f"[`{name}`](#{name})", s.meaning, values_of(s), backends_of(s), ", ".join(s.devices))
        for name, s in shipped_settings().items()
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            "Run-time settings that change speed, for `advisor pi run --settings NAME=VALUE,...` and matrix files.",
            "A backend that does not support a setting is measured without it.",
            "",
            *table_lines(("setting", "meaning", "values", "backends", "devices"), rows),
            "",
            "The column *numbers* says what a value does to results, compared with the default: `exact` is bitwise",
            "equal, `reordered` differs by rounding only, because operations have another order, and `reduced`",
            "computes in a lower precision. The column *needs* lists versions of the framework, features of the CPU",
            "(on a CPU) and compute capability (on an NVIDIA GPU).",
            "",
            "`advisor run` and benchmarks apply environment variables, processors, and lines after an import. Other",
            "lines need names of the program.",
            "",
            *(line for setting in shipped_settings().values() for line in _section(setting)),
        ]
    )


def _section(setting: Setting) -> Iterator[str]:
    yield from (f"## {setting.name}", "", f"{_sentence(setting.meaning)}{_sentence(setting.notes, before=' ')}", "")
    if setting.inference_only:
        yield from ("It is for inference: the advice for training leaves it out.", "")
    if setting.excludes:
        yield from (f"Contradicts {', '.join(f'`{other}`' for other in setting.excludes)}.", "")
    for framework in setting.frameworks:
        yield from _framework_lines(framework)


def _framework_lines(framework: FrameworkSetting) -> Iterator[str]:
    name = "all backends" if framework.backend == ANY else framework.backend
    notes = _sentence(framework.notes, before=" ")
    yield f"**{name}** ([documentation]({framework.documentation})). Without the setting: {framework.default}.{notes}"
    rows = [
        (_NUMBER if choice.value == ANY else choice.value, choice.numerics, _application(choice), _needs(choice))
        for choice in framework.choices
    ]
    yield from ("", *table_lines(("value", "numbers", "how to apply it", "needs"), rows), "")


def _application(choice: SettingChoice) -> str:
    """Return how a value is applied: environment variables, lines of code, processors, or what a person can do."""
    library = choice.library[0] if choice.library else ""
    texts = [f"`{name}={text.replace('{library}', library)}`" for name, text in choice.environment.items()]
    texts += [f"`{line}`" for line in choice.code]
    if choice.imports:
        texts.append(f"after `{choice.imports}`")
    if choice.around:
        texts.append("benchmarks: around the models of the program")
    if choice.processors == "count":
        texts.append(f"bind the program to {_NUMBER} processors")
    elif choice.processors == "node":
        texts.append(f"bind the program to the processors of node {_NUMBER}")
    if choice.hint:
        texts.append(choice.hint)
    return "<br>".join(texts).replace("{value}", _NUMBER) or "without it"


def _needs(choice: SettingChoice) -> str:
    texts = [
        f"version {choice.versions.replace(',', ', ')}" if choice.versions else "",
        " or ".join(choice.features),
        f"compute capability {choice.capability}" if choice.capability else "",
        " or ".join(f"`{name}`" for name in choice.library),
        " or ".join(choice.devices),
        " or ".join(choice.systems),
        f"not {' or '.join(f'`{other}`' for other in choice.excludes)}" if choice.excludes else "",
    ]
    return "; ".join(filter(None, texts))


def _sentence(text: str, *, before: str = "") -> str:
    return f"{before}{text[0].upper()}{text[1:]}." if text else ""

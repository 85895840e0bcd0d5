"""How reports show what run-time settings are worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from advisor.api.session import AdviceResult
from advisor.domain.words import count, flops_text, interval_text, quoted, ratio_text, speed_text
from advisor.report.environment import NUMERICS
from advisor.resolve.explanation.recommended_settings import CombinedGain, RecommendedSetting, Status
from advisor.resolve.score.setting_choice import TargetSettings
from knowledge.catalogue.settings import shipped_settings
from knowledge.domain.frameworks import FRAMEWORKS, frameworks
from knowledge.domain.ratio import Ratio
from knowledge.estimate.numerical_effect import NumericalEffect
from knowledge.estimate.setting_effect import MeasurementSource, SettingEffect

_MOST_KINDS = 3
_MOST_WARNINGS = 2
"""Number of settings to avoid that are listed one by one, if there are more than one further."""
_VERDICTS: Mapping[Status | None, tuple[Literal["set", "allow", "avoid", "maybe"], str]] = {
    "recommended": ("set", "set"),
    "offered": ("allow", "only with `--allow reduced-precision`:"),
    "advised-against": ("avoid", "do not set"),
    None: ("maybe", "not a part of the advice:"),
}
"""What reports say first about a setting, and what the details say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """What a report says first about a run-time setting.

    Attributes:
        verdict: Whether to set it, to allow it first, to avoid it, whether that depends on the workload,
            or whether the program has it already.
        setting: The setting as ``name=value``, with its framework if the stack has several.
        effect: Its predicted effect.
        notes: What it does to results, and what to do.
        speeds: Its predicted speed-ups, each with what it is for: the best and the worst workload, or size of a step.
    """

    verdict: Literal["set", "allow", "avoid", "maybe", "have"]
    setting: str
    effect: str
    notes: tuple[str, ...] = ()
    speeds: tuple[tuple[str, Ratio], ...] = ()


def setting_rows(report: AdviceResult) -> tuple[tuple[SettingRow, ...], int]:
    """Return the settings with a clear effect, those to set first, and the number of the others."""
    groups = _groups(report.setting_effects)
    advice = {(s.package, f"{s.name}={s.value}"): s for s in report.settings}
    frameworks = {package for package, _ in groups}
    rows: list[SettingRow] = []
    listed = 0
    for key in sorted(groups, key=lambda key: (list(advice).index(key) if key in advice else len(advice), key)):
        own, effects, present = advice.get(key), groups[key], report.present_settings.get(key, "")
        clear = _clear(effects, own)
        # A setting that only makes programs slower, and that nobody would choose, is no advice.
        if not clear or (own is None and all(e.speedup < 1 for e in clear)):
            continue
        if present and own is None:
            setting, _, place = present.partition(" ")
            row = SettingRow(verdict="have", setting=setting, effect=f"the program sets it {place}".rstrip())
            rows += [row] if row not in rows else []
            listed += 1
            continue
        name = f"{key[1]} ({key[0]})" if len(frameworks) > 1 else key[1]
        actions = _precision(key, report.request.score.settings) if own is None else _actions(own, clear)
        notes = [*actions, *([f"the project sets {present}"] if present else [])]
        effect = _effect_in_words(clear, len(effects))
        verdict, _ = _VERDICTS[own.status if own else None]
        speeds = _speeds(clear, len(effects))
        rows.append(SettingRow(verdict=verdict, setting=name, effect=effect, notes=tuple(notes), speeds=speeds))
        listed += 1
    return tuple(_with_few_warnings(rows)), len(groups) - listed


def _with_few_warnings(rows: Sequence[SettingRow]) -> Iterator[SettingRow]:
    """Yield rows in which few settings to avoid are listed: nobody sets most of them."""
    warnings = [row for row in rows if row.verdict == "avoid" and not row.notes]
    hidden = warnings[_MOST_WARNINGS:] if len(warnings) > _MOST_WARNINGS + 1 else []
    for row in rows:
        if row not in hidden:
            yield row
        elif row is hidden[0]:
            yield replace(
                row, setting=count(len(hidden), "more setting"), effect="slower; `--details` lists them", speeds=()
            )


def combined_line(recommended: Sequence[RecommendedSetting], combined: CombinedGain | None) -> str:
    """Return what all recommended settings gain together; empty if one line has said it."""
    number = sum(s.status == "recommended" for s in recommended)
    if combined is None or (number <= 1 and combined.frameworks <= 1):
        return ""
    shares = f", if {combined.frameworks} frameworks take equal shares of the time" if combined.frameworks > 1 else ""
    subject = "all of them together" if number > 1 else "the whole program"
    return f"{subject}{shares}: {speed_text(combined)}"


def _clear(effects: Sequence[SettingEffect], own: RecommendedSetting | None) -> list[SettingEffect]:
    """Return the effects to show, the largest first: the clear ones, and all of a setting that the advice is about."""
    is_listed = own is not None and (own.missing != "" or own.status != "advised-against")
    clear = [e for e in effects if is_listed or e.is_significant or e.gains_from]
    return sorted(clear, key=lambda e: -e.speedup)


def _effect_in_words(clear: Sequence[SettingEffect], kinds: int) -> str:
    """Return the effect of a setting: for one workload with its interval, for several kinds or sizes as a range."""
    first, last = clear[0], clear[-1]
    over = first.over.partition("=")[2]
    base = f" as {over.upper()}" if over == "tf32" else ""
    if kinds == 1:
        if first.gains_from:
            ends = [ratio_text(size.speedup) for size in (first.sizes[0], first.sizes[-1])]
            return f"{' to '.join(ends)} times as fast{base}: faster from {flops_text(first.gains_from)} a step on"
        size = f", at the measured {flops_text(first.sizes[0].flops)} a step" if len(first.sizes) == 1 else ""
        interval = f"{interval_text(first)}{size}"
        if not first.is_significant:
            return f"no clear difference{base.replace(' as', ' from')}: {ratio_text(first.speedup)} {interval}"
        return f"{ratio_text(first.speedup)} times as fast{base} {interval}"
    ratio = " to ".join(dict.fromkeys(ratio_text(e.speedup) for e in (last, first)))
    if kinds > len(clear):
        return (
            f"{ratio} times as fast{base} for {len(clear)} of {count(kinds, 'kind')} of workloads, else no clear effect"
        )
    what = "the workload and its size" if any(e.gains_from for e in clear) else "the workload"
    return f"{ratio} times as fast{base}, depending on {what}"


def _speeds(clear: Sequence[SettingEffect], kinds: int) -> tuple[tuple[str, Ratio], ...]:
    """Return the speed-ups that :func:`_effect_in_words` names, each with what it is for."""
    first, last = clear[0], clear[-1]
    if kinds == 1 and first.gains_from:
        sizes = (first.sizes[0], first.sizes[-1])
        return tuple((f"{flops_text(size.flops)} a step", size.ratio) for size in sizes)
    return tuple((f"workload `{e.workload}`", e.ratio) for e in ([first] if first is last else [first, last]))


def _precision(key: tuple[str, str], settings: TargetSettings | None) -> Iterator[str]:
    """Yield that a setting which is not a part of the advice reduces precision, and whether that is allowed."""
    if _reduces_precision(*key):
        allows = settings is not None and settings.allows_reduced
        yield f"{NUMERICS['reduced']}: {'allowed by' if allows else 'only with'} `--allow reduced-precision`"


def _reduces_precision(package: str, setting: str) -> bool:
    name, _, value = setting.partition("=")
    entry = shipped_settings().get(name)
    choice = entry.choice(FRAMEWORKS[package], value) if entry and package in FRAMEWORKS else None
    return choice is not None and choice.numerics == "reduced"


def _actions(setting: RecommendedSetting, clear: Sequence[SettingEffect]) -> Iterator[str]:
    """Yield what a setting does to results, and what to do for it, in a few words."""
    if setting.missing:
        yield f"the target does not have it: {setting.missing}"
    if setting.status == "advised-against":
        return
    if not any(e.accelerator_pairs for e in clear):
        yield "no usable measurement of it on such hardware: predicted from others"
    if setting.together_with:
        yield f"gains only together with {', '.join(setting.together_with)}"
    if setting.status == "offered":
        yield f"{NUMERICS[setting.numerics]}: only with `--allow reduced-precision`"
        return
    how = "needs code: `--show-code` prints it" if setting.needs_program else "`advisor run` applies it"
    yield f"{NUMERICS[setting.numerics]}; {how}"
    if setting.not_installed:
        package = f": `apt install {setting.debian_package}` (Debian, Ubuntu)" if setting.debian_package else ""
        yield f"{setting.not_installed[0]} is not installed{package}"


def setting_lines(
    effects: Sequence[SettingEffect],
    recommended: Sequence[RecommendedSetting] = (),
    combined: CombinedGain | None = None,
) -> Iterator[str]:
    """Yield a line for each setting with a clear effect: how large it is for which workloads, and what it rests on.

    So has each setting that the advice recommends. Other settings without a clear effect are named in one line.
    `combined` is the effect of all recommended settings together.
    """
    advice = {(s.package, f"{s.name}={s.value}"): s for s in recommended}
    groups = _groups(effects)
    place = {key: number for number, key in enumerate(advice)}
    unclear = []
    for key in sorted(groups, key=lambda key: place.get(key, len(place))):
        listed, own = groups[key], advice.get(key)
        clear = _clear(listed, own)
        if not clear:
            unclear.append(f"`{listed[0].setting}` in {listed[0].package}")
            continue
        status = _VERDICTS[own.status if own else None][1] if own or len(listed) == 1 else "depends on the workload:"
        yield f"{status} {_effect_text(clear, len(listed))}{_notes(own, key)}"
    if together := combined_line(recommended, combined):
        yield together
    if unclear:
        yield f"no clear effect: {', '.join(unclear)}"
    for package, over in dict.fromkeys((e.package, e.over) for e in effects):
        if package in FRAMEWORKS and (note := frameworks()[FRAMEWORKS[package]].references.get(over)):
            yield note


def _groups(effects: Sequence[SettingEffect]) -> dict[tuple[str, str], list[SettingEffect]]:
    """Return the effects of each setting; of several names in the measurements, those of the workload's tasks first."""
    by_name: dict[tuple[str, str], dict[tuple[str, str], list[SettingEffect]]] = {}
    for effect in effects:
        names = by_name.setdefault((effect.package, effect.setting), {})
        names.setdefault((effect.measured_as, effect.over), []).append(effect)
    return {key: max(names.values(), key=_weight) for key, names in by_name.items()}


def _weight(effects: Sequence[SettingEffect]) -> tuple[int, int]:
    return sum(e.same_tasks for e in effects), sum(map(_pairs, effects))


def _effect_text(clear: Sequence[SettingEffect], kinds: int) -> str:
    first = clear[0]
    gains = ", ".join(
        f"{ratio_text(e.speedup)} {interval_text(e)} for `{e.workload}` ({_basis(e)})" for e in clear[:_MOST_KINDS]
    )
    others = len(clear) - len(clear[:_MOST_KINDS])
    more = f" and {count(others, 'other kind')}" if others else ""
    more += f", no clear effect for {count(kinds - len(clear), 'other kind')}" if kinds > len(clear) else ""
    sources = {source.name: source for e in clear[:_MOST_KINDS] for source in e.sources}
    name = f" (measured as `{first.measured_as}`)" if first.measured_as != first.setting else ""
    change = f"`{first.setting}`{name} over `{first.over.partition('=')[2]}` in {first.package}"
    return f"{change}, times as fast: {gains}{more}; {', '.join(map(_source, sources.values()))}"


def _basis(effect: SettingEffect) -> str:
    """Return how many pairs the effect rests on, and whether they are of its tasks and on such an accelerator."""
    text = count(_pairs(effect), "pair") + ("" if effect.same_tasks else " of other tasks")
    if effect.accelerator_pairs == _pairs(effect):
        return text
    return f"{text}, {effect.accelerator_pairs or 'none'} on such hardware"


def _pairs(effect: SettingEffect) -> int:
    return sum(source.pairs for source in effect.sources)


def _source(source: MeasurementSource) -> str:
    return f"{source.name} (published until {source.last_year})" if source.last_year else source.name


def _notes(setting: RecommendedSetting | None, key: tuple[str, str]) -> str:
    """Return what a setting does to results, and how it is applied; it is `None` if the advice does not have it."""
    if setting is None:
        return f"; {NUMERICS['reduced']}" if _reduces_precision(*key) else ""
    notes = [NUMERICS[setting.numerics]]
    if setting.together_with:
        notes.append(f"it gains together with {quoted(setting.together_with)}")
    if setting.missing:
        notes.append(f"the target does not have it: {setting.missing}")
    if setting.status != "advised-against":
        if setting.not_installed:
            notes.append(f"none of {quoted(setting.not_installed)} is installed on this machine")
        notes += [*_numerical_note(setting.numerical_effects)]
        notes += [f"`{name}={value}`" for name, value in setting.environment.items()]
        notes += [f"`{line}`" for line in setting.code]
    return f"; {'; '.join(notes)}"


def _numerical_note(effects: Sequence[NumericalEffect]) -> Iterator[str]:
    """Yield what a lower precision did to the results of small models, if it was measured."""
    if not effects:
        return
    first, errors = effects[0], [e.forward_error for e in effects]
    text = f"the output of small models differed by {min(errors):.2g} to {max(errors):.2g} of its norm"
    if first.mode == "training":
        losses = [e.loss.mean for e in effects]
        text += f", their loss after training by {min(losses):+.2g} to {max(losses):+.2g}"
        text += f" ({count(first.loss.pairs, 'seed')}; between seeds it varies by {first.float32_deviation:.2g})"
    yield text

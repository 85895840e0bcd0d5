"""The report of `advisor advise` as one HTML page: what to do and what it brings, then the details, folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from advisor.api.session import AdviceResult
from advisor.domain.words import count, interval_text, no_speedup_text, range_text, ratio_text, workload_text
from advisor.report.advice import interpreters, reasons, settings, sizes, summary
from advisor.report.advice.experiment import arm_label, arm_rows
from advisor.report.formats import Presentation
from advisor.report.html import Interval, evidence_interval, evidence_of, fragment, page, plot, tree
from advisor.report.phrases import changes, changes_from_current, hardware_rows, version_change
from advisor.resolve.explanation.framework_versions import FrameworkVersions, framework_versions
from advisor.resolve.explanation.prices import Price
from advisor.resolve.explanation.recommended_settings import gain_with_settings
from advisor.resolve.explanation.stack_requirements import requirements_within
from knowledge.estimate.interface import Prediction

SUFFIX = ".html"
_MOST_NAMES = 2
"""Packages, and settings, that the heading names."""


def render(report: AdviceResult, presentation: Presentation) -> str:
    """Return a recommendation as a page."""
    return page(headline(report), content(report, presentation))


def content(report: AdviceResult, presentation: Presentation) -> Markup:
    """Return a recommendation without the page around it; the template `advice.html` has its sections."""
    prices, stack = presentation.prices() if presentation.prices else None, report.advice.optimum.stack
    versions = framework_versions(report.request, report.advice) if report.experiment is None else ()
    unknown = [*summary.unknown_questions(report)]
    required = requirements_within(report.request.problem, report.request.source, stack)
    return fragment(
        "advice.html",
        title=headline(report),
        report=report,
        facts=summary.facts(report),
        unknown=unknown,
        remedies=[*summary.remedies(report, presentation.program())] if unknown else [],
        hardware=hardware_rows(report.target),
        gains=[*_gains(report)],
        overall=plot([*_overall(report)]),
        versions=[(v, plot([*_version_intervals(v)])) for v in versions],
        describe_versions=_describe_versions,
        evidence=plot(_evidence(report, versions)),
        plot_settings=_plot_settings,
        arm_plot=plot([*_arm_intervals(report)]),
        prices=prices,
        price_text=reasons.price_text,
        price_plot=plot(_price_intervals(prices or ())),
        tree=tree(required, {str(c.name): str(c.version) for c in stack}),
        arms=[*arm_rows(report, details=True)],
        interpreters=interpreters,
        settings=settings,
        sizes=sizes,
        summary=summary,
        changes=changes,
        version_change=version_change,
        no_speedup_text=no_speedup_text,
    )


def headline(report: AdviceResult) -> str:
    """Return what to do: which versions to use, which settings to set, and that this is not proven, if it is not."""
    differing = changes(report)
    others = {str(c.name): str(c.version) for c in report.advice.baseline}
    own = [c for c in differing if c[0] in report.direct and "-" not in c[1:]]
    listed = " and ".join(f"`{name} {after}` instead of {others[name]}" for name, _, after in own[:_MOST_NAMES])
    if report.advice.current is not None and not changes_from_current(report):
        text = "Keep the current lock"
    elif listed:
        more = len(own) - len(own[:_MOST_NAMES])
        text = f"Use {listed}{f', and {more} more' if more else ''}"
    elif differing and report.advice.baseline:
        text = f"Use the locked versions: {count(len(differing), 'package')} of the newest stack change"
    else:
        text = "Use the newest versions"
    to_set = [f"`{s.name}={s.value}`" for s in report.settings if s.status == "recommended"]
    if to_set:
        more = len(to_set) - len(to_set[:_MOST_NAMES])
        text += f"; set {' and '.join(to_set[:_MOST_NAMES])}{f' and {more} more' if more else ''}"
    is_open = report.experiment is None and not report.advice.optimum.proven
    return f"{text} (not proven to be optimal)" if is_open else text


def _gains(report: AdviceResult) -> Iterator[tuple[str, str]]:
    """Yield what the advice brings, each as a short text and its explanation: speed, download, packages, proof."""
    yield _speed(report)
    rows = sizes.size_rows(report.sizes)
    _, packages, download, installed = rows[0]
    baseline = next((row for row in rows if row[0] == "baseline" and changes(report)), None)
    text = f"to download; {installed} installed"
    age = f"{report.advice.libyears[0]:.1f} libyears behind the newest releases"
    if baseline is not None:
        text = f"to download instead of {baseline[2]}; installed {installed} instead of {baseline[3]}"
        age = f"instead of {baseline[1]} of the newest stack; {age}"
    yield download, text
    yield count(int(packages), "package"), age
    optimum = report.advice.optimum
    if report.experiment is not None:
        yield "measured", summary.proof_line(report)
    elif optimum.proven:
        yield "optimal for the score", f"among {optimum.candidates} versions; verified by resolvelib"
    else:
        yield "not proven to be optimal", "; ".join(filter(None, (optimum.stopped, *optimum.doubts)))


def _speed(report: AdviceResult) -> tuple[str, str]:
    """Return what is predicted about the speed: with the settings, of the versions alone, or why nothing is."""
    prediction, settings = report.advice.prediction, report.settings_gain
    if report.experiment is not None:
        certificate = report.experiment.certificate
        text = f"measured, {interval_text(certificate)}: {certificate.text}"
        return ("nothing is clearly faster" if certificate.low <= 1 else _heading(certificate.speedup)), text
    reason = no_speedup_text(prediction)
    workload = f", {workload_text(prediction)}" if prediction.workload else ""
    if text := range_text(prediction):
        workload += f"; {text}"
    if total := gain_with_settings(prediction, settings):
        alone = f"{ratio_text(prediction.speedup)} {interval_text(prediction)} without them"
        text, ratio = f"as the newest versions {interval_text(total)}, with the settings below; {alone}", total.ratio
    elif settings is not None:
        versions = reason or "the versions are the newest"
        text, ratio = f"as without the settings below {interval_text(settings)}; {versions}", settings.ratio
    elif reason:
        is_baseline = prediction.obstacle.startswith("the baseline ")
        return "the newest do not run" if is_baseline else "speed not known", reason
    elif prediction.is_same:
        stated = summary.stated_text(report)
        return "same speed", f"these are the newest versions{f' {stated}' if stated else ', as pip would install them'}"
    else:
        text, ratio = f"as the newest versions {interval_text(prediction)}", prediction.ratio
    if not ratio.is_significant():
        return "no clear difference in speed", f"{ratio_text(ratio.speedup)} times as fast {text}{workload}"
    return _heading(ratio.speedup), f"{text}{workload}"


def _heading(speedup: float) -> str:
    return f"{ratio_text(speedup)} times as fast"


def _version_intervals(versions: FrameworkVersions) -> Iterator[Interval]:
    for speed in versions.speeds:
        roles = []
        if speed.version == versions.reference and not speed.ratio.variance:
            roles.append("the reference")
        if speed.version == versions.chosen:
            roles.append("recommended")
        if speed.version == versions.reference and versions.compared_with == "newest":
            roles.append("newest")
        roles.append("measured" if speed.is_measured else "not measured")
        if speed.evidence:
            roles.append(count(len(speed.evidence), "direct comparison"))
        yield Interval(
            label=str(speed.version), ratio=speed.ratio, note=", ".join(roles), is_estimated=not speed.is_measured
        )


def _describe_versions(versions: FrameworkVersions, prediction: Prediction) -> str:
    """Return what the speeds of the versions of a framework are compared with, and for which programs."""
    name, reference = versions.framework, versions.reference
    text = f"Speed of the recommended stack with each version of `{name}`, compared with "
    match versions.compared_with:
        case "newest":
            text += "the newest versions"
        case "recommended":
            text += f"`{name} {reference}`, which is recommended"
        case "newest-measured":
            text += f"`{name} {reference}`, the newest version that was measured on such hardware"
    if len(prediction.kinds) > 1:
        text += ", each with the kind of workload for which it gains least"
    elif prediction.workload:
        text += f", {workload_text(prediction)}"
    if versions.chosen not in {speed.version for speed in versions.speeds}:
        text += f". `{name} {versions.chosen}`, which is recommended, was not compared"
    return f"{text}."


def _evidence(report: AdviceResult, versions: Sequence[FrameworkVersions]) -> list[Interval]:
    """Return the comparisons behind the prediction, or without one those of other versions with the newest one."""
    if intervals := evidence_of(report.advice.prediction.changes):
        return intervals
    return [
        evidence_interval(of_framework.framework, e)
        for of_framework in versions
        for speed in of_framework.speeds
        for e in speed.evidence
    ]


def _arm_intervals(report: AdviceResult) -> Iterator[Interval]:
    """Yield the measured speed of the choice of an experiment, and of its other arms."""
    if report.experiment is not None:
        choice = report.experiment.choice
        for arm in (choice, *report.experiment.arms):
            if arm.ratio is not None:
                yield Interval(label=arm_label(arm), ratio=arm.ratio, note="the choice" if arm is choice else "")


def _plot_settings(rows: Sequence[settings.SettingRow]) -> dict[str, Any] | None:
    return plot(
        [
            Interval(label=row.setting, ratio=ratio, note=text, badge=row.verdict)
            for row in rows
            for text, ratio in row.speeds
        ]
    )


def _price_intervals(prices: Sequence[Price]) -> list[Interval]:
    predictions = [(price.constraint, price.prediction) for price in prices]
    return [Interval(label=f"without {name}", ratio=p.ratio) for name, p in predictions if p is not None and p.is_known]


def _overall(report: AdviceResult) -> Iterator[Interval]:
    prediction = report.advice.prediction
    if not prediction.is_known or prediction.is_same:
        return
    yield Interval(label="predicted speed over the newest versions", ratio=prediction.ratio)
    if total := gain_with_settings(prediction, report.settings_gain):
        yield Interval(label="with the recommended settings", ratio=total.ratio)

"""The report of `advisor advise` as one HTML page: what to do and what it brings, then the details, folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from advisor.api.session import AdviceResult
from advisor.domain.words import count, interval_text, no_speedup_text, range_text, ratio_text, workload_text
from advisor.report.advice import interpreters, reasons, settings, sizes, summary
from advisor.report.advice.experiment import arm_rows
from advisor.report.formats import Presentation
from advisor.report.html import Interval, evidence_of, fragment, page, plot, tree
from advisor.report.phrases import changes, changes_from_current, version_change
from advisor.resolve.explanation.prices import Price
from advisor.resolve.explanation.recommended_settings import gain_with_settings
from advisor.resolve.explanation.stack_requirements import requirements_within

SUFFIX = ".html"
_MOST_NAMES = 2
"""Packages, and settings, that the heading names."""


def render(report: AdviceResult, presentation: Presentation) -> str:
    """Return a recommendation as a page."""
    return page(headline(report), content(report, presentation))


def content(report: AdviceResult, presentation: Presentation) -> Markup:
    """Return a recommendation without the page around it; the template `advice.html` has its sections."""
    prices, prediction, stack = presentation.prices(), report.advice.prediction, report.advice.optimum.stack
    required = requirements_within(report.request.problem, report.request.source, stack)
    return fragment(
        "advice.html",
        title=headline(report),
        report=report,
        facts=summary.facts(report),
        gains=[*_gains(report)],
        overall=plot([*_overall(report)]),
        evidence=plot(evidence_of(prediction.changes)),
        prices=prices,
        price_text=reasons.price_text,
        price_plot=plot(_price_intervals(prices)),
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
    """Return what to do: which versions to use, and which settings to set."""
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
    return text


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
        return
    yield (
        "optimal" if optimum.proven else "not proven to be optimal",
        f"for the score, over {optimum.candidates} versions; verified by resolvelib",
    )


def _speed(report: AdviceResult) -> tuple[str, str]:
    """Return what is predicted about the speed: with the settings, of the versions alone, or why nothing is."""
    prediction, settings = report.advice.prediction, report.settings_gain
    if report.experiment is not None:
        certificate = report.experiment.certificate
        big = f"{ratio_text(certificate.speedup)} times as fast" if certificate.speedup != 1 else "nothing is faster"
        return big, f"measured, {interval_text(certificate)}: {certificate.text}"
    reason = no_speedup_text(prediction)
    workload = f", {workload_text(prediction)}" if prediction.workload else ""
    if text := range_text(prediction):
        workload += f"; {text}"
    if total := gain_with_settings(prediction, settings):
        alone = f"{ratio_text(prediction.speedup)} {interval_text(prediction)} without them"
        text = f"as the newest versions {interval_text(total)}, with the settings below; {alone}{workload}"
        ratio: float = total.speedup
    elif settings is not None:
        versions = reason or "the versions are the newest"
        text = f"as without the settings below {interval_text(settings)}{workload}; {versions}"
        ratio = settings.speedup
    elif reason:
        is_baseline = prediction.obstacle.startswith("the baseline ")
        return "runs on the target" if is_baseline else "speed not known", reason
    elif prediction.is_same:
        stated = summary.stated_text(report)
        return "same speed", f"these are the newest versions{f' {stated}' if stated else ', as pip would install them'}"
    elif not prediction.is_significant:
        return "no clear difference in speed", f"{ratio_text(prediction.speedup)} {interval_text(prediction)}{workload}"
    else:
        text = f"as the newest versions {interval_text(prediction)}{workload}"
        ratio = prediction.speedup
    return f"{ratio_text(ratio)} times as fast", text


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

"""Reports of queries of the knowledge base: comparisons of stacks, estimates, MLPerf scores, as tables and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from typing import Any

from advisor.domain.words import count, ends_text, interval_text, ratio_text
from advisor.report.tables import aligned_table
from knowledge.domain.extras import needs_extra
from knowledge.estimate.interface import Estimate
from knowledge.evidence.compare import Comparison
from knowledge.evidence.mlperf import BENCHMARKS, Gain, Score, efficiency
from knowledge.evidence.stacks import StackComparisons, stack_name

_MOST_CONTRASTS = 10
_LARGEST = 100.0
NO_RESULT = "no result"
"""Text of a ratio whose interval is too wide, or contradicts the medians."""


def stack_comparisons_text(standings: StackComparisons) -> str:
    """Return comparisons of stacks as tables, one for each size of the indicator in each block."""
    lines: list[str] = []
    keys = sorted({(c.indicator, c.block) for c in standings.comparisons})
    for label, block in keys:
        group = [c for c in standings.comparisons if (c.indicator, c.block) == (label, block)]
        group.sort(key=lambda c: -c.ratio.mean)
        first = group[0]
        gpu = first.reference.hardware.gpu if first.reference.indicator.device == "cuda" else None
        where = gpu.model if gpu else first.reference.hardware.cpu.microarchitecture
        rows = []
        for c in group:
            ratio, interval, mark = ratio_cells(c)
            name = f"{'A/A ' if c.is_control else ''}{stack_name(c.observation)}"
            rows.append((name, ratio, interval, str(c.rounds), mark))
        title = f"{label} on {where}, block `{block}`: times as fast as `{stack_name(first.reference)}`"
        lines += [title, "", aligned_table(("stack", "ratio", "interval", "rounds", ""), rows), ""]
    lines += [f"not compared: {reason}" for reason in standings.refused]
    significant = sum(c.significant and not c.is_control for c in standings.comparisons)
    total = sum(not c.is_control for c in standings.comparisons)
    lines.append(
        f"{significant} of {total} comparisons are significant (*): the interval, widened for the comparisons of its "
        "block, excludes 1"
    )
    if unclear := sum(not c.conclusive for c in standings.comparisons):
        lines.append(f"no result for {count(unclear, 'comparison')}: measure them with more rounds, on a quiet machine")
    return "\n".join(lines)


def stack_comparisons_record(standings: StackComparisons) -> dict[str, Any]:
    """Return what :func:`stack_comparisons_text` has as JSON-ready values."""
    return {
        "schema_version": 2,
        "comparisons": [
            {
                "block": c.block,
                "indicator": c.indicator,
                "stack": stack_name(c.observation),
                "reference": stack_name(c.reference),
                "hardware": c.observation.hardware.identity,
                "ratio": round(c.speedup, 6),
                "low": round(c.low, 6),
                "high": round(c.high, 6),
                "rounds": c.rounds,
                "conclusive": c.conclusive,
                "significant": c.significant,
                "control": c.is_control,
            }
            for c in standings.comparisons
        ],
        "refused": list(standings.refused),
    }


def estimate_text(estimate: Estimate, *, stack: str, against: str, where: str, indicators: int) -> str:
    """Return an estimate and the evidence that contributes most to it."""
    basis = "both measured" if estimate.measured else "inferred: at least one of the versions was not measured"
    rows = [
        (
            f"{weight:+.3f}",
            ratio_text(c.ratio.speedup, "exact"),
            ends_text(c.ratio, "exact"),
            _side(c.side.version, c.side.settings),
            _side(c.reference.version, c.reference.settings),
            c.label,
            c.machine.name,
            c.block,
        )
        for weight, c in estimate.weighted_contrasts[:_MOST_CONTRASTS]
    ]
    lines = [
        f"{stack} against {against}, on {where}, over {count(indicators, 'size')} of indicators:",
        f"{ratio_text(estimate.speedup, 'exact')} times as fast {interval_text(estimate, 'exact')} at "
        f"{estimate.confidence:.0%}; {basis}",
        "",
        "main evidence (to first order, the log speed-up is the sum of weight x log ratio over all "
        f"{len(estimate.weighted_contrasts)} contrasts):",
        aligned_table(("weight", "ratio", "interval", "measured", "against", "indicator", "on", "block"), rows),
    ]
    return "\n".join(lines)


def _side(version: str, settings: Any) -> str:
    return version + "".join(f" {name}={value}" for name, value in sorted(settings.items()))


def scores_text(scores: Sequence[Score]) -> str:
    """Return MLPerf scores like the published tables: minutes, with a row per system and a column per benchmark."""
    names = [b for b in BENCHMARKS if any(s.benchmark == b for s in scores)]
    names += sorted({s.benchmark for s in scores} - set(names))
    rows = []
    for key in sorted({(s.division, s.submitter, s.system) for s in scores}):
        group = {s.benchmark: s for s in scores if (s.division, s.submitter, s.system) == key}
        any_score = next(iter(group.values()))
        models = ", ".join(a.model for a in any_score.hardware.accelerators) or any_score.hardware.cpu.model
        count = "unknown" if any_score.accelerators is None else str(any_score.accelerators or "")
        minutes = {
            b: f"none: {s.failed} of {s.runs} failed" if s.minutes is None else f"{s.minutes:.2f}"
            for b, s in group.items()
        }
        rows.append((*key, models, count, *(minutes.get(b, "") for b in names)))
    return aligned_table(("division", "submitter", "system", "accelerator", "count", *names), rows)


def scores_record(scores: Iterable[Score]) -> list[dict[str, Any]]:
    """Return MLPerf scores as JSON-ready values."""
    return [
        {
            "round": s.round_,
            "division": s.division,
            "submitter": s.submitter,
            "system": s.system,
            "benchmark": s.benchmark,
            "minutes": None if s.minutes is None else round(s.minutes, 4),
            "runs": s.runs,
            "failed": s.failed,
            "accelerators": s.accelerators,
            "target": s.target,
        }
        for s in scores
    ]


def software(score: Score) -> str:
    """Return the display name of a score's software."""
    o = score.observation
    version = o.stack.version_of(o.framework)
    index = next((p.index for p in o.stack.packages if p.name == o.framework), "")
    container = str(o.environment.get("container", ""))
    # If no source says which version a container has, its release is the version: 20.6 for 20.06.
    release = ".".join(part.lstrip("0") for part in container.split("."))
    is_named = version and version != release and container
    origin = "" if index != "ngc" else f" (NGC {container})" if is_named else " (NGC)"
    return f"{o.framework}{f' {version}' if version else ''}{origin}"


def gains_text(gains: Sequence[Gain], *, of: str) -> str:
    """Return speed-ups of MLPerf scores, of software (``software``) or of accelerators (``scaling``), as a table."""
    if of == "scaling":
        scaling_rows = (
            (
                *(g.later.round_, g.later.submitter, g.later.benchmark, software(g.later)),
                *(str(g.earlier.accelerators), str(g.later.accelerators)),
                *(ratio_text(g.speedup), ends_text(g), f"{efficiency(g):.0%}"),
            )
            for g in gains
        )
        heads = ("round", "submitter", "benchmark", "software", "from", "to", "speed-up", "95 % interval", "efficiency")
        return aligned_table(heads, scaling_rows)
    rows = (
        (
            *(g.later.hardware.name, str(g.later.accelerators), g.later.benchmark),
            *(f"{g.earlier.round_} {software(g.earlier)}", f"{g.later.round_} {software(g.later)}"),
            f"{g.earlier.minutes:.2f} -> {g.later.minutes:.2f}",
            *(ratio_text(g.speedup), ends_text(g), "*" if g.is_significant else "", g.note),
        )
        for g in gains
    )
    software_heads = ("machine", "accelerators", "benchmark", "from", "to", "minutes", "speed-up", "95 % interval")
    return aligned_table((*software_heads, "", "note"), rows)


def gains_record(gains: Iterable[Gain]) -> list[dict[str, Any]]:
    """Return speed-ups of MLPerf scores as JSON-ready values."""
    return [
        {
            "benchmark": g.later.benchmark,
            "machine": g.later.hardware.name,
            "from": _score_record(g.earlier),
            "to": _score_record(g.later),
            "speedup": round(g.speedup, 6),
            "low": round(g.low, 6),
            "high": round(g.high, 6),
            "significant": g.is_significant,
            "note": g.note,
        }
        for g in gains
    ]


def _score_record(score: Score) -> dict[str, Any]:
    return {"round": score.round_, "software": software(score), "accelerators": score.accelerators}


def ratios_plot(rows: Sequence[tuple[str, float, float, float]], *, title: str) -> Callable[[Any], None]:
    """Return a function that draws rows on matplotlib's axes: name, ratio, lower and upper end of its interval."""

    def draw(axes: Any) -> None:
        places = range(len(rows))
        for place, (_, ratio, low, high) in zip(places, rows, strict=True):
            axes.plot([low, high], [place, place], color="tab:blue", linewidth=1.5)
            axes.plot([ratio], [place], "o", color="tab:blue", markersize=4)
        axes.axvline(1, color="0.5", linewidth=1)
        axes.set_yticks(list(places), [name for name, *_ in rows])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="both", which="both", labelsize=8)
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_xlabel("times as fast (log scale)", fontsize=8)

    return draw


def draw_svg(draw: Callable[[Any], None], *, rows: int, panels: int = 0) -> str:
    """Return a plot as SVG; the same values give the same text.

    Args:
        draw: Draws on the axes, or with ``panels`` on an array of axes, one below the other.
        rows: Rows of text of the plot.
        panels: Number of axes, if there are several.

    Raises:
        InputError: If matplotlib is not installed.
    """
    with needs_extra("plot", "a plot"):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    with mpl.rc_context({"svg.hashsalt": "seshat", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 1.2 + 0.22 * rows), layout="constrained")
        draw(figure.subplots(panels, squeeze=False)[:, 0] if panels else figure.subplots())
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def ratio_cells(comparison: Comparison) -> tuple[str, str, str]:
    """Return the ratio, its interval, and `*` where the difference is significant.

    An interval that is too wide, or that contradicts the medians, is no result.
    """
    interval = f"{_end(comparison.low)} to {_end(comparison.high)}"
    if not comparison.conclusive:
        return NO_RESULT, f"{interval}: too few or too noisy rounds", ""
    return ratio_text(comparison.speedup, "exact"), interval, "*" if comparison.significant else ""


def _end(ratio: float) -> str:
    if not 1 / _LARGEST <= ratio <= _LARGEST:
        return "below 0.01" if ratio < 1 else "above 100"
    return ratio_text(ratio, "exact")

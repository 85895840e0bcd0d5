"""A block of observations as tables: what each arm attains, and how it compares with the reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from advisor.domain.words import count, duration_text, energy_text
from advisor.report.evidence import ratio_cells
from knowledge.domain.observation import BENCHMARK, Observation
from knowledge.evidence.compare import Comparison, compare_block, refusals
from knowledge.evidence.stacks import stack_name
from knowledge.evidence.summary import Summary, summarise_block
from pi_runners.execution.benchmark import Metric, last_line

_MOST_CHARACTERS = 200
_ENERGIES = {"gpu": "GPUs", "cpu": "processors", "dram": "memory"}


def block_table(observations: Iterable[Observation]) -> str:
    """Return the comparisons of a block with the reference of each framework, as Markdown.

    A ratio above 1 is faster than the reference; there is none if the rounds are too few or too noisy. `*` marks a
    difference whose interval, corrected for the number of comparisons, excludes 1; an A/A row compares a stack with
    itself and shows the noise floor.
    """
    observations = tuple(observations)
    lines: list[str] = []
    comparisons = {(c.indicator, c.arm): c for c in compare_block(observations)}
    summaries = summarise_block(observations)
    for indicator in sorted({s.observation.indicator.label for s in summaries}):
        rows = [s for s in summaries if s.observation.indicator.label == indicator]
        lines += [
            indicator,
            "",
            "| stack | median | 95 % interval | variation | rate | of the roof | ratio | 95 % interval | |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
            *(_row(s, comparisons.get((indicator, s.observation.arm))) for s in rows),
            "",
            *_energy(rows),
        ]
    lines += [*_scaling(summaries), *_failures(observations)]
    for refusal in refusals(observations):
        what = f"`{_stack_name(refusal.observation)}` {refusal.observation.indicator.name}"
        lines.append(f"not compared: {what} in {refusal.rounds} rounds: {refusal.reason}")
    lines += _unstable(summaries)
    significant = sum(c.significant and not c.is_control for c in comparisons.values())
    total = sum(not c.is_control for c in comparisons.values())
    lines.append(f"{significant} of {total} comparisons are significant")
    if unclear := sum(not c.conclusive for c in comparisons.values()):
        lines.append(f"no result for {count(unclear, 'comparison')}: measure with more `--rounds`, on a quiet machine")
    return "\n".join(lines)


def block_record(observations: Iterable[Observation]) -> dict[str, Any]:
    """Return the content of :func:`block_table` as JSON-ready values."""
    observations = tuple(observations)
    comparisons = {(c.indicator, c.arm): c for c in compare_block(observations)}
    rows = [
        _record(s, comparisons.get((s.observation.indicator.label, s.observation.arm)))
        for s in summarise_block(observations)
    ]
    failed = [
        {"arm": o.arm, "round": o.round, "indicator": asdict(o.indicator), "status": o.status, "failure": o.failure}
        for o in observations
        if o.status != "ok"
    ]
    refused = [
        {"arm": r.arm, "indicator": r.indicator, "rounds": r.rounds, "reason": r.reason} for r in refusals(observations)
    ]
    return {"schema_version": 2, "block": observations[0].block, "rows": rows, "failures": failed, "refused": refused}


def _record(s: Summary, c: Comparison | None) -> dict[str, Any]:
    o = s.observation
    return {
        "indicator": asdict(o.indicator),
        "stack": _stack_name(o),
        "framework": o.framework,
        "version": o.stack.version_of(o.framework),
        "settings": dict(o.settings),
        "arm": o.arm,
        "reference": o.reference,
        "runs": s.runs,
        "samples": s.samples,
        "seconds": {"median": s.median, "low": s.low, "high": s.high, "variation": s.variation},
        "rates": {"flops": s.flops, "bytes": s.bytes, "items": s.items},
        "intensity": s.intensity,
        "roof_share": s.roof_share,
        "energy": {"joules_per_call": dict(s.joules_per_call), "seconds": s.energy_seconds}
        if s.joules_per_call
        else None,
        "instabilities": [asdict(i) for i in s.instabilities],
        "speedup": None
        if c is None
        else {
            "ratio": c.speedup,
            "low": c.low,
            "high": c.high,
            "rounds": c.rounds,
            "conclusive": c.conclusive,
            "significant": c.significant,
            "control": c.is_control,
        },
    }


def _row(s: Summary, c: Comparison | None) -> str:
    name = _stack_name(s.observation)
    values = [_value(s.observation, seconds) for seconds in (s.median, s.low, s.high)]
    if s.observation.indicator.parameters.get("better") == "higher":
        # The shortest time is the highest rate.
        values[1:] = reversed(values[1:])
    cells = [
        f"A/A `{name}`" if c is not None and c.is_control else f"`{name}`",
        values[0],
        f"{values[1]} to {values[2]}",
        f"{s.variation:.1%}",
        _rate(s),
        f"{s.roof_share:.0%}" if s.roof_share is not None else "",
    ]
    if c is None:
        cells += ["reference" if s.observation.reference else "", "", ""]
    else:
        cells += ratio_cells(c)
    return f"| {' | '.join(cells)} |"


def _stack_name(o: Observation) -> str:
    """Return the name of a stack; for a benchmark, what the user requested: its locks differ in more."""
    return str(o.environment["stack"]) if o.indicator.name == BENCHMARK else stack_name(o)


def _value(o: Observation, seconds: float) -> str:
    """Return a duration as text, or the metric of a benchmark in its own unit."""
    parameters = o.indicator.parameters
    if o.indicator.name == BENCHMARK:
        unit, is_higher = str(parameters["unit"]), parameters["better"] == "higher"
        if not Metric(unit=unit, better="higher" if is_higher else "lower").is_duration:
            return f"{1 / seconds if is_higher else seconds:.4g} {unit}"
    return duration_text(seconds)


def _energy(rows: Iterable[Summary]) -> list[str]:
    """Return the energy of a call on each stack of a table, if it was measured."""
    lines = [
        f"energy of a call: `{_stack_name(s.observation)}`: "
        + ", ".join(f"{_ENERGIES.get(kind, kind)} {energy_text(joules)}" for kind, joules in s.joules_per_call.items())
        + f" (over {duration_text(s.energy_seconds)})"
        for s in rows
        if s.joules_per_call
    ]
    return [*lines, "idle power and other programs are included", ""] if lines else []


def _scaling(summaries: Iterable[Summary]) -> list[str]:
    """Return the share of the ideal speed-up that data-parallel training reaches with several processes."""
    rates: dict[tuple[str, str, int], dict[int, float]] = {}
    for s in summaries:
        run = s.observation.indicator
        if run.name == "communication" and run.parameters["pattern"] == "scaling":
            key = stack_name(s.observation), run.dtype, s.observation.arm
            rates.setdefault(key, {})[int(run.parameters["processes"])] = s.items
    return [
        f"scaling efficiency: `{name}` {dtype}: {entries[count] / (count * entries[1]):.0%} from 1 to {count} processes"
        for (name, dtype, _), entries in sorted(rates.items())
        for count in sorted(entries)
        if count > 1 and 1 in entries
    ]


def _failures(observations: Iterable[Observation]) -> list[str]:
    failed = sorted(
        {
            (_stack_name(o), o.indicator.name, o.status, last_line(o.failure)[:_MOST_CHARACTERS])
            for o in observations
            if o.status != "ok"
        }
    )
    lines = [f"failed: `{name}` {indicator}: {status}: {why}" for name, indicator, status, why in failed]
    if any(status == "harness-error" for _, _, status, _ in failed):
        lines.append("`harness-error`: the measuring program failed, not the stack: no result for these versions")
    return lines


def _unstable(summaries: Iterable[Summary]) -> list[str]:
    """Return each reason of instability once, with the number of rows that it concerns."""
    entries: dict[str, list[tuple[str, str]]] = {}
    for s in summaries:
        for i in s.instabilities:
            entries.setdefault(i.code, []).append((i.reason, i.remedy))
    return [
        f"unstable ({code}, {count(len(reasons), 'row')}): {reasons[0][0]}; {reasons[0][1]}"
        for code, reasons in entries.items()
    ]


def _rate(s: Summary) -> str:
    if s.items:
        return f"{s.items:.4g} /s +/- {s.items_uncertainty:.2g} (jitter {s.items_jitter:.2g})"
    if s.flops:
        return f"{s.flops / 1e9:.3g} GFLOP/s at {s.intensity:.3g} FLOP/B"
    return f"{s.bytes / 1e9:.3g} GB/s" if s.bytes else ""

"""The comparison of interpreters in the reports of `advisor advise --python best`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from advisor.domain.words import interval_text, quoted, ratio_text
from advisor.resolve.recommendation.problem_variants import SolvedVariant, VariantComparison
from advisor.resolve.score.criteria import HOURS_A_YEAR
from knowledge.estimate.interpreters import InterpreterRatio, interpreter_ratios

_MAX_LINES = 5


def interpreters_text(comparison: VariantComparison) -> Iterator[str]:
    """Yield which interpreter has the best score, and by which criterion each of the others is worse."""
    best, *others = comparison.solved
    yield f"{best.variant.label} has the best-scored stack"
    for other in others[:_MAX_LINES]:
        yield f"{other.variant.label}: {_difference(best, other)}"
    if len(others) > _MAX_LINES:
        yield f"and {len(others) - _MAX_LINES} more (`--format json` lists them)"
    yield from (f"{label}: {obstacle}" for label, obstacle in comparison.obstacles.items())


def interpreter_rows(comparison: VariantComparison) -> list[tuple[str, str, str]]:
    """Return the rows of a table: each interpreter, the packages of its stack, and what decides against it."""
    best = comparison.solved[0]
    rows = [(s.variant.label, str(len(s.optimum.stack)), _difference(best, s)) for s in comparison.solved]
    return rows + [(label, "-", obstacle) for label, obstacle in comparison.obstacles.items()]


def measured_lines(comparison: VariantComparison) -> Iterator[str]:
    """Yield the measured differences between interpreters, one line for each part; nothing if there are none."""
    by_part: dict[str, list[InterpreterRatio]] = {}
    for ratio in interpreter_ratios([_version(solved.variant.label) for solved in comparison.solved]):
        by_part.setdefault(ratio.part, []).append(ratio)
    for part, ratios in by_part.items():
        values = ", ".join(f"{r.python} {ratio_text(r.ratio)}x {interval_text(r)}" for r in ratios)
        yield f"{part}, compared with {ratios[0].reference}: {values} ({ratios[0].machine}; not part of the score)"


def interpreters_document(comparison: VariantComparison | None) -> list[dict[str, Any]]:
    """Return the interpreters as JSON-ready values, the best first; those without a stack at the end."""
    if comparison is None:
        return []
    solved = [(_version(v.variant.label), dict(v.score), len(v.optimum.stack), "") for v in comparison.solved]
    failed = [(_version(label), dict[str, int](), 0, obstacle) for label, obstacle in comparison.obstacles.items()]
    return [
        {
            "python": python,
            "score": score,
            "packages": packages,
            "obstacle": obstacle,
            "measured": [asdict(ratio) for ratio in interpreter_ratios([python])],
        }
        for python, score, packages, obstacle in (*solved, *failed)
    ]


def _version(label: str) -> str:
    return label.removeprefix("Python ")


def _difference(best: SolvedVariant, other: SolvedVariant) -> str:
    """Return the first criterion by which a variant is worse than the best one."""
    if other is best:
        return "best score"
    names = {c.name for c in best.untried_sdists}
    sdists = [f"{c.name} {c.version}" for c in other.untried_sdists if c.name not in names]
    for criterion, value in other.score.items():
        if value > best.score[criterion]:
            if criterion == "rules" and sdists:
                return f"no wheel of {quoted(sdists)}, and the build was not tried"
            return criterion_text(criterion, value - best.score[criterion])
    return "equal by every criterion"


def criterion_text(criterion: str, worse: int) -> str:
    """Return a difference of a criterion in words; positive is worse."""
    if criterion.startswith("freshness"):
        subject = "named packages" if criterion == "freshness-direct" else "all packages"
        return f"{subject} {abs(worse) / HOURS_A_YEAR:.1f} years {'older' if worse > 0 else 'newer'}"
    if criterion == "speed":
        return f"{abs(worse)} % {'slower' if worse > 0 else 'faster'}"
    return f"{'worse' if worse > 0 else 'better'} by {abs(worse)} (`{criterion}`)"

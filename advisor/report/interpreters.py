"""The comparison of interpreters in the report of `advisor advise --python best`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.resolve.objectives import HOURS_A_YEAR
from advisor.resolve.problem_variants import SolvedVariant, VariantComparison

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


def interpreters_document(comparison: VariantComparison | None) -> list[dict[str, Any]]:
    """Return the interpreters as JSON-ready values, the best first; those without a stack at the end."""
    if comparison is None:
        return []
    solved = [
        {"python": _version(v.variant.label), "score": dict(v.score), "packages": len(v.optimum.stack), "obstacle": ""}
        for v in comparison.solved
    ]
    failed = [
        {"python": _version(label), "score": {}, "packages": 0, "obstacle": obstacle}
        for label, obstacle in comparison.obstacles.items()
    ]
    return solved + failed


def _version(label: str) -> str:
    return label.removeprefix("Python ")


def _difference(best: SolvedVariant, other: SolvedVariant) -> str:
    """Return the first criterion by which a variant is worse than the best one."""
    for criterion, value in other.score.items():
        behind = value - best.score[criterion]
        if behind <= 0:
            continue
        if criterion.startswith("freshness"):
            return f"{behind / HOURS_A_YEAR:.1f} years older (`{criterion}`)"
        if criterion == "speed":
            return f"{behind} % slower"
        return f"worse by {behind} (`{criterion}`)"
    return "equal by every criterion"

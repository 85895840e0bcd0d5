"""The table of the results in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from knowledge.estimate.numerical_effect import Difference, NumericalEffect

HEAD = "| framework | settings | model | forward error | float32 loss | change of the loss | change of the accuracy |"


def markdown_table(effects: Iterable[NumericalEffect]) -> str:
    """Return a row for each framework, setting and model."""
    rule = "|" + " --- |" * (HEAD.count("|") - 1)
    return "\n".join([HEAD, rule, *map(_row, effects)])


def _row(effect: NumericalEffect) -> str:
    settings = ", ".join(f"`{name}={value}`" for name, value in effect.settings.items())
    return (
        f"| {effect.framework} | {settings} | {effect.model} | {_error(effect.forward_error)} | "
        f"{effect.float32_loss:.4f} ± {effect.float32_deviation:.4f} | {_change(effect.loss, 1, 4)} | "
        f"{_change(effect.accuracy, 100, 2)} |"
    )


def _error(error: float) -> str:
    return f"{error:.1e}" if error else "0"


def _change(difference: Difference, factor: float, digits: int) -> str:
    if not (difference.mean or difference.deviation):
        return "0"
    low, high = difference.interval()
    star = " *" if low > 0 or high < 0 else ""
    # Without the sum, a small negative number has the text `-0.00`.
    mean = round(factor * difference.mean, digits) + 0.0
    return f"{mean:+.{digits}f} ± {factor * difference.deviation:.{digits}f}{star}"

"""What a report says about an experiment: what was chosen, how certain that is, and what the other arms did."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from advisor.api.session import AdviceResult
from advisor.domain.words import count, interval_text, ratio_text
from advisor.experiment.result import ArmResult, ExperimentResult
from knowledge.domain.ratio import Ratio

_WITHOUT_RATIO = {"reference": "what the others are compared with", "open": "too few rounds"}
_WITHOUT_RUN = ("failed", "not tried")
_MOST_ARMS = 5
"""Arms besides the choice that are listed one by one if details are not asked for."""


def experiment_lines(report: AdviceResult) -> Iterator[str]:
    """Yield the choice of an experiment with its gain, what is certain, and the noise; nothing without one."""
    result = report.experiment
    if result is None:
        return
    certificate = result.certificate
    yield _choice_text(result)
    yield certificate.text
    if certificate.untried:
        yield f"{count(len(certificate.untried), 'other arm')} could not be tried"
    effort = f"{count(certificate.measured_arms, 'arm')} ran, {count(certificate.rounds, 'round')}, "
    effort += f"{certificate.minutes:g} minutes on {certificate.machine_name}"
    yield effort if result.noise is None else f"{effort}; a run varies by {100 * result.noise:.1f} %"
    if result.choice.has_reduced_precision:
        yield _precision_text(result)
    if result.control is not None:
        noise = "" if result.control.is_significant() else ": no difference, as it must be"
        yield f"the same stack twice (A/A): {_ratio(result.control)}{noise}"
    if result.disturbance:
        yield f"some runs do not count: {result.disturbance}"


def arm_rows(report: AdviceResult, *, details: bool) -> Iterator[tuple[str, str, str]]:
    """Yield name, verdict and speed of the other arms that ran, the fastest first; few of them without details."""
    result = report.experiment
    if result is None:
        return
    ran = [arm for arm in result.arms if arm.verdict not in ("not run", *_WITHOUT_RUN)]
    listed = ran if details else ran[:_MOST_ARMS]
    for arm in listed:
        yield arm_label(arm), arm.verdict, _ratio(arm.ratio) if arm.ratio else _WITHOUT_RATIO.get(arm.verdict, "")
    if len(ran) > len(listed):
        yield count(len(ran) - len(listed), "more arm"), "", "`--details` lists them"
    for arm in (arm for arm in result.arms if arm.verdict in _WITHOUT_RUN):
        yield arm_label(arm), arm.verdict, arm.failure


def arm_label(result: ArmResult) -> str:
    """Return what an arm is, in a few words."""
    return result.arm.label or "the newest stack"


def experiment_record(result: ExperimentResult) -> dict[str, Any]:
    """Return an experiment as JSON-ready values."""

    def record(arm: ArmResult) -> dict[str, Any]:
        ratio = arm.ratio
        return {
            "changes": [change.text for change in arm.arm.changes],
            "verdict": arm.verdict,
            "speedup": ratio.speedup if ratio else None,
            "low": ratio.low if ratio else None,
            "high": ratio.high if ratio else None,
            "rounds": arm.rounds,
            "failure": arm.failure,
            "results": list(arm.results),
        }

    return {
        "block": result.block,
        "ending": result.ending,
        "choice": record(result.choice),
        "arms": [record(arm) for arm in result.arms],
        "certificate": result.certificate.table(),
    }


def _choice_text(result: ExperimentResult) -> str:
    ratio = result.choice.ratio
    if ratio is None:
        tolerance = 100 * result.certificate.tolerance
        return f"the newest stack without settings: no arm is clearly more than {tolerance:g} % faster"
    return f"{result.choice.arm.label}: {_ratio(ratio)} as the newest versions"


def _precision_text(result: ExperimentResult) -> str:
    """Return how the result of the program differs with the reduced precision of the choice."""
    reference = next(arm for arm in result.arms if arm.verdict == "reference")
    if not result.choice.results or not reference.results:
        return (
            "its precision is reduced, and the result of the program was not compared: `result` in "
            "`[tool.advisor.benchmark]` says where the output has a loss or a score"
        )
    own, other = statistics.fmean(result.choice.results), statistics.fmean(reference.results)
    apart, spread = abs(own - other), max(reference.results) - min(reference.results)
    return (
        f"its precision is reduced: the program computes {own:.6g} instead of {other:.6g} ({apart:.2g} apart; runs of "
        f"the newest stack differ by up to {spread:.2g})"
    )


def _ratio(ratio: Ratio) -> str:
    return f"{ratio_text(ratio.speedup)} times as fast {interval_text(ratio)}"

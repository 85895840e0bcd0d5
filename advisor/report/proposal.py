"""A proposed campaign as a table and as a record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from advisor.campaign.proposal import CampaignProposal, OpenDecision, ProposedBlock, ProposedChoice, program_name
from advisor.domain.words import count, interval_text, listed, ratio_text
from advisor.report.tables import aligned_table

_MOST_DECISIONS, _MOST_MODELS = 2, 4


def proposal_text(proposal: CampaignProposal) -> str:
    """Return a proposal as text: a table for each block, and what is left out."""
    lines = [
        f"campaign for `{proposal.hardware}`: about {_minutes(proposal.seconds)} of "
        f"{_minutes(proposal.budget_seconds)} minutes",
        "",
        "gain: expected speed-up by better choices of versions and settings, the mean over "
        f"{len(proposal.workloads)} kinds of workloads with equal weights",
        "open choices: the fastest prediction except the default, with its speed-up over the default [95 % interval]",
        "",
    ]
    for block in proposal.blocks:
        lines += [*_block_lines(block), ""]
    if not proposal.blocks:
        lines += ["no measurement is expected to improve a choice", ""]
    lines += [f"not planned: {name}: {reason}" for name, reason in proposal.left_out]
    return "\n".join(lines).rstrip()


def _block_lines(block: ProposedBlock) -> Iterator[str]:
    names = [program_name(run.parameters) for run in block.programs]
    yield f"{block.framework} {block.reference}: gain {_percent(block.gain)}, {_minutes(block.seconds)} min"
    yield f"at {count(len(names), 'model')}: {listed(names, _MOST_MODELS)}"
    yield ""
    rows = [
        (_measured(choice), _decisions_text(choice.decisions), _percent(choice.gain), _minutes(choice.seconds))
        for choice in block.choices
    ]
    yield aligned_table(("measure", "open choices", "gain", "minutes"), rows)


def _measured(choice: ProposedChoice) -> str:
    values = ", ".join(choice.values)
    return f"versions {values}" if choice.is_of_versions else f"{choice.subject}={values}"


def _decisions_text(decisions: Sequence[OpenDecision]) -> str:
    texts = [
        f"{' '.join(filter(None, (d.workload, d.size)))}: {d.option} {ratio_text(d.ratio.speedup)} "
        f"{interval_text(d.ratio)}"
        for d in decisions[:_MOST_DECISIONS]
    ]
    more = len(decisions) - _MOST_DECISIONS
    return "; ".join(texts) + (f"; {more} more" if more > 0 else "")


def _percent(gain: float) -> str:
    return f"{100 * math.expm1(gain):.2f} %"


def _minutes(seconds: float) -> str:
    return f"{max(1.0, seconds / 60):.0f}"


def proposal_record(proposal: CampaignProposal) -> dict[str, Any]:
    """Return a proposal as JSON-ready values; gains are fractions."""
    return {
        "schema_version": 1,
        "hardware": proposal.hardware,
        "device": proposal.device,
        "budget_seconds": proposal.budget_seconds,
        "seconds": round(proposal.seconds),
        "expected_gain": math.expm1(proposal.gain),
        "workloads": list(proposal.workloads),
        "blocks": [
            {
                "framework": block.framework,
                "reference": block.reference,
                "seconds": round(block.seconds),
                "expected_gain": math.expm1(block.gain),
                "programs": [dict(run.parameters) for run in block.programs],
                "choices": [
                    {
                        "subject": choice.subject,
                        "values": list(choice.values),
                        "seconds": round(choice.seconds),
                        "expected_gain": math.expm1(choice.gain),
                        "decisions": [_decision_record(decision) for decision in choice.decisions],
                    }
                    for choice in block.choices
                ],
            }
            for block in proposal.blocks
        ],
        "not_planned": [{"name": name, "reason": reason} for name, reason in proposal.left_out],
    }


def _decision_record(decision: OpenDecision) -> dict[str, Any]:
    return {
        "workload": decision.workload,
        "size": decision.size,
        "option": decision.option,
        "speedup": decision.ratio.speedup,
        "interval": [decision.ratio.low, decision.ratio.high],
        "expected_gain": math.expm1(decision.gain),
    }

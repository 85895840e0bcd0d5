"""Results of one indicator in single blocks, for tables and plots: each arm compared with its reference, cached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from knowledge.domain.identity import content_hash
from knowledge.domain.observation import PUBLISHED, Scalar
from knowledge.domain.ratio import CONFIDENCE, Ratio, WithRatio
from knowledge.evidence.compare import Comparison
from knowledge.evidence.contrasts import Contrast
from knowledge.evidence.published_rows import published_contrasts
from knowledge.evidence.stacks import compare_stacks, stack_name
from knowledge.records import value_from
from knowledge.store.base import KnowledgeBase, StoredBlock

_KIND = "block-results"
_FORMAT = 1
"""Changes when results that are cached are no longer right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedArm(WithRatio):
    """One arm of a block compared with its reference, at one indicator.

    Attributes:
        block: The block.
        label: Label of the indicator run.
        arm: The arm; -1 for a published result.
        name: Framework, version and settings of the arm, for people.
        framework: Distribution that provides the backend.
        version: Its version.
        settings: Run-time settings.
        reference: The same as ``name`` for what it is compared with.
        hardware: Identity of the machine.
        rounds: Number of rounds that both ran in; 0 for a published result.
        ratio: Reference seconds over the arm's, as :class:`knowledge.evidence.compare.Comparison` has it; a published
            number has no interval of its own.
        conclusive: Whether there is a result: the rounds are numerous and quiet enough.
        significant: Whether there is a result and its interval excludes 1.
        is_control: Whether both are the same stack with the same settings (an A/A comparison).
        year: Year of a published result; 0 for others.
    """

    block: str
    label: str
    arm: int
    name: str
    framework: str
    version: str
    settings: Mapping[str, Scalar]
    reference: str
    hardware: str
    rounds: int
    ratio: Ratio
    conclusive: bool
    significant: bool
    is_control: bool
    year: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResults:
    """Results of one indicator and framework in a block.

    Attributes:
        arms: The arms in order of label and arm.
        refused: One sentence for each group of runs that is not compared, with the reason.
        confidence: Joint confidence of the intervals of the block.
    """

    arms: tuple[ComparedArm, ...] = ()
    refused: tuple[str, ...] = ()
    confidence: float = CONFIDENCE


def block_results(store: KnowledgeBase, block: StoredBlock, *, indicator: str, framework: str) -> BlockResults:
    """Return the results of an indicator and a framework in a block, cached or computed.

    They are those of :func:`knowledge.evidence.stacks.compare_stacks` for the same observations. Published results are
    the pairs of rows that :func:`knowledge.evidence.published_rows.published_contrasts` finds in the block.
    """
    key = content_hash([block.name, indicator, framework])
    digest = content_hash([_FORMAT, block.digest])
    cached = store.load_derived(_KIND, [(key, digest)])
    if key in cached:
        return value_from(BlockResults, cached[key])
    observations = tuple(store.observations(block=block.name, indicator=indicator, frameworks=[framework]))
    if indicator == PUBLISHED:
        results = BlockResults(arms=tuple(map(_published_result, published_contrasts(observations))))
    else:
        compared = compare_stacks(observations)
        results = BlockResults(arms=tuple(map(_result, compared.comparisons)), refused=compared.refused)
    store.store_derived(_KIND, [(key, digest, asdict(results))])
    return results


def _result(c: Comparison) -> ComparedArm:
    o = c.observation
    return ComparedArm(
        block=c.block,
        label=c.indicator,
        arm=c.arm,
        name=stack_name(o),
        framework=o.framework,
        version=o.stack.version_of(o.framework) or "",
        settings=dict(o.settings),
        reference=stack_name(c.reference),
        hardware=o.hardware.identity,
        rounds=c.rounds,
        ratio=c.ratio,
        conclusive=c.conclusive,
        significant=c.significant,
        is_control=c.is_control,
    )


def _published_result(c: Contrast) -> ComparedArm:
    def name(version: str, settings: Mapping[str, str]) -> str:
        return f"{c.framework} {version}" + "".join(f" {key}={value}" for key, value in sorted(settings.items()))

    return ComparedArm(
        block=c.block,
        label=c.label,
        arm=-1,
        name=name(c.side.version, c.side.settings),
        framework=c.framework,
        version=c.side.version,
        settings=dict(c.side.settings),
        reference=name(c.reference.version, c.reference.settings),
        hardware=c.machine.identity,
        rounds=0,
        ratio=c.ratio,
        conclusive=True,
        significant=False,
        is_control=c.is_control,
        year=c.year,
    )

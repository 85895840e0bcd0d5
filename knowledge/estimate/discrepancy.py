"""How far the ratio of a whole model is from predictions by its parts, or by other models.

A sum of the times of single operations leaves out what a framework does between them (fusion, memory, overhead), and
one model is not another. The discrepancy is the standard deviation of the residuals beyond the noise of both sides. It
is estimated from whole models whose parts were measured in the same block, and widens every prediction that has the
same basis.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from knowledge.domain.model_part import PartOfModel
from knowledge.domain.observation import Observation, words_of
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.similarity import side_on

WHOLE_MODEL = "model"
"""Name of the indicator of whole models."""
BLOCK_OF_MODEL = "block"
"""Name of the indicator of blocks of models."""
ARCHITECTURES = {
    "resnet18": "convolutional",
    "resnet50": "convolutional",
    "mobilenet_v2": "convolutional",
    "unet": "convolutional",
    "vit_b16": "transformer",
    "bert_base": "transformer",
    "encoder": "transformer",
    "gpt2": "transformer",
    "seq2seq": "recurrent",
    "dlrm": "recommender",
}
"""Architecture of each whole model."""
_BLOCK_ARCHITECTURES = {
    "convolution_block": "convolutional",
    "residual_block": "convolutional",
    "inverted_residual_block": "convolutional",
    "encoder_block": "transformer",
    "recurrent_block": "recurrent",
}
"""Architecture of the models that each block is a part of, if that is one."""
MODES = {"prefill": "inference"}
"""Mode that others compare with."""
MACHINES = "machines"
"""Name of the discrepancy of other kinds of machines."""
HARMLESS = 0.05
"""Discrepancy up to which a number is reported in any case."""
LARGEST_UNEXPLAINED = 0.5
"""Maximum share of the squared differences between stacks that predictions may leave unexplained."""
LEAST_COVERED = 0.5
"""Minimum share of a model's FLOP whose operations must have been measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A prediction of the log speed-up of a whole model.

    Attributes:
        contrast: The measured ratio of the whole model.
        predicted: Predicted log speed-up.
        deviation: Standard deviation of the prediction that follows from the noise of the measured parts.
    """

    contrast: Contrast
    predicted: float
    deviation: float

    @property
    def excess(self) -> float:
        """Squared residual less the variance of the noise."""
        noise = self.contrast.error**2 + self.deviation**2
        return (self.predicted - self.contrast.mean) ** 2 - noise


def reference_seconds(observations: Iterable[Observation]) -> dict[tuple[str, str], float]:
    """Return the median seconds per call at the reference of each block, by block and label."""
    medians: dict[tuple[str, str], list[float]] = defaultdict(list)
    for o in observations:
        if o.reference and o.status == "ok":
            medians[o.block, o.indicator.label].append(statistics.median(o.samples))
    return {key: statistics.median(seconds) for key, seconds in medians.items()}


def predictions_by_operations(
    contrasts: Sequence[Contrast],
    seconds: Mapping[tuple[str, str], float],
    parts_of: Callable[[str], Sequence[PartOfModel]],
) -> list[Residual]:
    """Predict whole models by the sum of the times of their operations in the same block and arm.

    Args:
        contrasts: Contrasts of one framework.
        seconds: Seconds at the references, as :func:`reference_seconds` returns them.
        parts_of: Returns the operations of a whole model by the label of its run.

    Returns:
        Residuals of those whole models of which enough operations were measured.
    """
    measured = {(c.block, c.arm, c.label): c for c in contrasts if c.family != WHOLE_MODEL}
    residuals = []
    for whole in contrasts:
        if whole.family != WHOLE_MODEL or whole.is_control:
            continue
        parts = parts_of(whole.label)
        rows = [
            (part, measured[whole.block, whole.arm, part.label])
            for part in parts
            if (whole.block, whole.arm, part.label) in measured and (whole.block, part.label) in seconds
        ]
        covered = sum(part.calls * part.flops for part, _ in rows)
        if covered < LEAST_COVERED * sum(part.calls * part.flops for part in parts):
            continue
        residuals.append(_summed(whole, [(part.calls * seconds[whole.block, part.label], c) for part, c in rows]))
    return residuals


def predictions_by_blocks(
    contrasts: Sequence[Contrast],
    seconds: Mapping[tuple[str, str], float],
    blocks_of: Callable[[str], Mapping[str, int]],
) -> list[Residual]:
    """Predict whole models by the sum of the times of their blocks, of any size, with the same stacks and machine.

    Args:
        contrasts: Contrasts of one framework.
        seconds: Seconds at the references, as :func:`reference_seconds` returns them.
        blocks_of: Returns the number of each block of a model, by its name.

    Returns:
        Residuals of those whole models of which all blocks were measured; not of decoding, which has no blocks.
    """
    measured: dict[tuple[object, ...], list[Contrast]] = defaultdict(list)
    for c in contrasts:
        if c.family == BLOCK_OF_MODEL and not c.is_control and (c.block, c.label) in seconds:
            words = words_of(c.label)
            measured[words["block"], words["mode"], *_stacks(c)].append(c)
    residuals = []
    for whole in contrasts:
        if whole.family != WHOLE_MODEL or whole.is_control:
            continue
        model, mode = model_and_mode(whole.label)
        mode = MODES.get(mode, mode)
        rows = {name: measured.get((name, mode, *_stacks(whole)), []) for name in blocks_of(model)}
        if rows and all(rows.values()):
            times = [
                (blocks_of(model)[name] / len(listed) * seconds[c.block, c.label], c)
                for name, listed in rows.items()
                for c in listed
            ]
            residuals.append(_summed(whole, times))
    return residuals


def _stacks(c: Contrast) -> tuple[object, ...]:
    """Return the machine, and the stack and settings of both sides."""
    return c.machine.identity, *_sides(c)


def _sides(c: Contrast) -> tuple[object, ...]:
    """Return the stack and settings of both sides."""
    return tuple((s.version, *sorted(s.companions.items()), *sorted(s.settings.items())) for s in (c.side, c.reference))


def _summed(whole: Contrast, parts: Sequence[tuple[float, Contrast]]) -> Residual:
    """Predict a whole model by parts, each with its time at the reference."""
    before = sum(time for time, _ in parts)
    after = [(time * math.exp(-c.mean), c.error) for time, c in parts]
    total = sum(time for time, _ in after)
    return Residual(
        contrast=whole,
        predicted=math.log(before / total),
        deviation=math.sqrt(sum((time / total * error) ** 2 for time, error in after)),
    )


def predictions_by_models(contrasts: Sequence[Contrast]) -> list[Residual]:
    """Predict whole models by the other models of the same architecture and mode, with the same stacks and machine.

    Args:
        contrasts: Contrasts of one framework.
    """
    return _predictions_by_others(contrasts, architecture_and_mode, lambda label: words_of(label)["model"])


def architecture_and_mode(label: str) -> tuple[str, str]:
    """Return the architecture of a whole model, and its mode, from the label of its run; prefill is inference."""
    model, mode = model_and_mode(label)
    return ARCHITECTURES.get(model, model), MODES.get(mode, mode)


def architecture_of(label: str, family: str) -> tuple[str, ...]:
    """Return the architecture and the mode of a whole model or a block; of another indicator, its name.

    Args:
        label: Label of the run.
        family: Name of the indicator.
    """
    words = words_of(label)
    name = words.get(family, "") if family in (WHOLE_MODEL, BLOCK_OF_MODEL) else ""
    architecture = ARCHITECTURES.get(name) or _BLOCK_ARCHITECTURES.get(name)
    mode = words.get("mode", "")
    return (architecture, MODES.get(mode, mode)) if architecture else (family, label.partition("[")[0])


def program_of_label(label: str, family: str) -> tuple[str, ...]:
    """Return what runs of a whole model or a block at several sizes have in common; of another indicator, its label.

    Args:
        label: Label of the run.
        family: Name of the indicator.
    """
    words = words_of(label)
    name = words.get(family, "") if family in (WHOLE_MODEL, BLOCK_OF_MODEL) else ""
    return (family, name, words.get("mode", "")) if name else (family, label)


def model_and_mode(label: str) -> tuple[str, str]:
    """Return a whole model and its mode from the label of its run."""
    words = words_of(label)
    return words["model"], words["mode"]


def predictions_by_sizes(contrasts: Sequence[Contrast]) -> list[Residual]:
    """Predict whole models by the same model and mode at other sizes, with the same stacks and machine.

    Args:
        contrasts: Contrasts of one framework.
    """
    return _predictions_by_others(contrasts, model_and_mode, lambda label: label)


def predictions_by_sizes_elsewhere(contrasts: Sequence[Contrast]) -> list[Residual]:
    """Predict whole models by the same model and mode at other sizes, with the same stacks on other machines.

    Args:
        contrasts: Contrasts of one framework.
    """
    groups: dict[tuple[object, ...], list[Contrast]] = defaultdict(list)
    wholes = [c for c in contrasts if c.family == WHOLE_MODEL and not c.is_control]
    for c in wholes:
        groups[*_sides(c), model_and_mode(c.label)].append(c)
    residuals = []
    for whole in wholes:
        members = groups[*_sides(whole), model_and_mode(whole.label)]
        others = [c for c in members if c.label != whole.label and c.machine.identity != whole.machine.identity]
        if others:
            residuals.append(_mean(whole, others))
    return residuals


def predictions_by_machines(contrasts: Sequence[Contrast]) -> list[Residual]:
    """Predict whole models by the same run with the same stacks on other kinds of machines.

    A setting for which a machine lacks a feature is another setting there.

    Args:
        contrasts: Contrasts of one framework.
    """
    groups: dict[tuple[object, ...], list[Contrast]] = defaultdict(list)
    wholes = [c for c in contrasts if c.family == WHOLE_MODEL and not c.is_control]
    for c in wholes:
        groups[*_sides_on_machine(c), c.label].append(c)
    residuals = []
    for whole in wholes:
        members = groups[*_sides_on_machine(whole), whole.label]
        if others := [c for c in members if c.machine.kind != whole.machine.kind]:
            residuals.append(_mean(whole, others))
    return residuals


def _sides_on_machine(c: Contrast) -> tuple[object, ...]:
    return _sides(replace(c, side=side_on(c.side, c.machine), reference=side_on(c.reference, c.machine)))


def _mean(whole: Contrast, others: Sequence[Contrast]) -> Residual:
    """Predict a whole model by the mean of others."""
    deviation = math.sqrt(sum(c.error**2 for c in others)) / len(others)
    return Residual(contrast=whole, predicted=statistics.fmean(c.mean for c in others), deviation=deviation)


def _predictions_by_others(
    contrasts: Sequence[Contrast], group_of: Callable[[str], tuple[str, str]], member_of: Callable[[str], str]
) -> list[Residual]:
    """Predict whole models by the mean of the other members of their group, with the same stacks and machine.

    Args:
        contrasts: Contrasts of one framework.
        group_of: Returns the group of a whole model, from the label of its run.
        member_of: Returns which member of its group it is.
    """
    groups: dict[tuple[object, ...], list[Contrast]] = defaultdict(list)
    for c in contrasts:
        if c.family == WHOLE_MODEL and not c.is_control:
            groups[*_stacks(c), group_of(c.label)].append(c)
    residuals = []
    for members in groups.values():
        for whole in members:
            others = [c for c in members if member_of(c.label) != member_of(whole.label)]
            if others:
                residuals.append(_mean(whole, others))
    return residuals


def over_settings(residuals: Sequence[Residual]) -> list[Residual]:
    """Return the residuals of settings of one release."""
    return [
        r
        for r in residuals
        if r.contrast.side.settings != r.contrast.reference.settings
        and r.contrast.side.version == r.contrast.reference.version
    ]


def relative_discrepancy(residuals: Sequence[Residual]) -> float:
    """Return the discrepancy as a share of the root mean square of the effects: the median over settings.

    Settings without a measurable effect do not count.

    Args:
        residuals: Residuals of settings.
    """
    groups: dict[tuple[tuple[str, str], ...], list[Residual]] = defaultdict(list)
    for r in residuals:
        groups[tuple(sorted(side_on(r.contrast.side, r.contrast.machine).settings.items()))].append(r)
    shares = []
    for listed in groups.values():
        effects = statistics.fmean(r.contrast.mean**2 - r.contrast.error**2 for r in listed)
        if effects > HARMLESS**2:
            shares.append(discrepancy(listed) / math.sqrt(effects))
    return statistics.median(shares) if shares else 0.0


def of_settings(basis: str) -> str:
    """Return the name of the relative discrepancy of settings, for predictions from a list of parts."""
    return f"settings of {basis}"


def over_releases(residuals: Sequence[Residual]) -> list[Residual]:
    """Return the residuals of releases with equal settings; all residuals if there are none.

    Advice chooses releases. A setting that changes every model alike, such as the number of threads, is predicted
    easily, and would hide that releases are not.
    """
    releases = [r for r in residuals if r.contrast.side.settings == r.contrast.reference.settings]
    return releases or list(residuals)


def misleads(residuals: Sequence[Residual]) -> bool:
    """Whether predictions left more than half of the squared differences unexplained, which are more than trifles.

    Both are counted beyond the noise of the measurements, which is no error of the predictions.

    Args:
        residuals: At least one.
    """
    differences = statistics.fmean(r.contrast.mean**2 - r.contrast.error**2 for r in residuals)
    unexplained = discrepancy(residuals)
    return unexplained**2 > LARGEST_UNEXPLAINED * max(0.0, differences) and unexplained > HARMLESS


def discrepancy(residuals: Sequence[Residual]) -> float:
    """Return the standard deviation of residuals beyond the noise; 0 if the noise explains them.

    Args:
        residuals: At least one.
    """
    return math.sqrt(max(0.0, statistics.fmean(r.excess for r in residuals)))

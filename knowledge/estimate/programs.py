"""Programs, by what decides how much a version or a setting gains there: size, operations and architecture."""

from __future__ import annotations

import importlib.resources
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from knowledge.domain.observation import PUBLISHED, words_of
from knowledge.evidence.timm import TIMM_FAMILY, architecture_of, family_of
from knowledge.exchange.published.timm import TIMM

WHOLE_MODEL, BLOCK_OF_MODEL = "model", "block"
"""Names of the indicators of whole models and of blocks of models."""
PROGRAMS = (WHOLE_MODEL, BLOCK_OF_MODEL)
"""Indicators that measure programs; others measure single operations, or steps of models that nobody uses."""
OPERATIONS = ("convolution", "depthwise", "matmul", "attention", "recurrent", "memory")
"""Kinds of operations that the time of a program is divided into; ``memory`` moves more bytes than it computes."""
_OF_INDICATORS = {
    "conv1d": "convolution",
    "conv2d": "convolution",
    "conv3d": "convolution",
    "matmul": "matmul",
    "attention": "attention",
    "recurrent": "recurrent",
}
"""Kind of the indicators of single operations; of others ``memory``."""
DEPTHWISE = "depthwise "
"""Prefix of the name of an indicator whose convolutions have groups of channels."""
_ARCHITECTURES = {
    "convolutional": (
        *("resnet18", "resnet50", "mobilenet_v2", "unet", "cnn", "convolution_block", "residual_block"),
        *("inverted_residual_block", "resnet152", "resnext101_32x4d", "efficientnet", "inception3", "inception4"),
        *("nnunet", "vnet", "maskrcnn", "ssd300", "ssd_resnet34", "unet3d", "se_resnext101_32x4d", "efficientdet"),
        *("ssd-resnet34", "ssd-mobilenet", "retinanet", "3d-unet-99", "3d-unet-99.9"),
    ),
    "transformer": (
        *("vit_b16", "bert_base", "encoder", "gpt2", "encoder_block", "transformer", "bert", "bert_large"),
        *("transformer_xl", "bart", "transformerxlbase", "transformerxllarge"),
        *("bert-99", "bert-99.9", "llama2_70b_lora", "llama31_405b", "llama3_8b", "llama3_70b"),
        *("deepseek_v3", "gpt_oss_120b", "qwen3_30b_a3b", "qwen3_235b_a22b", "kimi_k2", "nemotron_3_nano"),
        "nemotron_3_super",
    ),
    "recurrent": ("seq2seq", "recurrent_block", "gnmt", "tacotron2", "rnnt"),
    "recommender": (
        *("dlrm", "recommender", "ncf", "wide_and_deep", "sim", "vae_cf", "dlrm-99", "dlrm-99.9", "dlrm_dcnv2"),
    ),
}
"""Architecture of whole models and blocks, and of the tasks of published measurements."""
_ARCHITECTURE_OF = {name: architecture for architecture, names in _ARCHITECTURES.items() for name in names}
_USUAL_MODELS = {
    "convolutional": "resnet50",
    "transformer": "bert_base",
    "recurrent": "seq2seq",
    "recommender": "dlrm",
}
"""Model whose shares of the time stand for those of others of its architecture."""
_UNITS = {"flops": 4.5, "intensity": 1.5, "training": 1.0, "launches": 5.0, "share": 0.25}
"""Differences over which programs become unlike: of logarithms, of the mode, and of a share of the time. With
those of `flops`, `training` and `share`, the marginal likelihood of whole models on processors is the largest of three
values of each; the others are judgements."""
_USUAL_FLOPS, _USUAL_INTENSITY, _USUAL_LAUNCHES = 1e9, 10.0, 100.0
"""What counts where the size of a program is not known."""
_LEAST_FLOPS, _MOST_FLOPS = 1e5, 1e13
"""Sizes of programs beyond which nothing changes any more."""
_NO_SHARES = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Program:  # Not slotted: its place is cached.
    """A program at one size.

    Attributes:
        label: Label of the run; equal labels are one program at one size.
        model: What the same program at several sizes has in common.
        architecture: What programs of one architecture and mode have in common.
        family: What similar models have in common, such as all ResNets; the model itself if it is empty.
        flops: Floating-point operations of a step; 0 if unknown.
        bytes: Least bytes that a step moves; 0 if unknown.
        launches: Number of operations of a step; 0 if unknown.
        training: Whether it trains.
        shares: Share of the time of each of :data:`OPERATIONS`; they sum to 1.
        own: How it is the user's (:data:`knowledge.estimate.gain_model.OWN`); empty for other programs.
    """

    label: str
    model: tuple[str, ...]
    architecture: tuple[str, ...]
    family: str = ""
    flops: float = 0.0
    bytes: float = 0.0
    launches: float = 0.0
    training: bool = False
    shares: tuple[float, ...] = _NO_SHARES
    own: str = ""

    @cached_property
    def place(self) -> tuple[float, ...]:
        """Coordinates of the program: programs at a distance of 1 gain similarly."""
        flops = _bounded(self.flops) or _USUAL_FLOPS
        moved = _bounded(self.bytes)
        intensity = flops / moved if moved and self.flops > 0 else _USUAL_INTENSITY
        launches = self.launches if math.isfinite(self.launches) and self.launches >= 1 else _USUAL_LAUNCHES
        return (
            math.log(flops / _USUAL_FLOPS) / _UNITS["flops"],
            math.log(intensity / _USUAL_INTENSITY) / _UNITS["intensity"],
            float(self.training) / _UNITS["training"],
            math.log(launches) / _UNITS["launches"],
            *(share / _UNITS["share"] for share in self.shares),
        )


def programs_by_label(programs: Iterable[Program], labels: Sequence[str]) -> dict[str, Program]:
    """Return one program for each label, of the median of the known sizes: one result may state a wrong one.

    Args:
        programs: Programs of results.
        labels: The label of each.
    """
    by_label: dict[str, list[Program]] = {}
    for label, program in zip(labels, programs, strict=True):
        by_label.setdefault(label, []).append(program)
    sizes = {label: median_size((p.flops, p.bytes) for p in listed) for label, listed in by_label.items()}
    return {
        label: replace(listed[0], flops=flops, bytes=moved)
        for label, listed in by_label.items()
        for flops, moved in [sizes[label]]
    }


def median_size(sizes: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the median of the known operations and bytes of a step; zeros if none are known."""
    stated = sorted(size for size in sizes if any(size)) or [(0.0, 0.0)]
    return stated[(len(stated) - 1) // 2]


def _bounded(amount: float) -> float:
    """Return an amount within what programs can have; 0 if it is unknown or no number."""
    return min(max(amount, _LEAST_FLOPS), _MOST_FLOPS) if math.isfinite(amount) and amount > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """What a model or a block consists of in one mode.

    Attributes:
        launches: Number of operations of a step.
        shares: Share of the time of each indicator that stands for operations; those of convolutions with groups of
            channels have the prefix :data:`DEPTHWISE`.
        sizes: Floating-point operations and least bytes of a step at sizes that users have, the smallest first.
    """

    launches: float
    shares: Mapping[str, float]
    sizes: Mapping[str, tuple[float, float]]

    @property
    def kinds(self) -> tuple[float, ...]:
        """Share of the time of each of :data:`OPERATIONS`."""
        return shares_of_kinds(self.shares)


def shares_of_kinds(shares: Mapping[str, float]) -> tuple[float, ...]:
    """Return the share of each of :data:`OPERATIONS` of shares of indicators, which need not sum to 1."""
    totals = dict.fromkeys(OPERATIONS, 0.0)
    for name, share in shares.items():
        totals[kind_of_operation(name)] += share
    whole = sum(totals.values())
    return tuple(total / whole for total in totals.values()) if whole > 0 else _NO_SHARES


def kind_of_operation(indicator: str) -> str:
    """Return which of :data:`OPERATIONS` an indicator measures.

    Args:
        indicator: Name of the indicator, with the prefix :data:`DEPTHWISE` for groups of channels.
    """
    kind = _OF_INDICATORS.get(indicator.removeprefix(DEPTHWISE), "memory")
    return "depthwise" if kind == "convolution" and indicator.startswith(DEPTHWISE) else kind


def with_groups(indicator: str, groups: object) -> str:
    """Return the name of an indicator, with the prefix :data:`DEPTHWISE` if it has groups of channels."""
    return f"{DEPTHWISE}{indicator}" if str(groups) not in ("", "1") else indicator


def program_of_run(label: str, family: str, *, flops: float = 0.0, bytes: float = 0.0) -> Program:
    """Return the program of an indicator run.

    Args:
        label: Label of the run.
        family: Name of the indicator.
        flops: Floating-point operations of a call; 0 if unknown.
        bytes: Least bytes that a call moves; 0 if unknown.
    """
    words = words_of(label)
    name = words.get("task" if family == PUBLISHED else family, "") or words.get("model", "")
    mode = words.get("mode", "")
    architecture = _architecture_of(name)
    composition = composition_of(name, mode) if architecture else None
    indicator = with_groups(family, words.get("groups", ""))
    flops, bytes = (amount if 0 < amount < math.inf else 0.0 for amount in (flops, bytes))
    return Program(
        label=label,
        model=(family, name, mode) if name else (family, label),
        architecture=(architecture, _MODES.get(mode, mode)) if architecture else (family, label.partition("[")[0]),
        family=family_of(name) if architecture else "",
        flops=flops,
        bytes=bytes,
        launches=composition.launches if composition else 0.0 if family == PUBLISHED else 1.0,
        training="training" in (mode, family.partition("_")[0]) or words.get("direction") == "backward",
        shares=composition.kinds if composition else shares_of_kinds({indicator: 1.0}),
    )


def _architecture_of(name: str) -> str:
    """Return the architecture of a model, a block, or a model or family of timm; empty for others."""
    is_of_timm = name.startswith((TIMM, TIMM_FAMILY))
    return architecture_of(family_of(name)) if is_of_timm else _ARCHITECTURE_OF.get(name, "")


_MODES = {"prefill": "inference"}
"""Modes that are like others."""


def program_of_model(name: str, mode: str, size: str) -> Program | None:
    """Return the program of a whole model at a size that users have; ``None`` for others.

    Args:
        name: Name of the model.
        mode: Its mode.
        size: One of :attr:`Composition.sizes`.
    """
    composition = _compositions().get(f"{name} {mode}")
    if composition is None or size not in composition.sizes:
        return None
    flops, moved = composition.sizes[size]
    own = program_of_run(f"model@0[mode={mode},model={name}] {size}", WHOLE_MODEL, flops=flops, bytes=moved)
    return replace(own, label=f"{name} {mode} {size}")


def composition_of(name: str, mode: str) -> Composition | None:
    """Return what a model consists of, or the usual model of its architecture; ``None`` for others."""
    table = _compositions()
    usual = _USUAL_MODELS.get(_architecture_of(name), "")
    return table.get(f"{name} {mode}") or table.get(f"{usual} {mode}") or table.get(f"{usual} inference")


def sizes_of(name: str, mode: str) -> tuple[str, ...]:
    """Return the names of the sizes of a whole model, the smallest first."""
    composition = _compositions().get(f"{name} {mode}")
    return tuple(composition.sizes) if composition else ()


def architecture_of_shares(shares: tuple[float, ...], mode: str) -> tuple[str, ...]:
    """Return the architecture of the model whose shares of the time are nearest to some."""

    def distance(name: str) -> float:
        composition = composition_of(name, mode)
        kinds = composition.kinds if composition else _NO_SHARES
        return sum((a - b) ** 2 for a, b in zip(shares, kinds, strict=True))

    return min(_USUAL_MODELS, key=lambda architecture: distance(_USUAL_MODELS[architecture])), mode


@cache
def _compositions() -> Mapping[str, Composition]:
    """Return the composition of each model and block, by name and mode (`docs/programs.py`)."""
    path = importlib.resources.files("knowledge.data") / "programs.json"
    return {
        name: Composition(
            launches=entry["launches"],
            shares=entry["shares"],
            sizes={size: (flops, moved) for size, (flops, moved) in entry["sizes"].items()},
        )
        for name, entry in json.loads(path.read_text(encoding="utf-8")).items()
    }

"""How much memory a training step or an inference needs on one accelerator, from the counts of the model.

The formulae count what a program keeps. Weights, gradients and the state of the optimizer follow from the number of
parameters. The activations of a transformer are counted operation by operation, as Korthikanti et al. do it (2022,
"Reducing Activation Recomputation in Large Transformer Models", section 4, arXiv 2205.05198), but with the element
types of each operation, without tensor parallelism, for gates, groups of heads and fused attention, too. Those of other
models of images follow from timm's count of activations. Published peaks say how far the sums are from what programs
need (`python -m benchmarks.memory_peaks`).

Training has two moments with much memory. When the backward pass begins, all activations are there, but no gradient if
the program frees them (the default of PyTorch 2). When the optimizer changes the weights, all gradients are there, and
the activations are freed. The larger one counts.

Training can divide weights, gradients and the state of the optimizer among accelerators (ZeRO stage 3, Rajbhandari et
al. 2020, arXiv 1910.02054; FSDP, Zhao et al. 2023, arXiv 2304.11277). Then a layer's weights are gathered when it
computes. Activations are not divided. Inference can divide weights and cache (tensor parallelism).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from knowledge.domain.ratio import Ratio
from knowledge.estimate.model_shape import ImageModelShape, ModelShape, TransformerShape

FLOAT32, MIXED, HALF = PRECISIONS = ("float32", "mixed precision", "16 bits")
"""Element types: all 4 bytes; weights of 4 bytes and most activations of 2; all 2 bytes."""
OPTIMIZERS: Mapping[str, tuple[float, bool]] = {
    "sgd": (0, False),
    "momentum": (1, False),
    "adam": (2, True),
    "adamw": (2, True),
    "adam-8bit": (0.5, False),
}
"""Values that an optimizer keeps for each parameter, in the type of the weights, and whether PyTorch's step has a
temporary copy of all parameters (https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html, `foreach`). The
8 bits are two bytes for each weight of 4: they are a byte a value whatever the type of the weights."""
USUAL_OPTIMIZER = "adamw"
ACTIVATIONS, LOGITS = "activations", "logits and loss"
WEIGHTS, STATE = "weights", "state of the optimizer"
_COUNTED = (WEIGHTS, STATE)
"""Parts that follow from the number of parameters and that every program has."""
CONTEXT_BYTES = 475 * 2**20
"""What a program needs before it computes: an idle GPU in
https://github.com/mila-iqia/milabench/blob/0e88d922b5d2b66a5421cb924ac864565dd86598/config/scaling.yaml, an earlier
version."""
RESERVE = 1.18
"""What the allocator reserves for activations and logits, relative to what is counted: it rounds up, with gaps."""
IMAGE_TRAINING, IMAGE_INFERENCE = (2.37, 0.29), (0.22, 0.77)
"""Values in memory for each counted activation of an image model: all that training keeps, and those that are in use at
one time in inference. Each with the standard deviation of its logarithm between models."""
SPREAD = 0.083
"""Standard deviation of the logarithm between what programs need and what is counted: that of publishers that were held
out, widened because they are few (Student's t)."""
DIVIDED_SPREAD = 0.228
"""As :data:`SPREAD`, if weights and states are divided among accelerators."""
USABLE = 15 / 16
"""Least share of the stated memory that programs can use: the correction of errors takes a sixteenth of GDDR6. A T4 has
15 360 of 16 384 MiB, an L4 23 034 of 24 576 (`nvidia-smi` in https://github.com/modal-labs/modal-client/pull/2797)."""
MOST_BATCH = 2**30
"""Largest number of items of a step, beyond any memory."""
_SHORT, _LONG = 2, 4
"""Bytes of a value in 16 bits and in float32."""
_MASK = 1
"""Bytes of a value of a mask of dropout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """What a program computes in a step.

    Attributes:
        is_training: Whether it trains.
        batch: Number of items on one accelerator.
        precision: One of :data:`PRECISIONS`.
        length: Tokens of an item; 0 for models of images.
        optimizer: One of :data:`OPTIMIZERS`.
        is_checkpointed: Whether it keeps only the input of each layer, and computes the layer again in the backward
            pass (Chen et al. 2016, arXiv 1604.06174).
        keeps_gradients: Whether gradients stay where they are between steps: several accelerators that train
            together, accumulated gradients, and PyTorch 1.
        has_fused_attention: Whether attention never stores its matrix, as in PyTorch 2 and FlashAttention.
        has_copy: Whether the step of Adam has a temporary copy of all parameters, the default of PyTorch 2.
        has_buckets: Whether gradients are copied to be exchanged, the default of PyTorch's data parallelism
            (https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html,
            `gradient_as_bucket_view`).
        shares: Number of accelerators that weights, gradients and the state of the optimizer are divided among; in
            inference, weights and cache.
        limits_gathers: Whether training gathers the weights of two layers at a time, and not those of all, the default
            since PyTorch 2.1 (https://github.com/pytorch/pytorch/pull/104900).
    """

    is_training: bool
    batch: int
    precision: str = FLOAT32
    length: int = 0
    optimizer: str = USUAL_OPTIMIZER
    is_checkpointed: bool = False
    keeps_gradients: bool = False
    has_fused_attention: bool = True
    has_copy: bool = True
    has_buckets: bool = False
    shares: int = 1
    limits_gathers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """What a program needs at the moment when it needs most.

    Attributes:
        parts: Bytes of each part by its name, such as ``weights``.
        variance: Variance of the logarithm of the sum.
    """

    parts: Mapping[str, float]
    variance: float

    @property
    def ratio(self) -> Ratio:
        """The bytes in all, with their interval."""
        return Ratio(mean=math.log(sum(self.parts.values())), variance=self.variance)

    @property
    def low(self) -> float:
        """Lower end of the bytes: no program needs less than what follows from the number of parameters."""
        return max(self.ratio.low, sum(size for name, size in self.parts.items() if name in _COUNTED))

    def fits(self, memory: float) -> bool | None:
        """Whether the program fits into the memory in bytes, as the maker states it; ``None`` if that is uncertain."""
        return True if self.ratio.high <= USABLE * memory else False if self.low > memory else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """The constants that published peaks determine; `python -m benchmarks.memory_peaks` prints them.

    Attributes:
        reserve: As :data:`RESERVE`.
        image_training: As :data:`IMAGE_TRAINING`.
        image_inference: As :data:`IMAGE_INFERENCE`.
        spread: As :data:`SPREAD`.
        divided_spread: As :data:`DIVIDED_SPREAD`.
        context: Bytes before the program computes.
    """

    reserve: float = RESERVE
    image_training: tuple[float, float] = IMAGE_TRAINING
    image_inference: tuple[float, float] = IMAGE_INFERENCE
    spread: float = SPREAD
    divided_spread: float = DIVIDED_SPREAD
    context: float = CONTEXT_BYTES

    def use(self, shape: ModelShape, run: ModelRun) -> MemoryUse:
        """Return what a model needs on one accelerator.

        Args:
            shape: The model.
            run: What the program computes.
        """
        image_spread = 0.0
        if isinstance(shape, ImageModelShape):
            factor, image_spread = self.image_training if run.is_training else self.image_inference
            width = _LONG if run.precision == FLOAT32 else _SHORT
            activations = {ACTIVATIONS: factor * shape.activations * width * run.batch}
        else:
            activations = _activations(shape, run)
        parts = _parts(shape, run, activations)
        temporary = sum(parts.get(name, 0.0) for name in (ACTIVATIONS, LOGITS))
        parts["reserve of the allocator"] = (self.reserve - 1) * temporary
        parts["context of the device"] = self.context
        parts = {name: size for name, size in parts.items() if size > 0}
        share = temporary * self.reserve / sum(parts.values())
        spread = self.spread if run.shares == 1 else self.divided_spread
        return MemoryUse(parts=parts, variance=spread**2 + (share * image_spread) ** 2)

    def largest_batch(self, shape: ModelShape, run: ModelRun, memory: float) -> int:
        """Return the largest batch that certainly fits into a memory in bytes; 0 if not even one item does."""
        low, high = 0, MOST_BATCH
        while low < high:
            middle = (low + high + 1) // 2
            if self.use(shape, replace(run, batch=middle)).fits(memory):
                low = middle
            else:
                high = middle - 1
        return low


def _parts(shape: ModelShape, run: ModelRun, activations: Mapping[str, float]) -> dict[str, float]:
    """Return the bytes of each part at the moment with most memory."""
    parameters = shape.parameters / run.shares
    width = _SHORT if run.precision == HALF else _LONG
    weights = {WEIGHTS: parameters * width}
    if not run.is_training:
        return {**weights, **activations}
    if run.has_buckets and run.shares == 1:
        weights["copies of the gradients"] = parameters * width
    values, has_copy = OPTIMIZERS[run.optimizer]
    if values:
        # A byte a value, whatever the type of the weights.
        weights[STATE] = parameters * (_LONG * values if values < 1 else width * values)
    gradients = {"gradients": parameters * width}
    backward = {**weights, **activations}
    if run.shares > 1:
        backward["gathered layers"] = float(_gathered(shape, run) * (_LONG if run.precision == FLOAT32 else _SHORT))
    elif run.precision == MIXED:
        # Autocast keeps the converted weights as long as the graph needs them.
        backward["weights in 16 bits"] = parameters * _SHORT
    if run.keeps_gradients:
        backward |= gradients
    step = {**weights, **gradients}
    if has_copy and run.has_copy:
        step["copy of the optimizer"] = parameters * width
    return max(backward, step, key=lambda parts: sum(parts.values()))


def _gathered(shape: ModelShape, run: ModelRun) -> int:
    """Return the values of gathered weights and of a gradient that is not divided yet.

    The first and the last weights of the model stay gathered. Of the layers, it is the weights of the one that
    computes and of the next one, and a gradient (https://docs.pytorch.org/docs/stable/notes/fsdp.html). The layers of a
    model of images are not known: all weights and gradients are the upper limit.
    """
    if isinstance(shape, ImageModelShape):
        return 2 * shape.parameters
    layers = min(2, shape.layers) if run.limits_gathers else shape.layers
    return shape.parameters + (layers + 1 - shape.layers) * shape.layer_parameters


def _activations(shape: TransformerShape, run: ModelRun) -> dict[str, float]:
    """Return the bytes of activations, logits and the cache of keys and values of a transformer."""
    tokens = run.batch * run.length
    width = _LONG if run.precision == FLOAT32 else _SHORT
    ffn = shape.ffn * shape.active_experts
    if not run.is_training:
        # While the prompt is read: the input and the output of a layer with their norms, and the widest network.
        widest = width * (4 * shape.hidden + (3 if shape.is_gated else 2) * ffn)
        # Accelerators beyond the number of heads of keys and values have copies of them, as in vLLM
        # (https://docs.vllm.ai/en/v0.12.0/api/vllm/model_executor/models/internlm2/).
        kv_heads = shape.kv_heads / min(run.shares, shape.kv_heads)
        cache = 2 * shape.layers * kv_heads * shape.head_width * width * shape.is_causal
        return {ACTIVATIONS: float(tokens * widest), "cache of keys and values": float(tokens * cache)}
    layer = tokens * _layer_bytes(shape, run, width)
    # The logits in their type and, if that is short, in float32; the logarithms of the probabilities; the gradient.
    logits = tokens * shape.outputs * (3 * _LONG + (0 if run.precision == FLOAT32 else _SHORT))
    if not run.is_checkpointed:
        return {ACTIVATIONS: float(shape.layers * layer), LOGITS: float(logits)}
    inputs = tokens * shape.layers * shape.hidden * _residual_bytes(run)
    latest = {LOGITS: float(logits)} if logits > layer else {}
    return {ACTIVATIONS: float(inputs + (0 if latest else layer)), **latest}


def _residual_bytes(run: ModelRun) -> int:
    """Return the bytes of a value between layers.

    Autocast adds and normalises in float32, but gathered weights, and so the embeddings, are in 16 bits.
    """
    return _SHORT if run.precision == HALF or (run.precision == MIXED and run.shares > 1) else _LONG


def _layer_bytes(shape: TransformerShape, run: ModelRun, width: int) -> float:
    """Return the bytes that a layer keeps of a token for its backward pass."""
    hidden, residual = shape.hidden, _residual_bytes(run)
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    # A norm keeps its input, and the next layer its output. By the root mean square, it keeps its input in float32,
    # and the normalised value before it is scaled, too.
    norm = hidden * (width + (_LONG + residual if shape.has_rms_norm else residual))
    network = (4 if shape.is_gated else 2) * shape.ffn * width * shape.active_experts
    attention = (2 * queries + 2 * keys) * width
    if not run.has_fused_attention:
        # The probabilities, in float32 and in the type of the product; with dropout, its mask and its result.
        probability = _LONG if run.precision != HALF else _SHORT
        extra = (width if run.precision == MIXED else 0) + (_MASK if shape.has_dropout else 0)
        extra += width if shape.has_dropout and run.precision != MIXED else 0
        attention += shape.heads * run.length * (probability + extra)
    return 2 * norm + network + attention + (2 * hidden * _MASK if shape.has_dropout else 0)

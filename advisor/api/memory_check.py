"""Whether a model fits into the memory of a machine: the question of the options, and the answer for a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from advisor.api.options import MemoryOptions
from advisor.domain.words import count, memory_text, quoted
from knowledge.domain.errors import InputError, suggest
from knowledge.domain.hardware import Accelerator
from knowledge.estimate.memory_use import (
    FLOAT32,
    HALF,
    MIXED,
    OPTIMIZERS,
    USUAL_OPTIMIZER,
    MemoryModel,
    MemoryUse,
    ModelRun,
)
from knowledge.estimate.model_shape import ImageModelShape, ModelShape, find_shape, shape_of_workload, shipped_names
from knowledge.estimate.workloads import Workload

_TRAINING = ("training", "backward")
"""Values of the parameters `mode` and `direction` of parts of a workload that trains."""
_UNCHECKED = "the memory that a model needs is checked only for machines with accelerators of one kind"
_MODEL = MemoryModel()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuestion:
    """What must fit into the memory of an accelerator.

    Attributes:
        shape: The model; ``None`` if it is not known.
        run: What one of several accelerators computes in a step.
        is_sharded: Whether weights and states are divided among accelerators.
        is_other: Whether it is another model than that of the workload, which the times are of.
        unknown: Why the model is not known; empty if it is known.
    """

    shape: ModelShape | None
    run: ModelRun
    is_other: bool = False
    is_sharded: bool = False
    unknown: str = ""

    def need(self, listed: Sequence[Accelerator], nodes: int) -> MemoryNeed | None:
        """Return what each accelerator of a machine needs; ``None`` if the model is not known.

        Args:
            listed: The accelerators of the machine by kind; empty if it has none.
            nodes: Number of machines that work together.
        """
        if self.shape is None:
            return None
        if len(listed) != 1:
            return MemoryNeed(question=self, unknown=_UNCHECKED)
        accelerators = listed[0]
        memory = accelerators.memory_bytes
        if memory is None:
            return MemoryNeed(question=self, unknown="its memory is not known")
        # Together, accelerators exchange the gradients, which then stay where they are.
        number = accelerators.count * nodes
        shares = number if self.run.is_training else accelerators.count
        whole = replace(self.run, keeps_gradients=number > 1, has_buckets=number > 1)
        divided = replace(whole, shares=shares)
        run = divided if self.is_sharded else whole
        use = _MODEL.use(self.shape, run)
        fits = use.fits(memory)
        would_fit = fits is False and _MODEL.use(self.shape, divided).fits(memory) is not False
        return MemoryNeed(
            question=self,
            use=use,
            fits=fits,
            memory=memory,
            shares=run.shares,
            largest_batch=_MODEL.largest_batch(self.shape, run, memory),
            useful_shares=shares if would_fit else 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """What a model needs on each accelerator of a machine.

    Attributes:
        question: What must fit.
        use: What it needs; ``None`` if that is not known.
        fits: Whether it fits; ``None`` if that is uncertain.
        memory: Bytes of memory of an accelerator.
        shares: Number of accelerators that weights and states are divided among.
        useful_shares: Number of accelerators that the model may fit into if it is divided among them, although it does
            not fit as it is; 1 if that does not help.
        largest_batch: Largest batch that certainly fits; 0 if none does.
        unknown: Why it is not known; empty if it is.
    """

    question: MemoryQuestion
    use: MemoryUse | None = None
    fits: bool | None = None
    memory: int = 0
    shares: int = 1
    useful_shares: int = 1
    largest_batch: int = 0
    unknown: str = ""

    @property
    def obstacle(self) -> str:
        """Why the machine cannot run the model; empty if it can, or may."""
        if self.use is None or self.fits is not False:
            return ""
        run = self.question.run
        hint = f"; `--sharded` divides it among {self.useful_shares:,} accelerators" if self.useful_shares > 1 else ""
        return (
            f"needs {memory_interval(self.use)} of memory in {run.precision} with batch {run.batch:,}{self.place}; "
            f"it has {memory_text(self.memory)}; {self.largest_text}{hint}"
        )

    @property
    def place(self) -> str:
        """On how many accelerators the model is, in words; empty if each one has the whole model."""
        return f" on each accelerator, divided among {self.shares:,}" if self.shares > 1 else ""

    @property
    def largest_text(self) -> str:
        """The largest batch, in words."""
        if not self.largest_batch:
            return "no batch certainly fits"
        return f"the largest batch that certainly fits is {self.largest_batch:,}"


def memory_interval(use: MemoryUse) -> str:
    """Return how much is needed, with its interval: ``41 GiB [35, 48]``."""
    mean, low, high = (f"{value / 2**30:.3g}" for value in (use.ratio.speedup, use.low, use.ratio.high))
    return f"{mean} GiB [{low}, {high}]"


def parts_text(use: MemoryUse) -> str:
    """Return the parts in GiB, the largest first."""
    parts = sorted(use.parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {size / 2**30:.2g}" for name, size in parts)


def read_question(options: MemoryOptions, workload: Workload, *, is_reduced: bool) -> MemoryQuestion | None:
    """Return what must fit into the memory; ``None`` if no option asks for it.

    Args:
        options: The options.
        workload: The workload, whose model it is if no option names one.
        is_reduced: Whether reduced precision is allowed.

    Raises:
        InputError: If the options contradict each other or the model.
    """
    if options.batch is None and options.model is None:
        for flag in _dependent(options):
            raise InputError(f"`{flag}` needs a batch", hint="add `--batch NUMBER`")
        return None
    optimizer = USUAL_OPTIMIZER if options.optimizer is None else options.optimizer
    if optimizer not in OPTIMIZERS:
        raise InputError(f"the memory of the optimizer `{optimizer}` is not known", hint=suggest(optimizer, OPTIMIZERS))
    is_training = trains(workload)
    if not is_training and (options.optimizer is not None or options.checkpointing):
        flag = "--optimizer" if options.optimizer is not None else "--checkpointing"
        raise InputError(f"`{flag}` needs a workload that trains, and `{workload.name}` does not")
    shape = find_shape(options.model) if options.model is not None else shape_of_workload(workload)
    precision = FLOAT32 if not is_reduced else MIXED if is_training else HALF
    run = ModelRun(
        is_training=is_training,
        batch=options.batch or 1,
        precision=precision,
        length=0 if shape is None else _length(shape, options),
        optimizer=optimizer,
        is_checkpointed=options.checkpointing,
    )
    unknown = ""
    if shape is None:
        unknown = (
            f"the program does not know one model of workload `{workload.name}`; name it with `--model`: "
            f"a `config.json`, `timm/NAME` or {quoted(shipped_names(), 3)}"
        )
    is_other = shape is not None and shape != shape_of_workload(workload)
    return MemoryQuestion(shape=shape, run=run, is_other=is_other, is_sharded=options.sharded, unknown=unknown)


def _dependent(options: MemoryOptions) -> Iterator[str]:
    """Yield the options that are given and say nothing without a batch or a model."""
    flags = {
        "--length": options.length is not None,
        "--optimizer": options.optimizer is not None,
        "--checkpointing": options.checkpointing,
        "--sharded": options.sharded,
    }
    return (flag for flag, is_given in flags.items() if is_given)


def trains(workload: Workload) -> bool:
    """Whether a workload trains a model."""
    return any(
        part.parameters.get(name) in _TRAINING
        for listed in workload.parts.values()
        for part in listed
        for name in ("mode", "direction")
    )


def _length(shape: ModelShape, options: MemoryOptions) -> int:
    """Return the tokens of an item.

    Raises:
        InputError: If they are not known, or an option is not for the model.
    """
    if isinstance(shape, ImageModelShape):
        if options.length is not None:
            raise InputError(f"`--length` is for models of text, and `{shape.name}` is a model of images")
        if options.checkpointing:
            raise InputError(f"`--checkpointing` is for transformers with a `config.json`, not for `{shape.name}`")
        return 0
    if options.length is not None and shape.vocabulary == 0:
        raise InputError(f"`--length` is for models of text: an image of `{shape.name}` has {shape.length} tokens")
    length = options.length or shape.length
    if not length:
        raise InputError(f"the model `{shape.name}` needs the tokens of an item", hint="add `--length NUMBER`")
    if shape.most_positions and length > max(shape.most_positions, shape.length):
        raise InputError(f"`--length {length}` is more than the {shape.most_positions} positions of `{shape.name}`")
    return length


def question_text(question: MemoryQuestion) -> str:
    """Return what must fit, in words."""
    if question.shape is None:
        return f"not known: {question.unknown}"
    shape, run = question.shape, question.run
    words = [f"{shape.name} with {shape.parameters / 1e6:,.4g} million parameters", f"batch {run.batch:,}"]
    if isinstance(shape, ImageModelShape):
        words.append(f"images of {shape.size} x {shape.size} pixels")
    else:
        words.append(count(run.length, "token"))
    words.append(run.precision)
    if run.is_training:
        words.append(f"{run.optimizer}{', checkpointing' if run.is_checkpointed else ''}")
    divided = ", weights and states divided" if question.is_sharded else ""
    other = "; the times are those of the workload, not of this model" if question.is_other else ""
    return f"{', '.join(words)}; on each accelerator{divided}{other}"

"""Definition of a whole model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from pi_runners.harness.contract import Array, Parameter, Parameters
from pi_runners.models.layers import Inputs, Layers

BATCH = Parameter("samples in a batch")


def both(parameters: Parameters) -> Dict[str, Parameters]:
    """Return the same parameters for training and inference."""
    return {"training": parameters, "inference": parameters}


class Published(NamedTuple):
    """What was published about a model.

    Attributes:
        parameters: Number of trainable parameters.
        multiply_adds: Multiply-adds of the forward pass on one sample; 0 if they were not published.
        case: Parameters of the published model.
        source: Where it was published.
    """

    parameters: float
    multiply_adds: float
    case: Parameters
    source: str


class Network(ABC):
    """A whole model: its inputs and its forward pass, written once for all frameworks.

    Attributes:
        name: Name of the model.
        summary: Description in one line.
        source: The paper.
        published: Published counts; ``None`` if there are none.
        parameters: Parameters by name.
        modes: Ways to run it: ``training``, ``inference``, ``prefill``, ``decode``.
        sets: Parameters by size and mode; without the mode.
        optimiser: ``sgd`` (momentum 0.9, learning rate 0.01) or ``adamw`` (learning rate 1e-5, decay 0.01).
        probe: Parameters of a small case with the same weights, for which expected results ship.
        blocks: Number of its blocks by name (:mod:`pi_runners.models.blocks`); empty if no block stands for its parts.
        classes: Classes of a sample.
        multiples: What a parameter must be a multiple of, by name.
        stored_elements: Elements in memory in training, for each element of a result; gates of recurrent layers count.
        live_elements: Share of the elements of all results that are in memory at once in inference.
    """

    name = ""
    summary = ""
    source = ""
    published: Optional[Published] = None
    parameters: Dict[str, Parameter] = {}  # noqa: RUF012 -- `ClassVar` would forbid what subclasses do here
    modes: Tuple[str, ...] = ("training", "inference")
    sets: Dict[str, Dict[str, Parameters]] = {}  # noqa: RUF012
    optimiser = "sgd"
    probe: Parameters = {}  # noqa: RUF012
    stored_elements = 2.5
    live_elements = 0.25
    blocks: Dict[str, int] = {}  # noqa: RUF012
    classes = 0
    multiples: Dict[str, int] = {}  # noqa: RUF012

    @abstractmethod
    def inputs(self, p: Parameters, mode: str) -> List[Inputs]:
        """Return the inputs of a batch."""

    @abstractmethod
    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        """Return the logits (rows, classes)."""

    def logits_shape(self, p: Parameters, mode: str) -> Tuple[int, int]:
        """Return the number of rows and classes of the logits."""
        return int(p["batch"]), self.classes

    def items(self, p: Parameters, mode: str) -> float:
        """Return the number of samples (``decode``: of tokens) of a call."""
        return float(p["batch"])

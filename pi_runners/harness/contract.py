"""Contract between indicators and backends: the operations, computations with checks, and the sampling plan."""

from __future__ import annotations

import importlib
import importlib.util
import math
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

Parameters = Dict[str, Any]
Array = Any
"""Array of a framework, or a symbol for an array while a graph is traced."""

Arrays = Sequence[Array]
Function = Callable[..., Array]
"""Function of a backend and arrays."""
Call = Callable[[], Any]
Crop = Tuple[int, int, bool]
"""Top and left of a crop of an image, and whether to flip it horizontally."""
Scale = Tuple[float, float]
"""Factor and summand of a colour."""

LEARNING_RATE = 0.01


class Unsupported(Exception):
    """Raised when a backend does not support an indicator with these parameters on this device."""


class FrameworkAbilities(Protocol):
    """What is known of a framework without importing it: see :class:`knowledge.domain.frameworks.Framework`."""

    @property
    def name(self) -> str:
        """Name of its backend."""

    @property
    def abilities(self) -> FrozenSet[str]:
        """What indicators may need of it, such as ``backward`` or the operation ``matmul``."""

    @property
    def algorithms(self) -> Mapping[str, str]:
        """How it computes an operation for which it has no function of its own."""

    @property
    def extra_copies(self) -> Mapping[str, float]:
        """Further arrays in memory, as multiples of ``backward_images`` or ``model_weights``."""


class Parameter(NamedTuple):
    """A parameter of an indicator.

    Attributes:
        meaning: Description for people.
        least: Smallest valid number.
        most: Largest valid number.
        default: Default value; ``None`` if the parameter is required.
        choices: Valid words; empty if the parameter is a number.
    """

    meaning: str
    least: int = 1
    most: int = 2**27
    default: Any = None
    choices: Tuple[str, ...] = ()

    def complaint(self, value: Any) -> Optional[str]:
        """Return why a value is not valid, or ``None``."""
        if self.choices:
            return None if value in self.choices else "must be one of {}".format(", ".join(self.choices))
        if isinstance(value, bool) or not isinstance(value, int):
            return "must be an integer"
        if not self.least <= value <= self.most:
            return "must be from {} to {}".format(self.least, self.most)
        return None


class Trial(NamedTuple):
    """A computation with its check.

    Attributes:
        run: Starts the computation and returns its result, which the device may still be computing.
        check: Returns the relative error of a result, compared with a reference.
        tolerance: Maximum accepted relative error.
    """

    run: Call
    check: Callable[[Any], float]
    tolerance: float


class SamplingPlan(NamedTuple):
    """Number and duration of the samples of an indicator.

    Attributes:
        samples: Number of samples; up to three times as many if they vary.
        min_seconds: Minimum duration of one sample; short calls are repeated within it.
        max_warmup_seconds: Maximum duration of the warm-up, even if the timings are not steady.
        instruments: Directory of measuring libraries that are not part of the stack, or ``None``.
        archive: Path of the program's archive, for indicators that start processes.
    """

    samples: int
    min_seconds: float
    max_warmup_seconds: float
    instruments: Optional[str] = None
    archive: str = ""


class Backend:
    """Implementation of the operations of indicators and models in one framework.

    A function over arrays, such as ``lambda b, x, w: b.convolution(x, w, ...)``, is written once. :meth:`compile`,
    :meth:`pullback` and :meth:`train` turn it into what users of the framework would run.

    Arrays are made from bytes, so that every framework computes with the same numbers: byte ``b`` is the number
    ``(b - 127.5) / 127.5``, or ``b - 128`` for the element type int8.

    Shapes have channels first: ``(batch, channels, *spatial)`` and ``(filters, channels, *kernel)``. The results of
    :meth:`images` and :meth:`filters` have the framework's native layout; :meth:`image_index` and :meth:`filter_index`
    translate indices.
    """

    name = ""
    dtypes: Tuple[str, ...] = ("float32", "float64")
    channels_last = False
    imports: Tuple[str, ...] = ()
    """Modules that users of the framework import; by default, the module of its name."""
    on_processors = ""
    """Its own name, if it runs on the CPU only."""

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        self.device = device
        self.dtype = dtype
        self.settings = settings
        if dtype not in self.dtypes:
            raise Unsupported("the {} backend has no {}".format(self.name, dtype))
        if self.on_processors and device != "cpu":
            raise Unsupported("{} runs on the CPU only".format(self.on_processors))

    @property
    def precision(self) -> str:
        """Element type that determines the error: that of mixed precision if it is enabled."""
        amp = self.settings.get("amp", "off")
        if amp != "off":
            return str(amp)
        # Some operations in float32 are then computed with the mantissa of bfloat16.
        is_rounded = self.settings.get("matmul_precision") == "medium" or self.settings.get("fpmath") == "bfloat16"
        return "bfloat16" if is_rounded else self.dtype

    def describe(self) -> Dict[str, Any]:
        """Return versions and build options of the framework by name."""
        raise Unsupported("this backend does not describe itself")

    def confirm_settings(self) -> Dict[str, Any]:
        """Return what shows, after a measurement, that the settings had an effect, by name.

        Raises:
            Unsupported: If one of them had none.
        """
        return {}

    def synchronise(self, result: Any) -> None:
        """Wait until the device has computed ``result``."""

    # Arrays

    def array(self, raw: bytes, shape: Sequence[int], scale: float = 1.0, offset: float = 0.0) -> Array:
        """Make an array of the backend's element type: ``offset`` plus ``scale`` times the numbers of the bytes."""
        raise self._lacks("arrays")

    def integers(self, numbers: Sequence[int], shape: Sequence[int]) -> Array:
        """Make an array of indices."""
        raise self._lacks("integers")

    def images(self, raw: bytes, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Make images ``(batch, channels, *spatial)`` in native layout."""
        return self._in_layout(raw, shape, scale, self.image_index(tuple(range(len(shape)))))

    def filters(self, raw: bytes, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Make filters ``(filters, channels, *kernel)`` in native layout."""
        return self._in_layout(raw, shape, scale, self.filter_index(tuple(range(len(shape)))))

    def _in_layout(self, raw: bytes, shape: Sequence[int], scale: float, axes: Tuple[int, ...]) -> Array:
        """Make an array of a shape with channels first, with its axes in the order of the native layout."""
        return self.array(raw, shape, scale)

    def image_index(self, index: Tuple[int, ...]) -> Tuple[int, ...]:
        """Translate ``(batch, channel, *spatial)`` into native layout."""
        return (index[0],) + index[2:] + (index[1],) if self.channels_last else index

    def filter_index(self, index: Tuple[int, ...]) -> Tuple[int, ...]:
        """Translate ``(filter, channel, *kernel)`` into native layout."""
        return index[2:] + (index[1], index[0]) if self.channels_last else index

    def read(self, result: Any, index: Tuple[int, ...]) -> Any:
        """Return one element of an array as a Python number."""
        return self.read_all(result, index)[0]

    def read_all(self, result: Any, index: Tuple[Any, ...]) -> List[Any]:
        """Return all elements at the indices or slices of the first axes, as Python numbers."""
        raise self._lacks("arrays")

    def shape_of(self, result: Any) -> Tuple[int, ...]:
        """Return the shape of an array."""
        return tuple(int(length) for length in result.shape)

    def all_finite(self, result: Any, index: Tuple[Any, ...]) -> bool:
        """Return whether all elements at the indices of the first axes are finite, as the framework computes it."""
        total = sum(self.read_all(result, index))
        return math.isfinite(total.real) and math.isfinite(total.imag)

    # Ways to run a function of (backend, *arrays)

    def compile(self, function: Function, arrays: Arrays, weights: Arrays = ()) -> Call:
        """Return a call of ``function(backend, *arrays, *weights)`` that is compiled as users of the framework do it.

        The weights are constant: a framework may fold them into a model for inference.
        """
        operands = (*arrays, *weights)
        return lambda: function(self, *operands)

    def require_compilation(self) -> None:
        """Refuse settings under which :meth:`compile` does not compile.

        Raises:
            Unsupported: If there is one.
        """

    def run_eagerly(self, function: Function, arrays: Arrays) -> Call:
        """Return a call of ``function(backend, *arrays)`` in which Python runs every operation, without compilation."""
        return lambda: function(self, *arrays)

    def pullback(self, function: Function, arrays: Arrays, cotangent: Array) -> Call:
        """Return a call that computes the gradients of all arrays from the gradient of the result."""
        raise self._lacks("backward pass")

    def train(self, loss: Function, weights: Arrays, batch: Arrays, rate: float = LEARNING_RATE) -> "Training":
        """Return a training of ``weights`` by gradient descent on ``loss(backend, weights, *batch)``."""
        raise self._lacks("training")

    def build_model(self, network: Any, parameters: Parameters, mode: str, inputs: Arrays) -> Any:
        """Build a whole model from the framework's own layers: by the function `build` in the `models` of its folder.

        Args:
            network: Definition, a :class:`pi_runners.models.network.Network`.
            parameters: Parameters of the model; the parameters of its size, such as the batch, may change later.
            mode: ``training``, ``inference``, ``prefill`` or ``decode``.
            inputs: Inputs for a first forward pass, which creates the layers.

        Returns:
            A :class:`pi_runners.models.layers.BuiltModel`.

        Raises:
            Unsupported: If the framework does not support the model with these settings, or has no models.
        """
        module = "pi_runners.frameworks.{}.models".format(self.name)
        if importlib.util.find_spec(module) is None:
            raise self._lacks("whole models")
        return importlib.import_module(module).build(self, network, parameters, mode, inputs)

    def reference(self) -> "Backend":
        """Return a backend of the same framework and device with single precision."""
        return type(self)(self.device, "float32", {})

    # Transfers

    def to_device(self, raw: bytes) -> Tuple[Call, Call]:
        """Return two calls: copy ``raw`` from host to device and back, through page-locked memory if possible."""
        raise self._lacks("transfers: its arrays are in main memory")

    # Input of a training

    def encode_jpeg(self, pixels: bytes, height: int, width: int) -> bytes:
        """Encode an image, RGB by rows, as JPEG of quality 90."""
        raise self._lacks("JPEG files")

    def decode_images(
        self, files: Sequence[bytes], size: int, crops: Sequence[Crop], crop_size: int, scale: Sequence[Scale]
    ) -> Call:
        """Return a call that prepares images (images, crop_size, crop_size, 3) in float32 from JPEG files.

        Args:
            files: A file for each image.
            size: Height and width to which images are resized.
            crops: For each image top and left of the crop in the resized image, and whether to flip it horizontally.
            crop_size: Height and width of the crops.
            scale: Factor and summand of the pixels, from 0 to 255, for red, green and blue.
        """
        raise self._lacks("JPEG files")

    def load_batches(self, raw: bytes, shape: Sequence[int], batch: int, workers: int) -> Call:
        """Return a call that reads one epoch of shuffled batches of images, normalised from bytes to -1..1.

        Args:
            raw: The pixels.
            shape: Shape of the images (images, channels, height, width).
            batch: Images of a batch.
            workers: Number of processes; 0 if there are none.

        Returns:
            The call; it returns the number of images, and the sum of all pixels.
        """
        raise self._lacks("loader of batches")

    def tokenise(self, texts: Sequence[str], vocabulary: Sequence[str]) -> Callable[[], List[List[int]]]:
        """Return a call that splits lower-case texts by WordPiece, and returns the places of pieces in the vocabulary.

        The first piece of the vocabulary stands for unknown words.
        """
        raise self._lacks("tokeniser")

    # Operations

    def matmul(self, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        """Matrix product over the last two axes; int8 inputs give int32 results."""
        raise self._lacks("matmul")

    def convolution(self, x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], groups: int = 1) -> Array:
        """Convolution of images with filters; ``padding`` zeros are added on both sides of each spatial axis."""
        raise self._lacks("convolution")

    def recurrent(self, cell: str, x: Array, w: List[bytes], shape: Tuple[int, int], scale: float) -> Function:
        """Return a function of ``x`` (timesteps, batch, inputs) that computes all hidden states.

        Args:
            cell: ``vanilla`` (tanh), ``lstm`` or ``gru`` (reset applied after the product, as cuDNN).
            x: The inputs.
            w: Input weights (gates, hidden, inputs) and recurrent weights (gates, hidden, hidden); gates in the order
                input, forget, cell, output, or reset, update, new. There are no biases.
            shape: Inputs and hidden units.
            scale: Factor of the weights.
        """
        raise self._lacks("recurrent layer")

    def attention(self, q: Array, k: Array, v: Array, width: int) -> Array:
        """Scaled dot-product attention over (batch, heads, length, width)."""
        scores = self.matmul(q, k, transpose_b=True)
        return self.matmul(self.softmax(self.scale(scores, width**-0.5)), v)

    def scale(self, x: Array, factor: float) -> Array:
        """Product with a number."""
        return x * factor

    def add(self, x: Array, y: Array) -> Array:
        """Sum, with broadcasting."""
        return x + y

    def multiply(self, x: Array, y: Array) -> Array:
        """Product of elements, with broadcasting."""
        return x * y

    def copy(self, x: Array) -> Array:
        """Copy to newly allocated memory."""
        raise self._lacks("copy that is not optimised away")

    def gather(self, table: Array, indices: Array) -> Array:
        """Rows of a table by index."""
        raise self._lacks("embedding")

    def relu(self, x: Array) -> Array:
        """Rectified linear unit."""
        raise self._lacks("relu")

    def tanh(self, x: Array) -> Array:
        """Hyperbolic tangent."""
        raise self._lacks("tanh")

    def total(self, x: Array) -> Array:
        """Sum over the last axis."""
        raise self._lacks("reduction")

    def largest(self, x: Array) -> Array:
        """Maximum over the last axis."""
        raise self._lacks("reduction")

    def softmax(self, x: Array) -> Array:
        """Softmax over the last axis."""
        raise self._lacks("softmax")

    def layer_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        """Layer normalisation over the last axis."""
        raise self._lacks("layer normalisation")

    def batch_norm(self, x: Array, gain: Array, offset: Array, training: bool) -> Array:
        """Normalise each channel of images: by the batch in training, otherwise by mean 0 and variance 1."""
        raise self._lacks("batch normalisation")

    def fft(self, x: Array) -> Array:
        """Discrete Fourier transform of the real last axis, non-negative frequencies."""
        raise self._lacks("fft")

    def sort(self, x: Array) -> Array:
        """Sort along the last axis in ascending order."""
        raise self._lacks("sort")

    def pool(self, x: Array, size: int) -> Array:
        """Maximum over non-overlapping windows of images."""
        raise self._lacks("pooling")

    def spatial_mean(self, x: Array) -> Array:
        """Mean of images over their spatial axes."""
        raise self._lacks("pooling")

    def upsample(self, x: Array) -> Array:
        """Repeat every pixel of images twice along each spatial axis."""
        raise self._lacks("upsampling")

    def join_channels(self, x: Array, y: Array) -> Array:
        """Concatenate images along the channel axis."""
        raise self._lacks("concatenation")

    def join(self, x: Array, y: Array) -> Array:
        """Concatenate along the last axis."""
        raise self._lacks("concatenation")

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        """Change the shape of an array."""
        raise self._lacks("reshape")

    def transpose(self, x: Array, axes: Sequence[int]) -> Array:
        """Reorder axes."""
        raise self._lacks("transpose")

    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        """Mean cross-entropy of (samples, classes) against class numbers."""
        raise self._lacks("cross-entropy")

    def channels_to_rows(self, x: Array, channels: int) -> Array:
        """Turn images into rows (pixels, channels)."""
        raise self._lacks("reshape")

    def _lacks(self, what: str) -> Unsupported:
        return Unsupported("the {} backend has no {}".format(self.name, what))


class Training(NamedTuple):
    """Training of a model.

    Attributes:
        step: Makes one step; the result's first element is the loss before the step, the second the squared norm of the
            gradient.
        feed: Replaces the batch.
        evaluator: Returns a call of ``function(backend, weights, *arrays)`` with the current weights.
        weights: Returns the current weights; the next step may change them in place.
        loss: Returns the loss of a step's result.
        squared_norm: Returns the squared norm of a step's result.
    """

    step: Call
    feed: Callable[[Arrays], None]
    evaluator: Callable[[Function, Arrays], Call]
    weights: Callable[[], Arrays]
    loss: Callable[[Any], float] = lambda result: float(result[0])
    squared_norm: Callable[[Any], float] = lambda result: float(result[1])


def advance(
    module: Any, sigmoid: Callable[[Any], Any], cell: str, from_input: Any, from_state: Any, state: Any, memory: Any
) -> Tuple[Any, Any]:
    """Return state and memory (batch, hidden) after one timestep.

    Args:
        module: `numpy` or `jax.numpy`.
        sigmoid: The logistic function.
        cell: ``vanilla``, ``lstm`` or ``gru``.
        from_input: Product of the input and the input weights, (batch, gates x hidden).
        from_state: Product of the hidden state and the recurrent weights, (batch, gates x hidden).
        state: Hidden state before the timestep, (batch, hidden).
        memory: Cell state before the timestep, (batch, hidden); only an LSTM changes it.
    """
    if cell == "vanilla":
        return module.tanh(from_input + from_state), memory
    if cell == "lstm":
        input_gate, forget_gate, candidate, output_gate = module.split(from_input + from_state, 4, axis=-1)
        memory = sigmoid(forget_gate) * memory + sigmoid(input_gate) * module.tanh(candidate)
        return sigmoid(output_gate) * module.tanh(memory), memory
    input_reset, input_update, input_new = module.split(from_input, 3, axis=-1)
    state_reset, state_update, state_new = module.split(from_state, 3, axis=-1)
    update = sigmoid(input_update + state_update)
    candidate = module.tanh(input_new + sigmoid(input_reset + state_reset) * state_new)
    return (1 - update) * candidate + update * state, memory


GATES = {"vanilla": 1, "lstm": 4, "gru": 3}
"""Number of gates of each cell."""

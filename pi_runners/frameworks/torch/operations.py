"""PyTorch on the CPU or a CUDA device: eager unless `compile` is on, NCHW layout unless `memory_format` is set."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch
import torch.nn.functional as functional
from torch.utils.data import DataLoader, Dataset

from pi_runners.frameworks.torch import settings as torch_settings
from pi_runners.harness.contract import (
    GATES,
    LEARNING_RATE,
    Array,
    Arrays,
    Backend,
    Call,
    Function,
    Parameters,
    Training,
    Unsupported,
)

_CHUNK = 2**20
"""Elements to convert at a time."""


class TorchBackend(Backend):
    """PyTorch with its own defaults, except for the settings."""

    name = "torch"
    dtypes = ("float32", "float64", "float16", "bfloat16", "int8")

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        super().__init__(device, dtype, settings)
        if device == "cuda" and not torch.cuda.is_available():
            raise Unsupported("this PyTorch sees no CUDA device")
        self._dtype = getattr(torch, dtype)
        torch_settings.apply_settings(settings, device)
        self._graphs = torch_settings.compiled_graphs() if self._compiles else 0

    @property
    def _compiles(self) -> bool:
        return bool(self.settings.get("compile", "off") != "off")

    def describe(self) -> Dict[str, Any]:
        """Return the version, threads, and the CUDA and cuDNN versions it was built with."""
        described: Dict[str, Any] = {
            "torch": torch.__version__,
            **torch_settings.describe_settings(self.settings, self.device),
            "torch_cuda": torch.version.cuda,
            "torch_cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
            "torch_mkldnn": torch.backends.mkldnn.is_available(),
        }
        if hasattr(torch.backends, "cpu"):
            described["torch_cpu_capability"] = torch.backends.cpu.get_cpu_capability()
        if self.device == "cuda":
            described["torch_device"] = torch.cuda.get_device_name()
            described["torch_tf32_matmul"] = torch.backends.cuda.matmul.allow_tf32
            described["torch_tf32_cudnn"] = torch.backends.cudnn.allow_tf32
        return described

    def synchronise(self, result: Any) -> None:
        """Wait for the CUDA device; CPU operations are done when they return."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def array(self, raw: bytes, shape: Sequence[int], scale: float = 1.0, offset: float = 0.0) -> Array:
        tensor = torch.empty(len(raw), dtype=self._dtype, device=self.device)
        # In chunks, because double precision takes eight bytes per element.
        for start in range(0, len(raw), _CHUNK):
            chunk = torch.frombuffer(bytearray(raw[start : start + _CHUNK]), dtype=torch.uint8)
            if self.dtype == "int8":
                numbers = chunk.to(torch.int16) - 128
            else:
                numbers = (chunk.to(torch.float64) - 127.5) / 127.5 * scale + offset
            tensor[start : start + len(chunk)] = numbers.to(self._dtype)
        return tensor.reshape(tuple(shape))

    def integers(self, numbers: Sequence[int], shape: Sequence[int]) -> Array:
        return torch.tensor(list(numbers), device=self.device).reshape(tuple(shape))

    def images(self, raw: bytes, shape: Sequence[int], scale: float = 1.0) -> Array:
        """NCHW, or channels last if the setting `memory_format` is `channels_last`."""
        return self._formatted(self.array(raw, shape, scale))

    filters = images

    def _formatted(self, tensor: Any) -> Any:
        if self.settings.get("memory_format") != "channels_last" or tensor.dim() not in (4, 5):
            return tensor
        layout = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        return tensor.to(memory_format=layout)

    def read_all(self, result: Any, index: Tuple[Any, ...]) -> List[Any]:
        elements: List[Any] = result[tuple(index)].reshape(-1).tolist()
        return elements

    def all_finite(self, result: Any, index: Tuple[Any, ...]) -> bool:
        return bool(torch.isfinite(result[tuple(index)]).all())

    def confirm_settings(self) -> Dict[str, Any]:
        """Return the number of compiled graphs, if `compile` is on."""
        if not self._compiles:
            return {}
        graphs = torch_settings.compiled_graphs() - self._graphs
        if graphs == 0:
            raise Unsupported("`compile={}` has compiled nothing".format(self.settings["compile"]))
        return {"torch_compiled_graphs": graphs}

    def under_settings(self, function: Callable[..., Any], *, is_compiled: bool = True) -> Callable[..., Any]:
        """Return a function that runs under the settings `amp`, `sdpa` and, if it is compiled, `compile`."""

        def mixed(*arrays: Any) -> Any:
            with torch_settings.autocast(self.settings, self.device):
                return function(*arrays)

        compute = torch_settings.compiled(mixed, self.settings) if is_compiled else mixed
        return torch_settings.with_attention_kernel(compute, self.settings)

    def compile(self, function: Function, arrays: Arrays, weights: Arrays = ()) -> Call:
        """Run without recording gradients, unless `grad_mode` says otherwise."""
        compute = self.under_settings(partial(function, self))
        inputs = (*arrays, *weights)

        def run() -> Any:
            with torch_settings.without_gradients(self.settings):
                return compute(*inputs)

        return run

    def require_compilation(self) -> None:
        if self.settings.get("compile") != "on":
            raise Unsupported("PyTorch compiles only with the setting `compile`")

    def pullback(self, function: Function, arrays: Arrays, cotangent: Array) -> Call:
        """Run the forward pass once, then the backward pass alone on every call."""
        leaves = [array.detach().requires_grad_() for array in arrays]
        result = self.under_settings(partial(function, self))(*leaves)
        return lambda: torch.autograd.grad(result, leaves, cotangent, retain_graph=True)

    def train(self, loss: Function, weights: Arrays, batch: Arrays, rate: float = LEARNING_RATE) -> Training:
        leaves = [weight.detach().clone().requires_grad_() for weight in weights]
        current_batch = list(batch)
        count = len(leaves)
        compute = self.under_settings(lambda *arrays: loss(self, arrays[:count], *arrays[count:]))

        def step() -> Any:
            value = compute(*leaves, *current_batch)
            gradients = torch.autograd.grad(value, leaves)
            with torch.no_grad():
                squared_norm = sum((g.float() ** 2).sum() for g in gradients)
                for weight, gradient in zip(leaves, gradients):
                    weight.sub_(gradient, alpha=rate)
            return value.detach(), squared_norm

        def feed(fresh: Arrays) -> None:
            current_batch[:] = fresh

        def evaluator(function: Function, arrays: Arrays) -> Call:
            return self.compile(lambda backend, *inputs: function(backend, leaves, *inputs), arrays)

        return Training(step, feed, evaluator, lambda: leaves)

    def load_batches(self, raw: bytes, shape: Sequence[int], batch: int, workers: int) -> Call:
        """`DataLoader`, whose processes stay alive."""
        images = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(tuple(shape))
        # Forked workers share the images and need no modules of this program, which it imports from an archive.
        options = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
        loader = DataLoader(_Images(images), batch_size=batch, shuffle=True, num_workers=workers, **options)

        def run() -> Tuple[int, float]:
            number, total = 0, 0.0
            for loaded in loader:
                number += len(loaded)
                total += float(loaded.sum())
            return number, total

        return run

    def to_device(self, raw: bytes) -> Tuple[Call, Call]:
        if self.device != "cuda":
            raise Unsupported("there is no transfer on the CPU")
        return make_copies(torch.frombuffer(bytearray(raw), dtype=torch.uint8).pin_memory(), "cuda")

    def matmul(self, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        """`torch.matmul`; int8 through `torch._int_mm`."""
        lhs = a.transpose(-1, -2) if transpose_a else a
        rhs = b.transpose(-1, -2) if transpose_b else b
        if self.dtype != "int8":
            return torch.matmul(lhs, rhs)
        if lhs.dim() != 2 or not hasattr(torch, "_int_mm"):
            raise Unsupported("this PyTorch cannot multiply batches of int8 matrices")
        return torch._int_mm(lhs, rhs)

    def convolution(self, x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], groups: int = 1) -> Array:
        convolve = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}[x.dim()]
        return convolve(x, w, stride=tuple(stride), padding=tuple(padding), groups=groups)

    def recurrent(self, cell: str, x: Array, w: List[bytes], shape: Tuple[int, int], scale: float) -> Function:
        """`nn.RNN`, `nn.LSTM` or `nn.GRU`: cuDNN on a GPU."""
        kind = {"vanilla": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell]
        gates = GATES[cell]
        inputs, hidden = shape
        layer = kind(inputs, hidden, bias=False).to(device=self.device, dtype=self._dtype)
        with torch.no_grad():
            layer.weight_ih_l0.copy_(self.array(w[0], (gates * hidden, inputs), scale))
            layer.weight_hh_l0.copy_(self.array(w[1], (gates * hidden, hidden), scale))
        return lambda backend, steps: layer(steps)[0]

    def attention(self, q: Array, k: Array, v: Array, width: int) -> Array:
        """`scaled_dot_product_attention`, which chooses among fused kernels."""
        if not hasattr(functional, "scaled_dot_product_attention"):
            return super().attention(q, k, v, width)
        return functional.scaled_dot_product_attention(q, k, v)

    def copy(self, x: Array) -> Array:
        return x.clone()

    def gather(self, table: Array, indices: Array) -> Array:
        return functional.embedding(indices, table)

    relu = staticmethod(functional.relu)
    tanh = staticmethod(torch.tanh)

    def total(self, x: Array) -> Array:
        return x.sum(dim=-1)

    def largest(self, x: Array) -> Array:
        return x.amax(dim=-1)

    def softmax(self, x: Array) -> Array:
        return functional.softmax(x, dim=-1)

    def layer_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        return functional.layer_norm(x, gain.shape, gain, offset, eps=1e-5)

    def batch_norm(self, x: Array, gain: Array, offset: Array, training: bool) -> Array:
        mean, variance = (None, None) if training else (torch.zeros_like(gain), torch.ones_like(gain))
        return functional.batch_norm(x, mean, variance, gain, offset, training=training, eps=1e-5)

    def fft(self, x: Array) -> Array:
        return torch.fft.rfft(x)

    def sort(self, x: Array) -> Array:
        """Sort the last axis; PyTorch also computes the permutation."""
        return torch.sort(x, dim=-1)[0]

    def pool(self, x: Array, size: int) -> Array:
        return {3: functional.max_pool1d, 4: functional.max_pool2d, 5: functional.max_pool3d}[x.dim()](x, size)

    def spatial_mean(self, x: Array) -> Array:
        return x.mean(dim=tuple(range(2, x.dim())))

    def upsample(self, x: Array) -> Array:
        return functional.interpolate(x, scale_factor=2, mode="nearest")

    def join_channels(self, x: Array, y: Array) -> Array:
        return torch.cat((x, y), dim=1)

    def join(self, x: Array, y: Array) -> Array:
        return torch.cat((x, y), dim=-1)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(tuple(shape))

    def transpose(self, x: Array, axes: Sequence[int]) -> Array:
        return x.permute(*axes)

    cross_entropy = staticmethod(functional.cross_entropy)

    def channels_to_rows(self, x: Array, channels: int) -> Array:
        return x.movedim(1, -1).reshape(-1, channels)


def make_copies(host: Any, device: str) -> Tuple[Call, Call]:
    """Return calls that copy a tensor to a device and back, each into memory whose bytes all differed before."""
    on_device, uploaded = host.to(device), (255 - host).to(device)
    downloaded = torch.empty_like(host, pin_memory=host.is_pinned())
    downloaded.copy_(uploaded)
    return lambda: uploaded.copy_(host, non_blocking=True), lambda: downloaded.copy_(on_device, non_blocking=True)


class _Images(Dataset):
    """Images in memory, normalised one by one."""

    def __init__(self, images: Any) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Any:
        return (self._images[index].to(torch.float32) - 127.5) / 127.5

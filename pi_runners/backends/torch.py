"""PyTorch on the CPU or a CUDA device, eager, native layout (NCHW)."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import torch
import torch.nn.functional as functional

from pi_runners.harness.contract import Backend, Call, Parameters, Unsupported
from pi_runners.indicators.training import LEARNING_RATE, weight_scales, weight_shapes


class TorchBackend(Backend):
    """Eager PyTorch with its own defaults for threads, oneDNN and TensorFloat-32."""

    name = "torch"

    def __init__(self, device: str, dtype: str) -> None:
        super().__init__(device, dtype)
        if device == "cuda" and not torch.cuda.is_available():
            raise Unsupported("this PyTorch sees no CUDA device")
        self._dtype = getattr(torch, dtype)

    def describe(self) -> Dict[str, Any]:
        """Return the version, threads, and the CUDA and cuDNN versions it was built with."""
        described: Dict[str, Any] = {
            "torch": torch.__version__,
            "torch_threads": torch.get_num_threads(),
            "torch_cuda": torch.version.cuda,
            "torch_cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
            "torch_mkldnn": torch.backends.mkldnn.is_available(),
        }
        if self.device == "cuda":
            described["torch_device"] = torch.cuda.get_device_name()
            described["torch_tf32_matmul"] = torch.backends.cuda.matmul.allow_tf32
        return described

    def synchronise(self, result: Any) -> None:
        """Wait for the CUDA device; CPU operations are done when they return."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _tensor(self, raw: bytes, shape: Tuple[int, ...], scale: float = 1.0) -> Any:
        plain = torch.frombuffer(bytearray(raw), dtype=torch.uint8).to(torch.float64)
        return ((plain - 127.5) / 127.5 * scale).reshape(shape).to(device=self.device, dtype=self._dtype)

    def matmul(self, a: bytes, b: bytes, m: int, k: int, n: int) -> Call:
        """Multiply ``a`` (m, k) with ``b`` (k, n)."""
        left, right = self._tensor(a, (m, k)), self._tensor(b, (k, n))
        return Call(lambda: torch.matmul(left, right), lambda result, index: float(result[index]))

    def conv2d(self, x: bytes, w: bytes, parameters: Parameters) -> Call:
        """Convolve in NCHW."""
        p = parameters
        images = self._tensor(x, (p["batch"], p["channels"], p["size"], p["size"]))
        filters = self._tensor(w, (p["filters"], p["channels"], p["kernel"], p["kernel"]))
        margin = p["kernel"] // 2
        return Call(
            lambda: functional.conv2d(images, filters, padding=margin), lambda result, index: float(result[index])
        )

    def training_step(self, images: bytes, labels: Sequence[int], weights: List[bytes], parameters: Parameters) -> Call:
        """One SGD step through autograd."""
        p = parameters
        batch = self._tensor(images, (p["batch"], 3, p["size"], p["size"]))
        targets = torch.tensor(list(labels), device=self.device)
        shapes, scales = weight_shapes(p), weight_scales(p)
        first, second, dense = (
            self._tensor(raw, shape, scale).requires_grad_() for raw, shape, scale in zip(weights, shapes, scales)
        )

        def run() -> Any:
            hidden = functional.relu(functional.conv2d(batch, first, padding=1))
            hidden = functional.relu(functional.conv2d(hidden, second, stride=2, padding=1))
            loss = functional.cross_entropy(functional.linear(hidden.mean(dim=(2, 3)), dense), targets)
            gradients = torch.autograd.grad(loss, (first, second, dense))
            with torch.no_grad():
                squared_norm = sum((g.float() ** 2).sum() for g in gradients)
                for weight, gradient in zip((first, second, dense), gradients):
                    weight.sub_(gradient, alpha=LEARNING_RATE)
            return loss.detach(), squared_norm

        return Call(run, lambda result, index: float(result[index[0]]))

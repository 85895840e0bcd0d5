"""Applies run-time settings in PyTorch, and checks that each has an effect."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any, Callable, Dict, Sequence

import torch

from pi_runners.harness.contract import Parameters, Unsupported
from pi_runners.harness.settings import loaded_files

_CAPABILITIES = {"avx2": "AVX2", "avx512": "AVX512"}
_KERNELS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
    "cudnn": "CUDNN_ATTENTION",
}
_ROUNDED_SHAPE = (64, 64, 1, 1)
"""Matrix, or filters, whose product is computed with reduced precision; that of a small one is not."""
_BINDINGS = {"close": 3, "spread": 4}
"""Values of `omp_proc_bind_t` (OpenMP 5.2, section 3.2.1)."""


def apply_settings(settings: Parameters, device: str) -> None:
    """Apply the settings of a process.

    Args:
        settings: Values by name.
        device: ``cpu`` or ``cuda``.

    Raises:
        Unsupported: If a setting has no effect in this PyTorch or on this machine.
    """
    if "threads" in settings:
        torch.set_num_threads(settings["threads"])
        _require(settings, "threads", torch.get_num_threads())
    if "interop_threads" in settings:
        _set_interop_threads(settings["interop_threads"])
        _require(settings, "interop_threads", torch.get_num_interop_threads())
    if "onednn" in settings:
        torch.backends.mkldnn.enabled = settings["onednn"] == "on"
        is_used = torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available()
        _require(settings, "onednn", "on" if is_used else "off")
    if "tf32" in settings:
        torch.backends.cuda.matmul.allow_tf32 = settings["tf32"] == "on"
        torch.backends.cudnn.allow_tf32 = settings["tf32"] == "on"
    if "cudnn_benchmark" in settings:
        torch.backends.cudnn.benchmark = settings["cudnn_benchmark"] == "on"
    if "matmul_precision" in settings:
        torch.set_float32_matmul_precision(settings["matmul_precision"])
        if settings["matmul_precision"] != "highest" and not _is_rounded(torch.matmul, _ROUNDED_SHAPE[:2], device):
            raise Unsupported("`matmul_precision` has no effect: products of float32 are not rounded here")
    if settings.get("flush_denormal") == "on" and not torch.set_flush_denormal(True):
        raise Unsupported("this processor cannot flush denormal numbers")
    _check_processor(settings)
    if settings.get("fpmath") == "bfloat16" and not _is_rounded(torch.nn.functional.conv2d, _ROUNDED_SHAPE, device):
        raise Unsupported("`fpmath` has no effect: convolutions of float32 are not rounded here")
    if settings.get("amp", "off") != "off":
        _require(settings, "amp", product_type(settings, device))
    if settings.get("compile") == "reduce-overhead" and device == "cpu":
        raise Unsupported("`compile=reduce-overhead` uses CUDA graphs, which a CPU does not have")


def _set_interop_threads(number: int) -> None:
    if torch.get_num_interop_threads() == number:
        return
    try:
        # PyTorch accepts it once, before the first operation that uses these threads.
        torch.set_num_interop_threads(number)
    except RuntimeError as error:
        raise Unsupported("the number of inter-op threads cannot be changed: {}".format(error)) from None


def _check_processor(settings: Parameters) -> None:
    """Check the settings that the environment of the process contains."""
    if "isa" in settings and hasattr(torch.backends, "cpu"):
        capability = torch.backends.cpu.get_cpu_capability()
        if capability != _CAPABILITIES[settings["isa"]]:
            raise Unsupported("`isa={}`: PyTorch computes with {}".format(settings["isa"], capability))
    if "openmp" in settings and (settings["openmp"] == "intel") != bool(loaded_files("iomp")):
        raise Unsupported("`openmp={}`: this process uses another OpenMP runtime".format(settings["openmp"]))
    if "binding" in settings and openmp_binding() != _BINDINGS[settings["binding"]]:
        raise Unsupported("`binding={}`: OpenMP does not bind its threads so".format(settings["binding"]))


def _require(settings: Parameters, name: str, actual: Any) -> None:
    if actual != settings[name]:
        raise Unsupported("`{}={}` has no effect: it is `{}`".format(name, settings[name], actual))


def _is_rounded(operation: Callable[..., Any], shape: Sequence[int], device: str) -> bool:
    """Return whether an operation on float32 loses the last bits of its factors, as in TensorFloat-32 and bfloat16."""
    factors = torch.full(tuple(shape), 1 + 2.0**-12, device=device)
    return float(operation(factors, torch.ones_like(factors)).flatten()[0]) != shape[1] * (1 + 2.0**-12)


def openmp_binding() -> int:
    """Return how OpenMP binds threads, as `omp_get_proc_bind` says; 0 if it does not, or is not loaded."""
    for path in loaded_files("gomp", "iomp", "libomp"):
        try:
            return int(ctypes.CDLL(path).omp_get_proc_bind())
        except (OSError, AttributeError):
            continue
    return 0


def product_type(settings: Parameters, device: str) -> str:
    """Return the element type of a float32 matrix product under the setting `amp`."""
    ones = torch.ones(2, 2, device=device)
    with autocast(settings, device):
        return str(torch.matmul(ones, ones).dtype).partition(".")[2]


def autocast(settings: Parameters, device: str) -> Any:
    """Return a context for the setting `amp`."""
    amp = settings.get("amp", "off")
    return nullcontext() if amp == "off" else torch.autocast(device, dtype=getattr(torch, amp))


def without_gradients(settings: Parameters) -> Any:
    """Return a context for inference: the context of the setting `grad_mode`, by default `no_grad`."""
    modes = {"enabled": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
    return modes[settings.get("grad_mode", "no_grad")]()


def with_attention_kernel(function: Callable[..., Any], settings: Parameters) -> Callable[..., Any]:
    """Return a function that uses the kernel of the setting `sdpa` for attention."""
    if "sdpa" not in settings:
        return function
    from torch.nn import attention

    kernel = getattr(attention.SDPBackend, _KERNELS[settings["sdpa"]])

    def run(*arrays: Any) -> Any:
        try:
            with attention.sdpa_kernel(kernel):
                return function(*arrays)
        except RuntimeError as error:
            if "No available kernel" in str(error) or "No viable backend" in str(error):
                raise Unsupported("`sdpa={}` does not support these inputs".format(settings["sdpa"])) from None
            raise

    return run


def compiled(function: Callable[..., Any], settings: Parameters) -> Callable[..., Any]:
    """Return a function that is compiled as the setting `compile` says.

    Raises:
        Unsupported: If PyTorch cannot compile.
    """
    mode = settings.get("compile", "off")
    if mode == "off":
        return function
    if not hasattr(torch, "compile"):
        raise Unsupported("this PyTorch has no `torch.compile`")
    # Without `dynamic=False`, inputs of a second size, which follow the check on a small batch, would be compiled for
    # every size, and that is slower.
    compute: Callable[..., Any] = torch.compile(function, dynamic=False, mode=None if mode == "on" else mode)

    def run(*arrays: Any) -> Any:
        try:
            return compute(*arrays)
        except Exception as error:
            if "InvalidCxxCompiler" in "{} {}".format(type(error).__name__, error):
                raise Unsupported("`torch.compile` needs a C++ compiler, and this machine has none") from None
            raise

    return run


def compiled_graphs() -> int:
    """Return the number of graphs that `torch.compile` has compiled in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"].get("unique_graphs", 0))


def describe_settings(settings: Parameters, device: str) -> Dict[str, Any]:
    """Return the state of the settings of this process, by name."""
    described: Dict[str, Any] = {
        "torch_threads": torch.get_num_threads(),
        "torch_interop_threads": torch.get_num_interop_threads(),
    }
    if "amp" in settings:
        described["torch_product_type"] = product_type(settings, device)
    if "binding" in settings:
        described["torch_openmp_binding"] = openmp_binding()
    return described

"""Run-time switches that change speed: which there are, who knows them, and what must be set before the import.

Each backend applies the rest itself. Sources: oneDNN's dispatcher control
(https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html), PyTorch's and TensorFlow's
environment variables, OpenBLAS's user manual (OPENBLAS_CORETYPE), XLA's flags (xla_cpu_max_isa).
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from pi_runners.harness.contract import Parameters, Unsupported

_ALL = ("jax", "numpy", "onnxruntime", "tensorflow", "torch")


class Setting(NamedTuple):
    """One switch.

    Attributes:
        meaning: For people.
        backends: Who knows it.
        choices: Its values; none means whole numbers.
        least: Smallest number.
        devices: Devices on which it means something.
    """

    meaning: str
    backends: Tuple[str, ...]
    choices: Tuple[str, ...] = ()
    least: int = 0
    devices: Tuple[str, ...] = ("cpu", "cuda")


SETTINGS: Dict[str, Setting] = {
    "threads": Setting("threads of one operation (JAX: processors it may use)", _ALL, least=1, devices=("cpu",)),
    "onednn": Setting("whether oneDNN's kernels are used", ("tensorflow", "torch"), ("on", "off"), devices=("cpu",)),
    "isa": Setting(
        "newest instruction set used", ("jax", "numpy", "tensorflow", "torch"), ("avx2", "avx512"), devices=("cpu",)
    ),
    "xla": Setting("whether functions are compiled by XLA (`jit_compile`)", ("tensorflow",), ("on", "off")),
    "compile": Setting("whether functions go through `torch.compile`", ("torch",), ("on", "off")),
    "tf32": Setting(
        "whether float32 products may use TensorFloat-32",
        ("jax", "tensorflow", "torch"),
        ("on", "off"),
        devices=("cuda",),
    ),
    "amp": Setting("automatic mixed precision", ("tensorflow", "torch"), ("off", "bfloat16", "float16")),
    "memory_format": Setting("layout of images", ("torch",), ("contiguous", "channels_last")),
    "numa": Setting("NUMA node whose processors, and so whose memory, are used", _ALL, devices=("cpu", "cuda")),
}


def complaint(name: str, value: Any) -> Optional[str]:
    """Return what is wrong with a setting, or none."""
    if name not in SETTINGS:
        return "there is no setting `{}`; there are {}".format(name, ", ".join(sorted(SETTINGS)))
    setting = SETTINGS[name]
    if setting.choices:
        return None if value in setting.choices else "`{}` must be one of {}".format(name, ", ".join(setting.choices))
    if isinstance(value, bool) or not isinstance(value, int) or value < setting.least:
        return "`{}` must be a whole number from {}".format(name, setting.least)
    return None


def apply_settings(backend: str, settings: Parameters) -> None:
    """Do what must be done before the framework is imported.

    Raises:
        Unsupported: If the machine cannot do what a setting asks.
    """
    threads = settings.get("threads")
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(threads)
        if backend == "jax":
            _keep_processors(sorted(_processors())[:threads], threads)
    if "numa" in settings:
        _keep_processors(sorted(_processors() & _node(settings["numa"])), 1)
    if "onednn" in settings and backend == "tensorflow":
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1" if settings["onednn"] == "on" else "0"
    if "isa" in settings:
        os.environ.update(_ISA[settings["isa"]])
        if backend == "jax":
            flag = " --xla_cpu_max_isa=" + settings["isa"].upper()
            os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + flag).strip()


_ISA = {
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "ATEN_CPU_CAPABILITY": "avx512", "OPENBLAS_CORETYPE": "SkylakeX"},
}


def _processors() -> Set[int]:
    if not hasattr(os, "sched_getaffinity"):
        raise Unsupported("this system has no processor affinity")
    return set(os.sched_getaffinity(0))


def _node(number: int) -> Set[int]:
    """Return the processors of a NUMA node; memory is then taken from it, since Linux allocates where it is touched."""
    try:
        with open("/sys/devices/system/node/node{}/cpulist".format(number)) as file:
            return set(expand(file.read().strip()))
    except OSError:
        raise Unsupported("this machine has no NUMA node {}".format(number)) from None


def expand(text: str) -> List[int]:
    """Return the numbers of a list such as ``0-3,8``."""
    found: List[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _keep_processors(chosen: List[int], least: int) -> None:
    if len(chosen) < least:
        raise Unsupported("this process may use {} processors, not {}".format(len(chosen), least))
    os.sched_setaffinity(0, chosen)

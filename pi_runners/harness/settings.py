"""Applies the run-time settings that must be set before the framework is imported.

Each backend applies the other settings itself. Sources: oneDNN's dispatcher control
(https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html), PyTorch's and TensorFlow's
environment variables, OpenBLAS's user manual (OPENBLAS_CORETYPE), XLA's flags (xla_cpu_max_isa).
"""

from __future__ import annotations

import os
from typing import List, Set

from pi_runners.harness.contract import Parameters, Unsupported


def apply_settings(backend: str, settings: Parameters) -> None:
    """Set environment variables and processor affinity; call it before the framework is imported.

    Args:
        backend: Name of the backend.
        settings: Values by name of the setting.

    Raises:
        Unsupported: If the machine cannot apply a setting.
    """
    threads = settings.get("threads")
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(threads)
        if backend == "jax":
            _set_affinity(sorted(_processors())[:threads], threads)
    if "numa" in settings:
        _set_affinity(sorted(_processors() & _processors_of_node(settings["numa"])), 1)
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


def _processors_of_node(number: int) -> Set[int]:
    """Return the processors of a NUMA node.

    Memory then comes from the same node: Linux allocates a page on the node of the processor that touches it first.
    """
    try:
        with open("/sys/devices/system/node/node{}/cpulist".format(number)) as file:
            return set(parse_number_list(file.read().strip()))
    except OSError:
        raise Unsupported("this machine has no NUMA node {}".format(number)) from None


def parse_number_list(text: str) -> List[int]:
    """Return the numbers of a list such as ``0-3,8``."""
    numbers: List[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _set_affinity(processors: List[int], least: int) -> None:
    if len(processors) < least:
        raise Unsupported("this process may use {} processors, not {}".format(len(processors), least))
    os.sched_setaffinity(0, processors)

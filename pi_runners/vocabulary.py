"""Names that requests, matrix files and reports use: framework distributions, their backends, and run-time settings.

The code that runs inside measured environments (:mod:`pi_runners.harness`, ``backends``, ``indicators``) does not need
this module: a request names the backend, and its settings were checked before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FRAMEWORKS = {
    "numpy": "numpy",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tf-nightly": "tensorflow",
    "torch": "torch",
    "jax": "jax",
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime",
}
"""Backend of each distribution that provides a framework."""

INPUT_LIBRARIES = {
    "pillow": "pillow",
    "opencv-python-headless": "opencv",
    "opencv-python": "opencv",
    "tokenizers": "tokenizers",
}
"""Backend of each distribution that prepares input: it is measured, but does not count for the speed of a stack."""

MEASURED = {**FRAMEWORKS, **INPUT_LIBRARIES}
"""Backend of each distribution that can be measured."""

BACKENDS = tuple(dict.fromkeys(MEASURED.values()))
"""Names of the backends."""

_ALL = tuple(sorted(BACKENDS))


@dataclass(frozen=True, slots=True)
class Setting:
    """A run-time setting that changes speed.

    Attributes:
        meaning: Description for people.
        backends: Backends that support it.
        choices: Accepted values; empty if it takes integers.
        least: Smallest accepted integer.
        devices: Devices on which it has an effect.
    """

    meaning: str
    backends: tuple[str, ...]
    choices: tuple[str, ...] = ()
    least: int = 0
    devices: tuple[str, ...] = ("cpu", "cuda")


SETTINGS: dict[str, Setting] = {
    "threads": Setting(
        "number of threads of one operation (JAX: number of processors)",
        tuple(backend for backend in _ALL if backend != "pillow"),
        least=1,
        devices=("cpu",),
    ),
    "onednn": Setting("use oneDNN's kernels", ("tensorflow", "torch"), ("on", "off"), devices=("cpu",)),
    "isa": Setting(
        "newest instruction set to use", ("jax", "numpy", "tensorflow", "torch"), ("avx2", "avx512"), devices=("cpu",)
    ),
    "xla": Setting("compile functions with XLA (`jit_compile`)", ("tensorflow",), ("on", "off")),
    "compile": Setting("compile functions with `torch.compile`", ("torch",), ("on", "off")),
    "tf32": Setting(
        "allow TensorFloat-32 in float32 matrix products",
        ("jax", "tensorflow", "torch"),
        ("on", "off"),
        devices=("cuda",),
    ),
    "amp": Setting(
        "element type of automatic mixed precision", ("tensorflow", "torch"), ("off", "bfloat16", "float16")
    ),
    "memory_format": Setting("memory layout of images", ("torch",), ("contiguous", "channels_last")),
    "numa": Setting("NUMA node whose processors and memory are used", _ALL),
}


def setting_error(name: str, value: Any) -> str | None:
    """Return why a setting or its value is not valid, or none."""
    if name not in SETTINGS:
        return f"there is no setting `{name}`; there are {', '.join(sorted(SETTINGS))}"
    setting = SETTINGS[name]
    if setting.choices:
        return None if value in setting.choices else f"`{name}` must be one of {', '.join(setting.choices)}"
    if isinstance(value, bool) or not isinstance(value, int) or value < setting.least:
        return f"`{name}` must be an integer of at least {setting.least}"
    return None

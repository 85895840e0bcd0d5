"""The blocks that `benchmarks/gpu.sh` measures: groups of indicators with their arms, in order of importance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.installed_stack import (
    ArmSpec,
    cases_that_fit,
    device_of,
    installed_frameworks,
    plan_installed_arms,
)
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Scalar
from pi_runners.execution.campaign import Block
from pi_runners.execution.environment import BuiltEnvironment

ROUNDS = 4
"""Minimum number of rounds to estimate the spread of a result."""
_PROCESS_SECONDS = 400.0
"""Timeout of a process: on a busy machine, an indicator can need minutes to compile."""
_HALF = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Indicators that are measured together, with their arms.

    Attributes:
        name: Short name.
        indicators: Names of indicators.
        arms: Arms on a GPU; the first is the reference.
        cpu_arms: Arms on the CPU; empty if the group is not measured there.
    """

    name: str
    indicators: tuple[str, ...]
    arms: tuple[ArmSpec, ...]
    cpu_arms: tuple[ArmSpec, ...]


_EVERYTHING = ArmSpec(dtypes=("float32", *_HALF))
_PLAIN = ArmSpec()
_CONTROL = ArmSpec()
"""The settings of the reference again: an A/A control, which shows the noise."""
_TF32 = ArmSpec(settings={"tf32": "on"}), ArmSpec(settings={"tf32": "off"})
_MIXED = tuple(ArmSpec(settings={"amp": dtype}) for dtype in reversed(_HALF))
_IMAGES = ArmSpec(settings={"memory_format": "channels_last"}, dtypes=("float32", "bfloat16"))
_COMPILED: dict[str, Scalar] = {"compile": "on"}
_ON_CPU = (_PLAIN, _CONTROL)
GROUPS = (
    Group(
        name="models",
        indicators=("model",),
        arms=(
            *(_EVERYTHING, _TF32[0], _MIXED[0], _IMAGES, _CONTROL),
            ArmSpec(settings=_COMPILED, dtypes=("float32", "bfloat16")),
        ),
        cpu_arms=_ON_CPU,
    ),
    Group(
        name="kernels",
        indicators=("matmul", "conv2d", "attention"),
        arms=(_EVERYTHING, *_TF32, replace(_IMAGES, indicators=("conv2d",)), _CONTROL),
        cpu_arms=_ON_CPU,
    ),
    Group(
        name="training",
        indicators=("training_step", "block"),
        arms=(_EVERYTHING, *_TF32, *_MIXED, _IMAGES, _CONTROL),
        cpu_arms=_ON_CPU,
    ),
    Group(
        name="compiled",
        indicators=("training_step",),
        arms=(
            ArmSpec(dtypes=("float32", "bfloat16")),
            ArmSpec(settings=_COMPILED, dtypes=("float32", "bfloat16")),
            ArmSpec(settings={**_COMPILED, "amp": "bfloat16"}),
        ),
        cpu_arms=(_PLAIN, ArmSpec(settings=_COMPILED)),
    ),
    Group(
        name="inference",
        indicators=("inference",),
        arms=(_EVERYTHING, _TF32[0], _MIXED[0], ArmSpec(settings=_COMPILED, dtypes=("bfloat16",)), _CONTROL),
        cpu_arms=_ON_CPU,
    ),
    Group(
        name="layers",
        indicators=("roofline", "recurrent", "conv1d", "conv3d"),
        arms=(_EVERYTHING, *_TF32, _CONTROL),
        cpu_arms=_ON_CPU,
    ),
    Group(
        name="memory",
        indicators=(
            *("transfer", "memory", "normalisation", "softmax", "elementwise", "reduction", "embedding"),
            *("sort", "fft"),
        ),
        arms=(
            _EVERYTHING,
            ArmSpec(settings=_COMPILED, indicators=("normalisation", "softmax", "elementwise", "reduction")),
            _CONTROL,
        ),
        cpu_arms=_ON_CPU,
    ),
    Group(
        name="system",
        indicators=("startup", "time_to_quality"),
        arms=(_PLAIN, ArmSpec(settings=_COMPILED, indicators=("startup",)), _CONTROL),
        cpu_arms=_ON_CPU,
    ),
    Group(
        name="overhead",
        indicators=("dispatch", "input"),
        arms=(_PLAIN, ArmSpec(settings=_COMPILED, indicators=("dispatch",)), _CONTROL),
        cpu_arms=(_PLAIN, ArmSpec(settings=_COMPILED, indicators=("dispatch",)), _CONTROL),
    ),
    Group(name="communication", indicators=("communication",), arms=(), cpu_arms=_ON_CPU),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBlock:
    """A block with a short name for the command line.

    Attributes:
        name: Framework, group, device and size.
        block: The block; its own name has the start time and a hash of the content in addition.
    """

    name: str
    block: Block


def plan_blocks(
    environment: BuiltEnvironment,
    hardware: HardwareProfile,
    *,
    sizes: Sequence[str],
    devices: Sequence[str],
    rounds: int = ROUNDS,
) -> tuple[tuple[PlannedBlock, ...], tuple[str, ...]]:
    """Return all blocks, the most important first, and messages about cases that need too much memory.

    Args:
        environment: The interpreter.
        hardware: The machine.
        sizes: Parameter sets on the GPU; the CPU runs the small ones.
        devices: Devices to measure on.
        rounds: Rounds of each block.
    """
    frameworks = sorted(installed_frameworks(environment.stack), key=lambda n: (n != "torch", n != "jax"))
    planned_blocks: list[PlannedBlock] = []
    refused: dict[str, None] = {}
    for device in devices:
        usable = [f for f in frameworks if device == "cpu" or device_of(f, hardware) == "cuda"]
        for size in sizes if device == "cuda" else ("small",):
            for group in GROUPS:
                for framework in usable:
                    configuration = _Configuration(framework=framework, device=device, size=size)
                    block, too_large = _plan_block(group, configuration, environment, hardware, rounds)
                    refused.update(dict.fromkeys(too_large))
                    # A block with the reference only has nothing to compare.
                    if len(block.arms) > 1:
                        planned_blocks.append(PlannedBlock(name=block.name, block=block))
    return tuple(planned_blocks), tuple(refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    """Framework, device and size of a block."""

    framework: str
    device: str
    size: str


def _plan_block(
    group: Group, configuration: _Configuration, environment: BuiltEnvironment, hardware: HardwareProfile, rounds: int
) -> tuple[Block, tuple[str, ...]]:
    """Return a block, which may have no arms, and messages about cases that need too much memory."""
    arms = group.arms if configuration.device == "cuda" else group.cpu_arms
    dtypes = sorted({dtype for arm in arms for dtype in arm.dtypes})
    indicators = group.indicators if arms else ()
    cases, too_large = cases_that_fit(indicators, configuration.size, dtypes, hardware, device=configuration.device)
    block = Block(
        name=f"{configuration.framework}-{group.name}-{configuration.device}-{configuration.size}",
        arms=plan_installed_arms(environment, configuration.framework, arms, cases, device=configuration.device),
        rounds=rounds,
        hardware=hardware,
        samples=10,
        min_seconds=0.02 if configuration.device == "cuda" else 0.05,
        max_warmup_seconds=2.0,
        timeout_seconds=_PROCESS_SECONDS,
        environment=environment,
    )
    return block, too_large

"""What `benchmarks/gpu.sh` measures: groups of indicators with the arms that are compared, the most valuable first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Scalar
from pi_runners.campaign import Block
from pi_runners.environment import BuiltEnvironment
from pi_runners.installed_stack import ArmSpec, cases_that_fit, device_of, installed_frameworks, plan_installed_arms

ROUNDS = 4
"""Fewest rounds that say how much a result varies."""
_PROCESS_SECONDS = 400.0
"""An indicator that is compiled for minutes on a busy machine must not look like one that never ends."""
_HALF = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Indicators that are measured together, with the arms that are compared.

    Attributes:
        name: Short name.
        indicators: Names of indicators.
        arms: On a GPU; the first is the reference.
        cpu_arms: On the CPU; none where it is not measured there.
    """

    name: str
    indicators: tuple[str, ...]
    arms: tuple[ArmSpec, ...]
    cpu_arms: tuple[ArmSpec, ...]


_EVERYTHING = ArmSpec(dtypes=("float32", *_HALF))
_PLAIN = ArmSpec()
_CONTROL = ArmSpec()
"""The settings of the reference once more: an A/A control, the noise floor."""
_TF32 = ArmSpec(settings={"tf32": "on"}), ArmSpec(settings={"tf32": "off"})
_MIXED = tuple(ArmSpec(settings={"amp": dtype}) for dtype in reversed(_HALF))
_IMAGES = ArmSpec(settings={"memory_format": "channels_last"}, dtypes=("float32", "bfloat16"))
_COMPILED: dict[str, Scalar] = {"compile": "on"}
_ON_CPU = (_PLAIN, _CONTROL)
GROUPS = (
    Group(
        name="kernels",
        indicators=("matmul", "conv2d", "attention"),
        arms=(_EVERYTHING, *_TF32, replace(_IMAGES, indicators=("conv2d",)), _CONTROL),
        cpu_arms=_ON_CPU,
    ),
    Group(
        name="training",
        indicators=("training_step",),
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
    Group(name="communication", indicators=("communication",), arms=(), cpu_arms=_ON_CPU),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A block with the name that a user chooses it by.

    Attributes:
        name: Framework, group, device and size.
        block: The block; its own name is the same with the time of its beginning and a hash of its content.
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
) -> tuple[tuple[Planned, ...], tuple[str, ...]]:
    """Plan all blocks, the most valuable first, and say which cases need too much memory.

    Args:
        environment: The interpreter.
        hardware: The machine.
        sizes: Parameter sets on the GPU; the CPU runs the small ones.
        devices: Devices to measure on.
        rounds: Rounds of each block.
    """
    frameworks = sorted(installed_frameworks(environment.stack), key=lambda n: (n != "torch", n != "jax"))
    planned: list[Planned] = []
    refused: dict[str, None] = {}
    for device in devices:
        usable = [f for f in frameworks if device == "cpu" or device_of(f, hardware) == "cuda"]
        for size in sizes if device == "cuda" else ("small",):
            for group in GROUPS:
                for framework in usable:
                    place = _Place(framework=framework, device=device, size=size)
                    block, too_large = _plan_block(group, place, environment, hardware, rounds)
                    refused.update(dict.fromkeys(too_large))
                    # A block of the reference alone compares nothing.
                    if len(block.arms) > 1:
                        planned.append(Planned(name=block.name, block=block))
    return tuple(planned), tuple(refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Framework, device and size of a block."""

    framework: str
    device: str
    size: str


def _plan_block(
    group: Group, place: _Place, environment: BuiltEnvironment, hardware: HardwareProfile, rounds: int
) -> tuple[Block, tuple[str, ...]]:
    """Return a block, which may have no arms, and what needs too much memory for it."""
    arms = group.arms if place.device == "cuda" else group.cpu_arms
    dtypes = sorted({dtype for arm in arms for dtype in arm.dtypes})
    indicators = group.indicators if arms else ()
    cases, too_large = cases_that_fit(indicators, place.size, dtypes, hardware, device=place.device)
    block = Block(
        name=f"{place.framework}-{group.name}-{place.device}-{place.size}",
        arms=plan_installed_arms(environment, place.framework, arms, cases, device=place.device),
        rounds=rounds,
        hardware=hardware,
        samples=10,
        min_seconds=0.02 if place.device == "cuda" else 0.05,
        max_warmup_seconds=2.0,
        timeout_seconds=_PROCESS_SECONDS,
        environment=environment,
    )
    return block, too_large

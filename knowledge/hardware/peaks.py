"""Upper bounds of what accelerators compute, from the peak rates of the catalogue."""

from __future__ import annotations

from functools import lru_cache

from knowledge.domain.hardware import Accelerator
from knowledge.hardware.accelerators import AcceleratorModel, accelerator_models, find_accelerator, model_of

_FLOATS = ("float64", "float32", "tfloat32", "float16", "bfloat16")
_EIGHT_BITS = ("float8", "int8")
_CONSUMER_CLOCK = 4 / 3
"""Clock of a consumer GPU with good cooling, relative to the clock of its peak rates: 2.1 GHz instead of 1582 MHz, see
https://www.tomshardware.com/reviews/geforce-gtx-1080-ti-water-cooling,4975-2.html."""


@lru_cache(maxsize=1024)
def peak_operations(accelerator: Accelerator, dtype: str) -> float | None:
    """Return an upper bound of the operations per second of one device.

    It holds for every floating-point type, because frameworks may compute in a shorter type than the data's. If the
    model is not in the catalogue, or its sources do not state enough, it is the largest bound of the same compute
    capability; ``None`` if there is none.
    """
    model = model_of(accelerator)
    bound = _bound(model, dtype) if model is not None else None
    if bound is not None or accelerator.compute_capability is None:
        return bound
    alike = [m for m in accelerator_models() if m.compute_capability == accelerator.compute_capability]
    return max((rate for m in alike if (rate := _bound(m, dtype)) is not None), default=None)


@lru_cache(maxsize=4096)
def largest_ratio(fast: AcceleratorModel, slow: AcceleratorModel) -> float | None:
    """Return the largest ratio of the memory bandwidths and the peak rates of two accelerators.

    A program that is limited by one resource is faster by the ratio of this resource, if it uses both accelerators in
    the same degree. Float32 may be computed with TF32 on the accelerators that have it, and a short type with float32
    on those that are slower with the short one.

    Args:
        fast: The accelerator in the numerator; of several variants the fastest counts.
        slow: The one in the denominator; of several variants the slowest counts.

    Returns:
        The ratio; ``None`` if the catalogue does not state the bandwidth or the rates of one of them.
    """
    numerators, denominators = ([_resources(variant) for variant in _variants(model)] for model in (fast, slow))
    stated = [(one, other) for one in numerators for other in denominators if one and other]
    clock = _CONSUMER_CLOCK if fast.kind == "consumer" else 1.0
    return max((clock * a / b for one, other in stated for a, b in zip(one, other, strict=True)), default=None)


def ratio_bounds(model: AcceleratorModel, reference: AcceleratorModel) -> tuple[float, float] | None:
    """Return the smallest and the largest ratio of the memory bandwidths and the peak rates of two accelerators.

    A program that is limited by one resource, and uses both accelerators in the same degree, is between them. Only
    resources are compared whose rates are stated for both; ``None`` if there are none. Each of several variants counts.
    """
    ratios = [
        own[name] / other[name]
        for own in map(_stated_rates, _variants(model))
        for other in map(_stated_rates, _variants(reference))
        for name in own.keys() & other.keys()
    ]
    if not ratios:
        return None
    clocks = [_CONSUMER_CLOCK if one.kind == "consumer" else 1.0 for one in (model, reference)]
    return min(ratios) / clocks[1], max(ratios) * clocks[0]


def _stated_rates(model: AcceleratorModel) -> dict[str, float]:
    short = [model.flops[name] for name in ("float16", "bfloat16") if name in model.flops]
    rates = {name: model.flops.get(name, 0.0) for name in ("float32", "tfloat32")}
    rates |= {"bandwidth": model.memory_bytes_per_second or 0.0, "16-bit": max(short, default=0.0)}
    return {name: rate for name, rate in rates.items() if rate}


def _variants(model: AcceleratorModel) -> list[AcceleratorModel]:
    return [variant for name in model.variants if (variant := find_accelerator(name)) is not None] or [model]


def _resources(model: AcceleratorModel) -> tuple[float, ...]:
    """Return bandwidth and peak rates of float32, float32 with TF32, and 16-bit floats; empty if one is unknown."""
    bandwidth, plain = model.memory_bytes_per_second, model.flops.get("float32")
    short = max((model.flops[name] for name in ("float16", "bfloat16") if name in model.flops), default=None)
    if short is None and model.tensor_core_generation is None:
        short = plain
    if not bandwidth or not plain or not short:
        return ()
    return bandwidth, plain, max(plain, model.flops.get("tfloat32", 0.0)), max(plain, short)


def _bound(model: AcceleratorModel, dtype: str) -> float | None:
    """Return the bound of a model; ``None`` if its sources do not state the rates of its tensor cores."""
    rates = model.flops
    eight_bits = [rates[name] for name in _EIGHT_BITS if name in rates]
    # 16-bit operations run at half of the rate of 8-bit ones, also where their rate is not stated.
    floats = [rates[name] for name in _FLOATS if name in rates] + [rate / 2 for rate in eight_bits]
    has_matrix_rates = bool(eight_bits) or any(name in rates for name in ("float16", "bfloat16"))
    if not floats or (not has_matrix_rates and model.tensor_core_generation is not None):
        return None
    bound = max(floats)
    if model.kind == "consumer":
        if model.tensor_core_generation is not None and "float16" in rates:
            # The catalogue has the rate with 32-bit accumulators; with 16-bit ones, GeForce GPUs are twice as fast (Ada
            # GPU Architecture, appendix A: 330.3 and 165.2 TFLOPS).
            bound = max(bound, 2 * rates["float16"])
        bound *= _CONSUMER_CLOCK
    if dtype != "int8":
        return bound
    if model.tensor_core_generation is None and not eight_bits:
        return None
    return max([*eight_bits, 2 * bound])

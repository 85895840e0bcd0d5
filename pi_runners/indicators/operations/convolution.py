"""Convolution in one, two and three dimensions: forward, backward, depthwise."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Tuple

from pi_runners.harness.contract import Array, Backend, FrameworkAbilities, Parameter, Parameters, Trial
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators.checks.results import worst_error
from pi_runners.indicators.indicator import ITEM_BYTES, Operation
from pi_runners.indicators.operations.convolution_check import ConvolutionCheck, Geometry

_TOLERANCE = {"float64": 1e-12, "float32": 4e-3, "float16": 2e-2, "bfloat16": 6e-2}
"""The largest relative error seen in float16 is 0.0103: sums of 432 products, TensorFlow 2.21 on an AMD EPYC without
arithmetic for float16, which rounds each sum."""
_AXES = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}


class Convolution(Operation):
    """Convolution of images (batch, channels, *spatial) with filters (filters, channels / groups, *kernel)."""

    corresponds = "DeepBench convolution (https://github.com/baidu-research/DeepBench)"
    flops_formula = "2 batch filters out channels/groups kernel; backward twice that"
    bytes_formula = "item (images + filters + results); backward: each and its gradient"
    source = "https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/"
    operation = "convolution"
    needs = ("convolution",)

    def __init__(self, axes: int) -> None:
        self._axes = axes
        self.name = "conv{}d".format(axes)
        self.summary = "{}-D convolution: forward, backward, depthwise (NumPy: im2col and one matrix product)".format(
            axes
        )
        self.parameters = {
            "batch": Parameter("images"),
            "channels": Parameter("channels of an image"),
            "filters": Parameter("filters, which are the channels of the result"),
            "size": Parameter("length of the spatial axes", default=0, least=0),
            "kernel": Parameter("length of the axes of a filter", default=0, least=0),
            "stride": Parameter("step along all axes", default=1),
            "groups": Parameter("groups of channels; equal to `channels` for a depthwise convolution", default=1),
            "direction": Parameter("what is computed", choices=("forward", "backward"), default="forward"),
        }
        for axis in _AXES[axes]:
            for kind, meaning in (
                ("", "length"),
                ("kernel_", "filter's length"),
                ("stride_", "step"),
                ("pad_", "padding"),
            ):
                least = 0 if kind == "pad_" else 1
                self.parameters[kind + axis] = Parameter(
                    "{} along this axis, if different".format(meaning), default=-1, least=min(least, -1)
                )
        self.sets = _SETS[axes]

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        return (*self.needs, "backward") if parameters.get("direction") == "backward" else self.needs

    def geometry(self, p: Parameters) -> Geometry:
        """Return the lengths along the spatial axes; the default padding keeps the size."""

        def per_axis(kind: str, common: Callable[[int], int]) -> Tuple[int, ...]:
            lengths = [p.get(kind + axis, -1) for axis in _AXES[self._axes]]
            return tuple(n if n >= 0 else common(i) for i, n in enumerate(lengths))

        spatial = per_axis("", lambda i: int(p["size"]))
        kernel = per_axis("kernel_", lambda i: int(p["kernel"]))
        stride = per_axis("stride_", lambda i: int(p["stride"]))
        padding = per_axis("pad_", lambda i: kernel[i] // 2)
        out = tuple((n + 2 * m - k) // s + 1 for n, m, k, s in zip(spatial, padding, kernel, stride))
        return Geometry(spatial, kernel, stride, padding, out)

    def complaints(self, parameters: Parameters) -> List[str]:
        messages = super().complaints(parameters)
        if messages:
            return messages
        p = self.complete(parameters)
        for axis in _AXES[self._axes]:
            for name in (axis, "kernel_" + axis, "stride_" + axis):
                if p[name] == 0:
                    return ["`{}` must be at least 1, or absent".format(name)]
        shape = self.geometry(p)
        if min(shape.spatial + shape.kernel) < 1:
            return ["`size` and `kernel`, or the lengths along each axis, are missing"]
        if min(shape.out) < 1:
            return ["the kernel {} is larger than the padded image {}".format(shape.kernel, shape.spatial)]
        if p["channels"] % p["groups"] or p["filters"] % p["groups"]:
            return ["`groups` must divide `channels` and `filters`"]
        return []

    def flops(self, parameters: Parameters) -> float:
        """Return 2 N K P Q C R S, as DeepBench counts (zeros of the padding included); twice that for backward."""
        p = self.complete(parameters)
        shape = self.geometry(p)
        outputs = p["batch"] * p["filters"] * math.prod(shape.out)
        one = 2 * outputs * p["channels"] // p["groups"] * math.prod(shape.kernel)
        return float(one * (2 if p["direction"] == "backward" else 1))

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of images, filters and results; backward also includes the gradients."""
        p = self.complete(parameters)
        shape = self.geometry(p)
        images = p["batch"] * p["channels"] * math.prod(shape.spatial)
        filters = p["filters"] * p["channels"] // p["groups"] * math.prod(shape.kernel)
        results = p["batch"] * p["filters"] * math.prod(shape.out)
        twice = 2 if p["direction"] == "backward" else 1
        return float(ITEM_BYTES[dtype] * (twice * (images + filters) + results))

    def extra_memory(self, parameters: Parameters, dtype: str, framework: FrameworkAbilities) -> float:
        """Return the memory of the im2col matrix, or of copies of the images in the backward pass.

        PyTorch's copy was inferred from measurements: a peak of 7.3 to 7.5 GB instead of 6.0 GB.
        """
        p = self.complete(parameters)
        shape = self.geometry(p)
        images = p["batch"] * p["channels"]
        if framework.algorithms.get(self.operation) == "im2col":
            return float(ITEM_BYTES[dtype] * images * math.prod(shape.kernel) * math.prod(shape.out))
        copies = framework.extra_copies.get("backward_images", 0.0) if p["direction"] == "backward" else 0.0
        return float(copies * ITEM_BYTES[dtype] * images * math.prod(shape.spatial))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Compare signed sums of filters, or of channels, with exact sums: of all, or of some of a large result."""
        p, shape = parameters, self.geometry(parameters)
        image_shape = (p["batch"], p["channels"], *shape.spatial)
        filter_shape = (p["filters"], p["channels"] // p["groups"], *shape.kernel)
        result_shape = (p["batch"], p["filters"], *shape.out)
        raws = [random_bytes(3 + i, math.prod(s)) for i, s in enumerate((image_shape, filter_shape, result_shape))]
        x, w = backend.images(raws[0], image_shape), backend.filters(raws[1], filter_shape)

        def convolve(back: Backend, images: Array, filters: Array) -> Array:
            return back.convolution(images, filters, shape.stride, shape.padding, p["groups"])

        tolerance = _TOLERANCE[backend.precision]
        exact = ConvolutionCheck(backend, raws, (image_shape, filter_shape, result_shape), shape)
        if p["direction"] == "forward":
            return Trial(backend.compile(convolve, [x, w]), exact.results, tolerance)

        def check(gradients: Any) -> float:
            by_image, by_filter = gradients
            return worst_error([exact.image_gradient(by_image), exact.filter_gradient(by_filter)])

        return Trial(backend.pullback(convolve, [x, w], backend.images(raws[2], result_shape)), check, tolerance)


def _sets(small: Parameters, medium: Parameters, large: Parameters, depthwise: bool) -> Any:
    def cases(p: Parameters) -> Tuple[Parameters, ...]:
        parameter_sets = [p, dict(p, direction="backward")]
        if depthwise:
            parameter_sets.append(dict(p, filters=p["channels"], groups=p["channels"]))
        return tuple(parameter_sets)

    return {"small": cases(small), "medium": cases(medium), "large": cases(large)}


_SETS = {
    1: _sets(
        {"batch": 8, "channels": 64, "filters": 64, "size": 1024, "kernel": 5},
        {"batch": 16, "channels": 128, "filters": 128, "size": 4096, "kernel": 5},
        {"batch": 128, "channels": 256, "filters": 256, "size": 8192, "kernel": 5},
        depthwise=False,
    ),
    2: _sets(
        {"batch": 8, "channels": 32, "filters": 64, "size": 28, "kernel": 3},
        {"batch": 16, "channels": 64, "filters": 64, "size": 56, "kernel": 3},
        {"batch": 256, "channels": 128, "filters": 128, "size": 56, "kernel": 3},
        depthwise=True,
    ),
    3: _sets(
        {"batch": 2, "channels": 16, "filters": 16, "size": 20, "kernel": 3},
        {"batch": 4, "channels": 32, "filters": 32, "size": 32, "kernel": 3},
        {"batch": 16, "channels": 64, "filters": 64, "size": 64, "kernel": 3},
        depthwise=False,
    ),
}

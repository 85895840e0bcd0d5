"""Convolutions in compiled modules of XLA: their stride, padding, dilation and groups."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from pi_runners.frameworks.tensorflow.profile.hlo import Module
from pi_runners.frameworks.tensorflow.profile.messages import _classes
from pi_runners.profile.timeline import Claim

FLOAT32 = 11
AXIS: dict[str, int] = {"stride": 1, "padding": 1, "dilation": 1, "base_dilation": 1}


def claim_of(axes: list[dict[str, int]], groups: int = 1, filters: tuple[int, ...] = (3, 3, 4, 6)) -> Claim | None:
    """Return the claim of a convolution of images (2, 9, 12, 4) with filters of 3 x 3; channels are the last axis."""

    def instruction(number: int, opcode: str, shape: tuple[int, ...], **fields: Any) -> dict[str, Any]:
        names = {"name": text(f"{opcode}{number}"), "opcode": text(opcode)}
        return {"id": number, **names, "shape": {"type": FLOAT32, "lengths": list(shape)}, **fields}

    dimensions = {
        "batch": 0, "channels": 3, "axes": [1, 2], "kernel_axes": [0, 1], "kernel_inputs": 2, "kernel_outputs": 3,
    }  # fmt: skip
    convolution = instruction(
        3, "convolution", (2, 9, 12, 6), operands=[1, 2], window={"axes": axes}, convolution=dimensions, groups=groups
    )
    instructions = [instruction(1, "parameter", (2, 9, 12, 4)), instruction(2, "parameter", filters), convolution]
    content = {"module": {"computations": [{"id": 1, "instructions": instructions}]}}
    kind = Module(ParseDict(content, _classes()["Hlo"]()).SerializeToString()).kind("convolution3")
    assert kind is not None
    assert kind.layer == "DNN library"
    return kind.claim


def text(word: str) -> str:
    """Return the value of a field of bytes in a dictionary: base 64."""
    return base64.b64encode(word.encode()).decode()


def parameters(claim: Claim | None) -> dict[str, int | str]:
    assert claim is not None
    assert (claim.indicator, claim.dtype, claim.direction) == ("conv2d", "float32", "forward")
    return dict(claim.parameters)


SHAPE = {"batch": 2, "channels": 4, "filters": 6, "size": 9, "width": 12, "kernel": 3}


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ([AXIS, AXIS], {}),
        # Zero is the default of a field that is absent.
        ([{"padding": 1}, {"padding": 1}], {}),
        ([AXIS | {"padding": 0}, AXIS], {"pad_height": 0}),
        ([AXIS, AXIS | {"padding": 2}], {"pad_width": 2}),
        ([AXIS | {"stride": 2}, AXIS | {"stride": 2}], {"stride": 2}),
        ([AXIS | {"stride": 2}, AXIS | {"stride": 3}], {"stride": 2, "stride_width": 3}),
    ],
)
def test_stride_and_padding_are_read_for_each_axis(axes: list[dict[str, int]], expected: dict[str, int]) -> None:
    assert parameters(claim_of(axes)) == {**SHAPE, **expected}


def test_groups_are_read() -> None:
    assert parameters(claim_of([AXIS, AXIS], groups=2, filters=(3, 3, 2, 6))) == {**SHAPE, "groups": 2}
    assert parameters(claim_of([AXIS, AXIS], groups=0)) == SHAPE


@pytest.mark.parametrize("axes", [[AXIS | {"dilation": 2}, AXIS], [AXIS, AXIS | {"dilation": 2}]])
def test_a_dilated_convolution_has_no_parameters(axes: list[dict[str, int]]) -> None:
    assert parameters(claim_of(axes)) == {}


def test_a_convolution_of_a_dilated_image_is_a_gradient() -> None:
    claim = claim_of([AXIS | {"base_dilation": 2}, AXIS])

    assert claim == Claim("conv2d", (), "float32", "backward")


def test_axes_that_do_not_exist_leave_the_parameters_out() -> None:
    assert parameters(claim_of([AXIS, AXIS], filters=(3, 3, 4))) == {}

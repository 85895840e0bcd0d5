"""Tables of timm's `benchmark.py`: the file's name and the cells of a row as columns of published measurements.

The tables are in https://github.com/huggingface/pytorch-image-models, folder `results`. The name of a file states what
its rows have in common: `benchmark-infer-amp-nchw-pt240-cu124-rtx3090-dynamo.csv` is inference with autocast in float16
in PyTorch 2.4.0 with CUDA 12.4 on an RTX 3090, compiled with `torch.compile`. A row has a model, an image size, a batch
size and a rate.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePath

from knowledge.domain.errors import InputError

REPOSITORY = "huggingface/pytorch-image-models"
TIMM = "timm/"
"""What the names of timm's models begin with, as tasks and as workloads."""
_DAY = "2026-08-08"
"""The day of the commit of which the tables were read: they have no date."""
_MODES = {"infer": "inference", "train": "training"}
_PRECISIONS = {"amp_bf16": "amp bf16", "amp_bfloat16": "amp bf16"}
"""Precisions by another name; `amp` is autocast in float16 (`--amp-dtype` of `benchmark.py`)."""
_NAME = re.compile(
    r"benchmark-(?P<mode>infer|train)-(?P<precision>[a-z0-9_]+)-(?P<format>nchw|nhwc)-pt(?P<torch>1\d{1,2}|[2-9]\d{2,3})"
    r"-(?:cu(?P<cuda>\d{3})-(?P<gpu>[a-z0-9_]+)|cpu-(?P<cpu>[a-z0-9_]+))(?P<compiled>-dynamo)?\.csv(?:\.gz)?"
)
_ACCESSES = 4.0
"""How often a value that timm counts as an activation (the result of a convolution or a linear layer) is read or
written: by its own layer, and by normalisations and activation functions. This program's counts are 6.8 times that
number for `resnet50`, 5.9 times for `mobilenetv2_100`, and 2.6 times for `vit_base_patch16_224`; one number for all is
a judgement."""
_TRAINING = 3.0
"""Operations and bytes of a training step relative to its forward pass: the backward pass has twice as many."""


def rate_column(header: Collection[str]) -> str:
    """Return the column of a timm table that contains the rate; empty if the columns are not those of such a table."""
    return next((name for mode in _MODES if (name := f"{mode}_samples_per_sec") in header and "model" in header), "")


def read_name(where: str) -> Mapping[str, str]:
    """Return what the name of a timm table states, as columns of published measurements.

    Raises:
        InputError: If the name does not state it.
    """
    name = PurePath(where).name
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f"`{name}` is a table of timm, but its name does not say how it was measured",
            hint="keep timm's names, such as `benchmark-infer-amp-nchw-pt240-cu124-rtx3090-dynamo.csv`",
        )
    layout = ["channels_last=on"] if match["format"] == "nhwc" else []
    return {
        "repository": REPOSITORY,
        "path": f"results/{name.removesuffix('.gz')}",
        "date": _DAY,
        "framework": "torch",
        "framework_version": _torch_version(match["torch"]),
        "phase": _MODES[match["mode"]],
        "precision": _PRECISIONS.get(match["precision"], match["precision"]),
        "cuda": f"{match['cuda'][:2]}.{match['cuda'][2:]}" if match["cuda"] else "",
        "gpu": match["gpu"] or "cpu",
        "cpu": _processor(match["cpu"] or ""),
        "settings": ";".join([*layout, *(["compile=on"] if match["compiled"] else [])]),
        "unit": "images/s",
    }


def row_cells(cells: Mapping[str, str], rate: str, common: Mapping[str, str]) -> dict[str, str]:
    """Return a row of a timm table as columns of published measurements.

    ``rate`` is its :func:`rate_column`; ``common`` is what its file's name states.
    """
    mode = rate.partition("_")[0]
    batch, size = cells.get(f"{mode}_batch_size", ""), cells.get(f"{mode}_img_size", "")
    amounts = [cells.get(name, "") for name in (f"{mode}_gmacs", f"{mode}_macts", "param_count")]
    numbers = [float(text) for text in (*amounts, batch) if re.fullmatch(r"\d+(?:\.\d+)?", text)]
    flops = moved = 0.0
    if len(numbers) == len(amounts) + 1 and numbers[-1] > 0:
        flops, moved = amounts_of_step(*numbers, training=common["phase"] == "training")
        flops, moved = flops / numbers[-1], moved / numbers[-1]
    return {
        **common,
        "task": f"{TIMM}{cells['model']}",
        "settings": ";".join(filter(None, (common["settings"], f"image_size={size}"))),
        "batch": batch,
        "value": cells[rate],
        **({"flops": f"{flops:.6g}", "bytes": f"{moved:.6g}"} if flops else {}),
    }


def amounts_of_step(
    gmacs: float, macts: float, parameters: float, batch: float, *, training: bool
) -> tuple[float, float]:
    """Return the floating-point operations and an estimate of the least bytes of a step, in float32.

    Args:
        gmacs: Multiply-adds of the forward pass of an image, in thousands of millions.
        macts: Activations of an image as timm counts them, in millions.
        parameters: Parameters, in millions.
        batch: Images of a step.
        training: Whether the step trains.
    """
    factor = _TRAINING if training else 1.0
    return factor * 2e9 * gmacs * batch, factor * 4e6 * (parameters + _ACCESSES * macts * batch)


def _torch_version(digits: str) -> str:
    """Return the version that digits without points mean: `113` is 1.13, `240` is 2.4.0, and `2100` is 2.10.0."""
    if digits[0] == "1":
        return f"1.{digits[1:]}"
    return f"{digits[0]}.{digits[1:-1]}.{digits[-1]}"


def _processor(name: str) -> str:
    """Return the name of a processor as Intel writes it, such as `Intel Core i9-10940X`; others as they are."""
    return f"Intel Core {name[:2]}-{name[3:].upper()}" if re.match(r"i\d_\d", name) else name

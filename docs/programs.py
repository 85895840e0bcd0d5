"""Writes `knowledge/data/programs.json`: the operations of each model and block, and how the time divides into them.

    python docs/programs.py

Each entry has the number of operations of a step, the share of the time of each indicator that stands for operations,
and the floating-point operations and least bytes of a step at sizes that users have. An operation takes the longer of
two times: of its computation with 150 GFLOP/s, and of its memory traffic with 20 GB/s ("roofline": Williams, Waterman
and Patterson, Communications of the ACM 52, 2009). The sizes are those of the indicators, but training begins at
their medium size: nobody trains with less. A large one has at most 32 times the operations of a medium one, which are
minutes a step on two cores.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from knowledge.estimate.programs import WHOLE_MODEL, with_groups
from pi_runners.indicators import INDICATORS
from pi_runners.models import NETWORKS
from pi_runners.models.blocks import BLOCKS
from pi_runners.models.count import operations

TARGET = Path(str(files("knowledge.data"))) / "programs.json"
FLOPS, BYTES = 1.5e11, 2e10
"""Operations and bytes per second."""
LARGEST = 32
"""Most times of the operations of a medium size."""


def composition(name: str, mode: str) -> dict[str, Any]:
    """Return what a model or block consists of at its medium size, and its sizes."""
    network = {**NETWORKS, **BLOCKS}[name]
    seconds: defaultdict[str, float] = defaultdict(float)
    launches = 0
    for operation in operations(network, network.sets["medium"][mode], mode):
        indicator = INDICATORS[operation.indicator]
        complete = indicator.complete(operation.parameters)
        each = max(indicator.flops(complete) / FLOPS, indicator.bytes_moved(complete, "float32") / BYTES)
        seconds[with_groups(operation.indicator, complete.get("groups", ""))] += operation.calls * each
        launches += operation.calls
    total = sum(seconds.values())
    shares = {indicator: round(time / total, 4) for indicator, time in sorted(seconds.items())}
    return {"launches": launches, "shares": shares, "sizes": sizes(name, mode) if name in NETWORKS else {}}


def sizes(name: str, mode: str) -> dict[str, list[float]]:
    """Return the floating-point operations and least bytes of a step of a model, by size."""
    indicator, listed = INDICATORS[WHOLE_MODEL], NETWORKS[name].sets
    amounts = {}
    for size, parameters in listed.items():
        complete = indicator.complete({"model": name, "mode": mode, **parameters[mode]})
        amounts[size] = [indicator.flops(complete), indicator.bytes_moved(complete, "float32")]
    medium, large = amounts["medium"], amounts["large"]

    def times(factor: float) -> list[float]:
        """Return the amounts of so many times the operations of the medium size, on the way to the large one."""
        part = math.log(factor) / math.log(large[0] / medium[0])
        return [m * (most / m) ** part for m, most in zip(medium, large, strict=True)]

    largest = min(LARGEST, large[0] / medium[0])
    small = medium if mode == "training" else amounts["small"]
    middle = times(math.sqrt(largest)) if mode == "training" else medium
    amounts_of_sizes = {"small": small, "medium": middle, "large": times(largest)}
    return {size: [float(f"{amount:.4g}") for amount in both] for size, both in amounts_of_sizes.items()}


def compositions() -> dict[str, dict[str, Any]]:
    """Return the composition of each model and block, by name and mode."""
    return {
        f"{name} {mode}": composition(name, mode)
        for name, network in {**NETWORKS, **BLOCKS}.items()
        for mode in network.modes
    }


def main() -> None:
    """Compute and write."""
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in compositions().items())
    TARGET.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    print(TARGET)


if __name__ == "__main__":
    main()

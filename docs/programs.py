"""Writes `knowledge/data/programs.json`: the operations of each model and block, and how the time divides into them.

    python docs/programs.py

Each entry is the number of operations of a step, then the share of the time of each kind of operation
(`knowledge.estimate.programs.OPERATIONS`). An operation takes the longer of two times: of its computation with 150
GFLOP/s, and of its memory traffic with 20 GB/s ("roofline": Williams, Waterman and Patterson, Communications of the ACM
52, 2009).
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from pathlib import Path

from knowledge.estimate.programs import OPERATIONS, kind_of_operation
from pi_runners.indicators import INDICATORS
from pi_runners.models.blocks import BLOCKS
from pi_runners.models.catalogue import NETWORKS
from pi_runners.models.operations import operations

TARGET = Path(str(files("knowledge.data"))) / "programs.json"
FLOPS, BYTES = 1.5e11, 2e10
"""Operations and bytes per second."""


def composition(name: str, mode: str) -> list[float]:
    """Return the number of operations of a model or block at its medium size, and the shares of their kinds."""
    network = {**NETWORKS, **BLOCKS}[name]
    seconds: Counter[str] = Counter()
    launches = 0
    for operation in operations(network, network.sets["medium"][mode], mode):
        indicator = INDICATORS[operation.indicator]
        complete = indicator.complete(operation.parameters)
        each = max(indicator.flops(complete) / FLOPS, indicator.bytes_moved(complete, "float32") / BYTES)
        seconds[kind_of_operation(operation.indicator, groups=complete.get("groups", 1))] += operation.calls * each
        launches += operation.calls
    total = sum(seconds.values())
    return [launches, *(round(seconds[kind] / total, 4) for kind in OPERATIONS)]


def compositions() -> dict[str, list[float]]:
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

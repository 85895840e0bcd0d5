"""Holds out published machines with a power meter, and prints how well their power is predicted.

    python -m benchmarks.machine_power
    python -m benchmarks.machine_power FOLDER

Each group is predicted from all others. The baseline is the power limit of the accelerators alone. With the folder of
the kernels that https://github.com/ai-dynamo/aiconfigurator publishes (Parquet), it prints their median share of the
limit of power instead.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.machine_times import NORMAL_90
from knowledge.estimate.machine_power import MeteredMachine, PowerModel, metered_machines
from knowledge.evidence.power_rows import power_rows
from knowledge.exchange.mlperf.results import POWER
from knowledge.store.engine import open_knowledge_base

GROUPS: dict[str, Callable[[MeteredMachine], object]] = {
    "accelerator": lambda machine: machine.accelerator,
    "submitter": lambda machine: machine.submitter,
}


KERNELS = {
    "attention-generation": "attention of one token",
    "gemm": "products of matrices",
    "attention-context": "attention of the prompt",
}
KERNEL_GPU = "b200_sxm"


def kernel_lines(folder: Path) -> None:
    """Print the median share of the limit of power that published kernels take."""
    import pyarrow.parquet

    for name, text in KERNELS.items():
        columns = ["gpu", "backend", "power", "power_limit"]
        table = pyarrow.parquet.read_table(folder / f"{name}.parquet", columns=columns).to_pylist()
        rows = [row for row in table if row["gpu"] == KERNEL_GPU and row["backend"] == "trtllm" and row["power"]]
        shares = [row["power"] / row["power_limit"] for row in rows]
        print(f"{text}: {np.median(shares):.0%} of {len(shares)} shapes on {KERNEL_GPU}")


def main() -> None:
    """Hold out and print."""
    if len(sys.argv) > 1:
        kernel_lines(Path(sys.argv[1]))
        return
    with open_knowledge_base("sqlite://") as store:
        rows = power_rows(store.observations(indicator=POWER))
    model = PowerModel(metered_machines(rows))
    numbers = f"{model.host:.0f} W and {model.share:.2f} x the limits"
    machines = f"{len(model.machines)} machines, {model.untuned} of them with limits that were not lowered"
    print(f"{len(rows)} results of {machines}: {numbers}\n")
    print("| held out | machines | error | of the limits alone | inside 90 % |")
    print("| --- | --- | --- | --- | --- |")
    held_out = {name: list(model.held_out(key)) for name, key in GROUPS.items()}
    for name, every in held_out.copy().items():
        held_out[f"{name}, limits not lowered"] = [pair for pair in every if not pair[0].is_tuned]
    for name, pairs in held_out.items():
        errors = np.array([machine.mean - power.mean for machine, power in pairs])
        widths = np.array([NORMAL_90 * power.deviation for _, power in pairs])
        limits = np.array([machine.mean - math.log(machine.rated) for machine, _ in pairs])
        root = math.sqrt(float(np.mean(errors**2)))
        of_limits = math.sqrt(float(np.mean(limits**2)))
        inside = float(np.mean(np.abs(errors) < widths))
        print(f"| {name} | {len(pairs)} | {root:.2f} | {of_limits:.2f} | {inside:.0%} |")


if __name__ == "__main__":
    main()

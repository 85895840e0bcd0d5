"""Writes `knowledge/data/timm.json.gz` from timm's benchmark tables, and prints the median ratio of each comparison.

    python docs/timm.py FOLDER

The folder contains tables of https://github.com/huggingface/pytorch-image-models at aa4b5850, folder `results`: the
files `benchmark-*.csv`, which may be compressed with gzip. Two tables are compared if they are of the same mode and
machine and differ either in the version of PyTorch or in one setting. A row counts at the same image size and the same
batch size; if a model has no such row, one whose batch sizes differ by a factor of at most 2. A ratio that no release
and no setting explains is left out, like other published ones. No table is compared with another one in two ways: of
the possible comparisons, those with the most models count.

Without a folder, it prints the medians of what ships.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import Version

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation
from knowledge.evidence.contrasts import Machine, Side, machine_of
from knowledge.evidence.published_rows import WIDEST_SETTING, WIDEST_VERSION, number_of, published_side
from knowledge.evidence.timm import SHIPPED, TimmTable, TimmTables, architecture_of, family_of, timm_tables
from knowledge.exchange.files import read_lines
from knowledge.exchange.published.observations import read_published
from knowledge.exchange.published.timm import REPOSITORY, TIMM

TARGET = Path(str(files("knowledge.data"))) / SHIPPED
COMMIT, DAY, LICENCE = "aa4b5850", "2026-08-08", "Apache-2.0"
WIDEST_BATCHES = 2.0
"""Largest factor between the batch sizes of rows that are compared."""
Amounts = dict[str, tuple[float, dict[int, tuple[float, float]]]]
"""Parameters in millions, and multiply-adds and activations by image size, of each model."""


class Rows(NamedTuple):
    """A table.

    Attributes:
        mode: ``inference`` or ``training``.
        device: ``cpu`` or ``cuda``.
        machine: The machine.
        side: PyTorch and its settings.
        number: Number of the software and the settings.
        cuda: Version of CUDA.
        rates: Observations by model and image size.
    """

    mode: str
    device: str
    machine: Machine
    side: Side
    number: int
    cuda: str
    rates: Mapping[tuple[str, int], Observation]


def read_tables(paths: Sequence[Path]) -> list[Rows]:
    """Return tables, by name; those that cannot be read are printed and left out."""
    tables = []
    for path in sorted(paths):
        try:
            rows = read_published(path).observations
        except InputError as error:
            print(f"left out: {error}")
            continue
        first = rows[0]
        device = first.indicator.device
        tables.append(
            Rows(
                mode=str(first.indicator.parameters["mode"]),
                device=device,
                machine=machine_of(first.hardware, device),
                side=published_side(first),
                number=number_of(first),
                cuda=first.stack.cuda or "",
                rates={(_name(o), int(o.indicator.parameters["image_size"])): o for o in rows},
            )
        )
    return tables


def _name(o: Observation) -> str:
    return str(o.indicator.parameters["task"]).removeprefix(TIMM)


def is_setting(arm: Rows, reference: Rows) -> bool:
    """Whether two tables are of the same release."""
    return (arm.side.version, arm.cuda) == (reference.side.version, reference.cuda)


def comparisons(tables: Sequence[Rows]) -> list[tuple[int, int]]:
    """Return the tables that are compared, each with its reference: the older release, or fewer settings."""
    possible = []
    for one, other in combinations(range(len(tables)), 2):
        reference, arm = sorted((one, other), key=lambda number: _rank(tables[number].side))
        if differ_in_one_thing(tables[arm], tables[reference]):
            possible.append((len(ratios(tables[arm], tables[reference])), arm, reference))
    group = list(range(len(tables)))
    pairs = []
    for _, arm, reference in sorted(possible, key=lambda pair: (-pair[0], pair)):
        if group[arm] != group[reference]:
            group = [group[arm] if number == group[reference] else number for number in group]
            pairs.append((arm, reference))
    return sorted(pairs)


def differ_in_one_thing(arm: Rows, reference: Rows) -> bool:
    """Whether two tables differ in the release of PyTorch only, or in one setting only."""
    if (arm.mode, arm.machine) != (reference.mode, reference.machine):
        return False
    one, other = arm.side.settings, reference.side.settings
    changed = [name for name in {*one, *other} if one.get(name) != other.get(name)]
    return len(changed) == 1 if is_setting(arm, reference) else not changed


def _rank(side: Side) -> tuple[object, ...]:
    return Version(side.version), len(side.settings), sorted(side.settings.items())


def ratios(arm: Rows, reference: Rows) -> dict[str, list[tuple[int, int, int, float]]]:
    """Return the image size, the batch sizes and the log ratio of the rows that are compared, by model."""
    widest = WIDEST_SETTING if is_setting(arm, reference) else WIDEST_VERSION
    every: dict[str, list[tuple[int, int, int, float]]] = defaultdict(list)
    for (name, size), row in arm.rates.items():
        other = reference.rates.get((name, size))
        if other is None:
            continue
        batch, other_batch = (int(o.indicator.parameters["batch"]) for o in (row, other))
        mean = math.log(other.samples[0] / row.samples[0])
        if max(batch, other_batch) <= WIDEST_BATCHES * min(batch, other_batch) and abs(mean) <= widest:
            every[name].append((size, batch, other_batch, round(mean, 4)))
    return {name: [row for row in rows if row[1] == row[2]] or rows for name, rows in every.items()}


def amounts(paths: Sequence[Path]) -> Amounts:
    """Return the counts of tables; those of a newer release of PyTorch count more operations."""
    counts: Amounts = {}
    for path in sorted(paths, key=lambda path: re.findall(r"-pt(\d+)-", path.name)):
        lines = read_lines(path.read_bytes(), where=path.name)
        for row in csv.DictReader(lines):
            parameters, sizes = counts.setdefault(row["model"], (0.0, {}))
            gmacs, macts = row.get("infer_gmacs"), row.get("infer_macts")
            if gmacs and macts:
                sizes[int(row["infer_img_size"])] = float(gmacs), float(macts)
            counts[row["model"]] = float(row["param_count"] or parameters), sizes
    return counts


def record_of(tables: Sequence[Rows], counts: Amounts) -> dict[str, Any]:
    """Return the content of the file."""
    machines = list(dict.fromkeys(table.machine for table in tables))
    sides = list({table.side.key: table.side for table in tables}.values())
    pairs = comparisons(tables)
    by_model: dict[str, list[tuple[int, int, int, int, float]]] = defaultdict(list)
    for number, (arm, reference) in enumerate(pairs):
        for name, rows in ratios(tables[arm], tables[reference]).items():
            by_model[name] += [(number, *row) for row in rows]
    return {
        "origin": {
            "repository": REPOSITORY,
            "commit": COMMIT,
            "day": DAY,
            "licence": LICENCE,
            "address": f"https://github.com/{REPOSITORY}/tree/{COMMIT}/results",
        },
        "machines": [asdict(machine) for machine in machines],
        "sides": [asdict(side) for side in sides],
        "tables": [(t.mode, t.device, machines.index(t.machine), sides.index(t.side), t.number) for t in tables],
        "comparisons": pairs,
        "models": {name: [*counts[name], by_model[name]] for name in sorted(by_model)},
    }


def medians_table(shipped: TimmTables) -> list[str]:
    """Return lines: the median of the ratios of each comparison, with the 5th and 95th percentile, by architecture."""
    logs: dict[tuple[int, str], list[float]] = defaultdict(list)
    for model in shipped.models.values():
        own: dict[int, list[float]] = defaultdict(list)
        for ratio in model.ratios:
            own[ratio.comparison].append(ratio.mean)
        for number, means in own.items():
            logs[number, architecture_of(family_of(model.name))].append(statistics.median(means))
    architectures = ("convolutional", "transformer")
    lines = [f"| change | with | machine | {' | '.join(architectures)} |"]
    lines.append("| --- " * (3 + len(architectures)) + "|")
    for number, (arm, reference) in enumerate(shipped.comparisons):
        cells = [*texts_of(shipped.tables[arm], shipped.tables[reference])]
        cells += [spread(logs[number, architecture]) for architecture in architectures]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def print_medians(shipped: TimmTables) -> None:
    """Print the medians of the ratios, and how many models and ratios there are."""
    print("\n".join(medians_table(shipped)))
    print(f"\n{len(shipped.models)} models, {sum(len(model.ratios) for model in shipped.models.values())} ratios")


def texts_of(arm: TimmTable, reference: TimmTable) -> tuple[str, str, str]:
    """Return what differs between two tables, what they have in common, and their machine."""
    one, other = (
        {"torch": table.side.version, **table.side.settings, "mode": table.mode} for table in (arm, reference)
    )
    (name,) = (name for name in one if one[name] != other.get(name))
    old = f" over {other[name]}" if name in other else ""
    common = ", ".join(f"{key}={value}" for key, value in one.items() if key != name)
    return f"`{name}={one[name]}`{old}", common, arm.machine.name


def spread(means: Sequence[float]) -> str:
    """Return the median of ratios with the range of the middle 90 %, and their number."""
    cuts = statistics.quantiles(means, n=20, method="inclusive")
    low, middle, high = (math.exp(value) for value in (cuts[0], statistics.median(means), cuts[-1]))
    return f"{middle:.2f} ({low:.2f} to {high:.2f}; {len(means)})"


def main() -> None:
    """Read and write, if a folder is named; print."""
    if len(sys.argv) > 1:
        paths = list(Path(sys.argv[1]).glob("*.csv*"))
        record = record_of(read_tables(paths), amounts(paths))
        content = json.dumps(record, separators=(",", ":")).encode()
        TARGET.write_bytes(gzip.compress(content, 9, mtime=0))
        print(f"{TARGET}: {TARGET.stat().st_size} bytes")
    print_medians(timm_tables())


if __name__ == "__main__":
    main()

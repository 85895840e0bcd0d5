"""Writes the measurements of Megatron-Bridge that ship with the program, from its archive of performance tables.

    python docs/megatron_bridge.py performance-summary-archive.md

The page is `docs/performance-summary-archive.md` of https://github.com/NVIDIA-NeMo/Megatron-Bridge at 067f987d: tokens
in a second for each GPU, by NeMo container, model, system, precision and parallelism. A number in parentheses is of
other scales of FP8 (MXFP8), with the other numbers in parentheses of its row.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.exchange.files import observation_file
from knowledge.exchange.published.observations import PublishedTable, read_published_content

TARGET = Path(str(files("knowledge.data"))) / "published-megatron-bridge.jsonl.gz"
ORIGIN = {
    "repository": "NVIDIA-NeMo/Megatron-Bridge",
    "commit": "067f987d",
    "path": "docs/performance-summary-archive.md",
    "date": "2026-08-22",
    "licence": "Apache-2.0",
    "phase": "training",
    "framework": "torch",
    "unit": "tokens/s/GPU",
}
SYSTEMS = {
    "DGX-H100": "H100 SXM5 80GB",
    "DGX-B200": "B200",
    "DGX-B300": "B300",
    "DGX-GB200": "GB200",
    "DGX-GB300": "GB300",
}
"""GPU of each system."""
SETTINGS = {
    "MBS": "micro_batch",
    "Sequence Length": "sequence_length",
    "FSDP": "fsdp",
    "TP": "tensor_parallel",
    "PP": "pipeline_parallel",
    "CP": "context_parallel",
    "VP": "virtual_pipeline",
    "EP": "expert_parallel",
}
"""Settings by the heads of their columns."""
NONE = ("", "n/a", "0", "1")
"""Degrees of parallelism that mean none."""
HEADINGS = {
    "container": r"## (?P<name>[\d.]+) NeMo Container",
    "recipe": r"### (?P<name>.+) Performance",
    "Model": r"#### Model: (?P<name>.+)",
    "System": r"#### System: (?P<name>.+)",
}
SCALES = {"FP8-CS": "FP8", "FP8-MX": "MXFP8"}


def rows(page: str) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a page as columns of published measurements; those of unknown precision are left out."""
    place: dict[str, str] = {}
    heads: list[str] = []
    for line in page.splitlines():
        for name, pattern in HEADINGS.items():
            if match := re.fullmatch(pattern, line):
                # A heading ends what headings below it said.
                deeper = list(HEADINGS)[list(HEADINGS).index(name) :]
                place = {key: text for key, text in place.items() if key not in deeper} | {name: match["name"]}
        if not line.startswith("|") or line.startswith("|--"):
            continue
        cells = [re.sub(r"\[\^.*?\]", "", cell).strip() for cell in line.strip("|").split("|")]
        if cells[0] in ("Model", "System"):
            heads = cells
            continue
        stated = {**place, **dict(zip(heads, cells, strict=True))}
        yield from (row for reading in readings(stated) if (row := row_of(reading)))


def readings(stated: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the configurations of a line: that of the numbers, and that of those in parentheses."""
    model, _, variant = stated["Model"].partition("(")
    labels = {"Model": model.strip(), "variant": variant.strip(" )")}
    pairs = {name: re.fullmatch(r"(\S+) \((\S+)\)", text) for name, text in stated.items() if name != "Model"}
    first = {name: pair[1] if pair else stated[name] for name, pair in pairs.items()}
    other = {name: pair[2] if pair else stated[name] for name, pair in pairs.items()}
    has_other = pairs["Tokens / sec / GPU"] is not None
    if "Precision" not in stated:
        # The tables of 25.09 state no precision; their note says that numbers in parentheses differ in scales of FP8.
        first["Precision"], other["Precision"] = ("FP8-CS", "FP8-MX") if has_other else ("", "")
    yield first | labels
    if has_other:
        yield other | labels


def row_of(reading: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration as columns of published measurements; empty if its precision is unknown."""
    if not reading["Precision"]:
        return {}
    settings = {name: reading.get(head, "") for head, name in SETTINGS.items()}
    listed = [f"{name}={text}" for name, text in settings.items() if text not in NONE or name == "micro_batch"]
    listed += [f"recipe={reading['recipe']}"] if reading["recipe"] != "Pre-Training" else []
    listed += [f"model={reading['variant']}"] if reading["variant"] else []
    return {
        **ORIGIN,
        "task": reading["Model"],
        "container": f"nemo:{reading['container']}",
        "gpu": SYSTEMS[reading["System"]],
        "gpus": reading["#-GPUs"],
        "precision": SCALES.get(reading["Precision"], reading["Precision"]),
        "settings": ";".join(listed),
        "batch": reading["GBS"],
        "value": reading["Tokens / sec / GPU"],
    }


def table_of(page: str) -> PublishedTable:
    """Return the measurements of a page."""
    listed = list(rows(page))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(listed[0]))
    writer.writeheader()
    writer.writerows(listed)
    return read_published_content(text.getvalue().encode(), where=ORIGIN["path"])


def main() -> None:
    """Write the file."""
    table = table_of(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for row in table.skipped:
        print(f"row {row.number}: {row.reason}")
    for warning in table.warnings:
        print(warning.message)
    content = observation_file(table.observations, compressed=True, with_identities=False)
    TARGET.write_bytes(content)
    print(f"{TARGET.name}: {len(table.observations)} observations of {table.rows} rows, {len(content)} bytes")


if __name__ == "__main__":
    main()

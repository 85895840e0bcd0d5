"""Tables of published measurements, as users deliver them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from knowledge.exchange.published.observations import (
    PublishedTable,
    read_published_content,
)

TODAY = date(2026, 6, 1)


ROW = {
    "repository": "someone/benchmarks",
    "commit": "0" * 40,
    "path": "results/table.csv",
    "date": "2023-05-06",
    "task": "ResNet-50",
    "phase": "training",
    "framework": "PyTorch",
    "framework_version": "2.0.1",
    "container": "",
    "cuda": "11.8",
    "cudnn": "8.7.0",
    "driver": "525.85.12",
    "gpu": "A100-SXM4-80GB",
    "gpus": "1",
    "cpu": "AMD EPYC 7742",
    "precision": "amp",
    "settings": "channels_last=yes;data=syn",
    "batch": "256",
    "runs": "3",
    "value": "2500",
    "unit": "images/s",
    "better": "higher",
}


def table(*rows: Mapping[str, str], columns: tuple[str, ...] = tuple(ROW)) -> PublishedTable:
    """Read a table with these rows."""
    return read_published_content(written(*rows, columns=columns), where="t.csv", today=TODAY)


def written(*rows: Mapping[str, str], columns: tuple[str, ...] = tuple(ROW)) -> bytes:
    """Return a CSV file with these rows."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def reason(**changes: str) -> str:
    """Return why a changed row is skipped, where another row is sound."""
    (skipped,) = table(ROW, {**ROW, **changes}).skipped
    assert skipped.number == 3
    return skipped.reason


SMALL = Path(__file__).parents[1] / "fixtures" / "published" / "small.csv"

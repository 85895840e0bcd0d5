"""Contrasts as rows that refer to tables of shared values: a tenth of the space of their records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from knowledge.evidence.contrasts import Contrast, Machine, Side, machine_from


def pack_contrasts(contrasts: Sequence[Contrast]) -> dict[str, Any]:
    """Return contrasts as rows and tables; real numbers are rounded to nine decimals."""
    tables: dict[str, dict[str, int]] = {"texts": {}, "machines": {}, "sides": {}}

    def place(table: str, value: object) -> int:
        text = json.dumps(value, sort_keys=True)
        return tables[table].setdefault(text, len(tables[table]))

    places: dict[int, int] = {}

    def place_of(table: str, value: Machine | Side) -> int:
        """Return the place of an object that many contrasts share."""
        if id(value) not in places:
            places[id(value)] = place(table, asdict(value))
        return places[id(value)]

    rows = [
        [
            place("texts", c.block),
            c.arm,
            place("texts", c.label),
            place("texts", c.family),
            place("texts", c.backend),
            place("texts", c.framework),
            place_of("machines", c.machine),
            place_of("sides", c.side),
            place_of("sides", c.reference),
            *(round(value, 9) for value in (c.mean, c.error, c.common, c.low, c.high)),
            c.rounds,
            c.is_control,
            c.reference_arm,
            c.year,
            c.flops,
            c.bytes,
        ]
        for c in contrasts
    ]
    return {"rows": rows, **{name: [json.loads(text) for text in table] for name, table in tables.items()}}


def unpack_contrasts(record: dict[str, Any]) -> tuple[Contrast, ...]:
    """Return the contrasts of a packed record."""
    texts = record["texts"]
    machines = [machine_from(entry) for entry in record["machines"]]
    sides = [Side(**entry) for entry in record["sides"]]
    return tuple(
        Contrast(
            block=texts[row[0]],
            arm=row[1],
            label=texts[row[2]],
            family=texts[row[3]],
            backend=texts[row[4]],
            framework=texts[row[5]],
            machine=machines[row[6]],
            side=sides[row[7]],
            reference=sides[row[8]],
            mean=row[9],
            error=row[10],
            common=row[11],
            low=row[12],
            high=row[13],
            rounds=row[14],
            is_control=row[15],
            reference_arm=row[16],
            year=row[17],
            flops=row[18],
            bytes=row[19],
        )
        for row in record["rows"]
    )

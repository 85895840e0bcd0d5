"""Prices of machines by the hour, from files of the user: this program's YAML, or a catalogue of SkyPilot in CSV.

Nothing is fetched. A price has a currency, a region and the date on which it was valid. SkyPilot's catalogues are in US
dollars and state no date (https://github.com/skypilot-org/skypilot-catalog), so the user states it. An empty price
there, and a price of 0, is not known. The catalogue of Google has prices of hosts and of accelerators in rows of their
own, which are added.
"""

from __future__ import annotations

import csv
import datetime
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from knowledge.domain.errors import InputError
from knowledge.domain.identity import StrictRecord
from knowledge.hardware.accelerators import AcceleratorModel, find_accelerator
from knowledge.hardware.profiles import name_hint
from knowledge.hardware.shipped_machines import ShippedMachine, find_machine, shipped_machines
from knowledge.records import RecordError, parse_yaml, value_from

MOST_BYTES = 256 * 2**20
"""Largest price file. The largest catalogue of SkyPilot that was seen is a tenth of it."""
_PROFILE_SUFFIXES = (".yaml", ".yml", ".json")
_CURRENCY = re.compile("[A-Z]{3}")
_ENCODING = "utf-8-sig"
"""UTF-8, with or without a byte-order mark."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?")
_COUNT_OF_DEVICES = re.compile(r"\d{1,4}(\.0*)?")
_FORMAT = "it has `currency`, `date`, `region` and `prices`, with `NAME: {on-demand: 1.006, spot: 0.43}`"
_TYPE, _PRICE, _REGION, _SPOT, _ZONE = "InstanceType", "Price", "Region", "SpotPrice", "AvailabilityZone"
_ACCELERATOR, _COUNT = "AcceleratorName", "AcceleratorCount"
_CURRENCY_OF_CATALOGUES = "USD"
_VARIANTS = {"A100": "a100-sxm4-40gb", "V100": "v100-sxm2-16gb"}
"""Accelerators that SkyPilot names without their memory."""
_UNKNOWN_INSTANCE = "prices of instances that this program does not know"
_NO_PRICE = "prices of known instances that are not stated"

Amount = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePrice:
    """What a machine costs by the hour in one region.

    Attributes:
        machine: Name of the hardware profile.
        region: Region of the provider.
        currency: Code of ISO 4217, such as ``USD``.
        date: Day on which the price was valid.
        source: Address that states it, or the file.
        on_demand: Price of an hour; ``None`` if it is not stated.
        spot: Price of an hour of a machine that the provider may stop at any time; ``None`` if it is not stated.
    """

    machine: str
    region: str
    currency: str
    date: datetime.date
    source: str
    on_demand: float | None = None
    spot: float | None = None

    def hourly(self, *, spot: bool) -> float | None:
        """Return the price of an hour on demand, or as a spot instance; ``None`` if it is not stated."""
        return self.spot if spot else self.on_demand


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices of machines, all in one currency.

    Attributes:
        prices: The prices of each machine, by the name of its hardware profile.
        currency: Their currency; empty without prices.
        left_out: Number of rows of files that are not read, by the reason.
    """

    prices: Mapping[str, Sequence[MachinePrice]] = field(default_factory=dict)
    currency: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)

    def cheapest(self, machine: str, *, spot: bool = False, region: str | None = None) -> MachinePrice | None:
        """Return the lowest price of a machine, in one region or in any; ``None`` if there is none."""
        prices = [
            (hourly, price)
            for price in self.prices.get(_canonical_name(machine) or machine, ())
            if region in (None, price.region) and (hourly := price.hourly(spot=spot)) is not None
        ]
        return min(prices, key=lambda pair: (pair[0], pair[1].region))[1] if prices else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry(StrictRecord):
    """A machine in this program's format; what it does not state is as in the file."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "alias_generator": lambda name: name.replace("_", "-")}

    on_demand: Amount | None = None
    spot: Amount | None = None
    region: str | None = None
    date: datetime.date | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File(StrictRecord):
    """A file in this program's format."""

    currency: str
    prices: Mapping[str, _Entry]
    region: str = ""
    date: datetime.date | None = None
    source: str = ""


def read_prices(paths: Sequence[Path], *, date: datetime.date | None = None) -> PriceList:
    """Read price files.

    Args:
        paths: Files in this program's format, or catalogues of SkyPilot, whose names end with ``.csv``. Of several
            files with a price of a machine in a region, the last one counts.
        date: Day on which prices were valid that state none.

    Raises:
        InputError: If a file cannot be read or is not a list of prices, if a price is negative, has no date or is of a
            machine that nobody knows, if a date is in the future, or if the files have several currencies.
    """
    left_out: dict[str, int] = defaultdict(int)
    prices: dict[tuple[str, str], MachinePrice] = {}
    currencies: dict[str, Path] = {}
    # Somewhere it is tomorrow already.
    tomorrow = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)
    for path in paths:
        of_file: dict[tuple[str, str], MachinePrice] = {}
        is_catalogue = path.suffix.lower() == ".csv"
        for price in _catalogue(path, date, left_out) if is_catalogue else _own_file(path, date):
            if price.date > tomorrow:
                raise InputError(
                    f"`{path}`: the date of the price of `{price.machine}`, {price.date}, is in the future"
                )
            currencies.setdefault(price.currency, path)
            key = (price.machine, price.region)
            # A catalogue has a row for each availability zone, and may have several rows of an instance.
            of_file[key] = _cheaper(of_file[key], price) if key in of_file else price
        # The last file decides.
        prices |= of_file
    if len(currencies) > 1:
        places = " and ".join(f"{currency} in `{path}`" for currency, path in currencies.items())
        raise InputError(f"the prices have several currencies: {places}", hint="convert them to one currency")
    by_machine: dict[str, list[MachinePrice]] = defaultdict(list)
    for price in prices.values():
        by_machine[price.machine].append(price)
    return PriceList(prices=dict(by_machine), currency=next(iter(currencies), ""), left_out=dict(left_out))


def _cheaper(one: MachinePrice, other: MachinePrice) -> MachinePrice:
    """Return the lower ones of two prices of a machine in a region."""

    def lowest(*amounts: float | None) -> float | None:
        return min((amount for amount in amounts if amount is not None), default=None)

    return replace(one, on_demand=lowest(one.on_demand, other.on_demand), spot=lowest(one.spot, other.spot))


def _own_file(path: Path, date: datetime.date | None) -> Iterator[MachinePrice]:
    """Yield the prices of a file in this program's format."""
    content = _parse(path)
    names: dict[str, str] = {}
    for name, entry in content.prices.items():
        machine = _machine_name(name, path)
        region = content.region if entry.region is None else entry.region
        if machine in names:
            raise InputError(f"`{path}` has two prices of `{machine}`: `{names[machine]}` and `{name}`")
        names[machine] = name
        day = entry.date or content.date or date
        if day is None:
            raise InputError(
                f"`{path}` does not state the date of the price of `{name}`",
                hint="write `date: 2026-11-29`, or state it with `--price-date`",
            )
        if entry.on_demand is None and entry.spot is None:
            raise InputError(
                f"`{path}` states no price of `{name}`", hint="write it as `on-demand: 1.006` or `spot: 0.43`"
            )
        yield MachinePrice(
            machine=machine,
            region=region,
            currency=content.currency,
            date=day,
            source=entry.source or content.source or str(path),
            on_demand=entry.on_demand,
            spot=entry.spot,
        )


def _parse(path: Path) -> _File:
    try:
        _check_size(path)
        document: Any = parse_yaml(path.read_text(encoding=_ENCODING))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the price file `{path}` cannot be read: {error}") from None
    except ValueError as error:
        raise InputError(f"the price file `{path}` is not YAML: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"the price file `{path}` is not a table of fields", hint=_FORMAT)
    wrong = [name for name, entry in _entries(document).items() if not isinstance(entry, dict)]
    if wrong:
        raise InputError(f"the price file `{path}` has a wrong field `prices.{wrong[0]}`: not a table", hint=_FORMAT)
    try:
        content = value_from(_File, document)
    except RecordError as error:
        raise InputError(f"the price file `{path}` has a wrong {error}", hint=_FORMAT) from None
    if not _CURRENCY.fullmatch(content.currency):
        raise InputError(
            f"the price file `{path}` has a wrong field `currency`: `{content.currency}`",
            hint="write the code of ISO 4217, such as `USD`",
        )
    return content


def _machine_name(name: str, path: Path) -> str:
    """Return the name of the profile of a priced machine; that of a profile in a file is the path of the file."""
    machine = _canonical_name(name)
    if machine is not None:
        return machine
    if Path(name).suffix in _PROFILE_SUFFIXES:
        return name
    raise InputError(f"`{path}` has a price of `{name}`, and there is no such machine", hint=name_hint(name))


def _entries(document: Mapping[str, Any]) -> Mapping[str, Any]:
    entries = document.get("prices")
    return entries if isinstance(entries, dict) else {}


def _canonical_name(name: str) -> str | None:
    """Return the name of a shipped profile or a cloud instance; a short name of an accelerator stands for its model."""
    machine = find_machine(name)
    if machine is None:
        return None
    model = machine.model.name if machine.model is not None and not machine.provider else ""
    return model if model in shipped_machines() else machine.name


def _catalogue(path: Path, date: datetime.date | None, left_out: dict[str, int]) -> Iterator[MachinePrice]:
    """Yield the prices of the known instances in a catalogue of SkyPilot; count the other rows."""
    try:
        _check_size(path)
        with path.open(encoding=_ENCODING, newline="") as file:
            yield from _rows(path, csv.DictReader(file), date, left_out)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the price catalogue `{path}` cannot be read: {error}") from None


def _rows(
    path: Path, rows: csv.DictReader[str], date: datetime.date | None, left_out: dict[str, int]
) -> Iterator[MachinePrice]:
    missing = [name for name in (_TYPE, _PRICE, _REGION) if name not in (rows.fieldnames or ())]
    if missing:
        raise InputError(
            f"`{path}` has no column `{missing[0]}`, so it is not a price catalogue of SkyPilot",
            hint="a list of your own prices is YAML; `docs/how-to/choose-hardware.md` describes both",
        )
    if date is None:
        written = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).date()
        raise InputError(
            f"the price catalogue `{path}` states no date",
            hint=f"state it with `--price-date`; the file was written on {written}",
        )
    machines: dict[str, ShippedMachine | None] = {"": None}
    hosts: list[_Host] = []
    accelerators: dict[tuple[AcceleratorModel, int, str], _Amounts] = {}
    for row in rows:
        instance, zone = row[_TYPE] or "", row.get(_ZONE) or row[_REGION] or ""
        if instance not in machines:
            machine = find_machine(instance)
            machines[instance] = machine if machine is not None and machine.provider else None
        amounts = _Amounts(*(_amount(path, rows.line_num, name, row.get(name)) for name in (_PRICE, _SPOT)))
        machine, name = machines[instance], row.get(_ACCELERATOR) or ""
        if not instance:
            model = find_accelerator(_VARIANTS.get(name, name))
            number = row.get(_COUNT) or ""
            if model is not None and _COUNT_OF_DEVICES.fullmatch(number):
                accelerators[model, int(float(number)), zone] = amounts
        elif machine is None:
            left_out[_UNKNOWN_INSTANCE] += 1
        else:
            hosts.append(_Host(machine, zone, row[_REGION] or "", amounts, has_accelerators=bool(name)))
    for host in hosts:
        total = host.total(accelerators)
        if total.on_demand is None and total.spot is None:
            left_out[_NO_PRICE] += 1
            continue
        yield MachinePrice(
            machine=host.machine.name,
            region=host.region,
            currency=_CURRENCY_OF_CATALOGUES,
            date=date,
            source=str(path),
            on_demand=total.on_demand,
            spot=total.spot,
        )


class _Amounts(NamedTuple):
    """Prices of an hour, on demand and as a spot instance; ``None`` where they are not known."""

    on_demand: float | None
    spot: float | None

    def plus(self, other: _Amounts) -> _Amounts:
        """Return the sums of prices."""
        return _Amounts(*(None if a is None or b is None else a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class _Host:
    """A row of a known instance; in the catalogue of Google, its accelerators have rows of their own."""

    machine: ShippedMachine
    zone: str
    region: str
    amounts: _Amounts
    has_accelerators: bool

    def total(self, accelerators: Mapping[tuple[AcceleratorModel, int, str], _Amounts]) -> _Amounts:
        """Return the prices with accelerators, by their model, number and zone."""
        devices = self.machine.profile.accelerators
        if not devices or self.has_accelerators:
            return self.amounts
        name = self.machine.model.name if self.machine.model else ""
        fitting = [
            amounts
            for (model, number, zone), amounts in accelerators.items()
            if number == devices[0].count and zone == self.zone and name in (model.name, *model.variants)
        ]
        return self.amounts.plus(fitting[0] if len(fitting) == 1 else _Amounts(None, None))


def _amount(path: Path, line: int, column: str, text: str | None) -> float | None:
    """Return a price in a row; ``None`` if it is empty."""
    if not text:
        return None
    amount = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not (math.isfinite(amount) and amount >= 0):
        raise InputError(f"`{path}` line {line} has a wrong `{column}`: `{text}` is not a price")
    return amount or None


def _check_size(path: Path) -> None:
    """Check that a file can be read into memory in a few seconds.

    Raises:
        InputError: If it is too large.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise InputError(
            f"the price file `{path}` has {size / 2**20:.0f} MiB, and at most {MOST_BYTES // 2**20} MiB are read",
            hint="keep the rows of the instances that you compare",
        )

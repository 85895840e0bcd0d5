"""Prices of machines, from files of the user."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from knowledge.domain.errors import InputError
from knowledge.hardware import prices
from knowledge.hardware.prices import read_prices

DAY = datetime.date(2026, 11, 1)
HEAD = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice,AvailabilityZone\n"
OWN = "currency: USD\ndate: 2026-11-01\nregion: here\nprices:\n"
EXAMPLES = Path(__file__).parents[2] / "examples" / "prices"


def written(folder: Path, text: str, name: str = "prices.yaml") -> Path:
    """Write a file of prices."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_has_prices_with_currency_date_and_region(tmp_path: Path) -> None:
    path = written(
        tmp_path, f"{OWN}  g5.xlarge: {{on-demand: 1.006, spot: 0.43}}\n  rtx4090: {{spot: 0.2, region: rack}}\n"
    )

    read = read_prices([path])

    assert read.currency == "USD"
    price = read.cheapest("g5.xlarge")
    assert price is not None
    assert (price.on_demand, price.spot, price.region, price.date, price.source) == (
        1.006,
        0.43,
        "here",
        DAY,
        str(path),
    )
    assert read.cheapest("rtx4090") is None
    assert read.cheapest("rtx4090", spot=True, region="rack") is not None
    assert read.cheapest("rtx4090", spot=True, region="here") is None


@pytest.mark.parametrize("name", ["RTX 4090", "rtx-4090", "NVIDIA GeForce RTX 4090"])
def test_a_machine_may_be_spelled_in_any_way(tmp_path: Path, name: str) -> None:
    read = read_prices([written(tmp_path, f"{OWN}  {name}: {{on-demand: 0.3}}\n")])

    assert read.cheapest("rtx4090") is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{OWN}  g5.xlarge: {{on-demand: -1}}\n", "wrong field `prices.g5.xlarge.on-demand`"),
        (f"{OWN}  g5.xlarge: {{on-demand: 0}}\n", "wrong field `prices.g5.xlarge.on-demand`"),
        (f"{OWN}  g5.xlarge: {{on-demand: .nan}}\n", "wrong field `prices.g5.xlarge.on-demand`"),
        (f"{OWN}  g5.xlarge: {{on-demand: true}}\n", "wrong field `prices.g5.xlarge.on-demand`"),
        (f"{OWN}  g5.xlarge: 2\n", "wrong field `prices.g5.xlarge`: not a table"),
        (f"{OWN}  h100: {{spot: 1}}\n  h100-sxm5-80gb: {{spot: 2}}\n", "two prices of `h100-sxm5-80gb`"),
        (f"{OWN}  g5.xlargee: {{on-demand: 1}}\n", "a price of `g5.xlargee`, and there is no such machine"),
        (f"{OWN}  g5.xlarge: {{}}\n", "states no price of `g5.xlarge`"),
        (f"{OWN}  rtx4090: {{spot: 1}}\n  RTX 4090: {{spot: 1}}\n", "two prices of `rtx4090`"),
        ("currency: USD\nprices: {g5.xlarge: {on-demand: 1}}\n", "does not state the date of the price of `g5.xlarge`"),
        ("currency: dollars\nprices: {}\n", "wrong field `currency`"),
        ("- 1\n", "is not a table of fields"),
        ("currency: [\n", "is not YAML"),
    ],
)
def test_a_wrong_file_is_one_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_prices([written(tmp_path, text)])


def test_two_currencies_are_refused(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, f"{OWN}  g5.xlarge: {{on-demand: 1}}\n", "one.yaml"),
        written(tmp_path, f"{OWN}  g6.xlarge: {{on-demand: 1}}\n".replace("USD", "EUR"), "other.yaml"),
    ]

    with pytest.raises(InputError, match=r"several currencies: USD in `.*one.yaml` and EUR in `.*other.yaml`"):
        read_prices(paths)


def test_a_catalogue_of_skypilot_has_the_lowest_price_of_each_region(tmp_path: Path) -> None:
    rows = (
        "g5.xlarge,A10G,1,4,16,1.006,us-east-1,{},0.43,a\n"
        "g5.xlarge,A10G,1,4,16,1.006,us-east-1,{},0.40,b\n"
        "g6.xlarge,L4,1,4,16,,us-east-1,{},,a\n"
        "zz.huge,A10G,1,4,16,1,us-east-1,{},,a\n"
    )

    read = read_prices([written(tmp_path, HEAD + rows, "vms.csv")], date=DAY)

    price = read.cheapest("g5.xlarge")
    assert price is not None
    assert (price.on_demand, price.spot, price.currency, price.date) == (1.006, 0.40, "USD", DAY)
    assert read.left_out == {
        "prices of instances that this program does not know": 1,
        "prices of known instances that are not stated": 1,
    }


def test_the_accelerators_of_google_are_added_to_their_hosts(tmp_path: Path) -> None:
    rows = (
        "a2-highgpu-1g,,,12,85,0.8,us-central1,,0.3,us-central1-a\n"
        ",A100,1,,,3.0,us-central1,,1.0,us-central1-a\n"
        ",A100-80GB,1,,,4.0,us-central1,,1.5,us-central1-a\n"
        "a2-ultragpu-1g,,,12,170,1.0,us-central1,,0.5,us-central1-a\n"
        "a3-highgpu-8g,,,208,1872,9.0,us-central1,,3.0,us-central1-a\n"
    )

    read = read_prices([written(tmp_path, HEAD + rows, "vms.csv")], date=DAY)

    hourly = {name: [(p.on_demand, p.spot) for p in listed] for name, listed in read.prices.items()}
    assert hourly == {"a2-highgpu-1g": [(3.8, 1.3)], "a2-ultragpu-1g": [(5.0, 2.0)]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}g5.xlarge,A10G,1,4,16,cheap,us-east-1,,,a\n", "line 2 has a wrong `Price`: `cheap`"),
        (f"{HEAD}g5.xlarge,A10G,1,4,16,1_000,us-east-1,,,a\n", "line 2 has a wrong `Price`: `1_000`"),
        (f"{HEAD}g5.xlarge,A10G,1,4,16,-1,us-east-1,,,a\n", "line 2 has a wrong `Price`: `-1`"),
        ("a,b\n1,2\n", "has no column `InstanceType`"),
    ],
)
def test_a_wrong_catalogue_is_one_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_prices([written(tmp_path, text, "vms.csv")], date=DAY)


def test_a_catalogue_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = f"\ufeff{HEAD}g5.xlarge,A10G,1,4,16,1.006,us-east-1,,,a\n,A100,{'9' * 400},,,1,us-east-1,,,a\n"

    read = read_prices([written(tmp_path, text, "VMS.CSV")], date=DAY)

    assert list(read.prices) == ["g5.xlarge"]


def test_a_catalogue_needs_a_date(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="states no date") as error:
        read_prices([written(tmp_path, HEAD, "vms.csv")])

    assert "--price-date" in error.value.hint


def test_a_catalogue_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "vms.csv"
    with path.open("wb") as file:
        file.truncate(prices.MOST_BYTES + 1)

    with pytest.raises(InputError, match="at most 256 MiB are read"):
        read_prices([path], date=DAY)


def test_the_last_file_decides(tmp_path: Path) -> None:
    paths = [written(tmp_path, f"{OWN}  g5.xlarge: {{on-demand: {n}}}\n", f"{n}.yaml") for n in (1, 2)]

    price = read_prices(paths).cheapest("g5.xlarge")

    assert price is not None
    assert price.on_demand == 2


def test_the_examples_can_be_read() -> None:
    read = read_prices(sorted(EXAMPLES.glob("*.yaml")))

    assert len(read.prices) >= 30
    assert all(price.source.startswith("https://") for listed in read.prices.values() for price in listed)

"""Tables of published measurements that are damaged, or say what cannot be."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path

import pytest

from knowledge.domain.errors import InputError
from knowledge.evidence.published_rows import published_contrasts
from knowledge.exchange.published.machine import accelerators_in
from knowledge.exchange.published.observations import (
    read_published_content,
)
from tests.knowledge.published_rows import pairs_of
from tests.knowledge.published_tables import ROW, TODAY, reason, table, written

FIXTURES = Path(__file__).parents[1] / "fixtures" / "published"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"value": "-5"}, "`value` is -5; a rate or a latency is more than 0"),
        ({"value": "0"}, "more than 0"),
        ({"value": "nan"}, "more than 0"),
        ({"value": "twelve"}, "`value` is `twelve`, which is not a number"),
        ({"value": "1,5"}, "the decimal mark is a point"),
        ({"value": "1e15"}, "nothing processes"),
        ({"value": "1e7"}, "times the peak of 1 x `A100-SXM4-80GB`"),
        ({"value": "0.2"}, "a step would take"),
        ({"value": ""}, "is not a number"),
        ({"unit": "images/s, ms"}, "names more than one unit"),
        ({"unit": "images/s or samples/s"}, "names more than one unit"),
        ({"unit": "tokens/s/user/GPU"}, "is of each device and of each user"),
        ({"unit": "images/s/node"}, "is of each `node`, which is unknown"),
        ({"unit": "bananas/s"}, "counts `bananas`, which is unknown"),
        ({"unit": "latency", "better": ""}, "does not say whether it is in seconds or milliseconds"),
        ({"unit": "speed"}, "the unit `speed` is unknown"),
        ({"better": "lower"}, "contradicts the unit"),
        ({"better": "more"}, "write `higher` or `lower`"),
        ({"framework_version": "1.13 / 2.0"}, "`framework_version` is `1.13 / 2.0`, which is not one version"),
        ({"cuda": "11.8, 12.1"}, "`cuda` is `11.8, 12.1`, which is not one version"),
        ({"driver": "450 or 470"}, "`driver` is `450 or 470`, which is not one version"),
        ({"container": "22.10 and 22.11"}, "is not a release of NVIDIA's containers"),
        ({"runs": "2.5"}, "`runs` is `2.5`, which is not a positive whole number"),
        ({"runs": "many"}, "`runs` is `many`"),
        ({"gpus": "0"}, "`gpus` is `0`"),
        ({"batch": "0"}, "`batch` is `0`"),
        ({"batch": "9" * 400}, "which is not a positive whole number"),
        ({"batch": "-64"}, "`batch` is `-64`, which is not a positive whole number up to 100,000,000"),
        ({"batch": "64-128"}, "`batch` is `64-128`"),
        ({"batch": "1e9"}, "`batch` is `1e9`"),
        ({"batch": "100000001"}, "`batch` is `100000001`"),
        ({"batch": "200000k"}, "`batch` is `200000k`"),
        ({"batch": "128 / -64"}, "`batch` is `128 / -64`"),
        ({"batch": "10@FP16, 0@FP32"}, "`batch` is `10@FP16, 0@FP32`"),
        ({"batch": "large"}, "`batch` is `large`"),
        ({"gpu": "A100, V100"}, "`gpu` is `A100, V100`, which names `A100` and `V100`; a row has one kind of GPU"),
        ({"gpu": "V100 / A100"}, "names `V100` and `A100`"),
        ({"gpu": "A100+T4"}, "names `A100` and `T4`"),
        ({"gpu": "A100_and_V100"}, "names `A100` and `V100`"),
        ({"gpu": "A100_V100"}, "names `A100` and `V100`"),
        ({"gpu": "V100-SXM2-16GB/V100-SXM2-32GB"}, "names `V100-SXM2-16GB` and `V100-SXM2-32GB`"),
        ({"gpu": "CPU / A100"}, "names `CPU` and `A100`"),
        ({"gpus": "eight"}, "`gpus` is `eight`"),
        ({"date": "1969-12-31"}, "published measurements are from 2015-01-01 to today"),
        ({"date": "2030-01-01"}, "published measurements are from 2015-01-01 to today"),
        ({"date": "06.05.2023"}, "which is not a day such as"),
        ({"precision": "fp12"}, "`precision` is `fp12`"),
        ({"task": ""}, "`task` is empty"),
        ({"task": "?"}, "`task` is `?`, which names no model"),
        ({"phase": "testing"}, "`phase` is `testing`"),
        ({"framework": "caffe"}, "`framework` is `caffe`"),
        ({"repository": "somewhere"}, "write `USER/NAME` of GitHub"),
        ({"gpu": ""}, "write `cpu` for a measurement without a GPU"),
        ({"settings": "xla"}, "the setting `xla` is not `name=value`"),
        ({"settings": "xla=maybe"}, "neither on nor off"),
        ({"settings": "a=1;a=2"}, "is stated twice"),
        ({"cpu": "x" * 5000}, "`cpu` is longer than 2000 characters"),
        ({"cpu": "\x1b[31mred"}, "`cpu` contains control characters"),
    ],
)
def test_a_row_that_cannot_be_used_is_listed_with_its_line_and_the_others_are_imported(
    changes: dict[str, str], text: str
) -> None:
    assert text in reason(**changes)


def test_a_row_of_the_tables_of_a_repository_has_the_value_of_all_its_gpus() -> None:
    own = {
        **ROW,
        "repository": "lambdal/deeplearning-benchmark",
        "path": "pytorch/pytorch-train-throughput-fp16.csv",
        "task": "SSD",
        "settings": "config=config_v0",
        "gpus": "8",
        "value": "1687",
        "runs": "1",
    }

    (observation,) = table(own).observations

    assert observation.metrics["value"] == 1687.0


def test_two_values_of_one_configuration_lack_a_column_unless_they_agree() -> None:
    agreeing = table(ROW, {**ROW, "value": "2520"})
    different = table({**ROW, "batch": "1"}, ROW, {**ROW, "value": "900"})

    assert (len(agreeing.observations), agreeing.repetitions) == (1, 1)
    assert agreeing.observations[0].metrics == {"value": 2510.0, "runs": 6.0}
    assert agreeing.observations[0].samples[0] == pytest.approx(1 / 2510, rel=1e-5)
    assert [row.number for row in different.skipped] == [3, 4]
    assert "values from 900 to 2500: the column that distinguishes them is missing" in different.skipped[0].reason


def test_a_row_that_is_published_again_counts_once_at_its_earliest_date() -> None:
    again = {**ROW, "date": "2022-01-01", "path": "old/table.csv"}

    result = table(ROW, again, ROW)

    assert len(result.observations) == 1
    assert result.observations[0].environment["date"] == "2022-01-01"
    assert result.duplicates == (2, 4)


def test_thousands_in_one_row_of_a_table_are_another_unit() -> None:
    rows = [{**ROW, "precision": p, "value": v} for p, v in (("fp32", "900"), ("tf32", "1400"), ("amp", "2.5"))]

    (skipped,) = table(*rows).skipped

    assert skipped.number == 4
    assert "times less than in other rows with this batch size: another unit" in skipped.reason


def test_several_gpus_that_are_too_fast_for_one_are_not_believed() -> None:
    rows = [ROW, {**ROW, "gpus": "2", "value": "4800"}, {**ROW, "gpus": "4", "value": "60000"}]

    result = table(*rows)

    assert len(result.observations) == 2
    assert "4 GPUs are 24 times as fast as one with the same batch size" in result.skipped[0].reason


def test_several_gpus_are_compared_with_one_of_the_same_version_and_settings_first() -> None:
    one, newer = {**ROW, "value": "1000"}, {**ROW, "value": "2500", "framework_version": "2.3.0"}
    fast = {**ROW, "value": "4000", "gpus": "2"}

    assert [row.number for row in table(one, newer, fast).skipped] == [4]
    assert table(one, newer, {**fast, "framework_version": "2.3.0"}).skipped == ()
    assert table(one, {**fast, "settings": "xla=on;channels_last=yes;data=syn"}).skipped == ()


@pytest.mark.parametrize(
    "gpu", ["8x A100", "A100 x 8", "8 x A100-SXM4-80GB", "A100, NVLink", "DGX A100, 8x A100 80GB", "A100 (SXM4/80GB)"]
)
def test_several_equal_gpus_are_one_name(gpu: str) -> None:
    (accelerator,) = table({**ROW, "gpu": gpu, "gpus": "8"}).observations[0].hardware.accelerators

    assert accelerator.model.startswith("NVIDIA A100")
    assert accelerator.count == 8


def test_the_peak_of_a_slice_is_its_share_of_that_of_the_gpu() -> None:
    inference = {**ROW, "phase": "inference", "value": "9000"}
    slices = [{**inference, "gpu": f"A100-SXM4-40GB{text}"} for text in ("", "_MIG_1g.5gb", "_MIG_3g.20gb", "-1-5C")]

    result = table(*slices, {**inference, "gpu": "A100-SXM4-40GB_MIG_1g.5gb", "value": "900"})

    assert [row.number for row in result.skipped] == [3, 5]
    assert "times the peak of 1 x `A100-SXM4-40GB_MIG_1g.5gb`" in result.skipped[0].reason


def test_rows_of_a_slice_and_of_the_whole_gpu_are_no_repetitions() -> None:
    whole = {**ROW, "gpu": "A100-SXM4-40GB"}

    result = table(whole, {**whole, "gpu": "A100-SXM4-40GB MIG 1g.5gb", "value": "400"}, {**whole, "gpu": "A100-40C"})

    assert (len(result.observations), result.skipped, result.duplicates) == (3, (), ())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("T4", "GRID T4-8Q"),
        ("A100-7-40C", "A100-4-20C"),
        ("A100 MIG 7x1g.5gb", "A100 MIG 1g.5gb"),
        ("A100", "A100 MIG"),
    ],
)
def test_releases_on_different_parts_of_a_gpu_are_not_compared(one: str, other: str) -> None:
    def contrasts(*gpus: str) -> int:
        versions = zip(gpus, ("1.13.0", "2.0.1"), ("300", "170"), strict=True)
        rows = ({**ROW, "gpu": gpu, "framework_version": version, "value": value} for gpu, version, value in versions)
        return len(list(published_contrasts(table(*rows).observations)))

    assert (contrasts(one, one), contrasts(one, other)) == (1, 0)


@pytest.mark.parametrize(
    "cell", ["A100-V100", "T4:A100", "T4\\A100", "T4\u2013A100", "A100\u3001V100", "B200 vs. H100"]
)
def test_two_gpus_in_one_cell_are_read_whatever_separates_them(cell: str) -> None:
    assert len(accelerators_in(cell)) == 2


def test_a_slice_of_a_gpu_is_no_whole_gpu() -> None:
    spellings = ("A100-SXM4-40GB", "A100-SXM4-40GB MIG 1g.5gb", "A100-SXM4-40GB_MIG_1g.5gb")
    (whole,), (part,), (other,) = (
        table({**ROW, "gpu": gpu}).observations[0].hardware.accelerators for gpu in spellings
    )

    assert (whole.partition, part.partition) == ("", "mig")
    assert other == part
    assert part.model == f"{whole.model} MIG 1g.5gb"
    assert (
        pairs_of(
            o for gpu in ("A100-SXM4-40GB_MIG_1g.5gb", "T4", "A10-24A") for o in table({**ROW, "gpu": gpu}).observations
        )
        == ()
    )


def hosts_of(content: bytes) -> tuple[set[str], dict[str, str]]:
    """Return the hosts of the observations of a table, and the reason of each skipped host."""
    result = read_published_content(content, where="t.csv", today=TODAY)
    lines = content.decode().splitlines()
    return (
        {str(o.environment["host"]) for o in result.observations},
        {lines[row.number - 1].partition("host=")[2].partition(",")[0]: row.reason for row in result.skipped},
    )


def recorded(*, hosts: tuple[str, ...], repository: str = "someone/benchmarks") -> bytes:
    """Return the recorded rows of hosts with an H100 or an H200 as rows of another repository."""
    with (FIXTURES / "h100-hosts.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = [
        {**row, "repository": repository, "settings": f"{row['settings']};host={host}"}
        for row in rows
        for host in hosts
        if f"/{host}_" in row["path"]
    ]
    return written(*chosen)


def with_one_row_of_another_host(content: bytes) -> bytes:
    """Return a table with one of its rows again, on another host: too few to be compared with others."""
    row = next(line for line in content.splitlines(keepends=True) if b"LambdaOD_1x" in line)
    return content + row.replace(b"LambdaOD_1x", b"Another_1x")


def test_a_host_that_is_two_times_as_fast_at_nearly_all_tasks_has_another_number_of_gpus() -> None:
    hosts, reasons = hosts_of(with_one_row_of_another_host(recorded(hosts=("LambdaOD_1x", "LambdaOD_4x"))))

    # Without a third host, nothing says which of the two is wrong.
    assert hosts == {"Another_1x"}
    assert reasons["LambdaOD_1x"] == reasons["LambdaOD_4x"]
    assert "`LambdaOD_4x` is about 2 times as fast as `LambdaOD_1x` with the same GPU in 1" in reasons["LambdaOD_4x"]
    assert reasons["LambdaOD_4x"].endswith("configurations: the number of GPUs of one of the two is wrong")


def test_of_three_hosts_the_one_that_contradicts_both_others_is_not_believed() -> None:
    one, four = recorded(hosts=("LambdaOD_1x",)), recorded(hosts=("LambdaOD_4x",))
    second = one.replace(b"LambdaOD_1x", b"Another_1x")

    hosts, reasons = hosts_of(one + second.partition(b"\n")[2] + four.partition(b"\n")[2])

    assert hosts == {"LambdaOD_1x", "Another_1x"}
    assert reasons["LambdaOD_4x"].endswith("the number of GPUs of `LambdaOD_4x` is wrong")


def rows_of_host(host: str, tasks: tuple[str, ...], *, factor: float) -> list[dict[str, str]]:
    """Return one row for each task on a host with one GPU, whose rates are those of other hosts times a factor."""
    settings, path = f"data=syn;host={host}", f"results/{host}.csv"
    return [
        {**ROW, "settings": settings, "path": path, "task": task, "value": f"{factor * (100 + 10 * number):g}"}
        for number, task in enumerate(tasks)
    ]


SHARED = ("resnet50", "gnmt", "ncf", "ssd")
OTHERS = ("vgg16", "alexnet", "bert_base", "inception3")


def test_of_two_hosts_that_contradict_each_other_the_one_that_agrees_with_a_third_stays() -> None:
    agreeing = [*rows_of_host("A", (*SHARED, *OTHERS), factor=1), *rows_of_host("B", SHARED, factor=1.03)]
    # The order of the tasks gives `D` twice the rates of the last four of `A`.
    fast = [row for row in rows_of_host("D", (*SHARED, *OTHERS), factor=2) if row["task"] in OTHERS]

    hosts, reasons = hosts_of(written(*agreeing, *rows_of_host("C", SHARED, factor=0.97), *fast))

    assert hosts == {"A", "B", "C"}
    assert reasons == {
        "D": "`D` is about 2 times as fast as `A` with the same GPU in 4 of 4 configurations, and `A` agrees with `B`: "
        "the number of GPUs of `D` is wrong"
    }


def test_of_two_hosts_the_slow_one_is_wrong_if_the_fast_one_agrees_with_a_third() -> None:
    agreeing = [*rows_of_host("A", (*SHARED, *OTHERS), factor=1), *rows_of_host("B", SHARED, factor=1.03)]
    slow = [row for row in rows_of_host("D", (*SHARED, *OTHERS), factor=0.5) if row["task"] in OTHERS]

    hosts, reasons = hosts_of(written(*agreeing, *slow))

    assert hosts == {"A", "B"}
    assert reasons["D"].endswith("and `A` agrees with `B`: the number of GPUs of `D` is wrong")


def test_two_hosts_that_contradict_each_other_are_both_left_out_if_none_or_both_agree_with_a_third() -> None:
    slow = rows_of_host("A", (*SHARED, *OTHERS), factor=1)
    more = ("densenet121", "mobilenet_v2", "efficientnet_b0", "dlrm")
    fast = [row for row in rows_of_host("D", (*SHARED, *OTHERS, *more), factor=2) if row["task"] not in SHARED]
    # 1.4 times as fast is no agreement.
    third = rows_of_host("B", SHARED, factor=1.4)
    agreeing = rows_of_host("B", SHARED, factor=1)
    fourth = [row for row in rows_of_host("E", (*SHARED, *OTHERS, *more), factor=2) if row["task"] in more]

    none_agrees = hosts_of(written(*slow, *fast, *third))
    both_agree = hosts_of(written(*slow, *fast, *agreeing, *fourth))

    assert none_agrees[0] == {"B"}
    assert both_agree[0] == {"B", "E"}
    for _, reasons in (none_agrees, both_agree):
        assert reasons["A"] == reasons["D"]
        assert reasons["A"].endswith("4 of 4 configurations: the number of GPUs of one of the two is wrong")


def test_an_accelerator_is_not_faster_than_its_bandwidth_and_peak_rates_allow() -> None:
    hosts, reasons = hosts_of(with_one_row_of_another_host(recorded(hosts=("LambdaOD_1x", "LambdaBM_ENG04"))))

    assert hosts == {"Another_1x"}
    assert "its peak rates are at most 1.4 times as high: the number of GPUs of one" in reasons["LambdaBM_ENG04"]


def test_hosts_that_agree_are_all_believed() -> None:
    for host in ("LambdaOD_1x", "LambdaOD_4x", "LambdaBM_ENG04"):
        assert hosts_of(recorded(hosts=(host,))) == ({host}, {})


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "t.csv", "`t.csv` is empty"),
        (b"\n \n", "t.csv", "`t.csv` is empty"),
        (b"task,phase\nresnet50,training\n", "t.csv", "`t.csv` has no column `repository`, `date`"),
        (written(ROW).replace(b",", b";"), "t.csv", "the columns of `t.csv` are separated by semicolons"),
        (written(ROW).replace(b",", b"\t"), "t.csv", "the columns of `t.csv` are separated by tabs"),
        (written(ROW), "t.csv.gz", "`t.csv.gz` is not compressed with gzip"),
        (gzip.compress(written(ROW))[:-20], "t.csv.gz", "the compressed file is damaged or truncated"),
        (written({**ROW, "cpu": "x"}).replace(b",x,", b",\xff,"), "t.csv", "t.csv:2: not UTF-8"),
        (written({**ROW, "value": "-1"}), "t.csv", "contains no measurement that can be used"),
        (written(ROW).replace(b"commit", b"path", 1), "t.csv", "has more than one column `path`"),
        (b"{broken\n", "t.jsonl", "contains no row that can be read"),
        (written(), "t.csv", "contains no measurement that can be used"),
        (b"a," * 40_000, "t.csv", "the first line of `t.csv` is longer than 65536 characters"),
        (b"task\rphase,x\n1,2\n", "t.csv", "the first line of `t.csv` does not name columns"),
    ],
)
def test_a_file_that_is_no_table_gives_one_message(content: bytes, name: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read_published_content(content, where=name, today=TODAY)


def test_the_hint_of_a_truncated_file_names_no_option_that_the_command_lacks() -> None:
    with pytest.raises(InputError) as caught:
        read_published_content(gzip.compress(written(ROW))[:-20], where="t.csv.gz", today=TODAY)

    assert caught.value.hint == "nothing was stored; copy or download it again"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"a,b", "it has 2 cells, and the first line 22 columns"),
        (b'"unclosed,' + b"x," * 21, "it is not CSV"),
        (b"x" * 70000, "the row is longer than 65536 characters"),
    ],
)
def test_a_damaged_line_does_not_stop_the_others(line: bytes, text: str) -> None:
    result = read_published_content(written(ROW) + line + b"\n", where="t.csv", today=TODAY)

    assert len(result.observations) == 1
    assert (result.skipped[0].number, text in result.skipped[0].reason) == (3, True)


def test_a_column_that_is_not_read_is_named() -> None:
    result = table({**ROW, "colour": "red"}, columns=(*ROW, "colour"))

    assert result.warnings[0].message == "columns that are not read: `colour`"


def test_a_byte_order_mark_is_no_part_of_the_first_column() -> None:
    assert len(read_published_content(b"\xef\xbb\xbf" + written(ROW), where="t.csv", today=TODAY).observations) == 1

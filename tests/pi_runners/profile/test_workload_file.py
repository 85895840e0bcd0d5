"""`advisor-workload.toml` keeps workloads as they are, and rejects what contradicts itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.project.workload.file import (
    WORKLOAD_FILE,
    check_name,
    read_workloads,
    select_workload,
    workloads_toml,
    write_workload,
)
from knowledge.domain.errors import InputError
from knowledge.domain.workload import KernelShare, ProfiledWorkload, WorkloadError, WorkloadPart

WORKLOAD = ProfiledWorkload(
    name="train",
    framework="torch",
    framework_version="2.13.0",
    parts=(
        WorkloadPart(
            indicator="conv2d",
            share=0.5,
            calls=2,
            parameters={"batch": 4, "channels": 3, "filters": 8, "size": 8, "kernel": 3, "direction": "backward"},
            dtype="float32",
            direction="backward",
        ),
        WorkloadPart(indicator="elementwise", share=0.25),
    ),
    unattributed=0.25,
    layers={"DNN library": 0.5, "framework": 0.3, "Python": 0.2},
    kernels=(KernelShare(name='aten::"odd"\n', share=0.5),),
    steps=20,
    seconds_per_step=0.0125,
    command=("python", "train.py", "--epochs=3"),
    versions={"numpy": "2.4.6", "python": "3.11.7"},
    hardware="Intel(R) Xeon(R) Processor",
    source="advisor workload profile",
)


def test_a_workload_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_workloads(tmp_path) == ()

    assert not write_workload(tmp_path, WORKLOAD)
    assert not write_workload(tmp_path, replace(WORKLOAD, name="serve"))
    assert write_workload(tmp_path, WORKLOAD)

    assert read_workloads(tmp_path) == (replace(WORKLOAD, name="serve"), WORKLOAD)
    assert select_workload(tmp_path, "train") == WORKLOAD


def test_the_same_workloads_give_the_same_bytes(tmp_path: Path) -> None:
    other = replace(WORKLOAD, name="serve")

    assert workloads_toml([WORKLOAD, other]) == workloads_toml([other, WORKLOAD])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("share = 0.25", "share = 0.9", "add up to 1.65 instead of 1"),
        ("unattributed = 0.25", "unattributed = 0.0", "add up to 0.75 instead of 1"),
        ("share = 0.25", "share = -0.25", "greater than or equal to 0"),
        ("share = 0.25", "share = nan", "finite number"),
        ('"DNN library" = 0.5', '"DNN library" = 0.9', "`layers`"),
        ("schema_version = 1", "schema_version = 2", "in `schema_version`"),
        ('framework = "torch"', "framework = 5", "in `workload.0.framework`"),
        ('framework = "torch"', 'framework = "torch"\nframwork = "x"', "extra inputs are not permitted"),
        ('name = "train"', 'name = "../train"', "in `workload.0.name`"),
        ("[[workload]]", "[[workload]", "not valid TOML"),
    ],
)
def test_a_changed_file_that_contradicts_itself_is_rejected(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = workloads_toml([WORKLOAD])
    assert old in text
    path = tmp_path / WORKLOAD_FILE
    path.write_text(text.replace(old, new, 1))

    with pytest.raises(InputError, match=message) as caught:
        read_workloads(tmp_path)

    assert WORKLOAD_FILE in caught.value.message


def test_two_workloads_with_one_name_are_rejected(tmp_path: Path) -> None:
    text = workloads_toml([WORKLOAD, replace(WORKLOAD, name="serve")])
    (tmp_path / WORKLOAD_FILE).write_text(text.replace('name = "serve"', 'name = "train"'))

    with pytest.raises(InputError, match="two workloads with the name `train`"):
        read_workloads(tmp_path)


def test_an_unknown_name_is_corrected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no profiled workloads"):
        select_workload(tmp_path, None)
    write_workload(tmp_path, WORKLOAD)
    assert select_workload(tmp_path, None) == WORKLOAD
    write_workload(tmp_path, replace(WORKLOAD, name="serve"))

    with pytest.raises(InputError, match="no profiled workload `trian`") as caught:
        select_workload(tmp_path, "trian")
    assert caught.value.hint == "did you mean `train`?"
    with pytest.raises(InputError, match="2 profiled workloads") as several:
        select_workload(tmp_path, None)
    assert several.value.hint == "choose one of `serve`, `train`"
    with pytest.raises(InputError, match="not a valid name"):
        check_name("a b")


def test_shares_outside_of_0_to_1_are_rejected() -> None:
    with pytest.raises(WorkloadError, match="add up to 0.5"):
        replace(WORKLOAD, unattributed=0.0, parts=WORKLOAD.parts[:1])
    with pytest.raises(WorkloadError, match="not between 0 and 1"):
        replace(WORKLOAD, unattributed=1.5)
    with pytest.raises(WorkloadError, match="not between 0 and 1"):
        replace(WORKLOAD, unattributed=float("nan"))


SHARES = st.lists(st.floats(0.001, 1), min_size=1, max_size=8)


@given(SHARES, st.text(max_size=50), st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 2**40)))
def test_any_workload_survives_the_file(
    tmp_path_factory: pytest.TempPathFactory, weights: list[float], text: str, parameters: dict[str, int]
) -> None:
    total = sum(weights)
    shares = [round(weight / total, 4) for weight in weights]
    parts = tuple(WorkloadPart(indicator="matmul", share=share, parameters=parameters) for share in shares[1:])
    workload = ProfiledWorkload(
        name="w", framework="torch", parts=parts, unattributed=shares[0], command=(text,), hardware=text
    )
    folder = tmp_path_factory.mktemp("project")

    write_workload(folder, workload)

    assert read_workloads(folder) == (workload,)


def test_several_processes_add_workloads_without_losing_one(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom dataclasses import replace\nfrom pathlib import Path\n"
        "from advisor.project.workload.file import write_workload\n"
        "from knowledge.domain.workload import ProfiledWorkload\n"
        "empty = ProfiledWorkload(name='x', framework='torch', parts=(), unattributed=1.0)\n"
        "for i in range(20):\n"
        "    write_workload(Path(sys.argv[1]), replace(empty, name=f'{sys.argv[2]}-{i}'))\n"
    )

    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name]) for name in ("a", "b")]

    assert [process.wait() for process in running] == [0, 0]
    assert len(read_workloads(tmp_path)) == 40

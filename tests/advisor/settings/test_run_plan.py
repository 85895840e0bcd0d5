"""How settings are applied on machines that this one is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from advisor.api.run_plan import RunMachine, RunPlan, plan_run
from advisor.locks.settings_table import locked_settings
from knowledge.domain.hardware import Cpu, HardwareProfile
from knowledge.hardware.this_machine import node_processors

Values = Mapping[str, Mapping[str, int | str]]
NODES = {0: frozenset(range(4)), 1: frozenset(range(4, 8))}
TCMALLOC = Path("/lib/libtcmalloc_minimal.so.4")


def plan(values: Values, *, present: Mapping[str, str] | None = None, machine: RunMachine | None = None) -> RunPlan:
    return plan_run(locked_settings(values), present=present or {}, machine=machine or machine_of())


def machine_of(
    system: str = "linux",
    processors: frozenset[int] | None = frozenset(range(8)),
    libraries: Sequence[Path] = (TCMALLOC,),
    features: tuple[str, ...] = (),
) -> RunMachine:
    cpu = Cpu(architecture="x86_64", microarchitecture="x86_64_v3", features=features)
    installed = {path.name: path for path in libraries}
    return RunMachine(
        system=system,
        processors=processors,
        node=NODES.get,
        libraries=lambda names: {name: installed[name] for name in names if name in installed},
        detect=lambda: HardwareProfile(name="test", cpu=cpu),
    )


def reasons(result: RunPlan) -> dict[str, str]:
    return {skipped.setting.text: skipped.reason for skipped in result.skipped}


def test_a_library_that_is_not_installed_is_skipped() -> None:
    result = plan({"torch": {"allocator": "jemalloc", "threads": 2}})

    assert reasons(result) == {"allocator=jemalloc": "`libjemalloc.so.2` is not installed"}
    assert result.variables == {"MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}


def test_an_allocator_of_the_caller_stays() -> None:
    values: Values = {"torch": {"allocator": "tcmalloc"}}

    other = plan(values, present={"LD_PRELOAD": "/lib/libjemalloc.so.2"})
    same = plan(values, present={"LD_PRELOAD": str(TCMALLOC)})
    debugger = plan(values, present={"LD_PRELOAD": "/lib/libdebug.so"})

    assert "LD_PRELOAD=/lib/libjemalloc.so.2" in reasons(other)["allocator=tcmalloc"]
    assert other.variables == {}
    assert same.variables == {"LD_PRELOAD": str(TCMALLOC)}
    assert debugger.variables == {"LD_PRELOAD": f"/lib/libdebug.so:{TCMALLOC}"}


def test_settings_of_another_system_are_skipped() -> None:
    result = plan({"torch": {"binding": "close", "numa": 0}}, machine=machine_of("darwin", None))

    assert set(reasons(result).values()) == {"it exists on linux, not on darwin"}


def test_a_feature_that_the_machine_lacks_is_named() -> None:
    machine = machine_of(features=("avx2", "sse4_2"))

    result = plan({"torch": {"isa": "avx512", "amp": "bfloat16"}}, machine=machine)

    assert reasons(result) == {
        "isa=avx512": "it needs avx512bw",
        "amp=bfloat16": "it needs one of amx_bf16, avx512_bf16, bf16",
    }
    assert (result.variables, result.code) == ({}, ())


def test_a_number_of_processors_is_taken_from_the_node() -> None:
    result = plan({"jax": {"threads": 2}, "torch": {"numa": 1}})

    assert result.processors == (4, 5)
    assert result.skipped == ()


def test_a_node_outside_the_allowed_processors_is_skipped() -> None:
    result = plan({"torch": {"numa": 1}}, machine=machine_of(processors=frozenset({0, 1})))

    assert reasons(result) == {"numa=1": "the program may use no processor of the NUMA node 1"}
    assert result.processors == ()


def test_all_processors_are_no_change() -> None:
    assert plan({"jax": {"threads": 8}}).processors == ()


def test_what_only_a_person_can_apply_is_skipped_with_a_hint() -> None:
    result = plan({"torch": {"huge_pages": "on"}})

    assert reasons(result) == {"huge_pages=on": "the program cannot apply it"}
    assert result.skipped[0].hint.startswith("as root: ")


def test_code_and_defaults_are_listed() -> None:
    result = plan({"torch": {"memory_format": "channels_last", "compile": "off"}})

    assert [s.text for s in result.code] == ["memory_format=channels_last"]
    assert [s.text for s in result.defaults] == ["compile=off"]


@pytest.mark.parametrize(
    ("text", "processors"), [("0-3,8\n", frozenset({0, 1, 2, 3, 8})), ("5\n", frozenset({5})), ("\n", frozenset())]
)
def test_the_kernels_list_of_processors_is_read(text: str, processors: frozenset[int], tmp_path: Path) -> None:
    (tmp_path / "node0").mkdir()
    (tmp_path / "node0" / "cpulist").write_text(text)

    assert node_processors(0, nodes=tmp_path) == processors
    assert node_processors(1, nodes=tmp_path) is None

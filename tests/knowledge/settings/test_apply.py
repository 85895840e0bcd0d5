"""Environment variables and lines of code of run-time settings."""

from __future__ import annotations

from knowledge.catalogue.settings import code_of, environment_of


def environment(backend: str, present: dict[str, str] | None = None, **settings: str | int) -> dict[str, str]:
    return environment_of(settings, backend, present=present or {}, libraries={})


def test_settings_become_environment_variables() -> None:
    assert environment("torch", threads=3, isa="avx2") == {
        "OMP_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "3",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
    }
    assert environment("tensorflow", onednn="off") == {"TF_ENABLE_ONEDNN_OPTS": "0"}


def test_settings_that_a_framework_does_not_have_are_left_out() -> None:
    assert environment("numpy", onednn="off", compile="on") == {}


def test_flags_are_added_to_those_that_are_set() -> None:
    assert environment("jax", {"XLA_FLAGS": "--one"}, isa="avx2") == {"XLA_FLAGS": "--one --xla_cpu_max_isa=AVX2"}


def test_other_settings_are_lines_of_code() -> None:
    assert code_of({"threads": 2, "onednn": "off"}, "torch") == ("torch.backends.mkldnn.enabled = False",)
    assert code_of({"threads": 2}, "onnxruntime") == ("options.intra_op_num_threads = 2",)


def test_a_setting_overrides_what_a_more_general_one_sets() -> None:
    assert environment("tensorflow", threads=4) == {"TF_NUM_INTRAOP_THREADS": "4", "TF_NUM_INTEROP_THREADS": "4"}
    assert environment("tensorflow", threads=4, interop_threads=1) == {
        "TF_NUM_INTRAOP_THREADS": "4",
        "TF_NUM_INTEROP_THREADS": "1",
    }


def test_a_library_is_loaded_before_the_program_after_those_that_are() -> None:
    libraries = {"libjemalloc.so.2": "/lib/libjemalloc.so.2", "libiomp5.so": "/lib/libiomp5.so"}
    settings = {"allocator": "jemalloc", "openmp": "intel"}

    variables = environment_of(settings, "torch", present={"LD_PRELOAD": "/lib/own.so"}, libraries=libraries)
    assert sorted(variables["LD_PRELOAD"].split(":")) == ["/lib/libiomp5.so", "/lib/libjemalloc.so.2", "/lib/own.so"]
    assert variables["LD_PRELOAD"].startswith("/lib/own.so:")


def test_a_library_that_is_not_installed_is_not_loaded() -> None:
    assert environment("torch", allocator="jemalloc") == {}

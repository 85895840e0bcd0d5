"""The tables of Megatron-Bridge as published measurements."""

from __future__ import annotations

import importlib.resources
from dataclasses import replace
from pathlib import Path

import pytest

from docs.megatron_bridge import TARGET, rows, table_of
from knowledge.domain.observation import Observation
from knowledge.evidence.accelerator_rows import SHORT
from knowledge.evidence.published_rows import published_contrasts
from knowledge.exchange.files import read_lines, read_observations
from tests.knowledge.published_rows import pairs_of, row

PAGE = Path(__file__).parents[1] / "fixtures" / "published" / "megatron-bridge.md"
REAL = Path(__file__).parents[3] / "shared" / "data" / "megatron-bridge" / "performance-summary-archive.md"


@pytest.fixture(scope="module")
def observations() -> tuple[Observation, ...]:
    """The measurements of a part of the page."""
    table = table_of(PAGE.read_text(encoding="utf-8"))
    assert (table.skipped, table.duplicates, table.warnings) == ((), (), ())
    return table.observations


def only(observations: tuple[Observation, ...], **words: object) -> Observation:
    """Return the one measurement with these parameters, precision and container, and this GPU."""

    def stated(o: Observation) -> dict[str, object]:
        gpu = o.hardware.accelerators[0].model.removeprefix("NVIDIA ")
        return {**o.indicator.parameters, **o.settings, "container": o.environment["container"], "gpu": gpu}

    (found,) = (o for o in observations if words.items() <= stated(o).items())
    return found


def test_a_rate_of_each_gpu_is_that_of_all(observations: tuple[Observation, ...]) -> None:
    o = only(observations, task="llama3_70b", gpu="GB300", precision="nvfp4", container="nemo:26.04.01")

    assert o.hardware.accelerators[0].count == 64
    assert o.samples[0] == pytest.approx(1 / (7296 * 64), rel=1e-5)
    assert dict(o.indicator.parameters) == {
        "task": "llama3_70b", "mode": "training", "gpus": 64, "unit": "tokens", "micro_batch": 1,
        "sequence_length": 8192, "pipeline_parallel": 4, "virtual_pipeline": 5, "batch": 256,
    }  # fmt: skip
    assert (o.environment["licence"], o.block) == ("Apache-2.0", "published/NVIDIA-NeMo/Megatron-Bridge")
    assert str(o.environment["source"]).endswith("/067f987d/docs/performance-summary-archive.md")


def test_a_container_of_nemo_has_the_versions_that_its_notes_state(observations: tuple[Observation, ...]) -> None:
    versions = {str(o.environment["container"]): o.stack.version_of("torch") for o in observations}

    assert versions == {
        "nemo:25.09": "2.8.0a0+5228986c39",
        "nemo:25.11": "2.9.0a0",
        "nemo:26.04.01": None,
        "nemo:26.06": None,
    }


def test_numbers_in_parentheses_are_of_other_scales_and_another_parallelism(
    observations: tuple[Observation, ...],
) -> None:
    words = {"task": "llama3_70b", "gpu": "GB200", "container": "nemo:25.09"}
    one, other = (only(observations, **words, precision=precision) for precision in ("fp8", "mxfp8"))

    assert (one.metrics["value"], other.metrics["value"]) == (3986 * 64, 3546 * 64)
    assert one.indicator.parameters["fsdp"] == 64
    assert "fsdp" not in other.indicator.parameters
    assert other.indicator.parameters["tensor_parallel"] == 2


def test_a_row_whose_precision_nobody_states_is_left_out(observations: tuple[Observation, ...]) -> None:
    assert not any(
        o.environment["container"] == "nemo:25.09" and "H100" in o.hardware.accelerators[0].model for o in observations
    )


def test_recipes_and_variants_of_a_model_must_be_equal_for_a_pair(observations: tuple[Observation, ...]) -> None:
    assert only(observations, gpu="GB300", recipe="LoRA", precision="fp8").indicator.parameters["task"] == "llama3_70b"
    assert only(observations, gpu="GB300", model="w/o MTP", precision="bf16").indicator.parameters["batch"] == 4096
    assert {pair.regime for pair in pairs_of(observations)} == {SHORT}
    assert len(list(published_contrasts(observations))) > 10


def test_rows_of_containers_with_unknown_contents_are_compared_within_one_container() -> None:
    rows = [row(2.0, gpu="A100-SXM4-40GB", version=""), row(4.0, gpu="Tesla V100-SXM2-16GB", version="")]
    first, second = ([_in(o, release) for o in rows] for release in ("nemo:26.06", "nemo:26.06.01"))

    assert len(pairs_of([*first, *second])) == 2
    assert pairs_of([first[0], second[1]]) == ()


def _in(o: Observation, container: str) -> Observation:
    return replace(o, environment={**o.environment, "container": container})


def test_the_shipped_file_is_what_the_page_says_now() -> None:
    """If a list of names changed, write it again: `python docs/megatron_bridge.py FILE`."""
    if not REAL.is_file():
        pytest.skip(f"{REAL} is absent")
    content = (importlib.resources.files("knowledge.data") / TARGET.name).read_bytes()
    shipped = read_observations(read_lines(content, where=TARGET.name), where=TARGET.name)
    page = REAL.read_text(encoding="utf-8")

    assert len(list(rows(page))) == 267
    assert {o.identity for o in shipped} == {o.identity for o in table_of(page).observations}

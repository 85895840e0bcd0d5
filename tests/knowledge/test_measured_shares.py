"""Shares of the time of whole models, as measured, and workloads that use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from knowledge.domain.model_part import PartOfModel
from knowledge.estimate.measured_shares import mean_shares, measured_shares
from knowledge.estimate.model_cache import shipped_amplitudes
from knowledge.estimate.time_shares import parts_of
from knowledge.estimate.workloads import BLOCKS, MODELS, OPERATIONS, find_workload, workload_catalogue

PRODUCT, SORT = "matmul@1[n=4] float32 torch/cpu", "sort@1[n=8] float32 torch/cpu"
RESNET = "model@1[batch=1,mode=training,model=resnet50] float32 torch/cpu"
GPT2 = "model@1[batch=1,mode=training,model=gpt2] float32 torch/cpu"
PARTS = [
    PartOfModel(indicator="matmul", label=PRODUCT, calls=3, flops=2.0, bytes=1.0),
    PartOfModel(indicator="sort", label=SORT, calls=1, flops=1.0, bytes=1.0),
]


def operation_shares(
    seconds: dict[tuple[str, str], float], parts: Sequence[PartOfModel] = PARTS
) -> dict[str, dict[str, float]]:
    """Return the shares of the operations of a model that consists of three products and a sort, or of other parts."""
    shares = measured_shares([RESNET], seconds, lambda _: parts, lambda _: {})
    return {model: dict(table) for model, table in shares.get(OPERATIONS, {}).items()}


def test_an_operation_has_the_share_of_its_calls_and_its_time() -> None:
    shares = operation_shares({("a", PRODUCT): 0.3, ("a", SORT): 0.1})

    assert shares == {"resnet50 training": pytest.approx({"matmul": 0.9, "sort": 0.1})}


def test_times_of_different_blocks_of_observations_are_not_added() -> None:
    # In the second block, on a slower machine, the products take as long as the sort.
    seconds = {("a", PRODUCT): 0.3, ("a", SORT): 0.1, ("b", PRODUCT): 1.0, ("b", SORT): 3.0}

    assert operation_shares(seconds) == {"resnet50 training": pytest.approx({"matmul": 0.7, "sort": 0.3})}


def test_what_measured_operations_leave_of_the_models_time_is_that_of_the_others_by_their_bytes() -> None:
    others = [
        PartOfModel(indicator=name, label=name, calls=calls, flops=0.0, bytes=3.0)
        for name, calls in (("normalisation", 2), ("elementwise", 1))
    ]
    measured = {("a", PRODUCT): 0.2, ("a", SORT): 0.1}

    (shares,) = operation_shares({**measured, ("a", RESNET): 1.0}, [*PARTS, *others]).values()
    (merged,) = operation_shares({**measured, ("a", RESNET): 0.5}, [*PARTS, *others]).values()

    assert shares == pytest.approx({"matmul": 0.6, "sort": 0.1, "normalisation": 0.2, "elementwise": 0.1})
    # A compiler merged the operations: alone, they take longer than the model.
    assert merged == pytest.approx({"matmul": 6 / 7, "sort": 1 / 7, "normalisation": 0.0, "elementwise": 0.0})


def test_a_model_of_which_few_operations_were_measured_has_no_shares() -> None:
    assert operation_shares({("a", SORT): 0.1}) == {}


def test_a_block_has_the_share_of_its_number_and_its_mean_time() -> None:
    def block(name: str, mode: str, length: int) -> tuple[str, str]:
        return "a", f"block@1[block={name},length={length},mode={mode}] float32 torch/cpu"

    seconds = {
        block("encoder_block", "training", 8): 0.5,
        block("encoder_block", "training", 16): 1.5,
        block("word_classifier", "training", 8): 4.0,
        block("word_classifier", "inference", 8): 100.0,
    }
    counts = {"encoder_block": 12, "word_classifier": 1}
    labels = [GPT2, GPT2.replace("training", "prefill"), GPT2.replace("training", "decode")]

    shares = measured_shares(labels, seconds, lambda _: [], lambda _: counts)

    # The encoder block was not measured in inference.
    assert shares == {BLOCKS: {"gpt2 training": pytest.approx({"encoder_block": 0.75, "word_classifier": 0.25})}}


def test_an_absent_part_has_none_of_the_time() -> None:
    assert mean_shares([{"matmul": 1.0}, {"matmul": 0.5, "sort": 0.5}]) == {"matmul": 0.75, "sort": 0.25}


def test_a_workload_has_the_mean_shares_of_its_models() -> None:
    amplitudes = replace(
        shipped_amplitudes("torch", "cpu"),
        shares={
            OPERATIONS: {"resnet50 training": {"conv2d": 1.0}, "mobilenet_v2 training": {"conv2d": 0.5, "matmul": 0.5}},
            BLOCKS: {"gpt2 training": {"encoder_block": 0.6, "word_classifier": 0.4}},
        },
    )

    operations = parts_of(find_workload("cnn-training"), OPERATIONS, amplitudes)
    blocks = parts_of(find_workload("language-model-training"), BLOCKS, amplitudes)

    assert [(p.indicator, p.share) for p in operations] == [("conv2d", 0.75), ("matmul", 0.25)]
    assert [(p.parameters["block"], p.share) for p in blocks] == [("encoder_block", 0.6), ("word_classifier", 0.4)]
    # Without measured shares: equal ones.
    blocks = parts_of(find_workload("recurrent-training"), BLOCKS, amplitudes)
    assert [p.share for p in blocks] == [0.5, 0.5]
    assert parts_of(find_workload("dlrm-training"), OPERATIONS, amplitudes) == ()


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow-cpu", "onnxruntime", "a framework without fits"])
def test_shares_of_every_workload_are_measured_and_sum_to_one(framework: str) -> None:
    amplitudes = shipped_amplitudes(framework, "cpu")
    for workload in workload_catalogue().values():
        for basis in workload.parts:
            parts = parts_of(workload, basis, amplitudes)
            assert sum(part.share for part in parts) == pytest.approx(1, abs=0.01), (workload.name, basis)
        listed = workload.parts[OPERATIONS]
        assert bool(listed) != (MODELS in workload.parts), workload.name


def test_shares_differ_between_frameworks() -> None:
    inference = find_workload("recommender-inference")
    jax, torch = (
        {p.indicator: p.share for p in parts_of(inference, OPERATIONS, shipped_amplitudes(name, "cpu"))}
        for name in ("jax", "torch")
    )

    # A query of JAX waits longer for the look-ups.
    assert jax["embedding"] > 2 * torch["embedding"]

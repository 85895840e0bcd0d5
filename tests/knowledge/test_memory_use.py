"""The memory that a model needs: shapes, formulae, and published peaks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.memory_peaks import coverage, decisions, fitted, held_out, next_batch, read_peaks
from knowledge.domain.errors import InputError
from knowledge.estimate.memory_use import HALF, MIXED, OPTIMIZERS, PRECISIONS, MemoryModel, ModelRun
from knowledge.estimate.model_shape import MOST_BYTES, find_shape, read_shape, shape_of, shipped_names

GIB = 2**30
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def neox(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    """Return the configuration of a model of the suite Pythia."""
    return {
        "model_type": "gpt_neox",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "vocab_size": 50304,
    }


@pytest.mark.parametrize(
    ("config", "without_embeddings"), [(neox(6, 512, 8), 18_915_328), (neox(24, 2048, 16), 1_208_602_624)]
)
def test_parameters_are_those_of_the_model_cards_of_pythia(config: dict[str, Any], without_embeddings: int) -> None:
    # https://huggingface.co/EleutherAI/pythia-2.8b-deduped-v0, the table of the suite
    embeddings = 2 * config["vocab_size"] * config["hidden_size"]

    assert shape_of(config, name="pythia").parameters == without_embeddings + embeddings


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # https://chanlumerico.github.io/lucid/build/html/models/text/index.html, `BERTForMaskedLM`
        ("bert-base", 109_514_298),
        # https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vit_b_16.html
        ("vit-b16", 86_567_656),
    ],
)
def test_parameters_are_those_that_libraries_count(name: str, published: int) -> None:
    assert find_shape(name).parameters == published


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # https://ajkdrag.in/2-Zettels/56B-or-47B-in-Mixtral-8x7B-MoE
        ("mixtral-8x7b", 46.7e9),
        # https://github.com/ggml-org/ci/blob/a6116586c7a71fd8e2457c67fdf49050cd38c0bf/llama.cpp, `open_llama_7b_v2`
        ("llama2-7b", 6.74e9),
    ],
)
def test_parameters_are_the_published_rounded_ones(name: str, published: float) -> None:
    assert find_shape(name).parameters == pytest.approx(published, rel=2e-3)


def test_parameters_are_those_of_the_model_card_of_qwq() -> None:
    # https://huggingface.co/Qwen/QwQ-32B/commit/7d911991f94da0d7bd736a6fd06bea5f3da87814
    # 32.5B, of which 31.0B are not embeddings
    config = {"model_type": "qwen2", "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40}
    config |= {"num_key_value_heads": 8, "intermediate_size": 27648, "vocab_size": 152064}

    shape = shape_of(config, name="qwq")

    assert shape.parameters == pytest.approx(32.5e9, rel=1e-2)
    assert shape.parameters - 2 * shape.vocabulary * shape.hidden == pytest.approx(31.0e9, rel=1e-2)


def test_every_shipped_model_has_a_source() -> None:
    assert all(find_shape(name).source.startswith("https://") for name in shipped_names())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "t5"}, "unknown `model_type` 't5'"),
        ({"model_type": None}, "states no `model_type`"),
        ({"quantization_config": {"bits": 4}}, "are quantised"),
        ({"hidden_size": None}, "no field `hidden_size`"),
        ({"hidden_size": float("nan")}, "wrong field `hidden_size`: 'nan'"),
        ({"num_hidden_layers": -1}, "wrong field `num_hidden_layers`: '-1'"),
        ({"num_hidden_layers": True}, "wrong field `num_hidden_layers`: 'True'"),
        ({"vocab_size": "many"}, "wrong field `vocab_size`: 'many'"),
        ({"vocab_size": 10**10}, "wrong field `vocab_size`"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "that 7 heads do not divide"),
        ({"num_key_value_heads": 5}, "5 of keys and values"),
    ],
)
def test_a_wrong_file_of_a_model_is_one_error(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, **change}))

    with pytest.raises(InputError) as error:
        read_shape(file)

    assert message in error.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[1]", "not a table"), (b"\xff", "not JSON"), (b"[" * 10**5, "not JSON"), (b" " * (MOST_BYTES + 1), "larger")],
)
def test_a_file_that_is_not_of_a_model_is_one_error(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)

    with pytest.raises(InputError, match=message):
        read_shape(file)


@pytest.mark.parametrize("length", [128, 1024, 4096])
def test_activations_of_a_layer_are_those_of_the_paper(length: int) -> None:
    # Korthikanti et al. 2022, arXiv 2205.05198, equation 1: s b h (34 + 5 a s / h) bytes in 16 bits with dropout.
    hidden, heads, batch = 1600, 25, 3
    config = {"model_type": "gpt2", "n_layer": 1, "n_embd": hidden, "n_head": heads, "n_positions": 8192}
    shape = replace(shape_of({**config, "vocab_size": 100, "resid_pdrop": 0.1}, name="gpt"), outputs=0, parameters=1)
    run = ModelRun(is_training=True, batch=batch, length=length, precision=HALF, has_fused_attention=False)

    use = MemoryModel(reserve=1.0, context=0).use(shape, run)

    assert use.parts["activations"] == length * batch * (34 * hidden + 5 * heads * length)


def test_the_cache_is_as_large_as_llama_cpp_says() -> None:
    # https://github.com/ggml-org/ci/blob/a6116586c7a71fd8e2457c67fdf49050cd38c0bf/llama.cpp, `kv self size`
    run = ModelRun(is_training=False, batch=1, length=2048, precision=HALF)

    assert MemoryModel().use(find_shape("llama2-7b"), run).parts["cache of keys and values"] == 1024 * 2**20


def test_states_are_divided_as_zero_says() -> None:
    # Rajbhandari et al. 2020, arXiv 1910.02054, figure 1: 7.5 billion parameters over 64 accelerators need 1.9 GB.
    shape = replace(find_shape("llama2-7b"), parameters=7_500_000_000)
    run = ModelRun(is_training=True, batch=1, length=1, precision=MIXED, keeps_gradients=True, shares=64)

    parts = MemoryModel().use(shape, run).parts

    states = sum(parts[name] for name in ("weights", "gradients", "state of the optimizer"))
    assert states == pytest.approx(1.9e9, abs=0.05e9)


def test_more_accelerators_save_what_torchtitan_published() -> None:
    # 82.4 and 67.0 GiB with 8 and 128 accelerators, whatever the activations need:
    # https://github.com/pytorch/torchtitan/blob/31a17bfdb70bab6f62a13d21816a5339b911d6e3/benchmarks/llama3_h100_202412_torchtitan.md
    run = ModelRun(is_training=True, batch=2, length=8192, precision=MIXED, keeps_gradients=True)

    few, many = (
        sum(MemoryModel().use(find_shape("llama3-8b"), replace(run, shares=shares)).parts.values())
        for shares in (8, 128)
    )

    assert few - many == pytest.approx((82.4 - 67.0) * GIB, rel=0.1)


def test_tensor_parallelism_divides_weights_and_at_most_each_head_of_the_cache() -> None:
    # https://github.com/vllm-project/vllm/pull/10511: "model weights take 7.48GiB" on each of two accelerators
    run = ModelRun(is_training=False, batch=1, length=8192, precision=HALF)

    one, two, many = (
        MemoryModel().use(find_shape("llama3-8b"), replace(run, shares=shares)).parts for shares in (1, 2, 64)
    )

    assert two["weights"] == pytest.approx(7.48 * GIB, rel=1e-3)
    # The model has 8 heads of keys and values.
    assert many["cache of keys and values"] == one["cache of keys and values"] / 8
    assert two["activations"] == one["activations"]


def test_gathered_layers_are_the_weights_of_two_layers_and_a_gradient() -> None:
    shape = find_shape("llama3-8b")
    run = ModelRun(is_training=True, batch=1, length=1024, precision=MIXED, keeps_gradients=True, shares=8)

    limited, unlimited = (
        MemoryModel().use(shape, replace(run, limits_gathers=limits)).parts["gathered layers"]
        for limits in (True, False)
    )

    # https://docs.pytorch.org/docs/stable/notes/fsdp.html: embedding, last norm and head are one group of their own.
    layer = 2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336 + 2 * 4096
    assert limited == 2 * (2 * 128256 * 4096 + 4096 + 3 * layer)
    assert unlimited == 2 * (shape.parameters + layer)


def test_constants_are_those_of_published_peaks() -> None:
    assert fitted(read_peaks()) == MemoryModel()


def test_published_peaks_are_inside_the_intervals() -> None:
    rows = held_out()

    assert len(rows) >= 70
    assert len({peak.publisher for peak, *_ in rows}) >= 11
    assert coverage(rows) >= 0.8
    for kind in {peak.kind for peak, *_ in rows}:
        assert coverage([row for row in rows if row[0].kind == kind]) >= 0.7, kind


@pytest.mark.parametrize("is_training", [True, False])
def test_few_models_of_timm_are_judged_wrongly(is_training: bool) -> None:
    judged = decisions(is_training=is_training)

    for name in ("excluded, but it ran", "promised, but it failed"):
        wrong, cases = judged[name]
        assert cases > 150
        assert wrong <= 0.05 * cases, name


def test_the_next_batch_is_that_of_timm() -> None:
    batches = [64, 48, 32, 24, 16, 12, 8]

    assert [next_batch(batch) for batch in batches[1:]] == batches[:-1]


@given(
    name=st.sampled_from(shipped_names()),
    batch=st.integers(1, 10**6),
    length=st.integers(1, 512),
    precision=st.sampled_from(PRECISIONS),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    is_training=st.booleans(),
    shares=st.integers(1, 64),
    memory=st.floats(GIB, 1000 * GIB),
)
def test_the_largest_batch_fits_and_the_next_one_does_not(
    name: str, batch: int, length: int, precision: str, optimizer: str, is_training: bool, shares: int, memory: float
) -> None:
    model, shape = MemoryModel(), find_shape(name)
    run = ModelRun(is_training=is_training, batch=batch, length=length, precision=precision, optimizer=optimizer)
    run = replace(run, shares=shares)

    largest = model.largest_batch(shape, run, memory)

    assert model.use(shape, replace(run, batch=largest + 1)).fits(memory) is not True
    assert not largest or model.use(shape, replace(run, batch=largest)).fits(memory)
    more = model.use(shape, replace(run, batch=batch + 1)).ratio.mean
    assert more >= model.use(shape, run).ratio.mean


def test_checkpointing_and_short_types_need_less() -> None:
    run = ModelRun(is_training=True, batch=8, length=1024, precision=MIXED)

    def total(run: ModelRun) -> float:
        return sum(MemoryModel().use(find_shape("llama3-8b"), run).parts.values())

    assert total(replace(run, is_checkpointed=True)) < total(run)
    assert total(replace(run, precision=HALF)) < total(run)
    assert total(replace(run, optimizer="sgd")) < total(replace(run, optimizer="adam-8bit")) < total(run)
    assert total(replace(run, has_fused_attention=False)) > total(run)

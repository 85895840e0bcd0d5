"""Measured effects of settings on results."""

from __future__ import annotations

import importlib.resources
import json
from collections import Counter

import numpy as np
import pytest

from knowledge.catalogue.settings import shipped_settings
from knowledge.estimate.numerical_effect import Difference, effects_of, numerical_effects

MODELS = ("mlp", "cnn", "transformer")
FEWEST_SEEDS = 5


def test_every_setting_was_measured_on_every_model_with_several_seeds() -> None:
    effects = numerical_effects()

    counts = Counter((e.framework, *sorted(e.settings.items())) for e in effects)
    assert set(counts.values()) == {len(MODELS)}
    assert {e.model for e in effects} == set(MODELS)
    assert min(e.loss.pairs for e in effects) >= FEWEST_SEEDS
    assert {e.framework for e in effects} == {"torch", "tensorflow", "jax", "onnxruntime"}


def test_an_effect_compares_results_of_the_same_seed() -> None:
    text = (importlib.resources.files("knowledge.data") / "reduced-precision.json").read_text(encoding="utf-8")
    framework = json.loads(text)["frameworks"]["torch"]
    record = next(r for r in framework["effects"] if r["settings"] == {"amp": "bfloat16"} and r["model"] == "cnn")
    losses = np.array(record["loss"]) - np.array(framework["float32"]["cnn"]["loss"])
    accuracies = np.array(record["accuracy"]) - np.array(framework["float32"]["cnn"]["accuracy"])

    (effect,) = (e for e in effects_of("torch", {"amp": "bfloat16"}) if e.model == "cnn")

    assert effect.loss.mean == pytest.approx(losses.mean())
    assert effect.loss.deviation == pytest.approx(losses.std(ddof=1))
    assert effect.accuracy.mean == pytest.approx(accuracies.mean())
    assert effect.forward_error == pytest.approx(np.mean(record["forward_error"]))
    assert effect.float32_deviation == pytest.approx(np.std(framework["float32"]["cnn"]["loss"], ddof=1))
    assert "torch==2.13.0+cpu" in effect.packages


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_bfloat16_changes_the_forward_pass_by_its_eight_bits(framework: str) -> None:
    effects = effects_of(framework, {"amp": "bfloat16"})

    # One rounding to eight significant bits has a relative error of at most 2**-9; a network has several in a row.
    assert [e.model for e in effects] == list(MODELS)
    assert all(2**-11 < e.forward_error < 2**-5 for e in effects)


def test_settings_that_change_the_order_of_operations_only_round() -> None:
    reordered = [e for e in numerical_effects() if e.numerics == "reordered"]

    assert reordered
    assert max(e.forward_error for e in reordered) < 1e-5


def test_settings_have_the_class_of_the_catalogue() -> None:
    compared = 0
    for effect in numerical_effects():
        for name, value in effect.settings.items():
            setting = shipped_settings().get(name)
            framework = setting.framework(effect.framework) if setting else None
            choice = framework.choice(value) if framework else None
            if choice and len(effect.settings) == 1:
                compared += 1
                assert choice.numerics == effect.numerics, effect

    assert compared > 20


def test_the_precision_of_matrix_products_has_no_effect_in_jax_on_a_cpu() -> None:
    exact, reduced = (
        [e.forward_error or e.loss.mean or e.loss.deviation for e in effects_of("jax", settings)]
        for settings in ({"matmul_precision": "bfloat16"}, {"amp": "bfloat16"})
    )

    assert exact == [0.0] * len(MODELS)
    assert reduced
    assert all(reduced)


def test_settings_that_were_not_measured_have_no_effects() -> None:
    assert effects_of("torch", {"amp": "bfloat16", "isa": "avx2"}) == ()
    assert effects_of("numpy", {"isa": "avx2"}) == ()


def test_the_interval_is_that_of_student() -> None:
    # Quantile 0.95 of Student's t with 4 degrees of freedom: 2.132 (NIST/SEMATECH e-Handbook, section 1.3.6.7.2).
    low, high = Difference(mean=1.0, deviation=0.5, pairs=5).interval()

    assert (low, high) == pytest.approx((1 - 2.132 * 0.5 / 5**0.5, 1 + 2.132 * 0.5 / 5**0.5), abs=1e-3)

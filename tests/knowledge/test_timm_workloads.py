"""Models of timm as workloads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from knowledge.domain.errors import InputError
from knowledge.estimate.cases import cases_of
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.model_cache import ModelCache
from knowledge.estimate.setting_effect import SettingEffect
from knowledge.estimate.workloads import MODELS, OPERATIONS, TASKS, find_workload, share_of_parts
from knowledge.evidence.contrasts import machine_of
from knowledge.evidence.timm import timm_contrasts, timm_tables
from knowledge.hardware.profiles import find_profile
from knowledge.store.engine import open_knowledge_base

STACK = {"torch": Version("2.9.1")}


@pytest.fixture
def models(first_knowledge: Path) -> Iterator[ModelCache]:
    """Models of a knowledge base with what ships."""
    with open_knowledge_base(str(first_knowledge)) as store:
        yield ModelCache(store)


def estimator(models: ModelCache, workload: str, hardware: str = "rtx3090") -> WorkloadEstimator:
    return WorkloadEstimator(
        models, hardware=find_profile(hardware), workload=find_workload(workload), frameworks={"torch"}
    )


def effect(models: ModelCache, workload: str, setting: str, hardware: str = "rtx3090") -> SettingEffect:
    """Return the effect of a setting on a model."""
    effects = estimator(models, workload, hardware).compared_settings(STACK)
    (own,) = (e for e in effects if e.setting == setting)
    return own


def test_every_model_of_the_tables_is_a_workload_for_inference_and_for_training() -> None:
    for name in list(timm_tables().models)[::50]:
        for suffix, mode in (("", "inference"), ("-training", "training")):
            workload = find_workload(f"timm/{name}{suffix}")

            assert workload.timm_model == name
            assert [dict(part.parameters) for part in workload.parts[TASKS]] == [{"task": f"timm/{name}", "mode": mode}]
            assert "torch" in workload.backends
            assert workload.source.startswith("https://github.com/huggingface/pytorch-image-models")

    assert find_workload("cnn-training").timm_model == ""
    assert share_of_parts(find_workload("timm/resnet50"), [{"indicator": "conv2d"}]) > 0.9


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("timm/resnet49", "`timm/resnet"),
        ("timm/vit_base_patch16_225", "`timm/vit_base_patch16_224`"),
        ("timm/resnet49-training", "`timm/resnet"),
        ("timm/", "write `timm/` and the name of a model of timm"),
        ("timm/?!", "write `timm/` and the name of a model of timm"),
    ],
)
def test_an_unknown_model_is_one_error_with_the_closest_names(name: str, closest: str) -> None:
    with pytest.raises(InputError, match="timm's benchmark tables do not contain the model") as error:
        find_workload(name)

    assert f"`{name}`" in str(error.value)
    assert closest in error.value.hint


@pytest.mark.parametrize(
    ("hardware", "basis", "measured"), [("rtx3090", TASKS, "large"), ("cpu-icelake", MODELS, "small")]
)
def test_the_sizes_are_batches_and_the_measured_one_is_nearest_to_that_of_the_tables(
    hardware: str, basis: str, measured: str
) -> None:
    workload, profile = find_workload("timm/resnet50"), find_profile(hardware)
    contrasts = list(timm_contrasts("resnet50"))

    cases = cases_of(workload, contrasts, machine_of(profile, "cuda" if profile.gpu else "cpu"), set())

    assert [case.size for case in cases] == ["small", "medium", "large"]
    assert [case.basis for case in cases] == [basis] * 3
    assert [case.flops for case in cases] == pytest.approx([2 * 4.11e9 * batch for batch in (1, 32, 256)])
    labels = {case.programs[0][0][1].label: case.size for case in cases}
    assert [size for label, size in labels.items() if label in {c.label for c in contrasts}] == [measured]


def test_the_own_ratios_of_a_model_decide(models: ModelCache) -> None:
    """In the tables, channels last makes one model 1.7 to 2.2 times as fast, and another one 1.00 to 1.01 times."""
    mixer, transformer = (
        effect(models, f"timm/{name}", "memory_format=channels_last")
        for name in ("convmixer_768_32", "deit_tiny_patch16_224")
    )

    assert mixer.speedup > 1.5
    assert mixer.low > transformer.high - 0.1
    assert abs(math.log(transformer.speedup)) < 0.06
    assert mixer.same_tasks
    assert {source.name for source in mixer.sources} == {"huggingface/pytorch-image-models"}


def test_training_has_other_effects_than_inference(models: ModelCache) -> None:
    """In the tables, channels last makes this model 1.47 times as fast in training, and 1.16 to 1.22 in inference."""
    training, inference = (
        effect(models, f"timm/resnet50{mode}", "memory_format=channels_last").speedup for mode in ("-training", "")
    )

    assert training > 1.1 * inference


def test_compiling_is_predicted_for_an_accelerator_that_nobody_measured(models: ModelCache) -> None:
    own = effect(models, "timm/resnet50", "compile=on", "h100")

    assert own.low > 1.2
    assert 1.5 < own.speedup < 2.2


def test_releases_are_predicted_for_sizes(models: ModelCache) -> None:
    prediction = estimator(models, "timm/vit_base_patch16_224").predict(
        {"torch": Version("2.1.0")}, {"torch": Version("1.13.1")}
    )

    # In the tables: 1.30.
    assert 1.05 < prediction.speedup < 1.35
    assert [size.workload for size in prediction.sizes] == ["small", "medium", "large"]
    assert prediction.workload == "timm/vit_base_patch16_224"


def test_a_processor_also_uses_what_this_program_measured(models: ModelCache) -> None:
    model = estimator(models, "timm/resnet50", "cpu-icelake").model("torch")

    assert model is not None
    assert {case.basis for case in model.cases} == {MODELS}
    assert Version("2.13.0+cpu") in model.versions
    assert OPERATIONS in find_workload("timm/resnet50").parts

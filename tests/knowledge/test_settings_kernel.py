"""How settings on processors are alike: by model, by architecture, in pairs, and by their scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from packaging.version import Version

from knowledge.estimate.amplitudes import fit_amplitudes
from knowledge.estimate.compared_settings import ComparedSetting, ReleaseSteps, compared_settings, preferred
from knowledge.estimate.discrepancy import architecture_of, program_of_label
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess, predict_held_out
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.scales import setting_scales_of
from knowledge.estimate.similarity import similarity_of_setting_pairs, similarity_of_settings
from knowledge.estimate.workloads import TimePart
from tests.knowledge.test_gains import HERE, contrast, side

PLAIN = side("2.9.0")
BOTH = (("memory_format", "channels_last"), ("amp", "bfloat16"))
FAST, THREAD = ("allocator", "tcmalloc"), ("threads", "1")


def label_of(model: str, *, mode: str = "training", batch: int = 1) -> str:
    return f"model@1[batch={batch},mode={mode},model={model}] float32 torch/cpu"


def effect(label: str, mean: float, *settings: tuple[str, str]) -> Contrast:
    """Return the effect of settings on a whole model."""
    return replace(
        contrast(PLAIN, PLAIN, mean, 0.02, label=label), side=replace(PLAIN, settings=dict(settings)), family="model"
    )


def test_sets_of_settings_are_alike_by_the_settings_and_pairs_that_they_share() -> None:
    every = [(), (FAST,), (FAST, THREAD), (BOTH[1], FAST, THREAD)]
    scales = {"allocator=tcmalloc": 0.5, "threads=1": 2.0}

    assert similarity_of_settings(every, {}).tolist() == [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]]
    assert similarity_of_settings(every, scales)[1:3, 1:3].tolist() == [[0.25, 0.25], [0.25, 4.25]]
    pairs = similarity_of_setting_pairs(every, {})
    assert pairs.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 3]]
    # The scale of a pair is the geometric mean of those of the settings: once for each of the two stacks.
    assert similarity_of_setting_pairs(every, scales)[2, 2] == pytest.approx(0.5 * 2.0)


def test_models_and_blocks_of_one_architecture_are_alike_in_one_mode() -> None:
    resnet, mobilenet = (label_of(name) for name in ("resnet50", "mobilenet_v2"))
    block = "block@1[batch=4,block=residual_block,mode=training] float32 torch/cpu"

    assert architecture_of(resnet, "model") == architecture_of(mobilenet, "model") == architecture_of(block, "block")
    assert architecture_of(resnet, "model") != architecture_of(label_of("resnet50", mode="inference"), "model")
    assert program_of_label(resnet, "model") == program_of_label(label_of("resnet50", batch=8), "model")
    assert program_of_label(resnet, "model") != program_of_label(mobilenet, "model")
    matmul = "matmul@1[n=4] float32 torch/cpu"
    assert architecture_of(matmul, "matmul") == ("matmul", "matmul@1")
    assert program_of_label(matmul, "matmul") == ("matmul", matmul)


def test_a_setting_of_an_older_release_is_read_against_that_release_without_settings() -> None:
    label, old = label_of("resnet50"), side("2.4.0")
    of_release = replace(effect(label, -0.2), side=old)
    with_setting = replace(effect(label, 1.2), side=replace(old, settings=dict([FAST])))
    without_release = replace(with_setting, label=label_of("gpt2"))

    steps = ReleaseSteps([of_release, with_setting, without_release])
    (compared,) = compared_settings([of_release, with_setting, without_release], HERE)

    assert [steps.step_of(c) for c in (of_release, with_setting, without_release)] == [-0.2, -0.2, None]
    assert steps.step_of(effect(label, 0.3, FAST)) == 0.0
    assert compared.contrasts == (with_setting,)
    assert compared.release_for(Version("2.9.0")) == Version("2.4.0")


@pytest.mark.parametrize(
    ("parts", "listed"),
    [
        ([TimePart(indicator="model", parameters={"model": "resnet50", "mode": "training"}, share=1.0)], False),
        ([TimePart(indicator="training_step", parameters={}, share=1.0)], False),
        ([TimePart(indicator="model", parameters={"model": "resnet50", "mode": "inference"}, share=1.0)], True),
        ([TimePart(indicator="benchmark", parameters={}, share=1.0)], True),
        ([], True),
    ],
)
def test_settings_for_inference_are_left_out_of_training(parts: list[TimePart], listed: bool) -> None:
    changes = [("grad_mode", "no_grad", ""), ("threads", "1", "")]
    every = [ComparedSetting(change=change, contrasts=(), releases=()) for change in changes]

    assert [s.change for s in preferred(every, parts)] == (changes if listed else changes[1:])


def measured(models: tuple[str, ...]) -> Iterator[Contrast]:
    """Yield effects of five settings and one pair: those of the allocator differ by model, not by size."""
    own = {"resnet50": 0.3, "mobilenet_v2": 0.25, "bert_base": 0.0, "gpt2": 0.02}
    for model in models:
        for batch in (1, 2, 4):
            label = label_of(model, batch=batch)
            yield effect(label, own[model] + 0.005 * batch, FAST)
            yield effect(label, -0.6, THREAD)
            yield effect(label, 0.01 * batch - 0.02, ("flush_denormal", "on"))
            yield effect(label, 0.1, BOTH[0])
            yield effect(label, 0.2, BOTH[1])
            yield effect(label, 0.9 + 0.01 * batch, *BOTH)


def test_another_size_is_predicted_from_the_same_model_and_a_pair_from_the_pair() -> None:
    every = list(measured(("resnet50", "mobilenet_v2", "bert_base", "gpt2")))
    label = label_of("resnet50", batch=4)
    hidden = [c for c in every if c.label == label]
    training = [c for c in every if c.label != label]

    means, deviations = predict_held_out(training, hidden)

    by_settings = {tuple(c.side.settings): (m, d) for c, m, d in zip(hidden, means, deviations, strict=True)}
    assert by_settings["allocator",][0] == pytest.approx(0.3, abs=0.06)
    assert by_settings["memory_format", "amp"][0] == pytest.approx(0.92, abs=0.1)
    assert all(abs(c.mean - m) < 2.5 * d for c, m, d in zip(hidden, means, deviations, strict=True))


def test_another_model_is_predicted_from_those_of_its_architecture_with_more_uncertainty() -> None:
    every = list(measured(("resnet50", "mobilenet_v2", "bert_base", "gpt2")))
    size = [c for c in every if c.label == label_of("mobilenet_v2", batch=4) and FAST[0] in c.side.settings]
    model = [c for c in every if "mobilenet_v2" in c.label and FAST[0] in c.side.settings]
    amplitudes = fit_amplitudes(every)

    _, (by_size,) = predict_held_out([c for c in every if c not in size], size, amplitudes)
    means, by_models = predict_held_out([c for c in every if c not in model], model, amplitudes)

    assert min(by_models) > by_size
    assert all(mean > 0.05 for mean in means)


def test_the_scale_of_a_setting_is_the_size_of_its_effects() -> None:
    scales = setting_scales_of(list(measured(("resnet50", "bert_base"))))

    assert scales["threads=1"] > scales["allocator=tcmalloc"] > scales["flush_denormal=on"] > 0
    assert "memory_format=channels_last amp=bfloat16" not in scales
    assert setting_scales_of([]) == {}


def test_gains_of_settings_are_widened_by_the_factor_of_settings() -> None:
    every = [*measured(("resnet50", "bert_base")), contrast(side("2.8.0"), PLAIN, -0.05, 0.02)]
    amplitudes = replace(fit_amplitudes(every), widening=1.0, setting_widening=1.0)
    wide = replace(amplitudes, setting_widening=2.0)
    label = (label_of("resnet50", batch=2), "model")
    models = [
        FrameworkModel(MeasuredFramework("torch", GaussianProcess(every, a), HERE), {label: 1.0})
        for a in (amplitudes, wide)
    ]
    new, old = {"torch": Version("2.9.0")}, {"torch": Version("2.8.0")}

    releases = [model.gain(new, old).variance for model in models]
    settings = [model.gain_of_setting(new, *THREAD).variance for model in models]

    assert releases[1] == pytest.approx(releases[0])
    assert settings[1] == pytest.approx(4 * settings[0])

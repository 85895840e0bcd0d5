"""Contrasts of published measurements: which rows are pairs, and what follows from them for accelerators."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from advisor.domain.words import no_speedup_text
from docs.gpu_evidence import h100_key
from knowledge.domain.hardware import Cpu, HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.estimate.compared_settings import setting_change
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.gains import mixture
from knowledge.estimate.interface import Prediction
from knowledge.estimate.model_cache import ModelCache
from knowledge.estimate.setting_effect import SettingEffect
from knowledge.estimate.workloads import find_workload
from knowledge.evidence.accelerator_pairs import load_pairs
from knowledge.evidence.block_evidence import evidence_of, load_evidence
from knowledge.evidence.published_rows import published_contrasts
from knowledge.hardware.accelerators import find_accelerator
from knowledge.hardware.profiles import find_profile
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.contrasts import estimator
from tests.knowledge.published_rows import row

GPUS = ("Tesla V100-SXM2-16GB", "A100-SXM4-40GB", "H100 PCIe", "GeForce RTX 3090", "Tesla T4")


def ratios(observations: Iterable[Observation]) -> list[tuple[str, str, float]]:
    """Return reference, arm and ratio of each contrast."""

    def text(version: str, settings: object) -> str:
        return f"{version} {' '.join(f'{k}={v}' for k, v in sorted(dict(settings).items()))}".strip()  # type: ignore[call-overload]

    return [
        (
            text(c.reference.version, c.reference.settings),
            text(c.side.version, c.side.settings),
            round(math.exp(c.mean), 6),
        )
        for c in published_contrasts(observations)
    ]


def test_a_pair_differs_in_one_setting_or_in_the_version() -> None:
    rows = [
        row(4.0, precision="fp32"),
        row(2.0, precision="amp"),
        row(1.6, version="2.3.0", precision="amp"),
    ]
    assert ratios(rows) == [
        ("1.13.0", "1.13.0 precision=amp", 2.0),
        ("1.13.0 precision=amp", "2.3.0 precision=amp", 1.25),
    ]
    assert ratios(reversed(rows)) == ratios(rows)


@pytest.mark.parametrize(
    "other",
    [
        row(2.0, precision="amp", batch=128),
        row(2.0, precision="amp", gpu="Tesla T4"),
        row(2.0, precision="amp", task="vgg16"),
        row(2.0, precision="amp", mode="inference"),
        row(2.0, precision="amp", block="published/others/benchmarks"),
        row(2.0, precision="amp", version="2.3.0"),
        row(2.0, precision="amp", version=""),
    ],
)
def test_rows_that_differ_in_more_than_one_thing_are_no_pair(other: Observation) -> None:
    assert ratios([row(4.0, precision="fp32"), other]) == []


def test_n_rows_of_a_configuration_give_at_most_n_minus_one_pairs() -> None:
    rows = [
        row(4.0 / (1 + number), version=version, precision=precision)
        for number, precision in enumerate(("fp32", "amp", "fp16"))
        for version in ("1.12.0", "1.13.0")
    ]
    assert len(ratios(rows)) == 5


def test_rows_without_a_version_are_pairs_in_their_settings_only() -> None:
    rows = [row(4.0, version="", precision="fp32"), row(2.0, version="", precision="amp"), row(1.0, precision="amp")]
    assert ratios(rows) == [("", "precision=amp", 2.0)]


def test_repeated_rows_count_once_by_their_median() -> None:
    rows = [row(4.0, precision="fp32"), *(row(seconds, precision="amp") for seconds in (1.0, 2.0, 9.0))]
    assert ratios(rows) == [("1.13.0", "1.13.0 precision=amp", 2.0)]


def test_a_table_that_another_source_published_again_is_evidence_once(tmp_path: Path) -> None:
    original = [row(4.0, precision="fp32"), row(2.0, precision="amp"), row(3.0, gpu="V100-SXM2-16GB", precision="fp32")]
    fork = [replace(o, block="published/a/fork", started_at="2024-05-01T00:00:00+00:00") for o in original]
    added = row(1.0, precision="amp", gpu="V100-SXM2-16GB", block="published/a/fork")

    with open_knowledge_base(str(tmp_path / "k.sqlite"), shipped=False) as store:
        store.add([*fork, *original, added])
        contrasts = load_evidence(store).contrasts
        pairs = load_pairs(store)

    assert [(c.block, c.machine.name) for c in contrasts] == [
        ("published/a/fork", "Tesla V100-SXM2-16GB"),
        ("published/someone/benchmarks", "NVIDIA A100-SXM4-40GB"),
    ]
    assert [pair.source for pair in pairs] == ["someone/benchmarks"]


@pytest.mark.shipped
@pytest.mark.parametrize("share", [1, 2])
def test_a_shipped_table_that_another_source_published_again_is_no_more_evidence(
    knowledge_file: Path, share: int
) -> None:
    """The whole table, or every second row of it: what the copied rows alone say is known, too."""
    with open_knowledge_base(str(knowledge_file)) as store:
        before, pairs = load_evidence(store).contrasts, load_pairs(store)
        rows = list(store.observations(block="published/NVIDIA/DeepLearningExamples"))[::share]
        store.add(replace(o, block="published/a/fork", started_at="2026-01-01T00:00:00+00:00") for o in rows)

        after = load_evidence(store).contrasts

        assert Counter(c.block for c in after) == Counter(c.block for c in before)
        assert load_pairs(store) == pairs


@pytest.mark.parametrize(("fork_day", "source"), [("2023-06-01", "someone/benchmarks"), ("2023-01-01", "a/fork")])
def test_of_equal_rows_of_one_year_the_source_with_the_oldest_table_counts(
    tmp_path: Path, fork_day: str, source: str
) -> None:
    original = [
        replace(row(seconds, precision=precision), started_at="2023-05-06T00:00:00+00:00")
        for seconds, precision in ((4.0, "fp32"), (2.0, "amp"))
    ]
    fork = [replace(o, block="published/a/fork", started_at=f"{fork_day}T00:00:00+00:00") for o in original]

    with open_knowledge_base(str(tmp_path / "k.sqlite"), shipped=False) as store:
        store.add([*fork, *original])
        contrasts = load_evidence(store).contrasts

    assert [c.block for c in contrasts] == [f"published/{source}"]


def test_absurd_pairs_are_left_out() -> None:
    """Within one configuration, no version is three times as fast, and no setting a hundred times."""
    assert ratios([row(3.0), row(1.0, version="2.3.0")]) == []
    assert ratios([row(100.0), row(1.0, precision="amp")]) == []


def test_a_build_of_a_container_counts_as_its_release_and_computes_float32_with_tf32_on_new_accelerators() -> None:
    for gpu, before in (("A100-SXM4-40GB", "1.13.0 precision=tf32"), ("Tesla V100-SXM2-16GB", "1.13.0")):
        rows = [
            row(seconds, precision=precision, version="1.13.0a0+d0d6b1f", index="ngc", gpu=gpu)
            for seconds, precision in ((4.0, "fp32"), (2.0, "amp"))
        ]
        assert ratios(rows) == [(before, "1.13.0 precision=amp", 2.0)]


def test_published_rows_are_evidence_but_no_proof_that_public_files_run() -> None:
    evidence = evidence_of([row(4.0, precision="fp32"), row(2.0, precision="amp")])
    assert [c.source for c in evidence.contrasts] == ["someone/benchmarks"]
    assert evidence.contrasts[0].year == 2023
    assert evidence.runs == ()


def world(*, gain: float = 2.0, gpus: Iterable[str] = GPUS, tasks: int = 6) -> list[Observation]:
    """Return rows of several accelerators and tasks on which AMP gains the same, and a version nothing."""
    return [
        row(
            (1.0 + number) / (gain if precision == "amp" else 1.0) * (1 + 0.01 * ((number + place) % 3)),
            gpu=gpu,
            task=task,
            version=version,
            precision=precision,
        )
        for place, gpu in enumerate(gpus)
        for number, task in enumerate(("resnet50", "bert_large", "vgg16", "gnmt", "ssd300", "dlrm")[:tasks])
        for version in ("1.12.0", "1.13.0")
        for precision in ("fp32", "amp")
    ]


def estimator_of(observations: list[Observation], gpu: str) -> WorkloadEstimator:
    accelerator = find_accelerator(gpu)
    assert accelerator is not None
    hardware = HardwareProfile(
        name="target",
        cpu=Cpu(architecture="x86_64", microarchitecture="zen2"),
        accelerators=(accelerator.accelerator(),),
    )
    contrasts = list(published_contrasts(observations))
    return estimator(contrasts, workload=find_workload("resnet50-training"), hardware=hardware)


def effect_of_amp(observations: list[Observation], gpu: str) -> SettingEffect:
    (effect,) = estimator_of(observations, gpu).compared_settings({"torch": Version("1.13.0")})
    return effect


def width(prediction: SettingEffect | Prediction) -> float:
    return math.log(prediction.high / prediction.low)


def test_a_setting_is_predicted_for_an_accelerator_that_nobody_measured() -> None:
    effect = effect_of_amp(world(), "NVIDIA A40")

    assert (effect.setting, effect.measured_as, effect.over) == ("amp=float16", "precision=amp", "precision=fp32")
    assert 1.2 < effect.low < 2 < effect.high
    assert effect.accelerator_pairs == 0
    assert [(s.name, s.pairs, s.first_year) for s in effect.sources] == [("someone/benchmarks", 10, 2023)]
    assert effect.same_tasks


def test_gains_with_tensor_cores_say_nothing_about_an_accelerator_without_them() -> None:
    """On a GTX 1080 Ti, float16 has a 64th of the rate of float32."""
    assert estimator_of(world(), "GTX 1080 Ti").compared_settings({"torch": Version("1.13.0")}) == ()

    model = estimator_of(world(), "GTX 1080 Ti").model("torch")
    assert model is not None
    without = model.setting_effect({"torch": Version("1.13.0")}, "precision", "amp")
    assert without.speedup < 1.5
    assert math.log(without.high / without.low) > 2.5 * width(effect_of_amp(world(), "NVIDIA A40"))


def test_more_rows_of_one_source_do_not_make_a_prediction_arbitrarily_certain() -> None:
    """What its code makes of a setting is common to all rows of a source."""
    few, many = (width(effect_of_amp(rows, GPUS[1])) for rows in (world(gpus=GPUS[:2], tasks=3), world()))

    assert 4 * 0.015 < many < 1.2 * few


def test_a_version_that_gains_nothing_is_predicted_to_gain_nothing_and_a_newer_one_is_uncertain() -> None:
    fitted = estimator_of(world(), GPUS[1])
    model = fitted.model("torch")
    assert model is not None
    base = {"torch": Version("1.12.0")}

    measured, later = (
        mixture(list(model.gain_by_case({"torch": Version(v)}, base).values())) for v in ("1.13.0", "2.10.0")
    )

    assert abs(measured.mean) < 0.03
    assert later.variance > 3 * measured.variance


def test_a_step_that_nobody_published_neither_gains_nor_costs(first_knowledge: Path) -> None:
    """Otherwise the uncertainty of every version but the baseline's would make a stack without the framework better."""
    texts = ("2.15.0", "2.12.0", "2.3.1", "1.13.1")
    versions = {text: Version(text) for text in texts}
    with open_knowledge_base(str(first_knowledge)) as store:
        fitted = WorkloadEstimator(
            ModelCache(store),
            hardware=find_profile("h100"),
            workload=find_workload("resnet50-training"),
            frameworks={"torch"},
        )
        candidates = {"torch": list(versions.values())}
        (new,) = fitted.terms(candidates, {"torch": versions["2.15.0"]})
        (old,) = fitted.terms(candidates, {"torch": versions["2.3.1"]})
        predictions = [
            fitted.predict({"torch": versions[one]}, {"torch": versions[other]})
            for one, other in (("2.12.0", "2.15.0"), ("1.13.1", "2.3.1"))
        ]

    assert all(abs(g.mean) + g.variance < 1e-12 for g in new.alone.values())
    assert [text for text in texts if old.alone[versions[text]].variance > 1e-12] == ["1.13.1"]
    assert [bool(p.changes) for p in predictions] == [False, True]
    assert [p.newest_measured for p in predictions] == [(("torch", "2.11.0"),), ()]
    assert [p.not_compared for p in predictions] == [("torch",), ()]
    # The newest release that was compared is no reason where neither stack is newer.
    assert no_speedup_text(replace(predictions[0], newest_measured=())) == (
        "the two versions of `torch` were not compared on such hardware"
    )


def test_setting_changes_name_the_setting_and_both_values() -> None:
    (contrast,) = published_contrasts([row(4.0, precision="tf32"), row(2.0, precision="amp")])
    assert setting_change(contrast) == ("precision", "amp", "tf32")
    assert setting_change(replace(contrast, side=replace(contrast.side, version="2.0"))) is None


def test_the_page_about_one_h100_has_pairs_of_one_h100_only() -> None:
    rows = [row(4.0, gpu="H100 SXM5", version="1.13.0"), row(3.6, gpu="H100 SXM5", version="2.3.0")]
    (contrast,) = published_contrasts(rows)

    assert h100_key(contrast) == ("resnet50", "fp32")
    assert h100_key(replace(contrast, label=contrast.label.replace("gpus=1", "gpus=2"))) is None

"""What the estimator promises a user: own measurements decide, sizes count, imprecise data create no certainty."""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from knowledge.domain.hardware import Cpu, HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.estimate.compared_settings import compared_settings
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.model_cache import MOST_OWN, MOST_RATIOS, ModelCache, selected, shipped_variances
from knowledge.estimate.setting_effect import SettingEffect
from knowledge.estimate.similarity import element_type_of, side_on
from knowledge.estimate.workloads import find_workload
from knowledge.evidence.contrasts import Side, machine_of
from knowledge.hardware.profiles import find_profile
from knowledge.store.base import KnowledgeBase
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.contrasts import ELSEWHERE, HERE, contrast, side
from tests.knowledge.samples import InventedArm, invented_arms

ICELAKE = find_profile("cpu-icelake")
IDENTITY = "abcdabcdabcdabcd"
LEAST_FACTOR = 1.02
"""How much wider an interval is at least where less is known."""
BERT: dict[str, str | int] = {"model": "bert_base", "mode": "training", "batch": 8, "length": 128}


def benchmark(
    arms: Sequence[InventedArm], framework: str = "torch", hardware: HardwareProfile = ICELAKE
) -> Iterator[Observation]:
    """Yield an invented result of a project's own benchmark."""
    parameters: dict[str, str | int] = {"project": "p", "identity": IDENTITY, "unit": "s", "better": "lower"}
    return invented_arms(arms, framework=framework, indicator="benchmark", parameters=parameters, hardware=hardware)


@pytest.fixture
def store(knowledge_file: Path) -> Iterator[KnowledgeBase]:
    with open_knowledge_base(str(knowledge_file)) as opened:
        yield opened


def estimator(
    store: KnowledgeBase,
    workload: str | None = "transformer-training",
    hardware: HardwareProfile = ICELAKE,
    *,
    framework: str = "torch",
) -> WorkloadEstimator:
    return WorkloadEstimator(
        ModelCache(store),
        hardware=hardware,
        workload=find_workload(workload) if workload else None,
        frameworks=(framework, "numpy"),
        benchmark=IDENTITY,
    )


def effects(predicted: WorkloadEstimator, version: str = "2.13.0+cpu") -> dict[str, SettingEffect]:
    return {effect.setting: effect for effect in predicted.compared_settings({"torch": Version(version)})}


def width(effect: SettingEffect) -> float:
    return math.log(effect.high / effect.low)


@pytest.mark.shipped
def test_settings_of_the_own_benchmark_are_what_it_measured(store: KnowledgeBase) -> None:
    before = effects(estimator(store))
    store.add(
        benchmark(
            [("2.13.0+cpu", {}, 0.0), ("2.13.0+cpu", {"allocator": "tcmalloc"}, 0.0)]
            + [("2.13.0+cpu", {"threads": "1"}, math.log(2))]
        )
    )

    after = effects(estimator(store))

    assert after["allocator=tcmalloc"].workload == after["threads=1"].workload == "benchmark"
    assert after["allocator=tcmalloc"].speedup == pytest.approx(1.0, abs=0.02)
    assert after["allocator=tcmalloc"].low < 1 < after["allocator=tcmalloc"].high
    assert after["threads=1"].speedup == pytest.approx(2.0, rel=0.04)
    # What it never tried is for the workload that was named, and not more certain.
    untried = after["onednn=off"]
    assert untried.workload == "transformer-training"
    assert width(untried) >= 0.95 * width(before["onednn=off"])


@pytest.mark.shipped
def test_what_settings_gain_in_the_optimum_is_what_the_report_says(store: KnowledgeBase) -> None:
    store.add(benchmark([("2.13.0+cpu", {}, 0.0), ("2.13.0+cpu", {"allocator": "tcmalloc"}, 0.3)]))
    own = estimator(store)
    stack = {"torch": Version("2.13.0+cpu"), "numpy": Version("2.4.6")}

    (gains,) = (g for g in own.setting_gains({n: [v] for n, v in stack.items()}, stack) if g.framework == "torch")

    in_optimum = gains.alone[stack["torch"]]["allocator", "tcmalloc"]
    assert math.exp(in_optimum.mean) == pytest.approx(effects(own)["allocator=tcmalloc"].speedup)
    assert in_optimum.mean == pytest.approx(0.3, abs=0.02)


@pytest.mark.shipped
def test_a_benchmark_on_a_processor_says_nothing_about_an_accelerator(store: KnowledgeBase) -> None:
    stacks = {"torch": Version("2.10.0")}, {"torch": Version("2.12.1")}
    a100 = find_profile("a100")
    before = estimator(store, hardware=a100).predict(*stacks)
    store.add(benchmark([("2.12.1", {}, 0.0), ("2.10.0", {}, 0.4)]))

    after = estimator(store, hardware=a100).predict(*stacks)

    assert after == before
    assert estimator(store).predict(*stacks).speedup == pytest.approx(math.exp(0.4), rel=0.03)


@pytest.mark.shipped
def test_imprecise_data_create_no_certainty_about_a_setting(store: KnowledgeBase) -> None:
    zen3 = find_profile("cpu-zen3")
    before = effects(estimator(store, hardware=zen3))
    block: dict[str, str | int] = {
        "block": "recurrent_block",
        "batch": 4,
        "length": 20,
        "mode": "training",
        "width": 256,
    }
    arms = [("2.13.0+cpu", {}, 0.0), ("2.13.0+cpu", {"spinning": "off"}, 0.0), ("2.13.0+cpu", {"onednn": "off"}, 0.0)]
    store.add(invented_arms(arms, indicator="block", parameters=block, hardware=zen3, noise=0.25, rounds=4))

    after = effects(estimator(store, hardware=zen3))

    for name in ("allocator=tcmalloc", "spinning=off", "onednn=off"):
        # The gain of each program never widens; how much programs differ may.
        assert 0.9 * width(before[name]) <= width(after[name]) <= 1.03 * width(before[name])


@pytest.mark.shipped
def test_what_was_measured_is_more_certain_than_what_never_was(store: KnowledgeBase) -> None:
    measured = effects(estimator(store, "bert-training"))
    never = effects(estimator(store, "transformer-translation-training"))

    assert width(never["allocator=tcmalloc"]) > LEAST_FACTOR * width(measured["allocator=tcmalloc"])
    assert width(never["onednn=off"]) > width(measured["onednn=off"])


@pytest.mark.shipped
def test_a_precise_measurement_of_the_model_on_this_machine_decides(store: KnowledgeBase) -> None:
    arms = [("2.13.0+cpu", {}, 0.0), ("2.13.0+cpu", {}, 0.0), ("2.13.0+cpu", {"allocator": "tcmalloc"}, 0.0)]
    store.add(invented_arms([*arms, ("2.10.0", {}, 0.3)], parameters=BERT, hardware=ICELAKE, flops=6.6e11))
    own = estimator(store, "bert-training")
    stacks = {"torch": Version("2.10.0")}, {"torch": Version("2.13.0+cpu")}

    tcmalloc, release = effects(own)["allocator=tcmalloc"], own.predict(*stacks)

    assert tcmalloc.speedup == pytest.approx(1.0, abs=0.03)
    assert tcmalloc.low < 1 < tcmalloc.high
    assert release.speedup == pytest.approx(math.exp(0.3), rel=0.04)
    assert release.low < math.exp(0.3) < release.high
    assert [size.flops for size in tcmalloc.sizes] == pytest.approx([6.6e11])


def test_matrix_products_of_medium_precision_depend_on_the_feature_that_multiplies_bfloat16() -> None:
    medium = Side(version="2.13.0", companions={}, settings={"matmul_precision": "medium"})
    amx, zen4, zen3 = (machine_of(find_profile(f"cpu-{n}"), "cpu") for n in ("sapphirerapids", "zen4", "zen3"))

    sides = [side_on(medium, machine).settings for machine in (amx, zen4, zen3)]

    assert len({str(settings) for settings in sides}) == 3


@pytest.mark.shipped
def test_a_reduced_precision_of_one_feature_is_not_listed_for_another(store: KnowledgeBase) -> None:
    contrasts = ModelCache(store).contrasts("torch", "cpu")
    haswell = machine_of(find_profile("cpu-haswell"), "cpu")
    on_feature = {setting.change[:2] for setting in compared_settings(contrasts, haswell)}

    reduced = {(n, v) for c in contrasts for n, v in c.side.settings.items() if element_type_of(n, v)}
    for name, value in reduced:
        measured = [c.machine for c in contrasts if c.side.settings.get(name) == value]
        alike = [m for m in measured if m.precision_features == haswell.precision_features]
        assert ((name, value) in on_feature) == bool(alike)
    assert {("matmul_precision", "medium"), ("fpmath", "bfloat16")} <= reduced - on_feature


def test_own_measurements_are_the_last_that_are_left_out() -> None:
    shipped = [contrast(side("2.9.0"), side("2.8.0"), 0.1, 0.01 * n, block=f"s{n}") for n in range(1, MOST_RATIOS + 9)]
    elsewhere = contrast(side("2.9.0"), side("2.8.0"), 0.1, 0.1, block="team", machine=ELSEWHERE)
    own = [contrast(side("2.9.0"), side("2.8.0"), 0.1, 0.5, block="z-own", label=f"{n}") for n in range(MOST_OWN)]

    kept = selected([*shipped, elsewhere, *own], HERE, {"z-own", "team"})

    assert len(kept) == MOST_RATIOS
    assert kept[-MOST_OWN:] == own
    assert elsewhere not in kept


def test_repeats_of_an_own_comparison_count_as_their_mean() -> None:
    alike, unlike = (
        [contrast(side("2.9.0"), side("2.8.0"), step * n, 0.1, block=f"b{n}") for n in range(101)]
        for step in (0.001, 0.01)
    )

    (first,), (second,) = (selected(own, HERE, {c.block for c in own}) for own in (alike, unlike))

    assert first.mean == pytest.approx(0.05)
    assert first.error == pytest.approx(0.1 / math.sqrt(101))
    assert second.mean == pytest.approx(0.5)
    assert second.error == pytest.approx(statistics.stdev(c.mean for c in unlike) / math.sqrt(101))


@pytest.mark.shipped
def test_settings_of_releases_that_nobody_measured_are_less_certain(store: KnowledgeBase) -> None:
    own = estimator(store)

    measured, later = (effects(own, version)["allocator=tcmalloc"] for version in ("2.13.0+cpu", "3.7.0"))

    assert width(later) > LEAST_FACTOR * width(measured)


@pytest.mark.shipped
def test_an_arm_with_a_setting_does_not_widen_predictions_of_versions(store: KnowledgeBase) -> None:
    stacks = {"torch": Version("2.10.0")}, {"torch": Version("2.13.0")}
    arms: list[InventedArm] = [("2.13.0", {}, 0.0), ("2.13.0", {}, 0.0), ("2.10.0", {}, 0.02)]
    store.add(benchmark(arms))
    before = estimator(store).predict(*stacks)
    store.remove(["mine"])
    store.add(benchmark([*arms, ("2.13.0", {"threads": "1"}, -1.0)]))

    after = estimator(store).predict(*stacks)

    assert math.log(after.high / after.low) <= math.log(before.high / before.low) + 1e-6


def test_a_processor_is_like_another_by_its_features_and_not_by_its_name() -> None:
    profile = find_profile("cpu-sapphirerapids")
    hidden = HardwareProfile(
        name="vm",
        cpu=Cpu(
            architecture="x86_64",
            microarchitecture="icelake",
            vendor="GenuineIntel",
            features=("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
        ),
    )
    named, real = machine_of(hidden, "cpu"), machine_of(profile, "cpu")

    assert named.is_like(real)
    assert not named.is_like(machine_of(ICELAKE, "cpu"))


def test_an_unknown_publisher_is_trusted_least() -> None:
    variances = shipped_variances("tensorflow", "cuda")

    assert len(variances.sources) > 1
    assert variances.of_source("nobody") == max(variances.sources.values())


@pytest.mark.shipped
@pytest.mark.parametrize("workload", ["transformer-training", None])
def test_the_size_decides_about_bfloat16_and_the_report_knows_it(store: KnowledgeBase, workload: str | None) -> None:
    effect = next(
        e
        for e in estimator(store, workload, find_profile("cpu-sapphirerapids")).compared_settings(
            {"torch": Version("2.13.0+cpu")}
        )
        if e.setting == "amp=bfloat16" and e.workload == "transformer-training"
    )

    speedups = [size.speedup for size in effect.sizes]
    assert speedups == sorted(speedups)
    assert speedups[-1] > 1.3 * speedups[0]


def test_the_own_benchmark_counts_once(store: KnowledgeBase) -> None:
    store.add(benchmark([("2.13.0+cpu", {}, 0.0), ("2.13.0+cpu", {"allocator": "tcmalloc"}, 0.3)]))

    model = estimator(store).model("torch")

    assert model is not None
    assert [c.family for c in model.measured.contrasts] == ["benchmark"]


@pytest.mark.shipped
@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize(
    ("framework", "workload", "profile"),
    [
        ("torch", "text-generation", "a100"),
        ("onnxruntime", "transformer-training", "cpu-icelake"),
        ("tensorflow-cpu", "timm/resnet50", "cpu-icelake"),
        ("torch", "transformer-training", "cpu-icelake"),
    ],
)
def test_a_benchmark_of_a_framework_without_measurements_of_the_workload_decides_alone(
    store: KnowledgeBase, framework: str, workload: str, profile: str, versions: bool
) -> None:
    old, new = ("2.10.0", "2.13.0") if framework == "torch" else ("1.27.0", "1.28.0")
    hardware = find_profile(profile)
    arms: list[InventedArm] = [(new, {}, 0.0), (new, {"allocator": "tcmalloc"}, 0.3)]
    store.add(benchmark([*arms, *([(old, {}, 0.4)] if versions else [])], framework, hardware))
    own = estimator(store, workload, hardware, framework=framework)
    stack, candidates = {framework: Version(new)}, {framework: [Version(old), Version(new)]}

    predicted = own.predict({framework: Version(old)}, stack)
    (gains,) = own.setting_gains(candidates, stack)
    untried = own.setting_effects(stack, {framework: {"threads": "1"}})

    assert math.exp(gains.alone[Version(new)]["allocator", "tcmalloc"].mean) == pytest.approx(math.exp(0.3), rel=0.03)
    if versions:
        assert predicted.workload == "benchmark"
        assert predicted.speedup == pytest.approx(math.exp(0.4), rel=0.04)
    assert all(effect.low < effect.high for effect in untried)
    assert len(own.terms(candidates, stack)) == 1 or not versions


@pytest.mark.shipped
def test_two_versions_of_a_benchmark_leave_the_others_as_certain_as_before(store: KnowledgeBase) -> None:
    stacks = {"torch": Version("2.6.0")}, {"torch": Version("2.13.0")}
    before = estimator(store).predict(*stacks)
    store.add(benchmark([("2.13.0", {}, 0.0), ("2.13.0", {}, 0.0), ("2.10.0", {}, 0.01)]))

    after = estimator(store).predict(*stacks)

    assert math.log(after.high / after.low) <= 1.5 * math.log(before.high / before.low)


@pytest.mark.shipped
def test_nothing_is_predicted_for_an_accelerator_that_no_model_is_for(store: KnowledgeBase) -> None:
    store.add(benchmark([("2.13.0", {}, 0.0), ("2.10.0", {}, 0.4)]))
    predicted = estimator(store, hardware=find_profile("mi300x")).predict(
        {"torch": Version("2.10.0")}, {"torch": Version("2.13.0")}
    )

    assert predicted.speedup == predicted.low == predicted.high == 1.0
    assert "torch" in predicted.unmeasured


@pytest.mark.shipped
@pytest.mark.parametrize("cores", [1, 128])
def test_the_number_of_threads_depends_on_the_cores(store: KnowledgeBase, cores: int) -> None:
    two, other = (replace(ICELAKE, cpu=replace(ICELAKE.cpu, cores=count)) for count in (2, cores))

    here, there = (effects(estimator(store, hardware=hardware))["threads=1"] for hardware in (two, other))

    assert here.high < 1
    if cores == 1:
        assert there.low == there.high == 1
    else:
        assert width(there) > LEAST_FACTOR * width(here)


@pytest.mark.shipped
def test_settings_that_the_benchmark_tried_only_together_are_for_the_workload(store: KnowledgeBase) -> None:
    both = {"allocator": "tcmalloc", "threads": "1"}
    store.add(benchmark([("2.13.0+cpu", {}, 0.0), ("2.13.0+cpu", both, math.log(2))]))

    after = effects(estimator(store))

    assert {after["allocator=tcmalloc"].workload, after["threads=1"].workload} == {"transformer-training"}


@pytest.mark.shipped
def test_the_effect_of_a_value_over_another_one_is_the_inverse_of_the_reverse(store: KnowledgeBase) -> None:
    store.add(benchmark([("2.13.0+cpu", {}, 0.0), ("2.13.0+cpu", {"threads": "4"}, -0.2)]))
    own, stack = estimator(store), {"torch": Version("2.13.0+cpu")}

    (one,) = own.setting_effects(stack, {"torch": {"threads": "1"}}, {"torch": {"threads": "4"}})
    (other,) = own.setting_effects(stack, {"torch": {"threads": "4"}}, {"torch": {"threads": "1"}})

    assert one.speedup * other.speedup == pytest.approx(1)
    assert one.low * other.high == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.shipped
def test_many_own_measurements_do_not_push_out_what_ships(store: KnowledgeBase) -> None:
    before = effects(estimator(store))["allocator=tcmalloc"]
    tiny: dict[str, str | int] = {"model": "mobilenet_v2", "mode": "inference", "batch": 1}
    arms: list[InventedArm] = [("2.13.0+cpu", {}, 0.0)] + [
        ("2.13.0+cpu", {"threads": str(n)}, -0.1 * n) for n in range(1, 11)
    ]
    for number in range(MOST_RATIOS // 10 + 5):
        block = invented_arms(arms, parameters={**tiny, "size": 100 + number}, hardware=ICELAKE, rounds=3)
        store.add(replace(o, block=f"mine-{number}") for o in block)

    own = estimator(store)
    after = effects(own)["allocator=tcmalloc"]
    (change,) = own.predict({"torch": Version("2.10.0")}, {"torch": Version("2.13.0+cpu")}).changes

    assert after.speedup == pytest.approx(before.speedup, rel=0.02)
    assert width(after) == pytest.approx(width(before), rel=0.1)
    assert 500 < change.left_out < MOST_RATIOS


_MODELS_HERE: tuple[dict[str, str | int], ...] = (
    {"model": "resnet18", "mode": "training", "batch": 16, "size": 64},
    {"model": "mobilenet_v2", "mode": "training", "batch": 16, "size": 64},
    {"model": "unet", "mode": "training", "batch": 1, "size": 64},
)
_NEW = "2.13.0+cpu"


def measure_models(store: KnowledgeBase, arms: Sequence[InventedArm], hardware: HardwareProfile = ICELAKE) -> None:
    """Store invented measurements of three models on a machine."""
    for number, parameters in enumerate(_MODELS_HERE):
        own = invented_arms(arms, parameters=parameters, hardware=hardware)
        store.add(replace(o, block=f"{hardware.cpu.microarchitecture}-{number}") for o in own)


def over_new(store: KnowledgeBase, version: str, workload: str = "cnn-training") -> tuple[float, float, float]:
    """Return the interval and the mean of the speed of a release relative to the new one, on the own machine."""
    predicted = estimator(store, workload).predict({"torch": Version(version)}, {"torch": Version(_NEW)})
    return predicted.low, predicted.speedup, predicted.high


@pytest.mark.slow
@pytest.mark.shipped
@pytest.mark.parametrize("ratio", [0.2, 1.2])
def test_what_several_models_show_here_holds_for_others_on_this_machine(store: KnowledgeBase, ratio: float) -> None:
    old, new, later = (over_new(store, version) for version in ("2.10.0", "2.12.0", "2.14.0"))
    allocator = effects(estimator(store, "cnn-training"))["allocator=tcmalloc"]
    elsewhere = estimator(store, "cnn-training", find_profile("cpu-zen3"))
    there = elsewhere.predict({"torch": Version("2.10.0")}, {"torch": Version(_NEW)})
    measure_models(store, [(_NEW, {}, 0.0), ("2.10.0", {}, math.log(ratio))])

    after = over_new(store, "2.10.0")

    assert not old[0] <= ratio <= old[2]
    assert after[1] == pytest.approx(ratio, rel=0.1)
    assert after[0] <= ratio <= after[2]
    # Nobody measured the releases between them, nor later ones.
    between = over_new(store, "2.12.0")
    assert between[0] < new[1] < between[2]
    assert over_new(store, "2.14.0") == pytest.approx(later, rel=0.01)
    assert width(effects(estimator(store, "cnn-training"))["allocator=tcmalloc"]) <= 1.001 * width(allocator)
    elsewhere = estimator(store, "cnn-training", find_profile("cpu-zen3"))
    after_there = elsewhere.predict({"torch": Version("2.10.0")}, {"torch": Version(_NEW)})
    assert after_there.speedup == pytest.approx(there.speedup, rel=0.05)


@pytest.mark.shipped
def test_own_measurements_that_agree_widen_nothing(store: KnowledgeBase) -> None:
    versions = ("2.6.0", "2.12.0", "2.14.0")
    before = [over_new(store, version) for version in versions]
    settings = effects(estimator(store, "cnn-training"))
    arms: list[InventedArm] = [(_NEW, {}, 0.0), ("2.10.0", {}, 0.0), (_NEW, {"allocator": "tcmalloc"}, 0.08)]
    measure_models(store, arms)

    for version, (low, _, high) in zip(versions, before, strict=True):
        least, _, most = over_new(store, version)
        assert most / least <= 1.001 * high / low
    for name, after in effects(estimator(store, "cnn-training")).items():
        assert width(after) <= 1.03 * width(settings[name])


@pytest.mark.shipped
@pytest.mark.parametrize("arm", [(_NEW, {}, 0.0), (_NEW, {"allocator": "tcmalloc"}, 0.05)])
def test_own_measurements_of_a_model_say_nothing_about_what_they_did_not_compare(
    store: KnowledgeBase, arm: InventedArm
) -> None:
    model: dict[str, str | int] = {"model": "bert_base", "mode": "training", "batch": 3, "length": 60}
    before, settings = over_new(store, "2.10.0", "bert-training"), effects(estimator(store, "bert-training"))
    store.add(invented_arms([(_NEW, {}, 0.0), arm], parameters=model, hardware=ICELAKE))

    low, _, high = over_new(store, "2.10.0", "bert-training")

    assert high / low <= 1.001 * before[2] / before[0]
    for name, after in effects(estimator(store, "bert-training")).items():
        assert width(after) <= 1.03 * width(settings[name])


@pytest.mark.shipped
def test_a_setting_that_is_different_on_a_machine_says_nothing_about_other_settings_and_machines(
    store: KnowledgeBase,
) -> None:
    before = effects(estimator(store, "cnn-training"))
    measure_models(store, [(_NEW, {}, 0.0), ("2.10.0", {}, 0.0)])
    measure_models(store, [(_NEW, {}, 0.0), (_NEW, {"allocator": "tcmalloc"}, -0.4)], find_profile("cpu-zen3"))

    here, there = (effects(estimator(store, "cnn-training", m)) for m in (ICELAKE, find_profile("cpu-zen3")))

    name = "allocator=tcmalloc"
    assert there[name].high < 1 < before[name].speedup
    assert here[name].speedup == pytest.approx(before[name].speedup, rel=0.05)
    for other in before:
        assert width(here[other]) <= 1.03 * width(before[other])


@pytest.mark.shipped
def test_settings_that_were_tried_only_together_are_not_blamed_alone(store: KnowledgeBase) -> None:
    before = effects(estimator(store, "cnn-training"))
    measure_models(store, [(_NEW, {}, 0.0), (_NEW, {"allocator": "tcmalloc", "threads": "1"}, -1.5)])

    after = effects(estimator(store, "cnn-training"))["allocator=tcmalloc"]

    assert after.speedup == pytest.approx(before["allocator=tcmalloc"].speedup, rel=0.05)


@pytest.mark.shipped
def test_a_benchmark_of_a_slow_old_release_says_nothing_about_later_releases(store: KnowledgeBase) -> None:
    before = over_new(store, "2.14.0", "transformer-training")
    store.add(benchmark([(_NEW, {}, 0.0), ("2.10.0", {}, -1.6)]))

    low, mean, high = over_new(store, "2.14.0", "transformer-training")

    assert mean == pytest.approx(before[1], rel=0.03)
    assert low < 1 < high
    assert high / low < 1.3


@pytest.mark.shipped
@pytest.mark.parametrize("builds", [("2.13.0+cpu", "2.13.0"), ("2.13.0", "2.13.0+cpu")])
def test_a_benchmark_of_one_build_decides_about_another_build_of_the_release(
    store: KnowledgeBase, builds: tuple[str, str]
) -> None:
    store.add(benchmark([(builds[0], {}, 0.0), ("2.10.0", {}, 0.4)]))

    predicted = estimator(store).predict({"torch": Version("2.10.0")}, {"torch": Version(builds[1])})

    assert predicted.low > 1.2
    assert predicted.speedup == pytest.approx(math.exp(0.4), rel=0.05)


@pytest.mark.shipped
def test_more_blocks_make_a_prediction_more_certain_however_many_there_are(store: KnowledgeBase) -> None:
    widths = []
    arms: list[InventedArm] = [(_NEW, {}, 0.0), ("2.10.0", {}, 0.02)]
    arms += [(_NEW, {"threads": str(number)}, -0.1 * number) for number in range(1, 11)]
    for number in range(40):
        own = invented_arms(arms, parameters=BERT, hardware=ICELAKE, rounds=3, flops=6.6e11)
        store.add(replace(o, block=f"mine-{number}") for o in own)
        if number in (0, 9, 39):
            low, _, high = over_new(store, "2.10.0", "bert-training")
            widths.append(math.log(high / low))

    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.5 * widths[0]


@pytest.mark.shipped
def test_the_names_of_blocks_decide_nothing(knowledge_file: Path, tmp_path: Path) -> None:
    arms: list[InventedArm] = [(_NEW, {}, 0.0), (_NEW, {"threads": "1"}, -0.3)]
    known, unknown = (list(invented_arms(arms, parameters=BERT, hardware=ICELAKE, flops=f)) for f in (6.6e11, 0.0))
    found = []
    for names in (("a", "b"), ("b", "a")):
        path = Path(shutil.copy(knowledge_file, tmp_path / f"{names[0]}.sqlite"))
        with open_knowledge_base(str(path)) as store:
            for name, block in zip(names, (known, unknown), strict=True):
                store.add(replace(o, block=name) for o in block)
            effect = effects(estimator(store, "bert-training"))["threads=1"]
            found.append((effect.low, effect.speedup, effect.high))

    assert found[0] == pytest.approx(found[1], rel=1e-6)


@pytest.mark.shipped
@pytest.mark.parametrize(
    ("name", "gain", "is_benchmark"), [("a100", 0.0, True), ("v100", 0.7, False), ("rtx3090", 0.2, True)]
)
def test_own_mixed_precision_decides_on_accelerators(
    store: KnowledgeBase, name: str, gain: float, is_benchmark: bool
) -> None:
    gpu, arms = find_profile(name), [("2.1.0", {}, 0.0), ("2.1.0", {"amp": "float16"}, gain)]
    own = benchmark(arms, hardware=gpu) if is_benchmark else invented_arms(arms, parameters=BERT, hardware=gpu)
    store.add(own)

    after = effects(estimator(store, "bert-training", gpu), "2.1.0")["amp=float16"]

    assert after.speedup == pytest.approx(math.exp(gain), rel=0.05)
    assert width(after) < 0.2


@pytest.mark.shipped
def test_shipped_ratios_of_a_measured_size_are_not_the_users(store: KnowledgeBase) -> None:
    """Two models disagree about an old release; the size of one of them ships, with other releases and settings."""
    before = over_new(store, "2.14.0", "bert-training")
    ships: dict[str, str | int] = {"model": "resnet50", "mode": "training", "batch": 4, "size": 64}
    for name, parameters, gain in (("bert", BERT, -1.0), ("resnet", ships, 0.0)):
        arms: list[InventedArm] = [(_NEW, {}, 0.0), ("2.10.0", {}, gain)]
        store.add(replace(o, block=name) for o in invented_arms(arms, parameters=parameters, hardware=ICELAKE))

    low, _, high = over_new(store, "2.14.0", "bert-training")

    assert high / low < 1.1 * before[2] / before[0]


@pytest.mark.shipped
def test_one_model_does_not_decide_about_the_machine(store: KnowledgeBase) -> None:
    before, settings = over_new(store, "2.10.0"), effects(estimator(store, "cnn-training"))
    arms: list[InventedArm] = [(_NEW, {}, 0.0), ("2.10.0", {}, -1.6), (_NEW, {"allocator": "tcmalloc"}, -1.0)]
    store.add(invented_arms(arms, parameters=BERT, hardware=ICELAKE, flops=6.6e11))

    low, mean, high = over_new(store, "2.10.0")
    allocator = effects(estimator(store, "cnn-training"))["allocator=tcmalloc"]

    assert over_new(store, "2.10.0", "bert-training")[1] == pytest.approx(math.exp(-1.6), rel=0.05)
    assert 0.8 * before[1] < mean < 1.1 * before[1]
    assert low < 1 < high * 1.1
    assert allocator.high > settings["allocator=tcmalloc"].low


@pytest.mark.shipped
def test_a_release_and_a_setting_that_changed_together_are_blamed_on_neither(store: KnowledgeBase) -> None:
    before = over_new(store, "2.10.0", "transformer-training")
    store.add(benchmark([(_NEW, {}, 0.0), ("2.10.0", {"allocator": "tcmalloc"}, -1.6)]))

    low, _, high = over_new(store, "2.10.0", "transformer-training")

    assert low < before[1]
    assert high > 0.6


@pytest.mark.shipped
def test_a_setting_that_was_also_measured_alone_is_what_was_measured(store: KnowledgeBase) -> None:
    tcmalloc = {"allocator": "tcmalloc"}
    store.add(benchmark([(_NEW, {}, 0.0), (_NEW, tcmalloc, -0.8), ("2.10.0", tcmalloc, -1.6)]))

    own = effects(estimator(store))["allocator=tcmalloc"]

    assert own.speedup == pytest.approx(math.exp(-0.8), rel=0.05)
    assert width(own) < 0.3
    assert over_new(store, "2.10.0", "transformer-training")[1] == pytest.approx(math.exp(-0.8), rel=0.1)


@pytest.mark.shipped
def test_a_benchmark_decides_about_two_builds_of_a_release(store: KnowledgeBase) -> None:
    build = "2.13.0rc1+cpu"
    before = over_new(store, "2.12.0", "transformer-training")
    store.add(benchmark([(_NEW, {}, 0.0), (build, {}, 0.4)]))

    low, mean, high = over_new(store, build, "transformer-training")

    assert mean == pytest.approx(math.exp(0.4), rel=0.05)
    assert low <= math.exp(0.4) <= high
    assert over_new(store, "2.12.0", "transformer-training")[1] == pytest.approx(before[1], rel=0.05)


@pytest.mark.shipped
def test_blocks_that_contradict_each_other_create_no_certainty(store: KnowledgeBase) -> None:
    for name, gain in (("one", 0.5), ("other", -0.5)):
        arms: list[InventedArm] = [(_NEW, {}, 0.0), ("2.10.0", {}, gain)]
        store.add(replace(o, block=name) for o in invented_arms(arms, parameters=BERT, hardware=ICELAKE, flops=6.6e11))

    low, _, high = over_new(store, "2.10.0", "bert-training")

    assert high / low > 1.1


@pytest.mark.shipped
def test_older_releases_than_the_measured_ones_are_uncertain(store: KnowledgeBase) -> None:
    measure_models(store, [(_NEW, {}, 0.0), ("2.10.0", {}, -0.7)])

    low, _, high = over_new(store, "2.6.0")

    assert high / low > 1.5


@pytest.mark.shipped
def test_a_benchmark_of_the_same_release_for_processors_counts(store: KnowledgeBase) -> None:
    arms: list[InventedArm] = [("2.21.0", {}, 0.0), ("2.18.1", {}, 0.4)]
    store.add(benchmark(arms, framework="tensorflow-cpu"))

    own = estimator(store, "cnn-training", framework="tensorflow")
    predicted = own.predict({"tensorflow": Version("2.18.1")}, {"tensorflow": Version("2.21.0")})

    assert predicted.speedup == pytest.approx(math.exp(0.4), rel=0.05)

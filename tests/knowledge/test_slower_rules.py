"""Documented slow-downs: their catalogue, their conditions, and how sure one report is."""

from __future__ import annotations

import math

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from advisor.resolve.score.costs import counted_steps
from advisor.resolve.score.slowdowns import gain_without
from knowledge.catalogue.entries import read_entries
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import Rule, shipped_rules
from knowledge.catalogue.slower import REPORT_DEVIATION, HardwareCondition, Reproduction, SlowerRule
from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile
from knowledge.domain.ratio import MIN_GAIN
from knowledge.domain.workload import ProfiledWorkload, WorkloadPart
from knowledge.estimate.workloads import find_workload, one_indicator, share_of_parts, workload_of_profile
from knowledge.hardware.profiles import find_profile
from pi_runners.indicators import INDICATORS
from tests.knowledge.samples import slower_rule

SHIPPED = [rule for rule in shipped_rules() if isinstance(rule, SlowerRule)]

ENTRY = """
- kind: slower
  id: slower-torch
  packages: [torch]
  versions: ">=2.9,<2.9.1"
  than: "2.8.0"
  workload: 3-D convolutions
  ratios: [4]
  parts: [{indicator: conv3d, dtype: float16}]
  hardware: {accelerator: nvidia}
  source: https://example.org
"""


def machine(model: str = "", vendor: str = "nvidia", capability: str | None = None) -> HardwareProfile:
    gpu = Accelerator(vendor=vendor, model=model, compute_capability=capability)
    cpu = Cpu(architecture="x86_64", microarchitecture="zen4", features=("amx_tile", "avx512f"))
    return HardwareProfile(name="made-up", cpu=cpu, accelerators=(gpu,) if model else ())


def test_an_entry_is_read() -> None:
    (rule,) = read_entries(ENTRY, Rule)

    assert isinstance(rule, SlowerRule)
    assert rule.ratio == pytest.approx(4)
    assert rule.concerns("torch", Version("2.9.0+cu128"))
    assert not rule.concerns("torch", Version("2.9.1"))
    assert not rule.concerns("jax", Version("2.9.0"))


@pytest.mark.parametrize(
    ("correct", "wrong", "message"),
    [
        ("accelerator: nvidia", "accelerator: other", "hardware.accelerator"),
        ("accelerator: nvidia", "gpu: nvidia", "hardware.gpu"),
    ],
)
def test_a_wrong_entry_is_rejected(correct: str, wrong: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(read_entries(ENTRY.replace(correct, wrong), Rule))


def test_every_shipped_slow_down_names_what_the_program_knows() -> None:
    assert len(SHIPPED) >= 45
    for rule in SHIPPED:
        assert rule.source.startswith("https://"), rule.id
        for specifier in (rule.versions, rule.other_versions, rule.hardware.capability):
            SpecifierSet(specifier)
        assert rule.packages, rule.id
        assert rule.versions, rule.id
        assert not rule.concerns(rule.packages[0], Version(rule.than)), rule.id
        assert min(rule.ratios) >= 1.1, rule.id
        assert bool(rule.other) == bool(rule.other_versions), rule.id
        for part in rule.parts:
            indicator = INDICATORS[part["indicator"]]
            assert set(part) <= {"indicator", "dtype", *indicator.parameters}, rule.id


def test_the_deviation_of_a_report_is_that_of_the_catalogue() -> None:
    own = {r.id: r.reproduction for r in SHIPPED if r.reproduction is not None and not r.reproduction.program}
    every = [[*r.ratios, *([own[r.id].ratio] if r.id in own else [])] for r in SHIPPED]
    several = [ratios for ratios in every if len(ratios) > 1]
    errors = [[math.log(ratio) - math.log(math.prod(of)) / len(of) for ratio in of] for of in several]
    pooled = math.sqrt(sum(e * e for of_rule in errors for e in of_rule) / sum(len(e) - 1 for e in errors))

    assert pooled == pytest.approx(REPORT_DEVIATION, abs=0.01)


@pytest.mark.parametrize(("reports", "least"), [(1, 9.75), (2, 3.17), (4, 1.81)])
def test_the_documented_ratios_are_those_from_which_a_slow_down_counts(reports: int, least: float) -> None:
    def counts(ratio: float) -> bool:
        gain = gain_without(slower_rule(ratios=(ratio,) * reports), share=1.0)
        return counted_steps(gain, 1, MIN_GAIN) > 0

    assert counts(least)
    assert not counts(least * 0.97)


def test_more_reports_and_an_own_measurement_make_a_slow_down_more_certain() -> None:
    one, four = slower_rule(ratios=(2.0,)), slower_rule(ratios=(2.0, 2.0, 4.0, 4.0))
    measured = slower_rule(
        ratios=(2.0,), reproduction=Reproduction(ratio=8.0, low=7.0, high=9.0, versions=("2", "1"), machine="here")
    )

    assert four.deviation == pytest.approx(one.deviation / 2)
    assert four.ratio == pytest.approx(math.sqrt(8))
    assert measured.ratio == pytest.approx(4)
    assert measured.reported_ratio == pytest.approx(2)
    assert measured.deviation < one.deviation


def test_a_measurement_of_another_program_does_not_change_the_slow_down() -> None:
    other = Reproduction(
        ratio=90.0, low=80.0, high=99.0, versions=("2", "1"), machine="here", program="a smaller model"
    )
    one, measured = slower_rule(ratios=(2.0,)), slower_rule(ratios=(2.0,), reproduction=other)

    assert measured.reproduction is not None
    assert measured.reproduction.is_confirmed
    assert (measured.ratio, measured.deviation) == (one.ratio, one.deviation)


@pytest.mark.parametrize(
    ("condition", "hardware", "admitted"),
    [
        (HardwareCondition(), machine(), True),
        (HardwareCondition(), machine("NVIDIA L4"), True),
        (HardwareCondition(accelerator="none"), machine(), True),
        (HardwareCondition(accelerator="none"), machine("NVIDIA L4"), False),
        (HardwareCondition(accelerator="nvidia"), machine(), False),
        (HardwareCondition(accelerator="amd"), machine("NVIDIA L4"), False),
        (HardwareCondition(models=("L4",)), machine("NVIDIA L4"), True),
        (HardwareCondition(models=("L4",)), machine("NVIDIA L40S"), False),
        (HardwareCondition(models=("RTX 8000", "V100")), machine("Tesla V100-SXM2-16GB"), True),
        (HardwareCondition(models=("RTX 6000 Ada",)), machine("Quadro RTX 6000"), False),
        (HardwareCondition(capability=">=8.0"), machine("NVIDIA B200", capability="10.0"), True),
        (HardwareCondition(capability=">=8.0"), machine("Tesla V100", capability="7.0"), False),
        (HardwareCondition(capability=">=8.0"), machine("NVIDIA L4"), False),
        (HardwareCondition(features=("amx_tile",)), machine(), True),
        (HardwareCondition(features=("amx_fp16",)), machine(), False),
        (HardwareCondition(architectures=("aarch64",)), machine(), False),
        (HardwareCondition(os=("linux",)), machine(), True),
        (HardwareCondition(os=("windows",)), machine(), False),
    ],
)
def test_a_slow_down_applies_to_the_hardware_that_it_was_reported_on(
    condition: HardwareCondition, hardware: HardwareProfile, admitted: bool
) -> None:
    assert condition.admits(hardware) is admitted
    assert RuleBook([slower_rule(hardware=condition)], hardware).slower == (
        (slower_rule(hardware=condition),) if admitted else ()
    )


def test_shipped_machines_have_the_slow_downs_of_their_reports() -> None:
    def found(machine_name: str, package: str, version: str) -> set[str]:
        rules = RuleBook(SHIPPED, find_profile(machine_name))
        return {rule.id for rule, _ in rules.slowdowns_of({package: Version(version)})}

    assert found("h100", "torch", "2.10.0") == {"slower-torch-2.10-reduce-overhead"}
    assert found("mi300x", "torch", "2.10.0") == {"slower-torch-2.10-resnet50-mi300x"}
    assert found("v100", "torch", "2.9.0") == {"slower-torch-2.9.0-conv3d"}
    assert found("cpu-zen4", "torch", "2.9.0") == set()
    assert found("cpu-neoverse-v1", "torch", "2.2.0") == {"slower-torch-2.1-aarch64-openblas"}
    assert "slower-jaxlib-0.4.32-thunk-runtime" in found("cpu-zen4", "jaxlib", "0.5.0")


@pytest.mark.parametrize(
    ("library", "rule"),
    [
        ("nvidia-cudnn-cu12", "slower-torch-2.9.1-conv3d-cudnn"),
        ("nvidia-cudnn-cu13", "slower-torch-2.9.1-conv3d-cudnn-cu13"),
    ],
)
def test_a_slow_down_of_cudnn_is_reported_for_the_builds_of_each_cuda(library: str, rule: str) -> None:
    rules = RuleBook(SHIPPED, find_profile("h100"))

    def found(cudnn: str) -> set[str]:
        versions = {"torch": Version("2.9.1"), library: Version(cudnn)}
        return {slow.id for slow, _ in rules.slowdowns_of(versions) if "cudnn" in slow.id}

    assert found("9.13.0.50") == {rule}
    assert found("9.15.1.9") == set()


def test_a_slow_down_that_needs_another_package_applies_with_its_versions_only() -> None:
    rule = slower_rule(
        packages=("numpy",), versions=">=1.19", than="1.18", other="scikit-learn", other_versions="<0.24"
    )
    rules = RuleBook([rule], machine())

    def count(**versions: str) -> int:
        return len(rules.slowdowns_of({n.replace("_", "-"): Version(v) for n, v in versions.items()}))

    assert count(numpy="1.19", scikit_learn="0.23.2") == 1
    assert count(numpy="1.19", scikit_learn="0.24") == 0
    assert count(numpy="1.19") == 0
    assert count(numpy="1.18", scikit_learn="0.23.2") == 0


def test_a_slow_down_of_one_build_does_not_concern_the_others() -> None:
    rule = slower_rule(versions="==2.1.2", than="2.1.1", local_versions=("", "cu121"))

    assert [rule.concerns("torch", Version(f"2.1.2{local}")) for local in ("", "+cu121", "+cu118")] == [
        True,
        True,
        False,
    ]


def test_the_share_of_a_part_is_that_of_the_workload() -> None:
    training = find_workload("cnn-training")
    resnet = {"indicator": "model", "model": "resnet50", "mode": "training"}

    assert share_of_parts(training, [resnet]) == pytest.approx(0.5)
    assert share_of_parts(training, [resnet | {"mode": "inference"}]) == 0
    assert share_of_parts(one_indicator("conv2d"), [{"indicator": "conv2d"}]) == 1
    # Nobody said that the workload has filters of this size, or this element type.
    assert share_of_parts(one_indicator("conv2d"), [{"indicator": "conv2d", "kernel": "51"}]) == 0
    assert share_of_parts(one_indicator("conv2d"), [{"indicator": "conv2d", "dtype": "float16"}]) == 0
    assert share_of_parts(one_indicator("conv2d"), [{"indicator": "conv2d", "dtype": "float32"}]) == 1


def test_the_share_of_a_part_is_that_of_the_profile() -> None:
    profile = ProfiledWorkload(
        name="mine",
        framework="torch",
        framework_version="2.8.0",
        parts=(
            WorkloadPart(indicator="conv3d", parameters={}, share=0.6, dtype="float16"),
            WorkloadPart(indicator="matmul", parameters={}, share=0.3, dtype="float32"),
        ),
        unattributed=0.1,
    )
    workload = workload_of_profile(profile, backend="torch")

    assert share_of_parts(workload, [{"indicator": "conv3d", "dtype": "float16"}]) == pytest.approx(0.6)
    assert share_of_parts(workload, [{"indicator": "conv3d", "dtype": "float32"}]) == 0

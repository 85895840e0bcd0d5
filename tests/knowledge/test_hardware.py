from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from knowledge.domain.errors import InputError
from knowledge.hardware.accelerators import accelerator_models, model_of
from knowledge.hardware.detect import detect, x86_level
from knowledge.hardware.nvml import read_nvml
from knowledge.hardware.profiles import find_profile, read_profile
from knowledge.hardware.shipped_machines import PROVIDERS, cloud_instances, find_machine, shipped_machines
from tests.knowledge.samples import recorded


@pytest.mark.parametrize(
    ("machine", "microarchitecture", "topology", "numa"),
    [
        ("cpu-virtual-machine", "x86_64_v4", (1, 2, 2), 1),
        ("dgx1-v100", "broadwell", (2, 40, 80), 2),
        ("dgx-a100", "zen2", (2, 128, 256), 8),
        # Its hypervisor masks `avx512_bf16` and `waitpkg`: the remaining features are those of an Ice Lake.
        ("h200-virtual-machine", "icelake", (1, 16, 16), 1),
        ("desktop-gtx-1080-ti", "zen3", (1, 16, 32), 1),
        ("arm-graviton2", "neoverse_n1", (None, None, 1), 1),
        ("thin-container", "x86_64", (None, None, 1), None),
    ],
)
def test_the_processors_of_recorded_machines_are_recognised(
    machine: str, microarchitecture: str, topology: tuple[int | None, ...], numa: int | None
) -> None:
    profile = recorded(machine)

    assert profile.cpu.microarchitecture == microarchitecture
    assert (profile.cpu.sockets, profile.cpu.cores, profile.cpu.threads) == topology
    assert profile.numa_nodes == numa


@pytest.mark.parametrize(
    ("machine", "model", "capability", "count", "interconnect", "newest_cuda"),
    [
        ("dgx1-v100", "Tesla V100-SXM2-16GB", (7, 0), 8, "nvlink", "11.0"),
        ("dgx-a100", "NVIDIA A100-SXM4-80GB", (8, 0), 8, "nvlink", "12.2"),
        ("h200-virtual-machine", "NVIDIA H200", (9, 0), 1, "", "13.0"),
        ("desktop-gtx-1080-ti", "NVIDIA GeForce GTX 1080 Ti", (6, 1), 1, "", "11.4"),
    ],
)
def test_the_accelerators_of_recorded_machines_are_grouped(
    machine: str, model: str, capability: tuple[int, int], count: int, interconnect: str, newest_cuda: str
) -> None:
    profile = recorded(machine)

    assert profile.gpu is not None
    assert profile.driver is not None
    assert (profile.gpu.model, profile.gpu.capability, profile.gpu.count) == (model, capability, count)
    assert (profile.gpu.interconnect, profile.driver.newest_cuda) == (interconnect, newest_cuda)


def test_numa_affinity_is_kept_in_device_order() -> None:
    gpu = recorded("dgx-a100").gpu

    assert gpu is not None
    assert gpu.numa_nodes == (3, 3, 1, 1, 7, 7, 5, 5)


def test_virtualisation_is_reported() -> None:
    assert recorded("h200-virtual-machine").virtualisation == "kvm"
    assert recorded("cpu-virtual-machine").virtualisation == "virtual machine"
    assert recorded("thin-container").virtualisation == "container"
    assert recorded("dgx1-v100").virtualisation == ""


def test_values_that_a_minimal_container_does_not_report_are_listed() -> None:
    profile = recorded("thin-container")

    assert profile.memory_bytes is None
    assert len(profile.unknown) == 3
    assert profile.accelerators == ()


def test_this_machine_is_detected_without_error() -> None:
    profile = detect()

    assert profile.cpu.microarchitecture
    assert profile.cpu.threads
    assert profile.memory_bytes


@pytest.mark.parametrize("name", [*shipped_machines(), *cloud_instances()])
def test_a_shipped_machine_is_valid_and_known_to_archspec(name: str) -> None:
    import archspec.cpu

    machine = find_machine(name)
    assert machine is not None
    profile = machine.profile

    assert profile.name == name
    target = archspec.cpu.TARGETS[profile.cpu.microarchitecture]
    architecture = {"arm64": "aarch64"}.get(profile.cpu.architecture, profile.cpu.architecture)
    assert (target.vendor, target.family.name) == (profile.cpu.vendor, architecture)
    assert machine.sources
    assert all(source.startswith("https://") for source in machine.sources)
    if machine.model is not None:
        assert profile.accelerators[0].vendor == machine.model.vendor
        assert model_of(profile.accelerators[0]) is not None
    assert (machine.model is None) == (profile.accelerators == ())


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        *((spelling, "rtx4090") for spelling in ("rtx-4090", "RTX 4090", "rtx_4090", "NVIDIA GeForce RTX 4090")),
        ("Tesla V100", "v100"),
        ("A100 PCIe 80GB", "a100-pcie-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("AMD Instinct MI300X", "mi300x"),
        ("CPU Zen 4", "cpu-zen4"),
        ("nd96asr v4", "Standard_ND96asr_v4"),
    ],
)
def test_a_profile_has_its_name_in_any_spelling(spelling: str, name: str) -> None:
    assert find_profile(spelling) == find_profile(name)


def test_no_two_profiles_have_names_that_differ_only_in_spelling() -> None:
    names = [*shipped_machines(), *cloud_instances()]

    assert [machine.name for name in names if (machine := find_machine(name))] == names


@pytest.mark.parametrize("name", ["A100 64GB", "rtx 4090 laptop", "nvidia", " "])
def test_a_spelling_with_a_word_that_no_profile_has_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        find_profile(name)


def test_the_usual_gpus_have_a_profile() -> None:
    machines = shipped_machines()
    names = """
        k80 m40 m60 p100 v100 t4 a10 a10g a30 a40 a100 l4 l40 l40s h100 h200 gh200 b200 gb200 titan-v titan-rtx
        quadro-rtx6000 quadro-rtx8000 rtx-a4000 rtx-a6000 rtx6000-ada gtx1080ti rtx2080ti rtx3090 rtx4090 rtx5090
        jetson-orin jetson-agx-xavier mi100 mi210 mi250x mi300x mi325x rx7900xtx arc-a770 max1550
        cpu-haswell cpu-skylake cpu-icelake cpu-zen2 cpu-zen3 cpu-zen4 cpu-neoverse-n1 cpu-neoverse-v2
    """

    assert not set(names.split()) - set(machines)
    assert len(machines) > 70
    for family in (model for model in accelerator_models() if len(model.variants) > 1):
        variants = [name for name in family.variants if name in machines]
        assert not variants or family.name in machines, family.name


@pytest.mark.parametrize(
    ("name", "microarchitecture", "gpu", "count"),
    [
        ("p3.2xlarge", "broadwell", "Tesla V100-SXM2-16GB", 1),
        ("p4d.24xlarge", "cascadelake", "NVIDIA A100-SXM4-40GB", 8),
        ("p5.48xlarge", "zen3", "NVIDIA H100 80GB HBM3", 8),
        ("g5.xlarge", "zen2", "NVIDIA A10G", 1),
        ("a2-highgpu-1g", "cascadelake", "NVIDIA A100-SXM4-40GB", 1),
        ("a3-highgpu-8g", "sapphirerapids", "NVIDIA H100 80GB HBM3", 8),
        ("Standard_ND96asr_v4", "zen2", "NVIDIA A100-SXM4-40GB", 8),
        ("standard_nc24ads_a100_v4", "zen3", "NVIDIA A100 80GB PCIe", 1),
        ("NC24ads_A100_v4", "zen3", "NVIDIA A100 80GB PCIe", 1),
        ("c7g.xlarge", "neoverse_v1", None, 0),
    ],
)
def test_a_cloud_instance_is_a_machine(name: str, microarchitecture: str, gpu: str | None, count: int) -> None:
    profile = find_profile(name)

    assert profile.cpu.microarchitecture == microarchitecture
    assert profile.cpu.threads
    assert profile.memory_bytes
    assert [(a.model, a.count) for a in profile.accelerators] == ([(gpu, count)] if gpu else [])


def test_every_provider_has_instances_with_and_without_accelerators() -> None:
    instances = cloud_instances().values()

    assert len([i for i in instances if i.model is not None]) > 40
    for provider in PROVIDERS:
        assert {i.model is None for i in instances if i.provider == provider} == {True, False}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("h20", "`h200`"),
        ("Tesla V100 GB", "`v100` or `v100-sxm2-16gb` or `v100-sxm2-32gb`"),
        ("RTX 4099", "`rtx4090`"),
        ("p4d.24xlarg", "`p4d.24xlarge`"),
    ],
)
def test_the_error_of_an_unknown_profile_names_the_nearest_ones(name: str, nearest: str) -> None:
    with pytest.raises(InputError, match=f"^there is no hardware profile `{name}`$") as caught:
        find_profile(name)

    assert caught.value.hint.startswith(f"did you mean {nearest}")


@pytest.mark.parametrize("beginning", ["Standard_ND96", "nd96", "Standard_ND96..."])
def test_the_error_of_a_beginning_lists_the_instances_that_begin_so(beginning: str) -> None:
    with pytest.raises(InputError) as caught:
        find_profile(beginning)

    names = re.findall(r"`(\w+)`", caught.value.hint)
    assert names == [name for name in cloud_instances() if name.startswith("Standard_ND96")]
    assert len(names) > 3


def test_an_instance_with_a_part_of_a_gpu_says_so() -> None:
    (gpu,) = find_profile("Standard_NV6ads_A10_v5").accelerators

    assert (gpu.model, gpu.partition, gpu.memory_bytes) == ("NVIDIA A10", "vgpu", 4 * 2**30)


@pytest.mark.parametrize(
    ("instance", "processor", "gpu", "count"),
    [
        ("p6-b200.48xlarge", "sapphirerapids", "NVIDIA B200", 8),
        ("a4-highgpu-8g", "sapphirerapids", "NVIDIA B200", 8),
        ("p5e.48xlarge", "zen3", "NVIDIA H200", 8),
        ("n2-standard-80", "cascadelake", "", 0),
        ("n2-standard-128", "icelake", "", 0),
        ("n1-standard-8", "sandybridge", "", 0),
    ],
)
def test_instances_have_the_processor_and_the_accelerators_of_their_source(
    instance: str, processor: str, gpu: str, count: int
) -> None:
    profile = find_profile(instance)

    assert profile.cpu.microarchitecture == processor
    assert [(a.model, a.count) for a in profile.accelerators] == ([(gpu, count)] if gpu else [])


def test_the_error_of_a_profile_unlike_all_others_names_the_list() -> None:
    with pytest.raises(InputError) as caught:
        find_profile("abacus")

    assert caught.value.hint == "`advisor hardware list` lists the shipped profiles"


def test_an_invalid_field_of_a_profile_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("cpu: {architecture: x86_64, microarchitecture: zen4, cores: many}\n")

    with pytest.raises(InputError, match=r"wrong field `cpu.cores`"):
        find_profile(str(path))


def test_a_printed_profile_can_be_read_back(tmp_path: Path) -> None:
    from dataclasses import asdict

    profile = recorded("dgx-a100")
    path = tmp_path / "dgx.json"
    path.write_text(json.dumps({**asdict(profile), "name": "dgx"}))

    assert find_profile(str(path)).identity == profile.identity


@pytest.mark.parametrize("name", ["a100", "rtx4090", "cpu-zen4", "p4d.24xlarge"])
def test_a_printed_machine_with_its_sources_can_be_read_back(tmp_path: Path, name: str) -> None:
    from advisor.report.hardware import machine_record

    machine = find_machine(name)
    assert machine is not None
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(machine_record(machine.profile, machine)))

    assert find_profile(str(path)).identity == machine.profile.identity


@pytest.mark.parametrize(
    ("machine", "level"),
    [
        ("h200-virtual-machine", "x86_64_v4"),
        ("dgx-a100", "x86_64_v3"),
        ("thin-container", "x86_64"),
        ("arm-graviton2", "aarch64"),
    ],
)
def test_without_archspec_the_processor_has_the_level_of_its_instruction_set(
    monkeypatch: pytest.MonkeyPatch, machine: str, level: str
) -> None:
    by_name = recorded(machine)
    for module in ("archspec", "archspec.cpu", "archspec.cpu.schema"):
        monkeypatch.setitem(sys.modules, module, None)

    profile = recorded(machine)

    assert profile.cpu.microarchitecture == level
    assert profile.cpu.features == by_name.cpu.features
    assert [u for u in profile.unknown if u.startswith("microarchitecture: `archspec` is not installed")]


@pytest.mark.parametrize("level", ["x86_64", "x86_64_v2", "x86_64_v3", "x86_64_v4"])
def test_the_levels_of_x86_are_those_of_archspec(level: str) -> None:
    import archspec.cpu

    features = {"pni" if f == "sse3" else f for f in archspec.cpu.TARGETS[level].features}

    assert x86_level(features) == level
    assert x86_level(features - {"popcnt"}) == "x86_64"


def test_without_the_nvidia_python_package_accelerators_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    profile = detect()

    assert profile.accelerators == ()
    assert "accelerators: `nvidia-ml-py` is not installed" in profile.unknown


def test_an_older_nvidia_python_package_gives_a_part_of_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    # Without nvmlDeviceGetNumaNodeId, nvmlDeviceGetMigMode and nvmlDeviceGetVirtualizationMode, and their constants.
    older = SimpleNamespace(
        NVMLError=NVMLError,
        NVMLError_LibraryNotFound=type("NVMLError_LibraryNotFound", (NVMLError,), {}),
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetCudaDriverVersion_v2=lambda: 12020,
        nvmlSystemGetDriverVersion=lambda: "535.104.05",
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetCudaComputeCapability=lambda device: (9, 0),
        nvmlDeviceGetName=lambda device: "NVIDIA H100",
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(total=80 * 2**30),
    )
    monkeypatch.setitem(sys.modules, "pynvml", older)

    reading = read_nvml()

    assert [(a.model, a.compute_capability, a.numa_nodes) for a in reading.accelerators] == [("NVIDIA H100", "9.0", ())]
    assert reading.problem == ""


PROFILE = """
cpu: {architecture: x86_64, microarchitecture: zen4}
os: linux
libc: glibc
libc_version: "2.28"
"""


@pytest.mark.parametrize(
    ("driver", "version"),
    [
        ('"535.183.06"', "535.183.06"),
        ("580", "580"),
        ('{version: "535.183.06", newest_cuda: "12.2"}', "535.183.06"),
        ("null", None),
    ],
)
def test_the_driver_of_a_profile_may_be_a_version(driver: str, version: str | None) -> None:
    profile = read_profile(f"{PROFILE}driver: {driver}\n", where="node.yaml", name="node")

    assert (profile.driver and profile.driver.version) == version


@pytest.mark.parametrize("driver", ["abc", "535.10", "true", "[535]", "{version: new}", "{newest_cuda: '12.2'}"])
def test_a_driver_that_is_no_version_is_one_sentence(driver: str) -> None:
    # A number such as 535.10 would lose its last digit.
    with pytest.raises(InputError, match="`node.yaml` has a wrong field `driver`"):
        read_profile(f"{PROFILE}driver: {driver}\n", where="node.yaml", name="node")


def test_each_name_leads_to_its_machine() -> None:
    machines = {**shipped_machines(), **cloud_instances()}

    assert {name: find_machine(name.upper()) for name in machines} == machines

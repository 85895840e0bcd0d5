"""The given rounds: systems against an independent reading of the raw text, and shipped files against the rounds."""

from __future__ import annotations

import functools
import importlib.resources
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.version import InvalidVersion, Version

from docs.mlperf_data import shipped_files
from knowledge.exchange.files import read_lines, read_observations
from knowledge.exchange.mlperf.descriptions import read_description
from knowledge.exchange.mlperf.results import ImportResult
from knowledge.exchange.mlperf.systems import System, make_system
from knowledge.exchange.mlperf.tree import read_results
from knowledge.hardware.accelerators import model_of

SHARED = Path(__file__).parents[3] / "shared" / "data"
TREES = sorted(SHARED.glob("mlperf-*.tar.gz"))
ROUNDS = [tree.name.removesuffix(".tar.gz") for tree in TREES]

Systems = Callable[[Path], tuple[tuple[str, str, System], ...]]
Results = Callable[[Path], ImportResult]

needs_trees = pytest.mark.skipif(not TREES, reason="the result trees are not here")

WORDS = {
    "hugectr": "merlin-hugectr",
    "nemo": "nemo-toolkit",
    "tensorflow-lite": "tflite-runtime",
    "tflite": "tflite-runtime",
    "tensorflow_macos": "tensorflow-macos",
    "tensorflow": "tensorflow",
    "tenorflow": "tensorflow",
    "tf": "tensorflow",
    "pytorch": "torch",
    "mxnet": "mxnet",
    "mxneti": "mxnet",
    "maxtext": "jax",
    "maxdiffusion": "jax",
    "jax": "jax",
    "dgl": "dgl",
    "mindspore": "mindspore",
    "tinygrad": "tinygrad",
    "armnn": "armnn",
    "openvino": "openvino",
    "onnxruntime": "onnxruntime",
    "tvm": "apache-tvm",
    "deepsparse": "deepsparse",
    "tensorrt": "tensorrt",
}
"""Distribution of each word that descriptions use for a framework."""

FAMILIES = (
    r"GB200|B200|H200|H100|A100|A30|A10|A2|L40S|T4|V100S|V100|RTX 4090|RTX A5000|RTX 6000|RTX 8000|TITAN RTX|"
    r"AGX Xavier|Xavier NX|Xavier|Orin|MI300X|MI325X|7900 XTX|Gaudi\(R\) 2|TPU|Ascend"
)
NOTHING = ("", "-", "n/a", "na", "none")


def raw_systems(tree: Path) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file in a directory `systems` of a tree."""
    with tarfile.open(tree) as archive:
        for member in archive:
            if "/systems/" in member.name and member.name.endswith(".json"):
                file = archive.extractfile(member)
                assert file is not None
                yield member.name, file.read().decode("utf-8", "replace")


def field(text: str, *keys: str) -> str:
    """Return the first value of a key in JSON, or in a literal of Python inside of it."""
    for key in keys:
        for pattern in (r'"{key}"\s*:\s*"([^"]*)"', r"'{key}'\s*:\s*'([^']*)'", r'"{key}"\s*:\s*(\d+)'):
            if match := re.search(pattern.replace("{key}", key), text, re.I):
                return match[1].strip()
    return ""


def number(text: str) -> int | None:
    match = re.match(r"\d+$", text)
    return int(match[0]) if match else None


def versions(text: str, *patterns: str) -> set[str]:
    """Return the versions after any of some words, in normal form, each as exact as it is stated anywhere."""
    found = set()
    for pattern in patterns:
        for match in re.finditer(rf"{pattern}\D{{0,6}}?(\d+(?: ?\. ?\d+)+)((?:\S*; \d+(?:\.\d+)+)*)", text, re.I):
            others = re.findall(r"; (\d+(?:\.\d+)+)", match[2])
            found |= {str(Version(v.replace(" ", ""))) for v in (match[1], *others)}
    return {v for v in found if not any(other.startswith(f"{v}.") for other in found)}


def read_systems(tree: Path) -> tuple[tuple[str, str, System], ...]:
    """Return the path, the text and the system of each description."""
    described = []
    for path, text in raw_systems(tree):
        name = path.rpartition("/")[2].removesuffix(".json")
        described.append((path, text, make_system(name, read_description(text), benchmark="")))
    return tuple(described)


@pytest.fixture(scope="module")
def systems() -> Systems:
    """Reads the systems of each tree once."""
    return functools.cache(read_systems)


@pytest.fixture(scope="module")
def results() -> Results:
    """Reads the results of each tree once."""
    return functools.cache(read_results)


@needs_trees
@pytest.mark.parametrize("tree", TREES, ids=ROUNDS)
def test_accelerators_are_those_of_the_description(tree: Path, systems: Systems) -> None:
    checked = 0
    for path, text, system in systems(tree):
        spelled = field(text, "accelerator_model_name", "accelerator")
        per_node = number(field(text, "accelerators_per_node", "num_accelerators"))
        nodes = number(field(text, "number_of_nodes", "number of nodes", "num_nodes"))
        accelerators = system.hardware.accelerators
        if spelled.lower() in NOTHING or per_node == 0:
            assert not accelerators, path
            assert system.device == "cpu", path
            continue
        (accelerator,) = accelerators
        assert system.device != "cpu", path
        assert per_node, path
        assert accelerator.count * (system.hardware.nodes or 0) == per_node * (nodes or 1), path
        family = re.search(rf"(?<![A-Za-z0-9])(?:{FAMILIES})(?![0-9A-Za-z])", spelled, re.I)
        if family is None:
            # Of other makers: its own name, or the entry of the catalogue that the name contains a word of.
            words = re.findall(r"[a-z]*\d+|[a-z]{5,}", re.sub(r"[^a-z0-9]", " ", spelled.lower()))
            known = re.sub(r"[^a-z0-9]", "", accelerator.model.lower())
            assert accelerator.model == spelled or any(word in known for word in words), (path, accelerator.model)
            continue
        entry = model_of(accelerator)
        assert entry is not None, path
        word = re.sub(r"[^a-z0-9]", "", family[0].lower().replace("(r)", ""))
        known = re.sub(r"[^a-z0-9]", "", f"{entry.name} {entry.model}".lower())
        assert word in known, (path, spelled, entry.name)
        memory = re.search(r"(\d+) ?GB(?! MIG)(?!\d)", spelled) if "MIG" not in spelled else None
        if memory and entry.memory_gib is not None:
            assert abs(entry.memory_gib - int(memory[1])) <= 0.07 * int(memory[1]), (path, spelled, entry.name)
        for form in ("sxm", "pcie", "nvl"):
            if re.search(form, spelled, re.I) and "-" in entry.name and entry.form:
                assert entry.form.startswith(form) or (form, entry.form) == ("pcie", "nvl"), (path, spelled, entry.name)
        checked += 1

    assert checked or "v0.5" in tree.name


@needs_trees
@pytest.mark.parametrize("tree", TREES, ids=ROUNDS)
def test_frameworks_and_their_versions_are_those_of_the_description(tree: Path, systems: Systems) -> None:
    for path, text, system in systems(tree):
        described = field(text, "framework")
        words = re.findall(r"[a-z_-]+", described.lower().replace("onnx run-time", "onnxruntime"))
        words += re.findall(r"[a-z]+", described.lower().replace("onnx runtime", "onnxruntime"))
        words = [word.strip("-_") for word in words]
        named = {WORDS[word] for word in words if word in WORDS}
        if named:
            assert system.software.framework in named, (path, described)
        stated = set(re.findall(r"(?<![\d.])\d+(?:\.\d+)+", described))
        package = next((p for p in system.stack.packages if p.name == system.software.framework), None)
        if len(named) == 1 and len(stated) == 1 and not re.search(r"cuda|rocm|branch|mlperf", described, re.I):
            assert package is not None, (path, described)
            (version,) = stated
            if package.index == "ngc":
                assert system.software.container == version, (path, described)
            else:
                assert Version(package.version).release[:2] == Version(version).release[:2], (path, described)
        if system.software.container:
            assert system.software.container in described or system.software.container in path, (path, described)
        elif package is not None and package.index == "submission":
            numbers = set(re.findall(r"\d+(?:\.\d+)+", text)) | set(re.findall(r"20\d\d", described))
            own = ".".join(str(part) for part in Version(package.version).release)
            assert any(str(Version(n)) == own or n == own for n in numbers if is_version(n)), (path, package)


def is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


COMPONENTS = {
    "cuda": (r'"cuda_version\W+', r"'cuda_version\W+", r"cuda_version[ :]", r'"cuda\W+', r"\bcuda v?"),
    "cudnn": (r"cudnn(?:_version)?\W+",),
    "nccl": (r"nccl(?:_version)?\W+",),
    "cublas": (r"cublas(?:_version)?\W+",),
    "dali": (r"dali(?:_version)?\W+",),
    "tensorrt": (r"trt_version\W+", r"tensorrt v?"),
    "rocm": (r"rocm(?:_version)?\W*",),
    "nvidia-driver": (r"cuda_driver_version\W+", r"\bdriver  ?(?=\d{3}\.)"),
}


@needs_trees
@pytest.mark.parametrize("tree", TREES, ids=ROUNDS)
def test_components_are_those_of_the_description(tree: Path, systems: Systems) -> None:
    checked: dict[str, int] = dict.fromkeys(COMPONENTS, 0)
    for path, text, system in systems(tree):
        for component, patterns in COMPONENTS.items():
            found = versions(text, *patterns)
            if component == "nvidia-driver" and not found:
                found = versions(text, r"nvidia_kernel_driver\W+")
            read = {"cuda": system.stack.cuda, "cudnn": system.stack.cudnn}.get(
                component, system.stack.version_of(component)
            )
            if len(found) == 1:
                (version,) = found
                assert read is not None, (path, component, found)
                assert read.split("+")[0] == version or read.startswith(f"{version}rc"), (path, component, read)
                checked[component] += 1
            elif not found:
                assert read is None or component in system.software.expanded, (path, component, read)
            else:
                assert read is None or component in system.software.expanded or read in found, (path, component, read)

    if "v0.5" not in tree.name:
        assert checked["cuda"] > 20, checked
        assert checked["nvidia-driver"] > 20 or "inference-v0.7" in tree.name, checked


@needs_trees
@pytest.mark.parametrize("tree", TREES, ids=ROUNDS)
def test_observations_have_the_hardware_of_their_system(tree: Path, systems: Systems, results: Results) -> None:
    described = {
        (path.split("/")[-3], path.rpartition("/")[2].removesuffix(".json")): system
        for path, _, system in systems(tree)
    }

    result = results(tree)

    unknown = set()
    for o in result.observations:
        key = str(o.environment["submitter"]), str(o.environment["system"])
        if key in described:
            assert o.hardware.identity == described[key].hardware.identity, key
            assert o.indicator.device == described[key].device, key
        unknown |= {a.model for a in o.hardware.accelerators if model_of(a) is None}
    assert all(any(f"`{name}`" in warning for warning in result.warnings) for name in unknown)


@needs_trees
def test_shipped_files_are_those_of_the_trees(results: Results) -> None:
    files = {f.name: f for f in importlib.resources.files("knowledge.data").iterdir() if f.name.startswith("mlperf-")}

    expected = shipped_files(o for tree in TREES for o in results(tree).observations)

    for name, file in files.items():
        shipped = read_observations(read_lines(file.read_bytes(), where=name), where=name)
        assert [o.identity for o in shipped] == [o.identity for o in expected[name]], "run `python docs/mlperf_data.py`"

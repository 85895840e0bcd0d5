"""Parser of submitters' descriptions of systems, in all their variants: machine and software."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile
from knowledge.domain.stack import PackageVersion, Stack
from knowledge.exchange.mlperf.catalogue import catalogue, find_accelerator, find_machine

_SPELLINGS = {
    "sumitter": "submitter",
    "org": "submitter",
    "divison": "division",
    "number of nodes": "number_of_nodes",
    "num_nodes": "number_of_nodes",
    "num_accelerators": "accelerators_per_node",
    "accelerator": "accelerator_model_name",
    "cpu": "host_processor_model_name",
    "os": "operating_system",
}
_STATUSES = {"on-premise": "onprem", "on_premise": "onprem", "available on-premise": "onprem"}
_NOTHING = frozenset({"", "-", "n/a", "na", "none", "todo", "not public"})
_SOFTWARE_TEXT = ("libraries", "other_software_stack", "math_libraries", "ml_libraries")
_IN_TEXT = re.compile(
    r"\b(cuda_driver|cuda|cudnn|nccl|cublas|openmpi|dali|trt)(?:_version)?[ ,:]+v?(\d[\w.]*)", re.IGNORECASE
)
_COMPONENTS = {
    "cuda_driver_version": "nvidia-driver",
    "cublas_version": "cublas",
    "nccl_version": "nccl",
    "dali_version": "dali",
    "trt_version": "tensorrt",
    "openmpi_version": "openmpi",
}
_FRAMEWORKS = {
    "merlin-hugectr": r"hugectr",
    "mxnet": r"mx-?net",
    "torch": r"py-?torch",
    "tensorflow": r"ten\w*flow|(?<![a-z])tf(?![a-z])",
    "jax": r"\bjax\b",
    "mindspore": r"mindspore",
    "caffe": r"caffe",
    "bigdl": r"bigdl",
}
_ANY_VERSION = r"[ _-]*v?(?P<version>\d+(?:\.\d+)+)"
_CONTAINER = re.compile(r"(?:nvidia|ngc)\D*(?P<version>\d\d\.\d\d)|dl frameworks release (?P<other>\d\d\.\d\d)", re.I)
_LONGEST_DESCRIPTION = 64 * 1024
_MOST_BRACKETS = 100
"""Limit for a description that is not JSON; those of rounds v0.6 and v0.7 contain at most 14."""
CONTAINER_INDEX = "ngc"
"""Index of packages that came in a container of NVIDIA's GPU cloud: their versions are the container's."""
SUBMISSION_INDEX = "submission"
"""Index of packages that a submitter built or took from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A machine, or a cluster of them, with its software.

    Attributes:
        submitter: Name of the submitter, or empty.
        division: ``closed``, ``open`` or empty.
        status: Category, such as ``onprem``, ``cloud``, ``preview`` or ``research``, or empty.
        framework: Distribution name of the framework, or ``unknown``.
        stack: The described software.
        hardware: The machine.
        described: Other fields of the description, by their own keys.
    """

    submitter: str
    division: str
    status: str
    framework: str
    stack: Stack
    hardware: HardwareProfile
    described: Mapping[str, str] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """Device of the training: ``cuda``, ``tpu``, ``npu`` or ``cpu``."""
        vendors = {a.vendor for a in self.hardware.accelerators}
        kinds = {"nvidia": "cuda", "google": "tpu", "huawei": "npu"}
        return next((kind for vendor, kind in kinds.items() if vendor in vendors), "cpu")


def read_description(text: str) -> dict[str, str]:
    """Read a description into one flat mapping with the usual spellings of its keys.

    It may be JSON, JSON with stray commas, or lines of keys and JSON objects, any value of which may be a literal of
    Python with more of them inside.

    Raises:
        ValueError: If it is none of these, longer than 64 KiB, or too deeply nested.
    """
    if len(text) > _LONGEST_DESCRIPTION:
        raise ValueError(f"it is longer than {_LONGEST_DESCRIPTION} characters")
    flat: dict[str, str] = {}
    for key, value in _entries(_document(text)):
        name = _SPELLINGS.get(key.strip().lower(), key.strip().lower())
        if value.strip().lower() not in _NOTHING:
            flat.setdefault(name, value.strip())
    for name in _SOFTWARE_TEXT:
        for component, version in _IN_TEXT.findall(flat.get(name, "")):
            flat.setdefault(f"{component.lower()}_version", version)
    return flat


def _document(text: str) -> Any:
    import yaml

    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is too deeply nested") from None
    except ValueError:
        pass
    if text.count("[") + text.count("{") > _MOST_BRACKETS:
        # The time of PyYAML is quadratic in the depth. Brackets in strings are counted, too: only PyYAML excludes them.
        raise ValueError(f"it is not JSON and has more than {_MOST_BRACKETS} lists and mappings")
    try:
        # YAML reads JSON with stray commas, and `key: {...}` lines.
        plain = text.replace("\t", "    ")
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(plain)):
            # A few lines of aliases can expand to more values than fit into memory.
            raise ValueError("it holds aliases")
        document = yaml.safe_load(plain)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not isinstance(document, dict):
        raise ValueError("it is not a mapping")
    return document


def _entries(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings, lists and literals, outermost first."""
    nested = []
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        nested = list(value)
    for key, inner in items:
        inner = _literal(inner)
        if isinstance(inner, dict) and "value" in inner and "metadata" in inner:
            inner = _literal(inner["value"])
        if isinstance(inner, dict | list):
            nested.append(inner)
        elif inner is not None:
            yield str(key), str(inner)
    for inner in nested:
        yield from _entries(inner)


def _literal(value: Any) -> Any:
    """Return what a text that holds a literal of a mapping holds; anything else as it is."""
    from ast import literal_eval

    if not (isinstance(value, str) and value.startswith("{")):
        return value
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def make_system(name: str, described: Mapping[str, str], *, benchmark: str, submitter: str, place: str = "") -> System:
    """Build a system from its description; missing facts come from its name and from the log's source file.

    Args:
        name: The system's name in the tree.
        described: As :func:`read_description` gives it; may be empty.
        benchmark: Benchmark that was run: some systems list a framework for each kind.
        submitter: Directory of the submitter.
        place: Source file that wrote the log.
    """
    remaining = dict(described)
    framework, version, index = _framework(remaining.pop("framework", ""), name, benchmark, place)
    division, status = remaining.pop("division", "").lower(), remaining.pop("status", "").lower()
    packages = [PackageVersion(name=framework, version=version, index=index)] if version else []
    packages += [
        PackageVersion(name=component, version=release, index="system")
        for key, component in _COMPONENTS.items()
        if (release := _pep440(remaining.pop(key, "")))
    ]
    hardware = _hardware(name, remaining)
    return System(
        submitter=remaining.pop("submitter", submitter),
        division=division,
        status=_STATUSES.get(status, status),
        framework=framework,
        stack=Stack(
            packages=tuple(sorted(packages)),
            python=remaining.pop("python_version", ""),
            platform="linux_x86_64",
            implementation="",
            cuda=_pep440(remaining.pop("cuda_version", "")) or None,
            cudnn=_pep440(remaining.pop("cudnn_version", "")) or None,
        ),
        hardware=hardware,
        described={key: value[:200] for key, value in sorted(remaining.items())},
    )


def _framework(description: str, name: str, benchmark: str, place: str) -> tuple[str, str, str]:
    """Return distribution, version and index of the framework; unknown parts are empty."""
    for text in (description, name):
        matches = [key for key, pattern in _FRAMEWORKS.items() if re.search(pattern, text, re.IGNORECASE)]
        if not matches:
            continue
        # Where a system lists two, image classification took MXNet, as in all of NVIDIA's own submissions.
        framework = "mxnet" if len(matches) > 1 and benchmark == "resnet" and "mxnet" in matches else matches[0]
        if len(matches) > 1 and framework == "mxnet" and benchmark != "resnet":
            framework = matches[1]
        container = _CONTAINER.search(text)
        if container:
            return framework, _pep440(container["version"] or container["other"]), CONTAINER_INDEX
        version = re.search(f"(?:{_FRAMEWORKS[framework]}){_ANY_VERSION}", text, re.IGNORECASE)
        return framework, _pep440(version["version"]) if version else "", SUBMISSION_INDEX
    accelerator = find_accelerator(name)
    if accelerator is not None and accelerator.vendor == "google":
        # When descriptions did not name the framework, only TensorFlow supported TPUs.
        return "tensorflow", "", SUBMISSION_INDEX
    for entry in catalogue()["sources"]:
        if re.search(entry["match"], place):
            return str(entry["framework"]), "", SUBMISSION_INDEX
    return "unknown", "", SUBMISSION_INDEX


def _pep440(text: str) -> str:
    """Return a version in its normal form; empty where it is none."""
    try:
        return str(Version(text))
    except InvalidVersion:
        return ""


def _hardware(name: str, left: dict[str, str]) -> HardwareProfile:
    """Build the machine, and remove the fields that it was built from."""
    spelled = left.pop("accelerator_model_name", "")
    per_node, nodes = _number(left.pop("accelerators_per_node", "")), _number(left.pop("number_of_nodes", ""))
    machine_facts = find_machine(name)
    if machine_facts is not None:
        machine, facts = machine_facts
        match = re.search(r"_n(\d+)(?:_|$)", name)
        accelerator = find_accelerator(facts["accelerator"])
        assert accelerator is not None
        return HardwareProfile(
            name=machine,
            cpu=Cpu(
                architecture="x86_64",
                microarchitecture=facts["microarchitecture"],
                model=facts["processor"],
                sockets=facts["sockets"],
                cores=facts["cores"],
            ),
            accelerators=(_several(accelerator, facts["accelerators"]),),
            nodes=nodes or (int(match[1]) if match else None if "multi" in name else 1),
        )
    # A name such as `tpu-v4-16-TF` contains the generation if the description is only `TPU`.
    accelerator = find_accelerator(spelled, f"{spelled} {name}") if spelled else find_accelerator(name)
    if per_node == 0:
        accelerator = None
    count = per_node or _count_in(name, accelerator)
    processor = left.pop("host_processor_model_name", "")
    sockets = _number(left.pop("host_processors_per_node", ""))
    if accelerator is not None and accelerator.vendor == "google":
        # Rounds describe the hosts of a TPU slice in different ways or not at all, so a slice is a number of chips.
        processor, sockets, count, nodes = "", None, count * (nodes or 1), 1
        name = f"{accelerator.model} x {count}"
    return HardwareProfile(
        name=name,
        cpu=Cpu(architecture="x86_64", microarchitecture="", model=processor, sockets=sockets),
        accelerators=(_several(accelerator, count),) if accelerator is not None else (),
        nodes=nodes or 1,
    )


def _several(accelerator: Accelerator, count: int) -> Accelerator:
    from dataclasses import replace

    return replace(accelerator, count=count)


def _number(text: str) -> int | None:
    match = re.match(r"\s*(\d+)", text)
    return int(match[1]) if match else None


def _count_in(name: str, accelerator: Accelerator | None) -> int:
    """Return the number of accelerators in a system's name, such as 8 for ``8xV100`` and 16 for ``cloud_v3.32``."""
    if accelerator is None:
        return 0
    if accelerator.vendor == "google":
        cores = re.search(r"v\d[.-](\d+)", name)
        # A TPU's name counts cores, of which a chip has two (https://cloud.google.com/tpu/docs/system-architecture).
        return int(cores[1]) // 2 if cores else 1
    count = re.search(r"(\d+)xv100|v100x(\d+)|v100-(\d+)", name, re.IGNORECASE)
    return int(next(group for group in count.groups() if group)) if count else 1

"""System of a submission: machine and software, from its description, its name and the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.stack import PackageVersion, Stack
from knowledge.exchange.mlperf.facts import mlperf_facts
from knowledge.exchange.mlperf.machines import read_machine
from knowledge.exchange.mlperf.software import Software, read_software

_DEVICES = {"nvidia": "cuda", "google": "tpu", "huawei": "npu", "amd": "rocm"}
_LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A machine, or a cluster of them, with its software.

    Attributes:
        division: ``closed``, ``open`` or empty.
        status: Category, such as ``onprem``, ``cloud``, ``preview`` or ``research``, or empty.
        software: The described software.
        stack: The same as a stack.
        hardware: The machine.
        described: Other fields of the description, by their own keys.
        warnings: What the description says and the program does not understand.
    """

    division: str
    status: str
    software: Software
    stack: Stack
    hardware: HardwareProfile
    described: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """Device that ran the benchmark: ``cuda``, ``rocm``, ``tpu``, ``npu``, ``accelerator`` or ``cpu``."""
        accelerators = self.hardware.accelerators
        return _DEVICES.get(accelerators[0].vendor, "accelerator") if accelerators else "cpu"


def make_system(name: str, described: Mapping[str, str], *, benchmark: str, place: str = "") -> System:
    """Build a system from its description; missing facts come from its name and from the log's source file.

    Args:
        name: The system's name in the tree.
        described: As :func:`~knowledge.exchange.mlperf.descriptions.read_description` gives it; may be empty.
        benchmark: Benchmark that was run: some systems list a framework for each kind.
        place: Source file that wrote the log.
    """
    remaining = dict(described)
    software = read_software(remaining, name=name, benchmark=benchmark, place=place)
    division, status = remaining.pop("division", "").lower(), remaining.pop("status", "").lower()
    remaining.pop("submitter", "")
    warnings = [f"system `{name}`: {reason}, so it is not stored" for reason in software.unread]
    hardware = read_machine(name, remaining, warnings)
    return System(
        division=division,
        status=mlperf_facts()["statuses"].get(status, status),
        software=software,
        stack=_stack(software, hardware.cpu.architecture),
        hardware=hardware,
        described={key: value[:_LONGEST_TEXT] for key, value in sorted(remaining.items())},
        warnings=tuple(warnings),
    )


def _stack(software: Software, architecture: str) -> Stack:
    components = dict(software.components)
    cuda, cudnn = components.pop("cuda", None), components.pop("cudnn", None)
    packages = [PackageVersion(name=name, version=version, index="system") for name, version in components.items()]
    if software.version:
        packages.append(PackageVersion(name=software.framework, version=software.version, index=software.index))
    return Stack(
        packages=tuple(sorted(packages)),
        python=software.python,
        platform=f"linux_{architecture}",
        implementation="",
        cuda=cuda,
        cudnn=cudnn,
    )

from __future__ import annotations

from packaging.version import Version

from knowledge.domain.stack import PackageVersion, carried_cuda, make_stack
from tests.knowledge.samples import MACHINE, observation


def test_the_cuda_version_of_a_stack_is_read_from_a_runtime_wheel() -> None:
    packages = [
        ("torch", Version("2.8.0")),
        ("nvidia-cuda-runtime-cu12", Version("12.8.90")),
        ("nvidia-cudnn-cu12", Version("9.10.2.21")),
    ]

    assert carried_cuda(packages) == ("12.8", "9.10.2.21")


def test_without_a_runtime_wheel_the_cuda_version_is_read_from_a_local_version() -> None:
    assert carried_cuda([("torch", Version("2.7.1+cu118"))]) == ("11.8", None)
    assert carried_cuda([("torch", Version("2.13.0+cpu"))]) == (None, None)


def test_the_order_of_packages_does_not_change_a_stack() -> None:
    a, b = PackageVersion(name="a", version="1"), PackageVersion(name="b", version="2")

    one = make_stack([a, b], python="3.12.1", platform="win_amd64")
    other = make_stack([b, a], python="3.12.1", platform="win_amd64")

    assert one.identity == other.identity


def test_the_name_of_a_machine_is_not_its_identity() -> None:
    from dataclasses import replace

    assert replace(MACHINE, name="other").identity == MACHINE.identity
    assert replace(MACHINE, memory_bytes=1).identity != MACHINE.identity


def test_every_change_of_an_observation_changes_its_identity() -> None:
    from dataclasses import replace

    one = observation()

    assert replace(one, round=1).identity != one.identity
    assert replace(one, samples=(*one.samples[:-1], 7.0)).identity != one.identity

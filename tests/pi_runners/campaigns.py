"""Locks, cases and blocks of a campaign, and a sink that keeps what was measured."""

from __future__ import annotations

from collections.abc import Iterable

from knowledge.domain.observation import Observation
from knowledge.domain.stack import PackageVersion
from pi_runners.execution.campaign import Block
from pi_runners.execution.environment import LockedPackage, StackLock
from pi_runners.execution.subprocess_runner import ProcessEnd, ProcessRequest
from pi_runners.plan.matrix import Arm, IndicatorCase, choose_cases
from tests.knowledge.samples import MACHINE


def lock(*requested: str) -> StackLock:
    packages = tuple(
        LockedPackage(
            package=PackageVersion(name=text.partition("==")[0], version=text.partition("==")[2]),
            url=f"file:///nowhere/{text}.whl",
            sha256="0" * 64,
        )
        for text in requested
    )
    return StackLock(requested=requested, packages=packages, python="3.11", platform="manylinux_2_28_x86_64")


class Sink:
    """Stores observations in memory."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []

    def add(self, observations: Iterable[Observation]) -> None:
        self.observations += observations


class NoProcesses:
    """A runner that must not be called."""

    def run(self, job: ProcessRequest) -> ProcessEnd:
        raise AssertionError(job)


def cases(*names: str) -> tuple[IndicatorCase, ...]:
    return tuple(choose_cases([name])[0] for name in names)


def block_of(arms: tuple[Arm, ...], rounds: int = 1) -> Block:
    return Block(name="b", arms=arms, rounds=rounds, hardware=MACHINE)

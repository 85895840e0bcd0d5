"""Inputs and answers that tests of several commands share."""

from __future__ import annotations

from pathlib import Path

from advisor.domain.target import Target, make_target
from knowledge.exchange.files import observation_file
from tests.advisor.factories import MACHINE
from tests.knowledge.samples import block


def is_error(text: str) -> bool:
    """Whether an error output is an error message without a traceback."""
    return text.startswith("error: ") and "Traceback" not in text


def target(python: str = "3.12", platform: str = "manylinux_2_28_x86_64") -> Target:
    return make_target(python=python, platform=platform, hardware=MACHINE)


def write(path: Path, name: str = "made-up", **asked: object) -> Path:
    """Write an observation file with an invented block."""
    path.write_bytes(observation_file(block({"2.0.0": 1.0, "1.26.4": 1.3, "1.25.0": 0.9}, name=name, **asked)))  # type: ignore[arg-type]
    return path

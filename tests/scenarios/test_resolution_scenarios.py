"""The resolution scenarios of the field's resolvers, served over HTTP, where their files are at hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"

# uv ignores upper bounds of `requires-python`; pip and this program do not.
KNOWN_TO_DIFFER = {"requires_python/python-less-than-current"}


def test_the_resolution_scenarios_give_the_expected_stacks() -> None:
    runner, scenarios = SHARED / "tools" / "run_scenarios.py", SHARED / "data" / "resolution-scenarios.json"
    if not runner.exists() or not scenarios.exists():
        pytest.skip(f"the resolution scenarios are not at {SHARED}")
    program = f"{sys.executable} -c 'from advisor.cli.app import main; main()'"

    done = subprocess.run(
        [sys.executable, runner, scenarios, "--command", program], capture_output=True, text=True, timeout=1800
    )

    failed = {line.split()[1].rstrip(":") for line in done.stdout.splitlines() if line.startswith("FAIL")}
    assert failed == KNOWN_TO_DIFFER, done.stdout

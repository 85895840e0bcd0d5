"""Resolution scenarios of other resolvers, served over HTTP; skipped if their files are absent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import forked_command

SHARED = Path(__file__).parents[3] / "shared"

# uv ignores upper bounds of `requires-python`; pip and this program do not.
KNOWN_TO_DIFFER = {"requires_python/python-less-than-current"}


PARTS = 4
"""Number of tests that the scenarios are divided into, so that they can run in parallel."""


@pytest.mark.parametrize("part", range(PARTS))
def test_the_resolution_scenarios_give_the_expected_stacks(part: int, tmp_path: Path) -> None:
    runner, scenarios = SHARED / "tools" / "run_scenarios.py", SHARED / "data" / "resolution-scenarios.json"
    if not runner.exists() or not scenarios.exists():
        pytest.skip(f"the resolution scenarios are not at {SHARED}")
    document = json.loads(scenarios.read_text())
    document["scenarios"] = document["scenarios"][part::PARTS]
    (tmp_path / "scenarios.json").write_text(json.dumps(document))

    with forked_command() as program:
        result = subprocess.run(
            [sys.executable, runner, tmp_path / "scenarios.json", "--command", program],
            capture_output=True,
            text=True,
            timeout=1800,
        )

    failed = {line.split()[1].rstrip(":") for line in result.stdout.splitlines() if line.startswith("FAIL")}
    names = {scenario["name"] for scenario in document["scenarios"]}
    assert failed == {name for name in KNOWN_TO_DIFFER if name.partition("/")[2] in names}, result.stdout
    assert f"{len(names) - len(failed)} passed" in result.stdout

"""Print what is advised for projects on several kinds of hardware, as a table.

    python -m benchmarks.advice_by_hardware FOLDER... [--hardware NAME...]

A folder is a project. Its frameworks, the settings with a clear effect and the findings come from the JSON report of
`advisor advise`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.report.tables import aligned_table
from knowledge.domain.frameworks import FRAMEWORKS

HARDWARE = ("v100", "a100", "h100", "b200", "rtx4090", "gtx1080ti", "mi300x", "cpu-zen4")
NAMED = ("ADV101", "ADV102", "ADV105", "ADV110", "ADV116", "ADV117", "ADV118")
"""Findings about the hardware, and about the speed of the stack."""


def advise(project: Path, hardware: str) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON report of a project on some hardware, or none and the error."""
    command = [sys.executable, "-m", "advisor", "advise", str(project), "--hardware", hardware]
    result = subprocess.run([*command, "--format", "json", "--dry-run"], capture_output=True, text=True, check=False)
    if result.stdout.startswith("{"):
        return json.loads(result.stdout), ""
    errors = [line for line in result.stderr.splitlines() if line.startswith("error")]
    return None, (errors or ["no answer"])[0]


def row_of(project: Path, hardware: str) -> tuple[str, ...]:
    """Return a row of the table."""
    report, error = advise(project, hardware)
    if report is None:
        return project.name, hardware, error, "", ""
    stack = {package["name"]: package["version"] for package in report["stack"]["packages"]}
    versions = ", ".join(f"{name} {stack[name]}" for name in sorted(stack) if name in FRAMEWORKS)
    cuda = f"; CUDA {report['stack']['cuda']}" if report["stack"]["cuda"] else ""
    codes = sorted({finding["code"] for finding in report["findings"]} & set(NAMED))
    return project.name, hardware, f"{versions}{cuda}", "; ".join(_gains(report)) or "none known", ", ".join(codes)


def _gains(report: dict[str, Any]) -> Iterator[str]:
    """Yield the settings with a clear effect, each with the largest gain of a workload."""
    best: dict[str, dict[str, Any]] = {}
    for effect in report["setting_effects"]:
        key = f"{effect['package']} {effect['setting']}"
        clear = effect["low"] > 1 or effect["high"] < 1
        if clear and effect["speedup"] > best.get(key, {"speedup": 0})["speedup"]:
            best[key] = effect
    for effect in best.values():
        yield (
            f"{effect['setting']} over {effect['over'].partition('=')[2]}: {effect['speedup']:.1f} "
            f"[{effect['low']:.1f}, {effect['high']:.1f}] for {effect['workload']}"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--hardware", nargs="+", default=HARDWARE, metavar="NAME")
    options = parser.parse_args()
    rows = [row_of(project, hardware) for project in options.projects for hardware in options.hardware]
    print(aligned_table(("project", "hardware", "frameworks", "settings, times as fast", "findings"), rows))


if __name__ == "__main__":
    main()

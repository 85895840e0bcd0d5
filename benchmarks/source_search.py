"""Measure the search of a project's source files for a workload.

    python -m benchmarks.source_search [--files NUMBER] [--folder FOLDER]

The project is a copy of source files of the installed packages, or of those in a folder. Rows: nothing is remembered;
everything is remembered; without a cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sysconfig
import tempfile
import time
from itertools import islice
from pathlib import Path

from advisor.index.cache import DiskCache
from advisor.project.workload.proposal import propose_workload


def copy_sources(source: Path, project: Path, files: int) -> int:
    """Copy source files to a project of 100 files a directory; return the number of bytes."""
    paths = (Path(folder, name) for folder, _, names in os.walk(source) for name in sorted(names))
    size = 0
    for number, path in enumerate(islice((p for p in paths if p.suffix in (".py", ".ipynb")), files)):
        target = project / f"part{number // 100}" / f"m{number}{path.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        size += target.stat().st_size
    return size


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("purelib")))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "project"
        size = copy_sources(options.folder, project, options.files)
        seconds: dict[str, list[float]] = {"first": [], "again": [], "without a cache": []}
        proposals = []
        for number in range(options.rounds):
            cache = DiskCache(Path(scratch) / f"cache{number}")
            for name, memory in zip(seconds, (cache, cache, None), strict=True):
                start = time.perf_counter()
                proposals.append(propose_workload(project, memory))
                seconds[name].append(time.perf_counter() - start)
    assert all(proposal == proposals[0] for proposal in proposals)
    print(f"{options.files} files, {size / 1e6:.1f} MB: {proposals[0].workload if proposals[0] else 'no workload'}")
    print("| search | median seconds | slowest |")
    print("| --- | --- | --- |")
    for name, values in seconds.items():
        print(f"| {name} | {statistics.median(values):.2f} | {max(values):.2f} |")


if __name__ == "__main__":
    main()

"""Compare the advice of two versions of this program on real projects: packages, builds, sizes, and time.

    python -m benchmarks.builds FOLDER --before PROGRAM --after PROGRAM [--only NAME,...]
                                [--hardware NAME,...] [--rounds 5] [--save FILE] [-- OPTIONS OF THE NEW PROGRAM]

`FOLDER` has one folder of dependency files for each project. `PROGRAM` is the path of an `advisor` command. Each of
them has a cache of its own, which a first run fills; then both run offline in turn, and remembered answers are removed
before each run, so that each run solves the project. Installed sizes are those of the files in the locks, read by
ranged requests.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from advisor.domain.words import size_text
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.index.pages.page import DistributionFile

FRAMEWORKS = ("torch", "jax", "jaxlib", "tensorflow", "tensorflow-cpu", "onnxruntime", "onnxruntime-gpu")
HARDWARE = ("cpu-zen4", "v100", "h100")


@dataclass(kw_only=True)
class Advice:
    """What one program advises for one project and machine.

    Attributes:
        outcome: ``answered``, or the first line of the error.
        packages: Number of packages.
        download: Bytes to download.
        installed: Bytes of the unpacked files; files of unknown size count as none.
        cuda: Number of packages with NVIDIA's libraries.
        frameworks: Version of each framework.
        seconds: Duration of each timed run.
        cpu: Processor time of each timed run.
    """

    outcome: str
    packages: int = 0
    download: int = 0
    installed: int = 0
    cuda: int = 0
    frameworks: dict[str, str]
    seconds: list[float]
    cpu: list[float]


def run(
    program: Path, folder: Path, hardware: str, cache: Path, options: Sequence[str]
) -> tuple[int, str, float, float]:
    """Run `advisor advise`; return its exit code, its first line of errors, its seconds and its processor time."""
    shutil.rmtree(cache / "index" / "answers", ignore_errors=True)
    command = [str(program), "advise", "--hardware", hardware, "--cache-dir", str(cache), "-o", "pylock.toml", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    errors = [line for line in result.stderr.splitlines() if line.startswith("error")]
    return result.returncode, errors[0] if errors else "", seconds, cpu


def read_lock(folder: Path, client: IndexClient) -> Advice:
    """Return the packages and sizes of the lock in a folder."""
    packages = tomllib.loads((folder / "pylock.toml").read_text())["packages"]
    files = [
        file
        for package in packages
        for file in (*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else []))
    ]
    listed = [
        DistributionFile(
            filename=file["name"],
            url=file.get("url") or (folder / file["path"]).resolve().as_uri(),
            index="lock",
            sha256=file["hashes"]["sha256"],
            size=file.get("size"),
        )
        for file in files
    ]
    versions = {package["name"]: package.get("version", "") for package in packages}
    return Advice(
        outcome="answered",
        packages=len(packages),
        download=sum(client.size(file) or 0 for file in listed),
        installed=sum(client.unpacked_size(file) or 0 for file in listed if file.filename.endswith(".whl")),
        cuda=sum(name.startswith(("nvidia-", "cuda-")) for name in versions),
        frameworks={name: versions[name] for name in FRAMEWORKS if name in versions},
        seconds=[],
        cpu=[],
    )


def compare(
    folder: Path, hardware: str, programs: dict[str, tuple[Path, Sequence[str]]], caches: Path, rounds: int
) -> dict[str, Advice]:
    """Return the advice of each program for one project and machine, with the times of alternating runs."""
    client = IndexClient(IndexConfiguration(), cache=DiskCache(caches / "sizes"))
    advice: dict[str, Advice] = {}
    for name, (program, options) in programs.items():
        (folder / "pylock.toml").unlink(missing_ok=True)
        code, error, _, _ = run(program, folder, hardware, caches / name, options)
        empty = Advice(outcome=error or f"exit code {code}", frameworks={}, seconds=[], cpu=[])
        advice[name] = read_lock(folder, client) if code == 0 else empty
    client.close()
    for number in range(rounds):
        for name in sorted(programs, reverse=number % 2 == 1):
            (folder / "pylock.toml").unlink(missing_ok=True)
            program, options = programs[name]
            _, _, seconds, cpu = run(program, folder, hardware, caches / name, ["--offline", *options])
            advice[name].seconds.append(seconds)
            advice[name].cpu.append(cpu)
    return advice


def print_row(project: str, hardware: str, advice: dict[str, Advice]) -> None:
    """Print one row of the table."""
    before, after = advice["before"], advice["after"]
    if before.outcome != "answered" or after.outcome != "answered":
        print(f"| {project} | {hardware} | {before.outcome} | {after.outcome} | | | | |")
        return
    builds = ", ".join(f"{n} {v}" for n, v in after.frameworks.items() if before.frameworks.get(n) != v) or "the same"
    seconds, cpu = (
        statistics.median(a / b for a, b in zip(getattr(after, field), getattr(before, field), strict=True))
        for field in ("seconds", "cpu")
    )
    print(
        f"| {project} | {hardware} | {before.packages} -> {after.packages} | {before.cuda} -> {after.cuda} | "
        f"{size_text(before.download)} -> {size_text(after.download)} | "
        f"{size_text(before.installed)} -> {size_text(after.installed)} | {builds} | {seconds:.2f} / {cpu:.2f} |",
        flush=True,
    )


def main() -> None:
    """Print the table, and the ratios of time over all rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--after", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--hardware", default=",".join(HARDWARE))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path)
    options, after_options = parser.parse_known_args()
    after_options = [word for word in after_options if word != "--"]
    programs: dict[str, tuple[Path, Sequence[str]]] = {
        "before": (options.before.absolute(), ()),
        "after": (options.after.absolute(), after_options),
    }
    projects = (
        options.only.split(",") if options.only else sorted(p.name for p in options.folder.iterdir() if p.is_dir())
    )
    results: dict[str, dict[str, dict[str, object]]] = {}
    ratios: dict[str, list[float]] = {"seconds": [], "cpu": []}
    print("| project | machine | packages | CUDA packages | download | installed | new versions | seconds / CPU |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="builds-") as scratch:
        for project in projects:
            folder = Path(scratch) / "projects" / project
            shutil.copytree(options.folder / project, folder)
            for hardware in options.hardware.split(","):
                advice = compare(folder, hardware, programs, Path(scratch) / "caches", options.rounds)
                print_row(project, hardware, advice)
                results.setdefault(project, {})[hardware] = {name: asdict(a) for name, a in advice.items()}
                for field, values in ratios.items():
                    pairs = zip(getattr(advice["after"], field), getattr(advice["before"], field), strict=True)
                    values.append(statistics.median(a / b for a, b in pairs))
    for field, values in ratios.items():
        ordered = sorted(values)
        middle = statistics.median(ordered)
        print(f"{field}: median ratio {middle:.2f}, largest {ordered[-1]:.2f}, {len(ordered)} rows")
    if options.save:
        options.save.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

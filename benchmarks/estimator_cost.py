"""Measure what the estimator adds to a warm advice: processor time and memory.

    python -m benchmarks.estimator_cost [--rounds 5]

Each advice is for a project that requires one framework, in a process of its own, offline, with a cache that holds
what it needs. In each round it runs twice, in alternating order: with the estimator, and with one that has no
framework, which predicts nothing. The knowledge base has the shipped observations. The table contains medians.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECTS = ("jax", "tensorflow-cpu", "torch", "onnxruntime")
WORKLOADS = ("cnn-training", "")


def advise(project: Path, workload: str, *, estimate: bool, offline: bool = True) -> tuple[float, float]:
    """Return the processor time in seconds and the peak memory in MB of one advice."""
    from advisor.api.context import load_project, prepare_target
    from advisor.api.options import IndexOptions, ProjectFiles, ResolutionOptions, TargetOptions
    from advisor.api.resources import open_indexes, open_readable_store
    from advisor.api.session import AdviceSession
    from knowledge.estimate.kinds import make_estimator
    from knowledge.estimate.model_cache import ModelCache
    from knowledge.estimate.posterior import PosteriorEstimator
    from knowledge.estimate.workloads import workload_catalogue
    from pi_runners.vocabulary import FRAMEWORKS

    start = time.process_time()
    files, indexes = ProjectFiles(directory=project), IndexOptions(offline=offline)
    target = TargetOptions(hardware="cpu-zen4", python="3.12")
    resolution = ResolutionOptions(workload=workload or None)
    context = prepare_target(files, load_project(files), target, resolution)
    hardware = context.target.hardware
    with open_indexes(indexes, project, context.project) as client, open_readable_store(context.address) as store:
        models = ModelCache(store)
        if estimate:
            estimator = make_estimator(
                models, hardware=hardware, workload=context.find_workload(), frameworks=frozenset(FRAMEWORKS)
            )
        else:
            kind = next(iter(workload_catalogue().values()))
            estimator = PosteriorEstimator(models, hardware=hardware, workload=kind, frameworks=())
        AdviceSession(context=context, client=client, estimator=estimator, current=None).recommend()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return time.process_time() - start, peak / 1000


def run(project: Path, workload: str, *, estimate: bool, offline: bool = True) -> tuple[float, float]:
    """Run one advice in a process of its own."""
    options = json.dumps({"estimate": estimate, "offline": offline})
    command = [sys.executable, "-m", "benchmarks.estimator_cost", "--child", str(project), workload, options]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    seconds, megabytes = json.loads(process.stdout)
    return seconds, megabytes


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        project, workload, options = arguments.child
        print(json.dumps(advise(Path(project), workload, **json.loads(options))))
        return
    print("| project | workload | without, s | with, s | added, s | without, MB | with, MB | added, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ADVISOR_KNOWLEDGE"] = f"sqlite:///{folder}/knowledge.sqlite"
        for framework in PROJECTS:
            project = Path(folder, framework)
            project.mkdir()
            (project / "requirements.in").write_text(f"{framework}\n")
            for workload in WORKLOADS:
                run(project, workload, estimate=True, offline=False)
                results: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
                for number in range(arguments.rounds):
                    for estimate in (number % 2 == 0, number % 2 == 1):
                        results[estimate].append(run(project, workload, estimate=estimate))
                (plain, small), (full, large) = (
                    tuple(map(statistics.median, zip(*results[estimate], strict=True))) for estimate in (False, True)
                )
                cells = (
                    f"{plain:.2f} | {full:.2f} | {full - plain:.2f} | {small:.0f} | {large:.0f} | {large - small:.0f}"
                )
                print(f"| {framework} | {workload or 'none'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()

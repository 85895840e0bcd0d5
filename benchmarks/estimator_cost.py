"""Measure what predictions add to an advice: processor time and memory.

    python -m benchmarks.estimator_cost [--rounds 5]

Each advice is for a project that requires one framework or four of them, in a process of its own, offline, with a cache
that holds what it needs. In each round it runs three times, in rotating order: without predictions, with predictions
from the cache (a warm advice), and with predictions that are computed, as after a change of the observations. The
knowledge base has the shipped observations. The table contains medians.
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
from typing import Any

PROJECTS = (
    *((name, "cpu-zen4") for name in ("jax", "tensorflow-cpu", "torch", "onnxruntime")),
    ("jax tensorflow torch onnxruntime", "cpu-zen4"),
    ("torch", "h100"),
    ("jax tensorflow torch onnxruntime", "h100"),
)
"""Requirements of each project, and its hardware."""
WORKLOADS = ("cnn-training", "")
WITHOUT, WARM, COMPUTED = "without", "warm", "computed"


def advise(
    project: Path, workload: str, *, hardware: str, predictions: str, offline: bool = True
) -> tuple[float, float]:
    """Return the processor time in seconds and the peak memory in MB of one advice."""
    from advisor.api.context import AdviceInputs, load_project, open_predictor, prepare_target
    from advisor.api.indexes import open_indexes
    from advisor.api.options import IndexOptions, ProjectFiles, ProjectOptions, ResolutionOptions, TargetOptions
    from advisor.api.session import AdviceSession

    start = time.process_time()
    files, indexes = ProjectFiles(directory=project), IndexOptions(offline=offline)
    target = TargetOptions(hardware=hardware, python="3.12")
    resolution = ResolutionOptions(workload=workload or None)
    options = ProjectOptions(files=files, target=target, indexes=indexes, resolution=resolution)
    context = prepare_target(options, load_project(files))
    with open_indexes(indexes, project, context.project) as client, open_predictor(context, client) as predictor:
        estimator: Any = predictor if predictions == WARM else predictor.estimator
        if predictions == WITHOUT:
            estimator = without_frameworks(estimator)
        AdviceSession(AdviceInputs(context=context, client=client, estimator=estimator)).recommend()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return time.process_time() - start, peak / 1000


def without_frameworks(estimator: Any) -> Any:
    """Return an estimator that knows no framework, and so predicts nothing."""
    from knowledge.estimate.estimator import WorkloadEstimator

    return WorkloadEstimator(estimator._models, hardware=estimator._hardware, workload=None, frameworks=())


def run(project: Path, workload: str, **options: str | bool) -> tuple[float, float]:
    """Run one advice in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.estimator_cost",
        "--child",
        str(project),
        workload,
        json.dumps(options),
    ]
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
    print("| project | workload | without, s | warm, s | computed, s | warm, MB | computed, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    arms = (WITHOUT, WARM, COMPUTED)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ADVISOR_KNOWLEDGE"] = f"sqlite:///{folder}/knowledge.sqlite"
        for requirements, hardware in PROJECTS:
            project = Path(folder, f"{requirements} {hardware}")
            project.mkdir()
            (project / "requirements.in").write_text(requirements.replace(" ", "\n"))
            for workload in WORKLOADS:
                run(project, workload, hardware=hardware, predictions=WARM, offline=False)
                results: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
                for number in range(arguments.rounds):
                    for place in range(len(arms)):
                        arm = arms[(number + place) % len(arms)]
                        results[arm].append(run(project, workload, hardware=hardware, predictions=arm))
                medians = {
                    arm: [statistics.median(column) for column in zip(*results[arm], strict=True)] for arm in arms
                }
                (seconds, small), warm, computed = (medians[arm] for arm in arms)
                cells = (
                    f"{seconds:.2f} | {warm[0] - seconds:.2f} | {computed[0] - seconds:.2f} | "
                    f"{warm[1] - small:.0f} | {computed[1] - small:.0f}"
                )
                print(f"| {requirements}, {hardware} | {workload or 'none'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()

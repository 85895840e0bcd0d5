"""Measure the time to read observations, to condition the model on them and to compute predictions.

    python benchmarks/fit.py

The observations are the shipped ones of TensorFlow, repeated with new block names and new noise up to the number in the
table. The predictions are of 100 versions of the framework with 100 of NumPy: the scores of 10 000 stacks, as the
optimiser requests them.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files

from packaging.version import Version

from knowledge.domain.observation import Observation
from knowledge.estimate.model_cache import ModelCache
from knowledge.estimate.posterior import PosteriorEstimator
from knowledge.estimate.stored_evidence import load_evidence
from knowledge.estimate.workloads import find_workload
from knowledge.exchange.files import read_lines, read_observations
from knowledge.store.engine import open_knowledge_base


def generate() -> Iterator[Observation]:
    """Yield an endless series of observations."""
    file = next(f for f in files("knowledge.data").iterdir() if f.name.endswith("campaign-cpu-vm.jsonl.gz"))
    lines = read_lines(file.read_bytes(), where=file.name)
    model = [o for o in read_observations(lines, where=file.name) if o.framework == "tensorflow-cpu"]
    generator = random.Random(5)
    for turn in itertools.count():
        for o in model:
            seconds = tuple(s * generator.lognormvariate(0, 0.02) for s in o.samples)
            yield replace(o, samples=seconds, block=f"{o.block}-{turn}")


def main() -> None:
    """Fit and predict."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    print("| observations | contrasts | read | store in the cache | load | first 10 000 stacks | 10 000 stacks |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for count in (2_500, 5_000, 20_000):
        with open_knowledge_base("sqlite://", shipped=False) as store:
            store.add(itertools.islice(generate(), count))
            hardware = next(store.observations()).hardware
            start = time.perf_counter()
            contrasts = len(load_evidence(store).contrasts)
            gathered = time.perf_counter()
            ModelCache(store).process("tensorflow-cpu", "cpu")
            cached = time.perf_counter()
            fits = ModelCache(store)
            fits.process("tensorflow-cpu", "cpu")
            recalled = time.perf_counter()
            estimator = PosteriorEstimator(
                fits, hardware=hardware, workload=find_workload("cnn-training"), frameworks=["tensorflow-cpu"]
            )
            candidates = {
                "tensorflow-cpu": [Version(f"2.{i}.{j}") for i in range(21, 1, -1) for j in range(5)],
                "numpy": [Version(f"{m}.{i}.{j}") for m in (2, 1) for i in range(10) for j in range(5)],
            }
            baseline = {name: versions[0] for name, versions in candidates.items()}
            estimator.terms(candidates, baseline)  # Conditions on the contrasts.
            conditioned = time.perf_counter()
            terms = estimator.terms(candidates, baseline)
            # 100 versions with each of 100 versions of NumPy, and without NumPy.
            assert len(terms.frameworks[0].with_companion) == 10_100
            predicted = time.perf_counter()
        times = [start, gathered, cached, recalled, conditioned, predicted]
        cells = [after - before for before, after in itertools.pairwise(times)]
        print(f"| {count} | {contrasts} | {' | '.join(f'{seconds:.2f} s' for seconds in cells)} |", flush=True)


if __name__ == "__main__":
    main()

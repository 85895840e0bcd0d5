"""Writes the MLPerf results that ship with the program, from trees of results: each log once, without details.

    python docs/mlperf_data.py TREE...

The trees are checkouts or tar files of https://github.com/mlcommons/training_results_v0.5 (v0.6, v0.7, v4.0, v4.1,
v5.0) and https://github.com/mlcommons/inference_results_v0.7 (v1.1, v2.1). Of MLPerf Inference, only results of GPUs in
the closed division ship: the open division and other devices are thousands of results of single-board computers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.domain.observation import Observation
from knowledge.exchange.files import observation_file
from knowledge.exchange.mlperf.facts import round_order
from knowledge.exchange.mlperf.results import FIGURES, TRAINING, distinct_results
from knowledge.exchange.mlperf.tree import read_results

TARGET = Path(str(files("knowledge.data")))
_DETAILS = frozenset({"container_contents"})


def without_details(o: Observation) -> Observation:
    """Return a result without what no part of the program uses: other figures, fields of descriptions and of logs.

    The content key stays the same. The results that ship with the program have this form.
    """
    return replace(
        o,
        metrics={name: value for name, value in o.metrics.items() if name in FIGURES},
        environment={name: value for name, value in o.environment.items() if ":" not in name and name not in _DETAILS},
    )


def shipped_files(observations: Iterable[Observation]) -> dict[str, tuple[Observation, ...]]:
    """Return the observations of each shipped file by its name."""
    results: dict[str, list[Observation]] = {
        "mlperf-training-v0.5-v0.7.jsonl.gz": [],
        "mlperf-training-v4.0-v5.0.jsonl.gz": [],
        "mlperf-inference-v0.7-v2.1.jsonl.gz": [],
    }
    old_training, new_training, inference = results.values()
    for o in distinct_results(observations):
        if o.indicator.name == TRAINING:
            is_old = round_order(str(o.environment["mlperf_round"])) < (1, 0)
            (old_training if is_old else new_training).append(without_details(o))
        elif o.environment["division"] == "closed" and o.indicator.device in ("cuda", "rocm"):
            inference.append(without_details(o))
    return {name: tuple(entries) for name, entries in results.items()}


def main() -> None:
    """Write the files that the given trees have results for."""
    every = [o for tree in sys.argv[1:] for o in read_results(Path(tree)).observations]
    for name, observations in shipped_files(every).items():
        if observations:
            content = observation_file(observations, compressed=True, with_identities=False)
            (TARGET / name).write_bytes(content)
            print(f"{name}: {len(observations)} observations, {len(content)} bytes")


if __name__ == "__main__":
    main()

"""Compare the measured speed of programs with predictions from their profiles.

    python -m benchmarks.program_prediction FOLDER OBSERVATIONS [FOLDER OBSERVATIONS ...]

FOLDER is a project with a profiled workload (`advisor-workload.toml`), OBSERVATIONS a file with its own benchmark on
several stacks (`advisor pi run --benchmark --output OBSERVATIONS`). Predictions use the shipped observations only.
Intervals are of 90 %.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from advisor.project.workload.file import read_workloads
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.ratio import NORMAL_QUANTILE, Ratio
from knowledge.domain.workload import ProfiledWorkload
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.gains import mixture
from knowledge.estimate.model_cache import ModelCache
from knowledge.estimate.workloads import workload_of_profile
from knowledge.evidence.contrasts import Contrast, Side
from knowledge.evidence.stacks import benchmark_contrasts
from knowledge.exchange.files import read_lines, read_observations
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import amounts_of_profile


def stack_of(contrast: Contrast, side: Side) -> dict[str, Version]:
    """Return the framework and its companions on one side of a contrast."""
    texts = {contrast.framework: side.version, **side.companions}
    return {name: Version(text) for name, text in texts.items()}


def predicted_gain(
    store: SqlKnowledgeBase, hardware: HardwareProfile, profile: ProfiledWorkload, contrast: Contrast
) -> Ratio | None:
    """Return the predicted gain of one side of a contrast over the other; none if no speed is predicted."""
    flops, moved = amounts_of_profile(profile)
    estimator = WorkloadEstimator(
        ModelCache(store),
        hardware=hardware,
        workload=workload_of_profile(profile, backend=FRAMEWORKS[contrast.framework], flops=flops, bytes=moved),
        frameworks=frozenset(FRAMEWORKS),
    )
    model = estimator.model(contrast.framework)
    if model is None:
        return None
    gains = model.gain_by_case(stack_of(contrast, contrast.side), stack_of(contrast, contrast.reference))
    return mixture(list(gains.values()))


def ratio_text(mean: float, half: float) -> str:
    """Return a ratio with its interval."""
    return f"{math.exp(mean):.2f} [{math.exp(mean - half):.2f}, {math.exp(mean + half):.2f}]"


def rows_of(folder: Path, file: Path) -> Iterator[str]:
    """Yield a row for each stack that the program ran on."""
    (profile,) = read_workloads(folder)
    with tempfile.TemporaryDirectory() as place, open_knowledge_base(str(Path(place) / "k.sqlite")) as store:
        observations = list(read_observations(read_lines(file.read_bytes(), where=str(file)), where=str(file)))
        store.add(observations)
        (identity,) = {str(o.indicator.parameters["identity"]) for o in observations}
        for c in benchmark_contrasts(store, identity):
            gain = predicted_gain(store, observations[0].hardware, profile, c)
            predicted = ratio_text(gain.mean, NORMAL_QUANTILE * math.sqrt(gain.variance)) if gain else "not predicted"
            name = f"A/A {c.side.version}" if c.is_control else c.side.version
            yield f"| {folder.name} | {c.framework} {name} | {ratio_text(c.mean, 1.645 * c.error)} | {predicted} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", type=Path, metavar="FOLDER OBSERVATIONS")
    pairs = parser.parse_args().pairs
    if len(pairs) % 2:
        parser.error("each folder needs a file with observations")
    print("| program | version | measured | predicted from its profile |")
    print("| --- | --- | --- | --- |")
    for folder, file in zip(pairs[::2], pairs[1::2], strict=True):
        for row in rows_of(folder, file):
            print(row, flush=True)


if __name__ == "__main__":
    main()

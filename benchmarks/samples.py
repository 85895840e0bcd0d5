"""How many samples should a process take?

    python -m benchmarks.samples FILE...

Reads observation files, or what ships where none is named, and keeps only the first samples of every process. For each
number it prints how far the log ratios of rounds then spread: the root of the mean variance and of the median variance
over pairs of arms. The last line stops as the harness does. Processes with fewer than 20 samples are left out:
`advisor pi run --samples 20 --output FILE`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path

from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_lines, read_observations
from knowledge.store.engine import open_knowledge_base
from pi_runners.harness.timing import are_enough

TAKEN = 20
LEAST = 7
Choice = Callable[[tuple[float, ...]], tuple[float, ...]]
Rounds = dict[int, tuple[float, ...]]
"""Samples of one arm, by round."""


def first(count: int) -> Choice:
    """Keep the first samples."""
    return lambda samples: samples[:count]


def until_enough(samples: tuple[float, ...]) -> tuple[float, ...]:
    """Keep as many as the harness would have taken."""
    counts = range(LEAST, len(samples) + 1)
    return samples[: next((n for n in counts if are_enough(list(samples[:n]), LEAST)), len(samples))]


def shipped() -> Iterator[Observation]:
    """Yield the observations that ship."""
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        yield from store.observations()


def of_files(files: Iterable[Path]) -> Iterator[Observation]:
    """Yield the observations of files."""
    for file in files:
        yield from read_observations(read_lines(file.read_bytes(), where=str(file)), where=str(file))


def arms_of(observations: Iterable[Observation]) -> Iterator[list[Rounds]]:
    """Yield the arms of every block, indicator and combination of settings."""
    cells: dict[object, dict[int, Rounds]] = {}
    for o in observations:
        if o.status == "ok" and o.loops and len(o.samples) >= TAKEN:
            settings = tuple(sorted(o.settings.items()))
            cells.setdefault((o.block, o.indicator.label, settings), {}).setdefault(o.arm, {})[o.round] = o.samples
    for arms in cells.values():
        yield list(arms.values())


def spread(cells: Iterable[list[Rounds]], choose: Choice) -> tuple[float, float]:
    """Return root mean and root median variance of a round's log ratio."""
    variances = []
    for arms in cells:
        for a, b in combinations(arms, 2):
            common = a.keys() & b.keys()
            medians = [(statistics.median(choose(a[r])), statistics.median(choose(b[r]))) for r in sorted(common)]
            if len(common) >= 3:
                variances.append(statistics.variance(math.log(x / y) for x, y in medians))
    return math.sqrt(statistics.fmean(variances)), math.sqrt(statistics.median(variances))


def main() -> None:
    """Print one line for each number of samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    cells = list(arms_of(of_files(options.files) if options.files else shipped()))
    counts = [len(until_enough(samples)) for arms in cells for rounds in arms for samples in rounds.values()]
    lines: dict[str, Choice] = {f"first {count}": first(count) for count in (2, 3, 5, 7, 10, 15, TAKEN)}
    lines[f"{LEAST} or more, {statistics.fmean(counts):.1f} in the mean"] = until_enough
    for name, choose in lines.items():
        root_mean, root_median = spread(cells, choose)
        print(f"{name}: {root_mean:.4f}, median {root_median:.4f}")


if __name__ == "__main__":
    main()

"""Test predictions from published measurements on what they have not seen.

    python -m benchmarks.published [--held-out FILE...]

Each GPU, task, version and source of the shipped published measurements is held out in turn, and predicted from the
others. With `--held-out`, the contrasts of tables in the format of published measurements are predicted instead. The
variances of the model are fitted once for each framework, to all that is not in the files. Baselines: no difference;
the mean of the same change on the most similar GPU; the mean of the same change on all GPUs. A sign is wrong if the
prediction is at least 1 % slower where the measurement is at least 3 % faster, or the reverse.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.held_out import Row, report
from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.amplitudes import Amplitudes, fit_amplitudes
from knowledge.estimate.compared_settings import setting_change
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.gaussian_process import predict_held_out
from knowledge.estimate.kernel import task_of
from knowledge.estimate.published_rows import published_contrasts
from knowledge.estimate.similarity import similarity_of
from knowledge.exchange.published.observations import read_published
from knowledge.store.engine import open_knowledge_base

BASELINES = ("nearest GPU", "mean of the change")
FEWEST = 20
"""Least number of contrasts to predict from."""
Hidden = Callable[[Contrast], bool]


def shipped_contrasts() -> list[Contrast]:
    """Return the contrasts of the shipped published measurements."""
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        return list(published_contrasts(store.observations(indicator=PUBLISHED)))


def identity_of(c: Contrast) -> tuple[object, ...]:
    """Return what identifies a contrast among those of all sources."""
    return c.block, c.label, c.machine.identity, c.arm, c.reference_arm


def change_of(c: Contrast) -> object:
    """Return what differs between the sides: a setting with its values, or the version."""
    return setting_change(c) or "version"


def kind_of(c: Contrast) -> str:
    """Return the name of what differs: ``version`` or the name of a setting."""
    change = setting_change(c)
    return change[0] if change else "version"


def nearest_gpu(training: Sequence[Contrast], target: Contrast) -> float:
    """Return the mean of the same change on the most similar GPU; 0 if there is none."""
    same = [c for c in training if change_of(c) == change_of(target)]
    closest = max((similarity_of(c.machine, target.machine) for c in same), default=0.0)
    near = [c.mean for c in same if similarity_of(c.machine, target.machine) == closest]
    return statistics.fmean(near) if near else 0.0


def mean_of_change(training: Sequence[Contrast], target: Contrast) -> float:
    """Return the mean of the same change on all GPUs; 0 if there is none."""
    same = [c.mean for c in training if change_of(c) == change_of(target)]
    return statistics.fmean(same) if same else 0.0


def predict(contrasts: Sequence[Contrast], hidden: Hidden, amplitudes: Amplitudes | None) -> Iterator[tuple[str, Row]]:
    """Yield what differs, and the row, for each contrast that is held out."""
    training = [c for c in contrasts if not hidden(c)]
    targets = [c for c in contrasts if hidden(c)]
    if len(training) < FEWEST or not targets:
        return
    means, deviations = predict_held_out(training, targets, amplitudes)
    for c, mean, deviation in zip(targets, means, deviations, strict=True):
        baselines = nearest_gpu(training, c), mean_of_change(training, c)
        yield kind_of(c), Row(truth=c.mean, mean=float(mean), deviation=float(deviation), baselines=baselines)


def splits(contrasts: Sequence[Contrast]) -> Iterator[tuple[str, Hidden]]:
    """Yield what is held out: each GPU, each task, each version (of changes of the version), each source."""
    keys: dict[str, Callable[[Contrast], str]] = {
        "GPU": lambda c: c.machine.name,
        "task": lambda c: task_of(c.label),
        "source": lambda c: c.source,
    }
    for name, key in keys.items():
        for value in sorted(set(map(key, contrasts))):
            yield name, _is(key, value)
    releases = [c for c in contrasts if kind_of(c) == "version"]
    for version in sorted({v for c in releases for v in (c.side.version, c.reference.version)}):
        yield "version", _has_version(version)


def _is(key: Callable[[Contrast], str], value: str) -> Hidden:
    return lambda c: key(c) == value


def _has_version(version: str) -> Hidden:
    return lambda c: kind_of(c) == "version" and version in (c.side.version, c.reference.version)


def main() -> None:
    """Run the test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", nargs="+", type=Path, default=[], metavar="FILE")
    options = parser.parse_args()
    contrasts = shipped_contrasts()
    held_out = [c for file in options.held_out for c in published_contrasts(read_published(file).observations)]
    held_out_rows = {identity_of(c) for c in held_out}
    results: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for framework in sorted({c.framework for c in contrasts}):
        # A contrast of the files that also ships is not predicted from itself.
        own = [c for c in contrasts if c.framework == framework and identity_of(c) not in held_out_rows]
        new = [c for c in held_out if c.framework == framework]
        groups = [("files", lambda c: identity_of(c) in held_out_rows)] if held_out else list(splits(own))
        amplitudes = fit_amplitudes(own) if len(own) >= FEWEST else None
        for name, is_hidden in groups if amplitudes is not None else ():
            for change, row in predict([*own, *new], is_hidden, amplitudes):
                results[name, "all"].append(row)
                results[name, change].append(row)
    report(results, BASELINES)


if __name__ == "__main__":
    main()

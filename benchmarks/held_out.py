"""Predicts measurements that the model of gains had not seen, and compares it with simple rules.

    python -m benchmarks.held_out [--tables FILE ...]

The shipped ratios of each framework on each kind of device; the effects of versions, of settings, and of another
accelerator. Each model, size, architecture, release, machine, GPU and source is held out in turn; only the variances, a
few numbers for each framework, were fitted to all. With files or folders of them (tables of published measurements, of
timm's format, or observations), those are predicted from what ships; a model of timm also from its own ratios that
ship, as in the advice. Root mean square errors of log ratios, wrong signs among ratios that differ by more than 5 %,
coverage of 90 % intervals, of all ratios and of these, and their mean width:

- none: no difference;
- mean: the mean of the same change at other programs, or of the same setting in other releases;
- nearest: the same change at the program, or on the machine, with the most similar features.

For accelerators, the mean is that of the same two elsewhere, in the same regime if there are any, and else the ratio of
their memory bandwidths; the last column of these rows is this ratio.

At last the regret of the advice: how much slower the chosen version is than the best one that was measured.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from packaging.version import Version

from advisor.resolve.score.costs import speed_steps
from docs.fits import program_of
from docs.timm import amounts, read_tables, record_of
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation, words_of
from knowledge.domain.ratio import Ratio
from knowledge.estimate.accelerator_ratio import MOST_PAIRS, RatioModel
from knowledge.estimate.cases import is_program
from knowledge.estimate.gain_model import GainModel
from knowledge.estimate.model_cache import (
    framework_contrasts,
    frameworks_of,
    merged,
    shipped_ratio_variances,
    shipped_variances,
)
from knowledge.estimate.similarity import side_on, similarity_of
from knowledge.evidence.accelerator_pairs import AcceleratorPair, accelerator_pairs, load_pairs
from knowledge.evidence.accelerator_rows import accelerator_rows
from knowledge.evidence.block_evidence import BlockEvidence, evidence_of, load_evidence
from knowledge.evidence.contrasts import Contrast, features_of
from knowledge.evidence.timm import is_shipped, tables_from, timm_contrasts, timm_tables
from knowledge.exchange.files import read_lines, read_observations
from knowledge.exchange.published.observations import read_published
from knowledge.exchange.published.timm import REPOSITORY, TIMM
from knowledge.hardware.accelerators import AcceleratorModel, find_accelerator
from knowledge.store.engine import open_knowledge_base

OBSERVATIONS = (".jsonl", ".jsonl.gz")
"""Endings of the names of files with observations; other files are tables."""
MOST_TOGETHER = 600
"""Most ratios that are predicted at once: time and memory grow with the third power and the square."""
LARGE = 0.05
"""Least log ratio whose sign counts."""
HALF = 1.6448536269514722
"""Standard deviations on both sides of a 90 % interval."""
FEWEST = 20
"""Fewest cases of a row."""
DRAWS = 4
"""Number of random quarters of the releases that are held out."""
CHANGES = (("versions", False), ("settings", True))
"""What changes, and whether it is settings."""


class Row(NamedTuple):
    """A measurement that was held out, and its predictions, as log ratios.

    Attributes:
        truth: The measurement.
        model: Prediction of the model.
        deviation: Its standard deviation, with the noise of the measurement.
        mean: Mean of the same change elsewhere.
        nearest: The same change at the nearest program, or on the nearest machine.
    """

    truth: float
    model: float
    deviation: float
    mean: float
    nearest: float


GROUPS: dict[str, Callable[[Contrast], object]] = {
    "model": lambda c: program_of(c).model,
    "size": lambda c: c.label,
    "architecture": lambda c: program_of(c).architecture,
    "release": lambda c: frozenset({c.side.version, c.reference.version}),
    "machine": lambda c: c.machine.precision_features or c.machine.name,
    "source": lambda c: c.block,
}


def observations_of(path: Path) -> Sequence[Observation]:
    """Return the observations of a file: observations, or a table of published measurements."""
    if path.name.endswith(OBSERVATIONS):
        return list(read_observations(read_lines(path.read_bytes(), where=str(path)), where=str(path)))
    return read_published(path).observations


def is_of_settings(c: Contrast) -> bool:
    """Whether a ratio shows the effect of settings."""
    return c.side.settings != c.reference.settings


def change_of(c: Contrast) -> tuple[object, ...]:
    """Return what differs, as on the machine: versions and settings of both sides."""
    return side_on(c.side, c.machine).key, side_on(c.reference, c.machine).key


def settings_of(c: Contrast) -> tuple[object, ...]:
    """Return the settings of both sides, whatever their releases are; releases if these differ."""
    releases = () if c.side.version == c.reference.version else (c.side.version, c.reference.version)
    sides = (side_on(side, c.machine).settings for side in (c.side, c.reference))
    return (*(tuple(sorted(own.items())) for own in sides), *releases)


class Baselines:
    """Predictions by simple rules from known ratios."""

    def __init__(self, known: Iterable[Contrast]) -> None:
        self._by_change: dict[object, list[Contrast]] = defaultdict(list)
        for c in known:
            for key in (change_of(c), settings_of(c)):
                self._by_change[key].append(c)

    def of(self, target: Contrast) -> tuple[float, float]:
        """Return the mean of the same change elsewhere, and the same change at the nearest program and machine."""
        like = self._by_change.get(change_of(target)) or self._by_change.get(settings_of(target))
        if not like:
            return 0.0, 0.0

        def distance(c: Contrast) -> float:
            places = zip(program_of(c).place, program_of(target).place, strict=True)
            return sum((a - b) ** 2 for a, b in places) - similarity_of(c.machine, target.machine)

        return statistics.fmean(c.mean for c in like), min(like, key=distance).mean


def rows_of(
    contrasts: Sequence[Contrast], hidden: Iterable[Sequence[int]], framework: str, device: str
) -> Iterator[Row]:
    """Yield the rows of the ratios that are held out, group by group."""
    model = GainModel(contrasts, program_of, shipped_variances(framework, device))
    for group, means, spread in model.held_out(hidden):
        members = set(group)
        simple = Baselines(c for number, c in enumerate(contrasts) if number not in members and not c.is_control)
        for i, mean, deviation in zip(group, means, np.sqrt(np.diag(spread)), strict=True):
            yield Row(contrasts[i].mean, float(mean), float(deviation), *simple.of(contrasts[i]))


def line(name: str, rows: Sequence[Row]) -> str:
    """Return a line of the table."""
    truth, model, deviation, mean, nearest = np.array(rows).T
    columns = (model, 0 * truth, mean, nearest)
    errors = [math.sqrt(float(np.mean((column - truth) ** 2))) for column in columns]
    large = np.abs(truth) > LARGE
    signs = [int(np.sum((np.sign(column) != np.sign(truth)) & large)) for column in (model, mean, nearest)]
    covered = np.abs(model - truth) <= HALF * deviation
    cells = [
        name,
        str(len(truth)),
        *(f"{error:.3f}" for error in errors),
        f"{errors[0] / min(errors[1:]):.2f}",
        f"{' / '.join(map(str, signs))} of {int(large.sum())}",
        f"{np.mean(covered):.0%}",
        f"{np.mean(covered[large]):.0%}" if large.any() else "",
        f"{float(np.mean(2 * HALF * deviation)):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def groups_of(contrasts: Sequence[Contrast], key: Callable[[Contrast], object], settings: bool) -> list[list[int]]:
    """Return the numbers of the ratios of each group; none if there is one group only.

    A ratio of two releases is in the groups of both, but the release that most others are compared with has no group:
    without it, nothing is known about the others.
    """
    groups: dict[object, list[int]] = defaultdict(list)
    listed = [n for n, c in enumerate(contrasts) if not c.is_control and is_of_settings(c) == settings]
    for number in listed:
        own = key(contrasts[number])
        for one in own if isinstance(own, frozenset) else (own,):
            groups[one].append(number)
    is_of_releases = not settings and any(isinstance(key(contrasts[n]), frozenset) for n in listed)
    most = len(listed) / 2 if is_of_releases else len(listed)
    return [group for group in groups.values() if len(group) <= most] if len(groups) > 1 else []


def hardware(pairs: Sequence[AcceleratorPair]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of ratios of accelerators: each family of GPUs, task, source and publisher is held out."""
    keys: dict[str, Callable[[AcceleratorPair], set[object]]] = {
        "GPU": lambda pair: {accelerator_of(pair.accelerator).family, accelerator_of(pair.reference).family},
        "task": lambda pair: {(pair.task, pair.mode)},
        "source": lambda pair: {pair.source},
        "publisher": lambda pair: {pair.publisher},
    }
    model = RatioModel(pairs, shipped_ratio_variances())
    for name, key in keys.items():
        groups: dict[object, list[int]] = defaultdict(list)
        for number, pair in enumerate(pairs):
            for value in key(pair):
                groups[value].append(number)
        yield name, hardware_rows(model, groups.values())


def hardware_rows(model: RatioModel, groups: Iterable[Sequence[int]]) -> list[Row]:
    """Return the rows of pairs of a model, by the numbers of those that are held out together."""
    by_names: dict[frozenset[str], list[int]] = defaultdict(list)
    for number, pair in enumerate(model.pairs):
        by_names[frozenset((pair.accelerator, pair.reference))].append(number)
    rows = []
    for group, means, deviations in model.held_out(groups):
        hidden = set(group)
        for number, mean, deviation in zip(group, means, deviations, strict=True):
            pair = model.pairs[number]
            same = by_names[frozenset((pair.accelerator, pair.reference))]
            rest = [model.pairs[other] for other in same if other not in hidden]
            bandwidth = bandwidth_ratio(pair)
            usual = usual_ratio(rest, pair, bandwidth)
            rows.append(Row(pair.mean, float(mean), float(deviation), usual, bandwidth))
    return rows


def usual_ratio(known: Sequence[AcceleratorPair], pair: AcceleratorPair, otherwise: float) -> float:
    """Return the mean of known pairs of the same two accelerators, of the same regime if there are any."""
    like = [other for other in known if other.regime == pair.regime] or known
    signs = (1.0 if other.accelerator == pair.accelerator else -1.0 for other in like)
    return statistics.fmean(sign * other.mean for sign, other in zip(signs, like, strict=True)) if like else otherwise


def bandwidth_ratio(pair: AcceleratorPair) -> float:
    """Return the log ratio of the memory bandwidths of two accelerators: the best guess from one of their rates."""
    one, other = (features_of(accelerator_of(name))[-1] for name in (pair.accelerator, pair.reference))
    return 2 * math.log(2) * (one - other)


def accelerator_of(name: str) -> AcceleratorModel:
    """Return the catalogue's entry of an accelerator.

    Raises:
        ValueError: If it has none.
    """
    model = find_accelerator(name)
    if model is None:
        raise ValueError(f"`{name}` is not in the catalogue")
    return model


def regrets(contrasts: Sequence[Contrast], framework: str) -> dict[str, list[tuple[float, float]]]:
    """Return regrets of the model's choice among the releases of a block at a program, with those of the newest.

    They are by what is held out: the program's model, its size, or a random quarter of the releases but the newest.
    """
    variances = shipped_variances(framework, "cpu")
    plain = [n for n, c in enumerate(contrasts) if not (c.is_control or c.side.settings or c.reference.settings)]
    regrets_by_name: dict[str, list[tuple[float, float]]] = {}
    for name, hidden in _hidden_releases(contrasts, plain):
        model = GainModel([c for n, c in enumerate(contrasts) if n not in hidden], program_of, variances)
        by_place: dict[tuple[str, str], list[Contrast]] = defaultdict(list)
        for n in plain if name == "releases" else sorted(hidden & set(plain)):
            by_place[contrasts[n].block, contrasts[n].label].append(contrasts[n])
        for arms in by_place.values():
            regrets_by_name.setdefault(name, []).append(_regret(model, arms))
    return regrets_by_name


def _hidden_releases(contrasts: Sequence[Contrast], plain: Sequence[int]) -> Iterator[tuple[str, set[int]]]:
    for name in ("model", "size"):
        for group in groups_of(contrasts, GROUPS[name], False):
            yield name, set(group)
    generator = random.Random(20261127)
    versions = sorted({contrasts[n].side.version for n in plain}, key=Version)[:-1]
    for _ in range(DRAWS if len(versions) >= 4 else 0):
        drawn = generator.sample(versions, len(versions) // 4)
        yield "releases", {n for n, c in enumerate(contrasts) if c.side.version in drawn}


def _regret(model: GainModel, arms: Sequence[Contrast]) -> tuple[float, float]:
    """Return by how much the chosen release, and the newest one, are slower than the best one."""
    reference = arms[0].reference
    truth = {reference.version: 0.0} | {c.side.version: c.mean for c in arms}
    sides = {reference.version: reference} | {c.side.version: c.side for c in arms}
    *others, newest = sorted(truth, key=Version)
    best = max(truth.values())
    if not others:
        return 0.0, 0.0
    pairs = [(sides[version], sides[newest]) for version in others]
    (predicted,) = model.predict(pairs, [((1.0, program_of(arms[0])),)], arms[0].machine)
    gains = [Ratio(mean=m, variance=v) for m, v in zip(*map(np.ndarray.tolist, predicted), strict=True)]
    steps, _, chosen = max((speed_steps(g, len(others)), Version(v), v) for g, v in zip(gains, others, strict=True))
    return math.expm1(best - truth[chosen if steps > 0 else newest]), math.expm1(best - truth[newest])


def of_shipped(evidence: BlockEvidence, pairs: Sequence[AcceleratorPair]) -> None:
    """Print the rows of what ships, each group held out in turn, and the regret."""
    choices: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for framework, device in frameworks_of(evidence):
        contrasts = programs_of(evidence, framework, device)
        for change, settings in CHANGES if contrasts else ():
            for name, key in GROUPS.items():
                hidden = groups_of(contrasts, key, settings)
                _print(f"{framework} on {device}, {change}, {name}", contrasts, hidden, framework, device)
        if device == "cpu" and contrasts:
            for name, listed in regrets(contrasts, framework).items():
                choices[name] += listed
    for name, rows in hardware(pairs):
        print(line(f"hardware, {name}", rows))
    print("\n| held out | choices | n | regret of the model | of the newest |")
    print("| --- | --- | --- | --- | --- |")
    for name, listed in choices.items():
        losing = [(own, newest) for own, newest in listed if newest > LARGE]
        for which, some in (("all", listed), (f"where the newest loses {LARGE:.0%}", losing)):
            own, newest = (statistics.fmean(column) for column in zip(*some, strict=True))
            print(f"| {name} | {which} | {len(some)} | {own:.1%} | {newest:.1%} |")


def read_files(files: Iterable[Path]) -> tuple[list[Observation], list[Contrast]]:
    """Return the observations of files and folders, and ratios of models of timm that do not ship."""
    observations: list[Observation] = []
    listed = [path for name in files for path in (sorted(name.rglob("*")) if name.is_dir() else [name])]
    paths = [path for path in listed if not path.is_dir()]
    of_timm = [path for path in paths if path.name.startswith("benchmark-") and ".csv" in path.name]
    for path in (path for path in paths if path not in of_timm):
        try:
            observations += observations_of(path)
        except (InputError, OSError) as error:
            print(f"left out: `{path}`: {error}", file=sys.stderr)
    tables = read_tables(of_timm)
    record = tables_from(record_of(tables, amounts(of_timm))) if tables else None
    contrasts = [c for name in (record.models if record else ()) for c in timm_contrasts(name, record)]
    return observations, [c for c in contrasts if not is_shipped(c)]


def of_files(evidence: BlockEvidence, pairs: Sequence[AcceleratorPair], files: Sequence[Path]) -> None:
    """Print the rows of files, predicted from what ships."""
    observations, of_timm = read_files(files)
    of_tables = evidence_of(o for o in observations if REPOSITORY not in o.block)
    new = replace(of_tables, contrasts=(*of_tables.contrasts, *of_timm))
    for framework, device in frameworks_of(new):
        ratios = programs_of(new, framework, device)
        names = {(c.block, c.label, c.arm) for c in ratios}
        others = [c for c in programs_of(evidence, framework, device) if (c.block, c.label, c.arm) not in names]
        for change, settings in CHANGES:
            changed = [c for c in ratios if not c.is_control and is_of_settings(c) == settings]
            rows = [
                row
                for start in range(0, len(changed), MOST_TOGETHER)
                for row in _predicted(changed[start : start + MOST_TOGETHER], others, ratios, framework, device)
            ]
            _print_line(f"{framework} on {device}, {change}, files", rows)
    shipped = set(pairs)
    own = [pair for pair in accelerator_pairs(accelerator_rows(observations)) if pair not in shipped][:MOST_PAIRS]
    model = RatioModel([*own, *pairs], shipped_ratio_variances())
    _print_line("hardware, files", hardware_rows(model, [range(len(own))]) if own else [])


def _print_line(name: str, rows: Sequence[Row]) -> None:
    """Print a line of the table, or that there are too few rows for it."""
    if len(rows) >= FEWEST:
        print(line(name, rows), flush=True)
    else:
        print(f"{name}: {len(rows)} ratios that do not ship; a line has at least {FEWEST}", file=sys.stderr)


def _predicted(
    hidden: Sequence[Contrast], known: Sequence[Contrast], every: Sequence[Contrast], framework: str, device: str
) -> Iterator[Row]:
    """Yield the rows of ratios, predicted from known ones, and from those that ship of the same models of timm."""
    tasks = {words_of(c.label).get("task", "") for c in hidden}
    names = [task.removeprefix(TIMM) for task in tasks if task.removeprefix(TIMM) in timm_tables().models]
    own = [c for name in sorted(names) for c in timm_contrasts(name) if c.label.endswith(f"/{device}")]
    controls = [c for c in every if c.is_control]
    yield from rows_of([*hidden, *known, *own, *controls], [range(len(hidden))], framework, device)


def _print(
    name: str, contrasts: Sequence[Contrast], hidden: Sequence[Sequence[int]], framework: str, device: str
) -> None:
    if sum(map(len, hidden)) >= FEWEST:
        print(line(name, list(rows_of(contrasts, hidden, framework, device))), flush=True)


def main() -> None:
    """Hold out and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", type=Path, default=[], metavar="FILE", help="files or folders")
    files = parser.parse_args().tables
    with open_knowledge_base("sqlite://") as store:
        evidence, pairs = load_evidence(store), load_pairs(store)
    columns = ("n", "model", "none", "mean", "nearest", "ratio", "wrong signs", "covered", "of large", "width")
    print(f"| framework, change, held out | {' | '.join(columns)} |")
    print("| --- " * (1 + len(columns)) + "|")
    if files:
        of_files(evidence, pairs, files)
    else:
        of_shipped(evidence, pairs)


def programs_of(evidence: BlockEvidence, framework: str, device: str) -> list[Contrast]:
    """Return the ratios of a framework at whole programs."""
    return merged(c for c in framework_contrasts(evidence, framework, device) if is_program(c))


if __name__ == "__main__":
    main()

"""Contrasts of published measurements: pairs of rows of one source that differ in one thing.

Two rows are a pair if they have the same source, accelerators, task, mode, batch, unit and other configuration, and
differ either in the software (framework, CUDA, cuDNN) or in one setting. The pairs of one configuration form a tree,
so that n rows give at most n - 1 contrasts, and nothing is counted twice. A published number has no rounds: its noise
is estimated for each source (:mod:`knowledge.estimate.gain_fit`), as the code or the host may have changed as well.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from packaging.version import InvalidVersion, Version

from knowledge.domain.identity import content_hash
from knowledge.domain.observation import Observation
from knowledge.evidence.contrasts import Contrast, Side, machine_of, side_of
from knowledge.exchange.ngc import CONTAINER_INDEX
from knowledge.hardware.accelerators import model_of

WIDEST_VERSION, WIDEST_SETTING = math.log(2), math.log(8)
"""Largest log ratios of a pair that differs in the version, and in one setting. A row beyond them has another
configuration or another machine than it says: in tables of `NVIDIA/DeepLearningExamples`, the code of a model was
replaced between two releases. The bounds are a judgement."""
DEFAULTS: Mapping[str, str] = {"precision": "fp32", "xla": "off", "compile": "off", "channels_last": "off"}
"""Values of settings that rows name although they are what happens without the setting."""
_CATALOGUE_NAMES = {("channels_last", "on"): ("memory_format", "channels_last")}
"""Settings that the catalogue of settings has under another name."""
_FIRST_WITH_TF32 = 3
"""Generation of the first tensor cores that compute with TF32."""
_NEAREST_TO_DEFAULT = ("", "tf32", "fp16", "bf16", "amp", "amp_bf16")
_IDENTITY_DIGITS = 12
_FIRST_CONTAINER = 17
"""Year of NVIDIA's first containers; no framework has such a major version."""


@dataclass(frozen=True, slots=True)
class _Arm:
    """Rows of one configuration with the same software and the same settings."""

    observation: Observation
    side: Side
    software: tuple[str, ...]
    seconds: float
    rows: int
    is_copy: bool


def published_contrasts(
    observations: Iterable[Observation], is_copy: Callable[[Observation], bool] = lambda _: False
) -> Iterator[Contrast]:
    """Yield the contrasts of published measurements, in order of source, configuration and arm.

    Args:
        observations: Observations of the indicator ``published``.
        is_copy: Returns whether another source published a row before (:func:`first_publications`): two such rows are
            that source's contrast.
    """
    groups: dict[tuple[str, ...], dict[object, list[Observation]]] = defaultdict(lambda: defaultdict(list))
    for o in observations:
        if o.status == "ok":
            key = o.block, o.framework, o.hardware.name, _accelerators(o), o.indicator.label
            groups[key][(published_side(o).key, _software(o))].append(o)
    for _, rows in sorted(groups.items(), key=lambda entry: entry[0]):
        ordered = [listed for _, listed in sorted(rows.items(), key=lambda arm: str(arm[0]))]
        yield from _contrasts_of([_arm(listed, all(map(is_copy, listed))) for listed in ordered])


def first_publications(observations: Iterable[Observation]) -> list[Observation]:
    """Return published rows without those that another source published before: forks and mirrors copy tables.

    A row that several sources published on one day counts for the first of them by name.
    """
    rows = list(observations)
    earliest: dict[object, str] = {}
    for o in sorted(rows, key=lambda o: (o.started_at, o.block)):
        earliest.setdefault(_row_key(o), o.block)
    return [o for o in rows if earliest[_row_key(o)] == o.block]


def _row_key(o: Observation) -> object:
    return o.framework, _accelerators(o), o.indicator.label, published_side(o).key, _software(o), o.samples


def _accelerators(o: Observation) -> str:
    return "+".join(f"{a.count} x {a.model} {a.partition}" for a in o.hardware.accelerators)


def published_side(o: Observation) -> Side:
    """Return the software and the settings of a published row; settings at their defaults are left out.

    PyTorch before 1.12 computes float32 with TF32 where the accelerator can (https://github.com/pytorch/pytorch/pull/79537
    changed what its documentation says), and newer versions do in NVIDIA's containers, which set
    ``TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1``. No page of NVIDIA that states the latter could be opened; instructions of
    several public repositories do.
    """
    side = side_of(o)
    settings = dict(side.settings)
    gpu = o.hardware.gpu
    model = model_of(gpu) if gpu is not None else None
    package = next((p for p in o.stack.packages if p.name == o.framework), None)
    in_container = o.framework == "torch" and package is not None and package.index == CONTAINER_INDEX
    if model and settings.get("precision") in ("fp32", "tf32"):
        has_tf32 = (model.tensor_core_generation or 0) >= _FIRST_WITH_TF32
        if in_container and has_tf32:
            settings["precision"] = "tf32"
        elif not has_tf32:
            # Tables that list two accelerators together name one precision for both.
            settings["precision"] = "fp32"
    settings = dict(_CATALOGUE_NAMES.get(item, item) for item in settings.items() if DEFAULTS.get(item[0]) != item[1])
    # The libraries of a container change with its framework: their effects cannot be separated.
    return Side(version=_release(side.version), companions={}, settings=settings)


def _release(version: str) -> str:
    """Return the release that a version is of; empty if it is unknown.

    NVIDIA's containers have builds from days before a release, such as ``1.13.0a0+d0d6b1f``. Where nothing says what a
    container contains, a record has the release of the container as version, such as ``20.6``.
    """
    try:
        parsed = Version(version)
    except InvalidVersion:
        return ""
    return parsed.base_version if parsed.major < _FIRST_CONTAINER else ""


def _software(o: Observation) -> tuple[str, ...]:
    """Return what else of the software must be the same in rows that differ in a setting."""
    return o.stack.cuda or "", o.stack.cudnn or "", str(o.environment.get("container", ""))


def _arm(rows: list[Observation], is_copy: bool) -> _Arm:
    seconds = statistics.median(o.samples[0] for o in rows)
    newest = max(rows, key=lambda o: (o.started_at, o.identity))
    side = published_side(newest)
    return _Arm(newest, side, (side.version, *_software(newest)), seconds, len(rows), is_copy)


def _contrasts_of(arms: list[_Arm]) -> Iterator[Contrast]:
    """Yield the contrasts of the arms of one configuration: a tree of pairs that differ in one thing, if there is one.

    Pairs that differ in a setting come first, as nothing else can have changed between them. Copies are connected: the
    source that published them first has their contrasts.
    """
    tree = [-1 if arm.is_copy else number for number, arm in enumerate(arms)]
    pairs = [
        (bool(change is None), one, other, change)
        for one, other in combinations(range(len(arms)), 2)
        if (change := _single_change(arms[one], arms[other])) != ""
    ]
    for _, one, other, change in sorted(pairs, key=lambda pair: pair[:3]):
        if tree[one] == tree[other]:
            continue
        reference, arm = _ordered(arms[one], arms[other], change)
        mean = math.log(reference.seconds / arm.seconds)
        if abs(mean) > (WIDEST_VERSION if change is None else WIDEST_SETTING):
            continue
        joined, kept = tree[other], tree[one]
        tree = [kept if number == joined else number for number in tree]
        yield _contrast(arm, reference, mean)


def _single_change(one: _Arm, other: _Arm) -> str | None:
    """Return the one setting in which two arms differ, none if only the version differs; empty if neither."""
    names = sorted({*one.side.settings, *other.side.settings})
    settings = [name for name in names if one.side.settings.get(name) != other.side.settings.get(name)]
    if one.software == other.software and len(settings) == 1:
        return settings[0]
    versions = {one.side.version, other.side.version}
    return None if len(versions) == 2 and "" not in versions and not settings else ""


def _ordered(one: _Arm, other: _Arm, change: str | None) -> tuple[_Arm, _Arm]:
    """Return the reference and the arm of a pair: the older version, or the setting nearer to the default."""
    if change is None:
        older, newer = sorted((one, other), key=lambda arm: Version(arm.side.version))
        return older, newer

    def rank(arm: _Arm) -> tuple[int, str]:
        value = arm.side.settings.get(change, "")
        return _NEAREST_TO_DEFAULT.index(value) if value in _NEAREST_TO_DEFAULT else len(_NEAREST_TO_DEFAULT), value

    reference, arm = sorted((one, other), key=rank)
    return reference, arm


def _contrast(arm: _Arm, reference: _Arm, mean: float) -> Contrast:
    o = arm.observation
    batch = o.indicator.parameters.get("batch")
    # Few tables state the operations and the bytes of an item; with one of them, nothing is known of a step.
    items = batch if isinstance(batch, int) and o.flops and o.bytes else 0
    return Contrast(
        block=o.block,
        arm=number_of(arm.observation),
        label=o.indicator.label,
        family=o.indicator.name,
        backend=o.indicator.backend,
        framework=o.framework,
        machine=machine_of(o.hardware, o.indicator.device),
        side=arm.side,
        reference=reference.side,
        mean=mean,
        rounds=min(arm.rows, reference.rows),
        reference_arm=number_of(reference.observation),
        year=int(o.started_at[:4]),
        flops=o.flops * items,
        bytes=o.bytes * items,
    )


def number_of(o: Observation) -> int:
    """Return a number that equal software and settings share in all configurations of a source."""
    side = published_side(o)
    return int(content_hash([(side.version, *_software(o)), dict(side.settings)])[:_IDENTITY_DIGITS], 16)

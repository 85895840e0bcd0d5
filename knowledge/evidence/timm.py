"""The published benchmark tables of timm: ratios of its models, and medians of families of models, as contrasts.

`docs/timm.py` divides the rates of two tables that differ in one thing, and writes the logarithms of the ratios. A
family is what the name of a model begins with: the letters before the first digit or underscore, without a prefix that
says where weights or code come from, and without the `v` of a version (`tf_efficientnetv2_s` belongs to
`efficientnet`). So it is the architecture, mostly what timm calls the module of a model. 1 000 models are too many for
the model of gains, and models of one family gain similarly: predictions use the medians of families, and the ratios of
a single model if it is the workload.
"""

from __future__ import annotations

import difflib
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from knowledge.domain.identity import hash_of_text
from knowledge.domain.observation import PUBLISHED, words_of
from knowledge.evidence.contrasts import Contrast, Machine, Side, machine_from
from knowledge.exchange.published.timm import REPOSITORY, TIMM, amounts_of_step
from knowledge.records import shipped_text

SHIPPED = "timm.json.gz"
"""File of the program with the ratios."""
BLOCK = f"{PUBLISHED}/{REPOSITORY}"
"""Name of the block of the tables."""
TIMM_FAMILY = "timm-family/"
"""What the names of families begin with, as tasks."""
FEWEST = 5
"""Fewest models of a family whose median counts."""
USUAL_SIZE = 224
"""Usual width and height of images, in pixels."""
_ORIGINS = re.compile(r"^(?:(?:tf|gluon|legacy|ssl|swsl|tv|jx|ens|adv|ese|wide)_)+")
"""Prefixes of names that say where weights or code come from, or how wide a model is."""
_TRANSFORMERS = re.compile(
    r"\w*vit\w*|\w*former|g?mixer|\w*mlp|swin|deit|beit|eva|cait|xcit|twins|pit|tnt|volo|coat\w*|nest|hiera|sam|pvt|aim"
    r"|sequencer|focalnet|csat"
)
"""Families that consist of attention or of layers that mix positions, and linear layers."""
_WITH_CONVOLUTIONS = frozenset({"mobilevit", "efficientvit", "fastvit", "nextvit", "repvit"})
"""Families whose names say otherwise: most of their time is spent in convolutions."""


class TimmTable(NamedTuple):
    """A table, as far as its ratios need it.

    Attributes:
        mode: ``inference`` or ``training``.
        device: ``cpu`` or ``cuda``.
        machine: Its machine.
        side: PyTorch and its settings.
        number: Number of this software and these settings, as of other published rows.
    """

    mode: str
    device: str
    machine: Machine
    side: Side
    number: int


class ModelRatio(NamedTuple):
    """Rate of a model in one table over that in another one.

    Attributes:
        comparison: Number of the comparison.
        size: Width and height of an image.
        batch: Batch size.
        reference_batch: Batch size in the other table.
        mean: Natural logarithm of the ratio.
    """

    comparison: int
    size: int
    batch: int
    reference_batch: int
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimmModel:
    """A model of timm.

    Attributes:
        name: Its name.
        parameters: Parameters, in millions.
        sizes: Thousands of millions of multiply-adds and millions of activations of an image, by width and height.
        ratios: Its ratios.
    """

    name: str
    parameters: float
    sizes: Mapping[int, tuple[float, float]]
    ratios: tuple[ModelRatio, ...]

    def amounts(self, batch: float, *, training: bool) -> tuple[float, float]:
        """Return the floating-point operations and least bytes of a step at the usual size of images."""
        size = min(self.sizes, key=lambda size: abs(size - USUAL_SIZE), default=0)
        gmacs, macts = self.sizes.get(size, (0.0, 0.0))
        return amounts_of_step(gmacs, macts, self.parameters, batch, training=training) if gmacs else (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimmTables:
    """The content of :data:`SHIPPED`.

    Attributes:
        origin: Whose tables they are: repository, commit, day, licence and address.
        tables: The tables.
        comparisons: Numbers of the table and of its reference, of each comparison. No table can be reached from another
            one in two ways, so that nothing counts twice.
        models: The models by name.
    """

    origin: Mapping[str, str]
    tables: tuple[TimmTable, ...]
    comparisons: tuple[tuple[int, int], ...]
    models: Mapping[str, TimmModel]


def family_of(name: str) -> str:
    """Return the family of a model by its name, such as ``resnet`` of ``gluon_resnet50_v1b`` or ``timm/resnet50``."""
    rest = _ORIGINS.sub("", name.rpartition("/")[2].lower())
    letters = re.match("[a-z]*", rest)
    family = letters[0] if letters else ""
    return family.removesuffix("v") if rest[len(family) :][:1].isdigit() else family


def architecture_of(family: str) -> str:
    """Return the architecture of a family: ``convolutional``, or ``transformer`` if its layers mix positions."""
    is_transformer = _TRANSFORMERS.fullmatch(family) is not None and family not in _WITH_CONVOLUTIONS
    return "transformer" if is_transformer else "convolutional"


def closest_models(name: str) -> list[str]:
    """Return at most three models whose names are similar to a name, the most similar first."""
    return difflib.get_close_matches(name, timm_tables().models, n=3, cutoff=0.5)


def timm_contrasts(model: str = "", tables: TimmTables | None = None) -> Iterator[Contrast]:
    """Yield the median log ratio of each family in each comparison, or the own log ratios of a model.

    By default, the tables are the shipped ones.
    """
    shipped = tables or timm_tables()
    if model:
        yield from _contrasts(f"{TIMM}{model}", [shipped.models[model]], shipped, fewest=1)
        return
    families: dict[str, list[TimmModel]] = defaultdict(list)
    for own in shipped.models.values():
        families[family_of(own.name)].append(own)
    for family, models in families.items():
        if len(models) >= FEWEST:
            yield from _contrasts(f"{TIMM_FAMILY}{family}", models, shipped, fewest=FEWEST)


def _contrasts(task: str, models: Sequence[TimmModel], shipped: TimmTables, *, fewest: int) -> Iterator[Contrast]:
    """Yield the median of models in each comparison with enough of them."""
    ratios: dict[int, dict[str, list[ModelRatio]]] = defaultdict(lambda: defaultdict(list))
    for own in models:
        for ratio in own.ratios:
            ratios[ratio.comparison][own.name].append(ratio)
    by_place: dict[tuple[str, str], list[float]] = defaultdict(list)
    for comparison, by_model in ratios.items():
        mode, device, *_ = shipped.tables[shipped.comparisons[comparison][0]]
        by_place[mode, device] += [ratio.batch for listed in by_model.values() for ratio in listed]
    # Ratios with one label have one program, so they have one size.
    amounts = {place: _usual_amounts(models, batches, place[0]) for place, batches in by_place.items()}
    for comparison, by_model in sorted(ratios.items()):
        if len(by_model) < fewest:
            continue
        table, other = (shipped.tables[number] for number in shipped.comparisons[comparison])
        mean = statistics.median(statistics.median(ratio.mean for ratio in listed) for listed in by_model.values())
        flops, moved = amounts[table.mode, table.device]
        yield Contrast(
            block=BLOCK,
            arm=table.number,
            label=f"{PUBLISHED}@1[mode={table.mode},task={task}] as-published torch/{table.device}",
            family=PUBLISHED,
            backend="torch",
            framework="torch",
            machine=table.machine,
            side=table.side,
            reference=other.side,
            mean=mean,
            rounds=len(by_model),
            reference_arm=other.number,
            year=int(shipped.origin["day"][:4]),
            flops=flops,
            bytes=moved,
        )


def _usual_amounts(models: Iterable[TimmModel], batches: Sequence[float], mode: str) -> tuple[float, float]:
    """Return the median operations and bytes of a step of models with known ones, at the median batch."""
    batch = statistics.median(batches)
    steps = [pair for own in models if (pair := own.amounts(batch, training=mode == "training"))[0] > 0]
    flops, moved = (statistics.median(column) for column in zip(*steps, strict=True)) if steps else (0.0, 0.0)
    return flops, moved


def is_shipped(c: Contrast) -> bool:
    """Whether what ships contains a published ratio: its model, and both of its tables."""
    words = words_of(c.label)
    sides = {(words.get("mode", ""), c.machine, side.key) for side in (c.side, c.reference)}
    return words.get("task", "").removeprefix(TIMM) in timm_tables().models and sides <= _places()


@cache
def _places() -> frozenset[tuple[object, ...]]:
    return frozenset((table.mode, table.machine, table.side.key) for table in timm_tables().tables)


@cache
def timm_tables() -> TimmTables:
    """Return what ships of the tables."""
    return tables_from(json.loads(shipped_text("knowledge.data", SHIPPED)))


def tables_from(record: Mapping[str, Any]) -> TimmTables:
    """Return the tables of a record as in :data:`SHIPPED`."""
    machines = [machine_from(entry) for entry in record["machines"]]
    sides = [Side(**entry) for entry in record["sides"]]
    return TimmTables(
        origin=record["origin"],
        tables=tuple(TimmTable(mode, device, machines[m], sides[s], n) for mode, device, m, s, n in record["tables"]),
        comparisons=tuple((arm, reference) for arm, reference in record["comparisons"]),
        models={name: _model(name, entry) for name, entry in record["models"].items()},
    )


def _model(name: str, entry: Sequence[Any]) -> TimmModel:
    parameters, sizes, ratios = entry
    return TimmModel(
        name=name,
        parameters=parameters,
        sizes={int(size): (gmacs, macts) for size, (gmacs, macts) in sizes.items()},
        ratios=tuple(ModelRatio(*ratio) for ratio in ratios),
    )


@cache
def timm_digest() -> str:
    """Return a hash of what ships of the tables."""
    return hash_of_text(shipped_text("knowledge.data", SHIPPED))

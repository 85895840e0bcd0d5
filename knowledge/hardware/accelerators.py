"""Catalogue of accelerators: what the makers state about each model, and the spellings of their names."""

from __future__ import annotations

import difflib
import importlib.resources
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any

from knowledge.domain.hardware import Accelerator
from knowledge.records import parse_yaml, yaml_files

ELEMENT_TYPES = ("float64", "float32", "tfloat32", "float16", "bfloat16", "float8", "float4", "int8")
_GIB = 2**30
_MIG_SLICE = re.compile(r"(?:\d+ ?x ?)?(?:\dc\.)?(?<!\d)\dg[. ]?\d+gb(?: mig)?")
_TRADE_MARK = re.compile(r"\((?:r|tm)\)|®|™")
_MEMORY = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d+)?) ?g(?:i?b|bytes)?(?![a-z0-9])|(?<![\d.])(\d{4,6}) ?mi?b(?![a-z])")
_POWER = re.compile(r"(?<!\d)(\d{2,4}) ?w(?![a-z0-9])")
_BEFORE = r"(?<![a-z0-9.])(?:\d+ ?x ?|x|dgx ?|hgx ?)*"
_OTHER_PRODUCTS = r"ti|super|laptop|mobile|notebook|max ?q|with max|d|xt|xtx|gre|m|ada|blackwell|nano|nx|ultra|max|pro"
_AFTER = rf"(?=x\d|[^a-z0-9.]|\.?$)(?! (?:{_OTHER_PRODUCTS})(?![a-z0-9]))"
_MEMORY_TOLERANCE = 0.07
"""Relative difference of nominal memory and what a driver reports: error correction takes a sixteenth of GDDR6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorModel:
    """A model of accelerators. Facts that its sources do not state are none.

    Attributes:
        name: Short name, such as ``a100-sxm4-80gb``.
        vendor: ``nvidia``, ``amd``, ``intel``, ``google`` and so on, in lower case.
        model: Name as the driver reports it, such as ``NVIDIA A100-SXM4-80GB``.
        family: Short name that all its variants share, such as ``a100``.
        kind: ``data-centre``, ``workstation``, ``consumer`` or ``embedded``.
        architecture: Short name of the architecture, such as ``ampere`` or ``cdna3``.
        sources: Addresses of the pages that state the facts.
        form: What distinguishes it from other variants: ``sxm4``, ``pcie`` and so on, or empty.
        compute_capability: ``major.minor`` of an NVIDIA GPU.
        gfx: Target of an AMD GPU in LLVM, such as ``gfx942``.
        memory_bytes: Memory of one device.
        memory_bytes_per_second: Peak bandwidth of its memory.
        tensor_core_generation: Generation of NVIDIA's tensor cores.
        flops: Peak operations per second without sparsity by element type, as the sources state them: for ``float64``
            and ``float32`` some state the rate of vector units, others that of matrix units, which is up to twice as
            high; the other types have the rate of the fastest units.
        watts: Power limit by default.
        interconnect: Fastest interconnect of the devices: ``nvlink``, ``pcie``, ``infinity-fabric`` and so on.
        interconnect_bytes_per_second: Bandwidth of this interconnect, both directions together.
        year: Year of the release.
        variants: Names of the models that a generic entry stands for; empty for a model.
    """

    name: str
    vendor: str
    model: str
    family: str
    kind: str
    architecture: str
    sources: tuple[str, ...]
    form: str = ""
    compute_capability: str | None = None
    gfx: str | None = None
    memory_bytes: int | None = None
    memory_bytes_per_second: float | None = None
    tensor_core_generation: int | None = None
    flops: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    watts: float | None = None
    interconnect: str = ""
    interconnect_bytes_per_second: float | None = None
    year: int | None = None
    variants: tuple[str, ...] = ()

    @property
    def memory_gib(self) -> float | None:
        """Memory of one device in GiB."""
        return None if self.memory_bytes is None else self.memory_bytes / _GIB

    def accelerator(self, count: int = 1) -> Accelerator:
        """Return devices of this model in one machine, as a hardware profile lists them."""
        return Accelerator(
            vendor=self.vendor,
            model=self.model,
            compute_capability=self.compute_capability,
            memory_bytes=self.memory_bytes,
            count=count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """Variants of one accelerator, and a generic entry for every group of them that a spelling can mean."""

    name: str
    model: str
    pattern: str
    variants: tuple[AcceleratorModel, ...]

    def entry(self, variants: Sequence[AcceleratorModel]) -> AcceleratorModel:
        """Return the only variant, or a generic entry with the facts that several share."""
        first = variants[0]
        if len(variants) == 1:
            return first
        shared: dict[str, Any] = {
            f.name: getattr(first, f.name)
            for f in fields(AcceleratorModel)
            if f.name != "flops" and all(getattr(variant, f.name) == getattr(first, f.name) for variant in variants)
        }
        flops = {name: rate for name, rate in first.flops.items() if all(v.flops.get(name) == rate for v in variants)}
        form = shared.get("form", "")
        memory = shared.get("memory_bytes")
        whole = len(variants) == len(self.variants)
        suffixes = () if whole else (form, f"{memory / _GIB:.0f}gb" if memory else "")
        return AcceleratorModel(
            **{
                **shared,
                "name": "-".join(part for part in (self.name, *suffixes) if part),
                "model": " ".join((self.model, *(suffix.upper() for suffix in suffixes if suffix))),
                "form": form,
                "sources": tuple(dict.fromkeys(source for variant in variants for source in variant.sources)),
                "flops": MappingProxyType(flops),
                "variants": tuple(variant.name for variant in variants),
            }
        )


@cache
def accelerator_models() -> tuple[AcceleratorModel, ...]:
    """Return all entries of the catalogue: each model, and a generic entry for each family of several models."""
    entries: list[AcceleratorModel] = []
    for family in _families():
        entries += family.variants
        if len(family.variants) > 1:
            entries.append(family.entry(family.variants))
    return tuple(entries)


@lru_cache(maxsize=1024)
def find_accelerator(*spellings: str) -> AcceleratorModel | None:
    """Return the most specific entry that spellings of an accelerator mean.

    The first spelling that names a known accelerator decides about it; the others only distinguish its variants. Where
    they do not, the entry is generic: it contains what all possible variants share.

    Args:
        spellings: Names as drivers, benchmarks or people write them, such as ``GeForce_GTX_1080_Ti`` or ``8x A100
            80GB``; also amounts of memory, such as ``81559 MiB``.

    Returns:
        The entry; ``None`` if no spelling names a known accelerator.
    """
    texts = [_normalise(spelling) for spelling in spellings]
    for text in texts:
        if text in _variants_by_name():
            return _variants_by_name()[text]
        matches = [(_family_match(family.pattern, text), family) for family in _families()]
        length, family = max(matches, key=lambda match: match[0])
        if length:
            return family.entry(_narrow(family.variants, [text, *(other for other in texts if other != text)]))
    return None


def model_of(accelerator: Accelerator) -> AcceleratorModel | None:
    """Return the entry of the accelerators of a machine; ``None`` if the catalogue does not contain them."""
    memory = f"{accelerator.memory_bytes // 2**20} MiB" if accelerator.memory_bytes else ""
    entry = find_accelerator(accelerator.model, memory)
    if entry is None or entry.vendor != accelerator.vendor:
        return None
    same = accelerator.compute_capability in (None, entry.compute_capability)
    return entry if same or entry.compute_capability is None else None


def closest_models(text: str) -> tuple[str, ...]:
    """Return the names of at most three entries whose names or models are similar to a text, the most similar first."""
    names = {_compact(spelling): entry.name for entry in accelerator_models() for spelling in (entry.name, entry.model)}
    similar = difflib.get_close_matches(_compact(text), names, n=6, cutoff=0.6)
    return tuple(dict.fromkeys(names[spelling] for spelling in similar))[:3]


def _compact(spelling: str) -> str:
    return _normalise(spelling).replace(" ", "")


@cache
def _variants_by_name() -> Mapping[str, AcceleratorModel]:
    return {_normalise(variant.name): variant for family in _families() for variant in family.variants}


@cache
def _families() -> tuple[_Family, ...]:
    folder = importlib.resources.files("knowledge.hardware") / "catalogue"
    documents = {file.name: parse_yaml(file.read_text(encoding="utf-8")) for file in yaml_files(folder)}
    architectures = documents.pop("architectures.yaml")["architectures"]
    return tuple(family for document in documents.values() for family in _read(document, architectures))


def _read(document: Mapping[str, Any], architectures: Mapping[str, Any]) -> Iterator[_Family]:
    """Read a file: defaults for all families, families, and the variants of a family, each more specific."""
    defaults = document["defaults"]
    for name, own in document["families"].items():
        facts = _merge(architectures.get(own.get("architecture", ""), {}), defaults, own)
        facts["family"] = name
        variants = facts.pop("variants", {name: {}})
        pattern = facts.pop("match", _normalise(name))
        model = facts.pop("family_model", "")
        yield _Family(
            name=name,
            model=model,
            pattern=pattern,
            variants=tuple(_entry(variant, _merge(facts, special or {})) for variant, special in variants.items()),
        )


def _merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge facts; later ones win, the addresses of the most specific facts come first."""
    facts: dict[str, Any] = {}
    for layer in layers:
        sources = [*layer.get("sources", ()), *facts.get("sources", ())]
        flops = {**facts.get("flops", {}), **layer.get("flops", {})}
        facts |= {**layer, "sources": sources, "flops": flops}
    return facts


def _entry(name: str, facts: dict[str, Any]) -> AcceleratorModel:
    memory = facts.pop("memory_gib", None)
    return AcceleratorModel(
        **{
            **facts,
            "name": name,
            "sources": tuple(dict.fromkeys(facts["sources"])),
            "memory_bytes": None if memory is None else int(memory * _GIB),
            "flops": MappingProxyType(facts["flops"]),
        }
    )


def _normalise(spelling: str) -> str:
    """Return a spelling in lower case with single spaces instead of other separators."""
    text = _TRADE_MARK.sub(" ", spelling.lower())
    return " ".join(re.sub(r"[^a-z0-9.]+", " ", text).split())


def _family_match(pattern: str, spelling: str) -> int:
    """Return the number of characters of a normalised spelling that name a family; 0 if it does not name the family."""
    match = _compiled(pattern).search(spelling)
    return len(match["name"]) if match else 0


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"{_BEFORE}(?P<name>{pattern}){_AFTER}")


def _narrow(variants: Sequence[AcceleratorModel], spellings: Iterable[str]) -> tuple[AcceleratorModel, ...]:
    """Return the variants that agree with the form, memory and power of normalised spellings, the most trusted first.

    A statement that no remaining variant agrees with is ignored.
    """
    remaining = tuple(variants)
    for spelling in spellings:
        text = _MIG_SLICE.sub(" ", spelling)
        for agreeing in (
            [v for v in remaining if _without_brand(_normalise(v.model)) == _without_brand(text)],
            [v for v in remaining if v.form and _states_form(text, v.form)],
            [v for v in remaining if _states_memory(text, v.memory_gib)],
            [v for v in remaining if v.watts is not None and str(int(v.watts)) in _POWER.findall(text)],
        ):
            remaining = tuple(v for v in remaining if v in agreeing) or remaining
    return remaining


def _without_brand(text: str) -> str:
    return re.sub(r"^(?:(?:nvidia|amd|intel|tesla) )+", "", text)


def _states_form(text: str, form: str) -> bool:
    """Return whether a text states a form; `sxm` without a number, DGX and HGX stand for every SXM form."""
    kind = form.rstrip("0123456789")
    if kind == "sxm" and re.search(rf"(?<![a-z0-9])(?:{form}|sxm(?!\d)|[dh]gx)", text):
        return True
    return kind != "sxm" and re.search(rf"(?<![a-z0-9]){re.escape(form)}(?![a-z0-9])", text) is not None


def _states_memory(text: str, memory_gib: float | None) -> bool:
    if memory_gib is None:
        return False
    return any(
        float(gib) == memory_gib
        if gib
        else 1 - _MEMORY_TOLERANCE <= float(mib) / 1024 / memory_gib <= 1 + _MEMORY_TOLERANCE
        for gib, mib in _MEMORY.findall(text)
    )

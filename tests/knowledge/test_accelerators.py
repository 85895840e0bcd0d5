from __future__ import annotations

import csv
import gzip
import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from knowledge.domain.hardware import Accelerator
from knowledge.hardware.accelerators import (
    ELEMENT_TYPES,
    AcceleratorModel,
    accelerator_models,
    closest_models,
    find_accelerator,
    model_of,
)
from tests.conftest import MACHINES

KINDS = ("data-centre", "workstation", "consumer", "embedded")

SHARED = Path(__file__).parents[3] / "shared" / "data"
QUALIFIERS = ("ti", "super", "maxq", "laptop", "ada", "nx", "nvl", "xtx", "titan", "quadro", "orin", "xavier")


def published_spellings() -> Iterator[tuple[str, str]]:
    """Yield the name and the memory of the accelerators in published tables and in descriptions of MLPerf systems."""
    for path in sorted(SHARED.glob("published/*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            yield from ((row["gpu"], "") for row in csv.DictReader(file))
    for path in sorted(SHARED.glob("mlperf-*.tar.gz")):
        with tarfile.open(path) as archive:
            members = [m for m in archive if m.isfile() and "/systems/" in m.name]
            texts = [archive.extractfile(m).read().decode("utf-8", "replace") for m in members]  # type: ignore[union-attr]
        for text in texts:
            # Not all of them are JSON; the two fields look the same in all.
            names = re.findall(r"accelerator_model_name['\"]\s*:\s*['\"]([^'\"]+)['\"]", text)
            memories = re.findall(r"accelerator_memory_capacity['\"]\s*:\s*['\"]([^'\"]+)['\"]", text)
            yield from ((name, memories[0] if memories else "") for name in names)


def vendor_in(spelling: str) -> str:
    """Return the vendor whose accelerator a spelling names: of those that the catalogue must know, else empty."""
    text = re.sub(r"[_\W]+", " ", spelling).lower()
    if re.search(r"nvidia|geforce|quadro|tesla|titan|\brtx|^(?:[ahltv]\d{1,3}s?)\b", text):
        return "nvidia"
    if re.search(r"instinct|radeon", text):
        return "amd"
    if re.search(r"\btpu v?\d|tpu trillium", text):
        return "google"
    return "intel" if "gaudi" in text else ""


def designation(name: str) -> tuple[set[str], set[str]]:
    """Return what tells a model from others, read independently of the catalogue's patterns: numbers and qualifiers."""
    text = re.sub(r"\([^)]*mig\)|\(r\)|\(\d+ ?w\)|-\d{3}w|-\d+q\b|\d+x?1g\.\d+gb", " ", name.lower())
    text = re.sub(r"blackwell gpu|tensor core gpu|generation|trillium", lambda m: "v6e" * (m[0] == "trillium"), text)
    text = re.sub(r"\d+ ?gi?b\b|hbm\w*|sxm\d?|pcie|\bcts\b|\bdlc\b|-02\b", " ", text)
    numbers = set(re.findall(r"\b(?:mi|gb|v|a|b|h|l|t)?\d+[a-z]?\b", text.replace("_", " ")))
    compact = re.sub(r"[\W_]+", "", text)
    words = re.split(r"[\W_]+", text)
    return numbers, {word for word in QUALIFIERS if word in words or (word == "maxq" and word in compact)}


def test_every_entry_is_complete_and_has_a_source() -> None:
    models = accelerator_models()

    assert len(models) > 200
    assert len({model.name for model in models}) == len(models)
    for model in models:
        assert model.sources, model.name
        assert all(re.match(r"https://\S+$", source) for source in model.sources), model.name
        assert model.kind in KINDS, model.name
        assert model.architecture, model.name
        assert set(model.flops) <= set(ELEMENT_TYPES), model.name
        amounts = (model.memory_bytes, model.memory_bytes_per_second, model.watts, *model.flops.values())
        assert all(amount is None or amount > 0 for amount in amounts), model.name
        assert (model.compute_capability is not None) == (model.vendor == "nvidia"), model.name
        assert (model.gfx is not None) == (model.vendor == "amd"), model.name
        assert model.gfx is None or re.fullmatch(r"gfx\d+[a-z]?", model.gfx), model.name


def test_rates_are_dense_and_grow_with_shorter_types() -> None:
    for model in accelerator_models():
        short = [model.flops[name] for name in ("float32", "tfloat32", "float16", "float8") if name in model.flops]
        if model.tensor_core_generation is not None and "float16" in model.flops:
            assert short == sorted(short), model.name
            assert model.flops.get("int8", 2 * short[-1]) <= 4.1 * model.flops["float16"], model.name


@pytest.mark.parametrize("model", [m for m in accelerator_models() if not m.variants], ids=lambda m: m.name)
def test_a_model_is_found_by_its_name_and_by_the_name_of_the_driver(model: AcceleratorModel) -> None:
    for spelling in (model.name, model.model, model.model.upper().replace(" ", "_"), f"8x {model.model}"):
        found = find_accelerator(spelling)

        assert found is not None, spelling
        assert model.name in (found.name, *found.variants), spelling


@pytest.mark.parametrize(
    ("spellings", "name"),
    [
        (("GeForce_GTX_1080_Ti",), "gtx1080ti"),
        (("Tesla V100-SXM2-16GB",), "v100-sxm2-16gb"),
        (("NVIDIA V100-SXM3-32GB (450W)",), "v100-sxm3-32gb-450w"),
        (("8x A100 80GB",), "a100-80gb"),
        (("DGX A100",), "a100-sxm4"),
        (("NVIDIA A100", "40G"), "a100-40gb"),
        (("NVIDIA H100-SXM-80GB",), "h100-sxm5-80gb"),
        (("NVIDIA H100 80GB HBM3", "81559 MiB"), "h100-sxm5-80gb"),
        (("H100 96GB",), "h100"),
        (("H100x8",), "h100"),
        (("NVIDIA Blackwell GPU (GB200)", "189471 MiB"), "gb200"),
        (("NVIDIA A100-SXM4 (1x1g.5gb MIG)", "5GB"), "a100-sxm4"),
        (("TPU", "tpu-v4-16-TF"), "tpu-v4"),
        (("cloud_v3.32",), "tpu-v3"),
        (("Intel(R) Gaudi(R) 2 AI Accelerator",), "gaudi2"),
        (("rtx 2080 super with max-q design",), "rtx2080-super-max-q"),
    ],
)
def test_published_spellings_lead_to_the_most_specific_entry(spellings: tuple[str, ...], name: str) -> None:
    found = find_accelerator(*spellings)

    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "N/A",
        "A100X",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "DNA-F200 v2 on Alveo U50",
        "Xeon Platinum 8480C",
        "RX 580",
    ],
)
def test_another_product_is_not_taken_for_a_similar_one(spelling: str) -> None:
    assert find_accelerator(spelling) is None


def test_a_generic_entry_states_what_all_its_variants_share() -> None:
    generic = find_accelerator("A100")
    with_form = find_accelerator("A100 SXM")

    assert generic is not None
    assert with_form is not None
    assert len(generic.variants) == 4
    assert (generic.compute_capability, generic.flops["float16"]) == ("8.0", 312e12)
    assert (generic.memory_bytes, generic.watts, generic.form) == (None, None, "")
    assert (with_form.form, with_form.watts, with_form.memory_bytes) == ("sxm4", 400, None)


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("dgx1-v100", "v100-sxm2-16gb"),
        ("dgx-a100", "a100-sxm4-80gb"),
        ("h200-virtual-machine", "h200-sxm5-141gb"),
        ("desktop-gtx-1080-ti", "gtx1080ti"),
    ],
)
def test_the_gpus_of_recorded_machines_have_an_entry(machine: str, name: str) -> None:
    for device in json.loads((MACHINES / machine / "nvml.json").read_text())["devices"]:
        gpu = Accelerator(
            vendor="nvidia",
            model=device["model"],
            compute_capability=device["compute_capability"],
            memory_bytes=device["memory_bytes"],
        )
        model = model_of(gpu)

        assert model is not None
        assert model.name == name
        assert model_of(replace(gpu, compute_capability="1.0")) is None


def test_similar_names_are_suggested() -> None:
    assert closest_models("rtx 4091")[0] == "rtx4090"
    assert "a100" in closest_models("A101")
    assert closest_models("abacus") == ()


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published measurements are not on this machine")
def test_every_published_spelling_leads_to_an_entry_of_the_same_model() -> None:
    spellings = sorted({s for s in published_spellings() if vendor_in(s[0])})

    assert len(spellings) > 100
    for name, memory in spellings:
        entry = find_accelerator(name, memory)
        assert entry is not None, name
        assert entry.vendor == vendor_in(name), name
        numbers, qualifiers = designation(name)
        known, known_qualifiers = designation(entry.model)
        assert numbers <= known, (name, entry.model)
        assert qualifiers - {"quadro", "orin", "xavier"} == known_qualifiers - {"quadro", "orin", "xavier"}, name
        stated = re.search(r"(?<![\d.])(\d+) ?G", re.sub(r"\d+x?1g\.\d+gb", "", name))
        if stated and entry.memory_gib is not None:
            assert entry.memory_gib == int(stated[1]), name

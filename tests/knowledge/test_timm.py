"""What ships of timm's benchmark tables, and the contrasts that predictions use of it."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from docs.timm import TARGET, amounts, comparisons, differ_in_one_thing, print_medians, read_tables, record_of
from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.programs import program_of_run
from knowledge.evidence.block_evidence import load_evidence
from knowledge.evidence.timm import BLOCK, FEWEST, architecture_of, family_of, timm_contrasts, timm_tables
from knowledge.exchange.published.observations import read_published
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.timm_files import REAL, TABLES

RTX_5090, MAX_Q = "NVIDIA GeForce RTX 5090", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"


@pytest.fixture(scope="module")
def record() -> Mapping[str, Any]:
    """What `docs/timm.py` writes of the tables in the repository."""
    paths = list(TABLES.glob("*.csv*"))
    return record_of(read_tables(paths), amounts(paths))


@pytest.fixture
def shipped() -> Iterator[SqlKnowledgeBase]:
    """A new knowledge base with everything that ships."""
    with open_knowledge_base("sqlite://") as store:
        yield store


def changes_of(record: Mapping[str, Any]) -> dict[tuple[str, ...], int]:
    """Return the number of each comparison: mode, machine, versions, and settings that differ."""
    changes = {}
    for number, (arm, reference) in enumerate(record["comparisons"]):
        (mode, _, machine, one, _), (_, _, _, other, _) = record["tables"][arm], record["tables"][reference]
        side, old = record["sides"][one], record["sides"][other]
        settings = {f"{name}={value}" for name, value in {*side["settings"].items()} - {*old["settings"].items()}}
        name = record["machines"][machine]["name"]
        changes[mode, name, old["version"], side["version"], *sorted(settings)] = number
    return changes


def test_tables_that_differ_in_one_thing_are_compared_and_none_in_two_ways(record: Mapping[str, Any]) -> None:
    assert set(changes_of(record)) == {
        ("inference", "NVIDIA GeForce RTX 3090", "2.1.0", "2.1.0", "memory_format=channels_last"),
        ("inference", "NVIDIA GeForce RTX 3090", "2.1.0", "2.4.0"),
        ("inference", "NVIDIA GeForce RTX 4090", "2.4.0", "2.4.0", "compile=on"),
        ("inference", RTX_5090, "2.9.1", "2.9.1", "compile=on"),
        ("inference", MAX_Q, "2.9.1", "2.9.1", "precision=amp_bf16"),
        ("inference", "cascadelake", "2.2.1", "2.4.0"),
        ("training", "NVIDIA GeForce RTX 3090", "1.12", "1.12", "memory_format=channels_last"),
    }


def test_a_ratio_is_that_of_the_rates_at_one_image_size(record: Mapping[str, Any]) -> None:
    number = changes_of(record)["inference", RTX_5090, "2.9.1", "2.9.1", "compile=on"]

    _, sizes, ratios = record["models"]["resnet50"]
    (own,) = (ratio for ratio in ratios if ratio[:2] == (number, 224))

    assert own[2:4] == (1024, 1024)
    assert own[4] == pytest.approx(math.log(12400.78 / 6356.02), abs=1e-4)
    assert sizes[224] == (4.11, 11.11)


def test_rows_with_other_batches_count_only_if_there_are_no_equal_ones_and_within_a_factor_of_2(
    record: Mapping[str, Any],
) -> None:
    compiled = changes_of(record)["inference", "NVIDIA GeForce RTX 4090", "2.4.0", "2.4.0", "compile=on"]

    of = {name: [r[2:4] for r in ratios if r[0] == compiled] for name, (_, _, ratios) in record["models"].items()}

    # The compiled rows have a batch of 256, the others of 1024, but the largest model of 384.
    assert of["resnet50"] == []
    assert of["vit_huge_patch16_gap_448"] == [(256, 384)]


def test_a_file_whose_name_says_nothing_is_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (TABLES / "benchmark-infer-amp-nchw-pt291-cu130-5090.csv").read_bytes()
    (tmp_path / "benchmark-infer-amp-nchw-pt291-cu130-5090.csv").write_bytes(content)
    (tmp_path / "results-imagenet.csv").write_bytes(content)

    tables = read_tables(list(tmp_path.iterdir()))

    assert len(tables) == 1
    assert "left out: `results-imagenet.csv` is a table of timm, but" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="the tables are not there")
def test_the_shipped_file_is_of_the_real_tables() -> None:
    paths = list(REAL.glob("*.csv*"))
    tables = read_tables(paths)

    assert json.loads(gzip.decompress(TARGET.read_bytes())) == json.loads(json.dumps(record_of(tables, amounts(paths))))
    assert all(differ_in_one_thing(tables[arm], tables[reference]) for arm, reference in comparisons(tables))


def test_the_shipped_file_is_small_and_states_its_origin() -> None:
    shipped = timm_tables()

    assert TARGET.stat().st_size < 1_000_000
    assert shipped.origin == {
        "repository": "huggingface/pytorch-image-models",
        "commit": "aa4b5850",
        "day": "2026-08-08",
        "licence": "Apache-2.0",
        "address": "https://github.com/huggingface/pytorch-image-models/tree/aa4b5850/results",
    }
    assert len(shipped.models) > 1000
    assert len(shipped.comparisons) < len(shipped.tables)


def test_the_documented_medians_are_those_of_what_ships(capsys: pytest.CaptureFixture[str]) -> None:
    print_medians(timm_tables())

    *table, _, total = capsys.readouterr().out.splitlines()
    page = Path(__file__).parents[2] / "docs/reference/evidence/accelerators.md"
    assert "\n".join(table) in page.read_text(encoding="utf-8")
    assert total == "1157 models, 11064 ratios"


@pytest.mark.parametrize(
    ("name", "family", "architecture"),
    [
        ("resnet50", "resnet", "convolutional"),
        ("gluon_resnet50_v1b", "resnet", "convolutional"),
        ("wide_resnet50_2", "resnet", "convolutional"),
        ("tf_efficientnetv2_s", "efficientnet", "convolutional"),
        ("timm/mobilenetv3_large_100", "mobilenet", "convolutional"),
        ("timm/vit_base_patch16_224", "vit", "transformer"),
        ("swinv2_tiny_window8_256", "swin", "transformer"),
        ("eva02_tiny_patch14_336", "eva", "transformer"),
        ("resmlp_12_224", "resmlp", "transformer"),
        ("mixer_b16_224", "mixer", "transformer"),
        ("caformer_s18", "caformer", "transformer"),
        ("convmixer_768_32", "convmixer", "convolutional"),
        ("mobilevitv2_100", "mobilevit", "convolutional"),
        ("resnest50d", "resnest", "convolutional"),
    ],
)
def test_a_family_is_the_architecture_in_the_name(name: str, family: str, architecture: str) -> None:
    assert family_of(name) == family
    assert architecture_of(family) == architecture


def test_families_have_the_median_of_their_models() -> None:
    contrasts = list(timm_contrasts())
    resnets = [c for c in contrasts if "task=timm-family/resnet]" in c.label]
    compiled = {c.machine.name: c for c in resnets if c.side.settings.get("compile") and "precision" in c.side.settings}

    assert len(contrasts) < 700
    assert {c.label.rpartition("/")[2] for c in contrasts} == {"cuda", "cpu"}
    assert all(c.rounds >= FEWEST for c in contrasts)
    assert math.exp(compiled[RTX_5090].mean) == pytest.approx(1.85, abs=0.01)
    assert compiled[RTX_5090].reference.settings == {"precision": "amp"}
    assert {c.source for c in contrasts} == {"huggingface/pytorch-image-models"}
    assert all(c.flops > 0 and c.bytes > 0 for c in contrasts)


def test_a_model_has_its_own_ratios_at_its_own_size() -> None:
    contrasts = list(timm_contrasts("resnet50"))

    (bf16,) = (c for c in contrasts if c.side.settings.get("precision") == "amp_bf16")
    (on_cpu,) = (c for c in contrasts if c.machine.is_processor)
    assert bf16.label == f"{PUBLISHED}@1[mode=inference,task=timm/resnet50] as-published torch/cuda"
    assert bf16.mean == pytest.approx(0.0, abs=0.01)
    assert bf16.flops == pytest.approx(2 * 4.11e9 * 1024)
    assert on_cpu.flops == pytest.approx(2 * 4.11e9)


def test_the_program_of_a_model_has_its_architecture_and_its_family() -> None:
    program, other = (
        program_of_run(f"{PUBLISHED}@1[mode=inference,task={task}] as-published torch/cuda", PUBLISHED, flops=8e12)
        for task in ("timm/resnet50", "timm-family/swin")
    )

    assert program.model == (PUBLISHED, "timm/resnet50", "inference")
    assert (program.architecture, program.family) == (("convolutional", "inference"), "resnet")
    assert (other.architecture, other.family) == (("transformer", "inference"), "swin")
    assert program.shares[0] > 0.5 > other.shares[0]
    assert program.flops == 8e12


def test_only_a_knowledge_base_with_what_ships_has_the_ratios(shipped: SqlKnowledgeBase) -> None:
    with open_knowledge_base("sqlite://", shipped=False) as empty:
        assert load_evidence(empty).contrasts == ()

    families = [c for c in load_evidence(shipped).contrasts if c.block == BLOCK]
    assert families == list(timm_contrasts())


def test_imported_rows_that_ship_count_once_and_others_count(shipped: SqlKnowledgeBase, tmp_path: Path) -> None:
    before = load_evidence(shipped).contrasts
    for path in TABLES.glob("*5090*.csv"):
        rows = path.read_bytes() + path.read_bytes().split(b"\n", 1)[1].replace(b"resnet50,", b"resnet50_new,")
        (tmp_path / path.name).write_bytes(rows)

    shipped.add(o for path in sorted(tmp_path.iterdir()) for o in read_published(path).observations)
    after = load_evidence(shipped).contrasts

    new = [c for c in after if "task=timm/" in c.label]
    assert {c.label.partition("task=")[2].partition(",")[0] for c in new} == {"timm/resnet50_new"}
    assert len(after) == len(before) + len(new)

"""The catalogue of benchmark suites is valid, complete, and names existing indicators."""

from __future__ import annotations

import pytest

from docs.workloads_page import workload_catalogue_page
from knowledge.domain.errors import InputError
from knowledge.estimate.catalogue import CatalogueEntry, benchmark_catalogue, find_suite, read_suite
from knowledge.estimate.workloads import find_workload
from pi_runners.indicators import INDICATORS
from pi_runners.models import NETWORKS

POLICIES = "https://github.com/mlcommons/policies/blob/45b8b625/MLPerf_Compatibility_Table.adoc"
LOGGING = "https://github.com/mlcommons/logging/blob/e6e040b7/mlperf_logging/benchmark_meta.py"

TRAINING_ROUNDS = {
    "v0.6": "resnet ssd maskrcnn gnmt transformer minigo",
    "v0.7": "bert dlrm gnmt maskrcnn minigo resnet ssd transformer",
    "v1.0": "bert dlrm maskrcnn minigo resnet ssd rnnt unet3d",
    "v1.1": "bert dlrm maskrcnn minigo resnet ssd rnnt unet3d",
    "v2.0": "bert dlrm maskrcnn minigo resnet retinanet rnnt unet3d",
    "v2.1": "bert dlrm maskrcnn minigo resnet retinanet rnnt unet3d",
    "v3.0": "bert dlrm_dcnv2 gpt3 maskrcnn resnet retinanet rnnt unet3d",
    "v3.1": "bert dlrm_dcnv2 gpt3 maskrcnn resnet retinanet rnnt unet3d stable_diffusion",
    "v4.0": "bert dlrm_dcnv2 gpt3 resnet retinanet unet3d stable_diffusion llama2_70b_lora rgat",
    "v4.1": "bert dlrm_dcnv2 gpt3 retinanet stable_diffusion llama2_70b_lora rgat",
    "v5.0": "bert dlrm_dcnv2 retinanet stable_diffusion llama2_70b_lora rgat llama31_405b",
    "v5.1": "dlrm_dcnv2 retinanet llama2_70b_lora rgat llama31_405b llama31_8b flux1",
}
"""Benchmarks of each round, as `LOGGING` lists them up to v5.0, and `POLICIES` from v5.0.

`LOGGING` calls RetinaNet `ssd` and RGAT `gnn` until v4.1. It has NCF in v0.6, for which there are no results and which
`POLICIES` has in v0.5 only. `POLICIES` has BERT from v1.0 only, although there are results of v0.7.
"""
TRAINING_NAMES = {
    "resnet": "ResNet-50 v1.5",
    "ssd": "SSD-ResNet34",
    "retinanet": "RetinaNet-ResNeXt50",
    "maskrcnn": "MaskRCNN",
    "gnmt": "NMT",
    "transformer": "Transformer",
    "minigo": "MiniGo",
    "bert": "BERT",
    "dlrm": "DLRM",
    "dlrm_dcnv2": "DLRM-dcnv2",
    "rnnt": "RNN-T",
    "unet3d": "3D U-Net",
    "gpt3": "GPT3",
    "stable_diffusion": "Stable Diffusionv2",
    "llama2_70b_lora": "LLama70B-LoRA",
    "rgat": "RGAT",
    "llama31_405b": "Llama3.1 405b",
    "llama31_8b": "Llama3.1 8b",
    "flux1": "FLUX.1",
}

SUITES = {
    # `POLICIES`, datacenter and edge, without the models that were added in v6.0.
    "MLPerf Inference": """MobileNet-v1|ResNet-50 v1.5|SSD-MobileNets|SSD-ResNet34|RetinaNet-ResNeXt50|NMT|DLRM|DLRM-v2|
        BERT|RNN-T|3D U-Net|GPT-J|Llama2-70b|Stable-diffusion-xl|Mixtral-8x7b|Llama 3.1 405B|RGAT|Llama 3.1 8B|Whisper|
        DeepSeek R1|Automotive PointPainting""",
    # `LOGGING`, and https://mlcommons.org/en/training-hpc-10
    "MLPerf HPC": "CosmoFlow|DeepCAM|Open Catalyst|OpenFold",
    # `POLICIES`, and https://mlcommons.org/en/inference-tiny-05 for the fifth
    "MLPerf Tiny": "MobileNetV1|ResNet-V1|DSCNN|FC Autoencoder|1D DS-CNN",
    # https://github.com/tensorflow/benchmarks/blob/039fa955/scripts/tf_cnn_benchmarks/models/model_config.py
    "tf_cnn_benchmarks": """vgg11|vgg16|vgg19|lenet|googlenet|overfeat|alexnet|trivial|inception3|inception4|
        official_resnet18_v2|official_resnet34_v2|official_resnet50_v2|official_resnet101_v2|official_resnet152_v2|
        official_resnet200_v2|official_resnet18|official_resnet34|official_resnet50|official_resnet101|
        official_resnet152|official_resnet200|resnet50|resnet50_v1.5|resnet50_v2|resnet101|resnet101_v2|resnet152|
        resnet152_v2|ncf|resnet20|resnet20_v2|resnet32|resnet32_v2|resnet44|resnet44_v2|resnet56|resnet56_v2|resnet110|
        resnet110_v2|densenet40_k12|densenet100_k12|densenet100_k24|deepspeech2|mobilenet|nasnet|nasnetlarge|ssd300""",
    # operations of the shape lists in https://github.com/baidu-research/DeepBench/tree/da81ba78
    "DeepBench": "gemm|conv|rnn|sparse_gemm|all_reduce",
    # folders and variants in https://github.com/facebook/FAI-PEP/tree/main/specifications/models
    "FAI-PEP": """resnet50|resnet50_quant_arm_neon|resnet50_v2_quant|mobilenet_v2|mobilenet_v2_quant|
        mobilenet_v2_0.35_96|mobilenet_v2_1.0_224|mobilenet_v2_1.0_224_quant|mobilenet_v2_1.4_224|
        mobilenet_v1_1.0_224_quant|shufflenet|vgg16|vgg19|bvlc_alexnet|bvlc_reference_caffenet|
        bvlc_reference_rcnn_ilsvrc13|bvlc_googlenet|inception_v1|inception_v2|densenet121|squeezenet|style_transfer|
        MaskRCNN2Go_COCO""",
    # https://github.com/rdadolf/fathom/blob/201b330d/docs/models.md
    "Fathom": "Seq2Seq|MemNet|Speech|Autoenc|Residual|VGG|AlexNet|DeepQ",
    # https://github.com/claritylab/djinn: seven applications, with their networks in `dnn/net-configs`
    "DjiNN and Tonic": "IMC|DIG|FACE|ASR|POS|CHK|NER",
    # models of the entries of https://github.com/stanford-futuredata/dawn-bench-entries/tree/1edd0896
    "DAWNBench": """ResNet50|ResNet 152|ResNet101|ResNet26|ResNet26d|AmoebaNet-D N6F256|MIVT-NET|MIVT-NET-v2|
        ResNet 164 (with bottleneck)|ResNet 164 (without bottleneck)|ResNet 56|Custom ResNet 9|ResNet8|BaiduNet8|
        BaiduNet9|BaiduNet9P|KervResNet34|Resnet18 + minor modifications|Custom Wide Resnet|BiDAF|DrQA|FastFusionNet|
        QANet|PA-Occam-Bert""",
}
MOTIFS = {"Matrix", "Sampling", "Logic", "Transform", "Set", "Graph", "Sort", "Statistic"}
"""The data motifs of http://prof.ict.ac.cn/BigDataBench/."""


def entries_of(suite: str) -> tuple[CatalogueEntry, ...]:
    return tuple(entry for entry in benchmark_catalogue() if entry.suite == suite)


@pytest.mark.parametrize("entry", benchmark_catalogue(), ids=lambda entry: entry.key)
def test_what_represents_an_entry_exists(entry: CatalogueEntry) -> None:
    for part in entry.represented_by:
        if part.model is None:
            assert part.indicator is not None
            assert INDICATORS[part.indicator].complaints(dict(part.parameters)) == []
            assert set(part.modes) <= set(entry.modes)
        else:
            assert set(part.modes or entry.modes) <= set(NETWORKS[part.model].modes)


def test_every_entry_has_addresses_as_sources_and_texts_without_column_separators() -> None:
    for entry in benchmark_catalogue():
        assert entry.sources, entry.key
        assert all(source.startswith(("https://", "http://")) for source in entry.sources), entry.key
        assert "|" not in f"{entry.name}{entry.task}{entry.note}{entry.versions}", entry.key


def test_keys_are_unique() -> None:
    keys = [entry.key for entry in benchmark_catalogue()]

    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_is_complete(suite: str) -> None:
    expected = {" ".join(name.split()) for name in SUITES[suite].split("|")}

    assert {entry.name for entry in entries_of(suite)} == expected


def test_bigdatabench_has_all_motifs_and_sixteen_component_benchmarks() -> None:
    names = {entry.name for entry in entries_of("BigDataBench")}

    assert names >= MOTIFS
    assert {name.split()[0] for name in names if name.startswith("DC-AI")} == {f"DC-AI-C{n}" for n in range(1, 17)}


@pytest.mark.parametrize("version", TRAINING_ROUNDS)
def test_a_round_of_mlperf_training_is_complete(version: str) -> None:
    names = {entry.name for entry in entries_of("MLPerf Training") if version in entry.versions}

    assert names == {TRAINING_NAMES[benchmark] for benchmark in TRAINING_ROUNDS[version].split()}


def test_the_first_round_of_mlperf_training_has_seven_models() -> None:
    names = {entry.name for entry in entries_of("MLPerf Training") if "v0.5" in entry.versions}

    assert names == {"ResNet-50 v1.5", "SSD-ResNet34", "MaskRCNN", "NCF", "NMT", "Transformer", "MiniGo"}


@pytest.mark.parametrize("name", ["mlperf-tiny", "MLPerf Tiny", "mlperf_tiny", "mlperf-tiny/dscnn"])
def test_a_suite_named_as_a_workload_gets_one_sentence_that_says_what_is_not_known(name: str) -> None:
    with pytest.raises(InputError) as error:
        find_workload(name)

    assert error.value.message == (
        f"`{name}` is the benchmark suite MLPerf Tiny, not a workload: it measures microcontrollers, and this program "
        "knows neither machines nor prices nor frameworks of that kind"
    )


@pytest.mark.parametrize("name", ["dawnbench", "mlperf-tiny", "mlperf-hpc"])
def test_a_suite_that_is_not_predicted_says_its_metrics_with_sources_and_why(name: str) -> None:
    suite = find_suite(name)

    assert suite is not None
    assert len(suite.metrics) >= 2
    assert all(metric.source.startswith("https://") for metric in suite.metrics)
    assert suite.evidence
    assert suite.limits
    assert f"What it cannot say: {suite.limits}." in workload_catalogue_page()


SUITE = """
id: suite
name: Suite
versions: [v1, v2]
source: https://example.com/models
models:
  - names: [One, Two]
    task: work
    modes: [training]
    represented-by: [{model: resnet50}]
    closeness: same
    source: https://example.com/one
"""


def test_a_group_becomes_one_entry_for_each_name() -> None:
    first, second = read_suite(SUITE, where="suite.yaml").entries()

    assert (first.key, second.key) == ("suite/one", "suite/two")
    assert first.versions == ("v1", "v2")
    assert first.sources == ("https://example.com/models", "https://example.com/one")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: Suite", "title: Suite", "field `name`: field required"),
        ("closeness: same", "closeness: equal", "field `models.0.closeness`"),
        ("closeness: same", "closeness: similar", "`note` is missing"),
        ("closeness: same", "closeness: none", "`represented-by` must be empty"),
        ("[{model: resnet50}]", "[{model: resnet50, indicator: matmul}]", "either a `model` or an `indicator`"),
        ("[{model: resnet50}]", "[{model: resnet50, parameters: {batch: 1}}]", "remove `parameters`"),
        ("task: work", "task: work\n    versions: v1 to v3", "`v1 to v3` are not versions of the suite"),
        ("names: [One, Two]", "names: []", "`names` and `modes` must not be empty"),
        ("source: https://example.com/models", "source: a book", "`source` must be an address"),
        ("id: suite", "id: [", "is not YAML"),
    ],
)
def test_a_malformed_suite_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_suite(SUITE.replace(old, new), where="suite.yaml").entries()

    assert message in str(error.value)

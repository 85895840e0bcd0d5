from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.index.cache import DiskCache
from advisor.project.code.files import SourceFile, project_files
from advisor.project.workload.proposal import propose_workload
from knowledge.estimate.workloads import workload_catalogue

PROGRAMS = {
    "cnn-training": "import torch.nn as nn\nfrom torch import optim\nm = nn.Conv2d(3, 8, 3)\no = optim.SGD([])\n",
    "cnn-inference": "import tensorflow as tf\nm = tf.keras.layers.Conv2D(4, 3)\nm.predict(x)\n",
    "recurrent-training": "from tensorflow.keras.layers import LSTM\nm.add(LSTM(4))\nm.fit(x)\n",
    "transformer-inference": "from transformers import AutoModel\nm = AutoModel.from_pretrained('x')\n",
    "transformer-training": "import transformers\nt = transformers.Trainer(model=m)\n",
    "recommender-training": "import torch\ne = torch.nn.EmbeddingBag(4, 4)\nloss.backward()\n",
    "unet3d-training": "import torch\nc = torch.nn.Conv3d(1, 1, 3)\nloss(c).backward()\n",
    "numeric": "import numpy as np\nprint(np.zeros(3))\n",
}


@pytest.mark.parametrize("workload", PROGRAMS)
def test_imports_and_calls_propose_a_workload(tmp_path: Path, workload: str) -> None:
    (tmp_path / "model.py").write_text(PROGRAMS[workload])

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.workload == workload
    assert workload in workload_catalogue()
    assert proposal.signs


@pytest.mark.parametrize(
    ("code", "workload"),
    [
        ("import timm\nm = timm.create_model('resnet50', pretrained=True)\n", "timm/resnet50"),
        ("import timm\nm = timm.create_model('resnet50.a1_in1k')\nloss.backward()\n", "timm/resnet50-training"),
        ("import timm as t\nm = t.create_model(model_name='hf-hub:timm/resnet18.a1', n=2)\n", "timm/resnet18"),
        ("from timm import create_model\nm = create_model('no_such_net')\n", "cnn-inference"),
        ("import timm\nm = timm.create_model(name)\n", "cnn-inference"),
        ("from torchvision import models\nm = models.resnet18()\n", "timm/resnet18"),
        ("import torchvision\nm = torchvision.models.vit_b_16()\n", "timm/vit_base_patch16_224"),
        ("from torchvision.models import get_model\nm = get_model('swin_t')\n", "timm/swin_tiny_patch4_window7_224"),
        ("import torchvision\nm = torchvision.models.detection.fcos_resnet50_fpn()\n", "cnn-inference"),
        ("import torchvision\nm = torchvision.models.quantization.resnet50()\n", "cnn-inference"),
        ("import tensorflow as tf\nm = tf.keras.applications.ResNet50()\nm.fit(x)\n", "resnet50-training"),
        ("from keras.applications.efficientnet import EfficientNetB3 as E\nm = E()\n", "timm/efficientnet_b3"),
        ("from keras.applications import EfficientNetV2S\nm = EfficientNetV2S()\n", "timm/tf_efficientnetv2_s"),
        ("import keras\nm = keras.applications.ConvNeXtTiny()\n", "timm/convnext_tiny"),
        ("import keras\nm = keras.applications.VGG16()\n", "cnn-inference"),
        ("import keras\nm = keras.applications.ResNet50V2()\n", "cnn-inference"),
        ("from transformers import AutoModelForImageClassification as A\n"
         "m = A.from_pretrained('microsoft/resnet-50')\n", "timm/resnet50"),
        ("import transformers\nm = transformers.ViTModel.from_pretrained('google/vit-base-patch16-224-in21k')\n",
         "timm/vit_base_patch16_224"),
        ("from transformers import AutoModel\nm = AutoModel.from_pretrained('bert-base-uncased')\nl.backward()\n",
         "bert-training"),
        ("from transformers import AutoModel\nm = AutoModel.from_pretrained('FacebookAI/roberta-large')\n",
         "bert-inference"),
        ("from transformers import AutoModel\nm = AutoModel.from_pretrained('./my-bert-base')\n",
         "transformer-inference"),
        ("from transformers import BertForMaskedLM as B\nm = B(config)\n", "bert-inference"),
        ("from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer\nt = AutoTokenizer.from_pretrained(n)\n"
         "m = AutoModelForCausalLM.from_pretrained(n)\nTrainer(m)\n", "language-model-training"),
        ("from transformers import GPT2LMHeadModel\nm = GPT2LMHeadModel.from_pretrained('gpt2')\n", "text-generation"),
        ("from transformers import GPT2Tokenizer, T5Model\nt = GPT2Tokenizer.from_pretrained('gpt2')\nm = T5Model(c)\n",
         "transformer-inference"),
        ("from transformers import AutoTokenizer as T, AutoModel as M\nt = T.from_pretrained('bert-base-uncased')\n"
         "m = M.from_pretrained('microsoft/deberta-v3-base')\n", "transformer-inference"),
        ("from transformers import BertConfig as C, AutoModel as M\nm = M.from_config(C())\n", "transformer-inference"),
        ("from torchvision import models\na, b = models.resnet18(), models.vgg16()\nc = models.resnet50()\n",
         "cnn-inference"),
        ("from transformers import T5Model\nm = T5Model.from_pretrained('t5-small')\n", "transformer-inference"),
    ],
)  # fmt: skip
def test_a_named_model_is_the_workload(tmp_path: Path, code: str, workload: str) -> None:
    (tmp_path / "train.py").write_text(code)

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.workload == workload


def test_a_named_model_counts_more_than_layers_and_less_than_a_more_frequent_kind(tmp_path: Path) -> None:
    layers = "import timm\nfrom torch import nn\nh = [nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)]\n"
    calls = "m = timm.create_model('resnet50')\nn = timm.create_model('resnet18')\n"
    (tmp_path / "model.py").write_text(layers + calls)
    (tmp_path / "more.py").write_text("import timm\n\nm = timm.create_model('resnet18')\n")

    first = propose_workload(tmp_path)
    (tmp_path / "text.py").write_text("import transformers\n" + "m = transformers.AutoModel.from_pretrained('x')\n" * 6)
    second = propose_workload(tmp_path)

    assert first is not None
    assert second is not None
    assert first.workload == "timm/resnet18"
    assert first.signs[0] == 'timm.create_model("resnet18") (model.py:5)'
    assert second.workload == "transformer-inference"


def test_the_most_frequent_kind_decides_and_is_reported_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from torch import nn\n\nx = nn.Conv2d(1, 1, 1)\ny = nn.Conv2d(1, 1, 1)\n")
    (tmp_path / "b.py").write_text("import torch\nclass N(torch.nn.LSTM):\n    pass\n")

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.workload == "cnn-inference"
    assert proposal.signs == ("torch.nn.Conv2d (a.py:3)",)


def test_shell_commands_and_text_of_a_notebook_are_ignored(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install torch\n", "import torch\n"]}
    call = {"cell_type": "code", "source": ["m = torch.nn.GRU(1, 1)"]}
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": [cell, {"cell_type": "markdown", "source": ["# x"]}, call]}))

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.workload == "recurrent-inference"


def test_an_exported_graph_indicates_no_kind(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("import onnxruntime\ns = onnxruntime.InferenceSession('m.onnx')\n")

    assert propose_workload(tmp_path) is None


def test_files_of_environments_and_tests_are_not_read(tmp_path: Path) -> None:
    for folder in (".venv", "env", "node_modules", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(PROGRAMS["cnn-training"])
    (tmp_path / "env" / "pyvenv.cfg").touch()

    assert propose_workload(tmp_path) is None


def test_files_that_are_not_valid_python_are_skipped_and_reported(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch.optim\nprint 'two'\n")
    (tmp_path / "b.py").write_bytes(b"import torch.optim\n\x00\xff")
    (tmp_path / "c.ipynb").write_text("torch, but not json")
    (tmp_path / "d.py").write_text("print 'uses no library, so that nothing is to be found in it'\n")
    (tmp_path / "model.py").write_text(PROGRAMS["cnn-training"])

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.workload == "cnn-training"
    assert [line.split(":")[0] for line in proposal.skipped] == ["`a.py`", "`b.py`", "`c.ipynb`"]


def test_a_cell_of_a_notebook_may_be_one_text(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": "%matplotlib inline\nimport torch\nm = torch.nn.GRU(7 % 2, 1)"}
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": [cell]}))

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.signs == ("torch.nn.GRU (n.ipynb:2)",)


@pytest.mark.parametrize(
    "line",
    [
        "import os, torch\nm = torch.nn.LSTM(1)",
        "x = 1; import torch\nm = torch.nn.LSTM(1)",
        "def f():\n    from torch import (\n        nn,\n    )\n    return nn.LSTM(1)",
        "try:\n    import torch.nn as layers\nexcept ImportError:\n    layers = None\nm = layers.LSTM(1)",
    ],
)
def test_every_form_of_an_import_is_found_before_a_file_is_parsed(tmp_path: Path, line: str) -> None:
    (tmp_path / "model.py").write_text(line)

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.workload == "recurrent-inference"


def test_a_call_of_a_training_method_in_a_file_without_libraries_indicates_training(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import torch\nm = torch.nn.LSTM(1)\n")
    (tmp_path / "loop.py").write_text("def step(loss):\n    loss.backward()\n")

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.workload == "recurrent-training"


def test_the_content_of_a_file_is_remembered_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, cache = tmp_path / "project", DiskCache(tmp_path / "cache")
    project.mkdir()
    for name in ("model.py", "other.py"):
        (project / name).write_text(PROGRAMS["cnn-training"])
    (project / "plain.py").write_text("print(1)\n")
    read: list[str] = []
    content = SourceFile.read

    def noted(file: SourceFile) -> bytes:
        read.append(file.name)
        return content(file)

    monkeypatch.setattr(SourceFile, "read", noted)

    first = propose_workload(project, cache)
    assert {*read} == {"model.py", "other.py", "plain.py"}
    read.clear()
    assert propose_workload(project, cache) == first
    assert read == []
    (project / "other.py").write_text(PROGRAMS["recurrent-training"] * 2)
    (project / "model.py").unlink()
    changed = propose_workload(project, cache)

    assert {*read} == {"other.py"}
    assert changed is not None
    assert changed.workload == "recurrent-training"


def test_at_most_a_number_of_files_is_parsed_and_they_are_selected_evenly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.project.workload.proposal.MOST_PARSED", 3)
    for number in range(9):
        (tmp_path / f"m{number}.py").write_text(f"import torch\nm = torch.nn.LSTM{number}(1)\n")

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.signs == tuple(f"torch.nn.LSTM{number} (m{number}.py:2)" for number in (0, 3, 6))


def test_nothing_is_executed(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nimport numpy\n")

    propose_workload(tmp_path)

    assert not (tmp_path / "ran").exists()


def test_directories_that_are_nested_very_deeply_are_not_searched(tmp_path: Path) -> None:
    deepest = tmp_path.joinpath(*["a"] * 200)
    deepest.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "a" / "a", deepest):
        (folder / "train.py").write_text("import torch\n")

    assert [Path(file.name).parts for file in project_files(tmp_path)] == [("train.py",), ("a", "a", "train.py")]

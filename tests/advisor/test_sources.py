from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.project.sources import propose_workload
from knowledge.estimate.workloads import workload_catalogue

PROGRAMS = {
    "cnn-training": "import torch.nn as nn\nfrom torch import optim\nm = nn.Conv2d(3, 8, 3)\no = optim.SGD([])\n",
    "cnn-inference": "import tensorflow as tf\nm = tf.keras.applications.ResNet50()\nm.predict(x)\n",
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
    (tmp_path / "a.py").write_text("print 'two'\n")
    (tmp_path / "b.py").write_bytes(b"\x00\xff")
    (tmp_path / "c.ipynb").write_text("not json")
    (tmp_path / "model.py").write_text(PROGRAMS["cnn-training"])

    proposal = propose_workload(tmp_path)

    assert proposal is not None
    assert proposal.workload == "cnn-training"
    assert [line.split(":")[0] for line in proposal.skipped] == ["`a.py`", "`b.py`", "`c.ipynb`"]


def test_nothing_is_executed(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nimport numpy\n")

    propose_workload(tmp_path)

    assert not (tmp_path / "ran").exists()

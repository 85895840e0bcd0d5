"""Files of MLPerf results, old and new."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

V05 = """:::MLPv0.5.0 resnet 100.5 (train.py:1) run_start
:::MLPv0.5.0 resnet 101.0 (train.py:2) input_batch_size: 2048
:::MLPv0.5.0 resnet 140.0 (train.py:3) eval_target: 0.749
:::MLPv0.5.0 resnet 150.0 (train.py:4) eval_accuracy: {"epoch": 61, "value": 0.75}
:::MLPv0.5.0 resnet 160.5 (train.py:5) run_stop
"""


MLL = """noise before the log
:::MLL 0.0 submission_benchmark: {"value": "gnmt", "metadata": {"lineno": 0, "file": "N/A"}}
:::MLL 100.5 run_start: {"value": null, "metadata": {'lineno': 615, 'file': 'train.py'}}
:::MLL 101.5 weather: {"value": "fine", "metadata": {}}
:::MLL 160.5 run_stop: {"value": null, "metadata": {"status": "success", "file": "fit.py"}}
:::MLL 170.5 run_stop: {"value": null, "metadata": {"status": "aborted", "file": "fit.py"}}
"""


MLLOG = """:::MLLOG {"time_ms": 100500, "key": "run_start", "value": null, "metadata": {"file": "a.py"}}
:::MLLOG {"time_s": 120.0, "key": "submission_benchmark", "value": "bert", "metadata": {}}
:::MLLOG {"time_ms": 160500, "key": "run_stop", "value": null, "metadata": {"status": "aborted"}}
"""


DESCRIPTIONS = {
    "json": '{"divison": "closed", "number of nodes": "2", "accelerators_per_node": "8", "accelerator_model_name": '
    '"NVIDIA V100-SXM2-16GB (300W)", "framework": "MXNet NVIDIA Release 20.06", "other_software_stack": [{'
    '"cuda_version": "11.0.167", "cudnn_version": "8.0.1.13", "nccl_version": "2.7.5", "cuda_driver_version": '
    '"450.36.06"}], "colour": "green"}',
    "stray comma": '{"division": "Closed", "number_of_nodes": "2", "accelerators_per_node": "8",\n\t"framework": '
    '"MXNet NGC20.06", "accelerator_model_name": "Nvidia Tesla V100-SXM2-16GB", "other_software_stack": {'
    '"cuda_version": "11.0.167", "cudnn_version": "8.0.1.13", "nccl_version": "2.7.5", "cuda_driver_version": '
    '"450.36.06",}, "colour": "green",}',
    "lines of literals": 'division: {"value": "closed", "metadata": {"lineno": 1}}\n'
    "entry: {\"value\": \"{'framework': 'MXNet NVIDIA Release 20.06', 'colour': 'green', 'libraries': "
    "\\\"{'cuda_version': '11.0.167', 'cudnn_version': '8.0.1.13', 'nccl_version': '2.7.5', 'cuda_driver_version': "
    "'450.36.06'}\\\", 'nodes': \\\"{'num_nodes': '2', 'num_accelerators': '8', 'accelerator': "
    '\'Tesla V100-SXM2-16GB\'}\\"}", "metadata": {}}',
    "prose": '{"division": "closed", "framework": "NGC MXNet 20.06", "colour": "green", "libraries": "cuda_version '
    '11.0.167 / cudnn 8.0.1.13, nccl_version 2.7.5 / cuda_driver_version 450.36.06", "nodes": [{"num_nodes": 2, '
    '"num_accelerators": 8, "accelerator": "Tesla V100-SXM2-16GB"}]}',
}


def _tree(folder: Path, files: Iterable[tuple[str, str]]) -> None:
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


FILES = (
    ("v1.1/Us/systems/box.json", DESCRIPTIONS["json"]),
    ("v1.1/Us/results/box/bert/result_0.txt", MLLOG.replace("aborted", "success")),
    ("v1.1/Us/results/box/bert/result_1.txt", "cut off"),
    ("v1.1/Us/README.md", "not a result"),
)


PARTS = Path(__file__).parents[1] / "fixtures" / "mlperf"


INFERENCE_TREE, TRAINING_TREE = PARTS / "inference.tar.gz", PARTS / "training.tar.gz"

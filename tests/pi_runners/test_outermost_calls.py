"""Mixed precision around the models of a program: the same numbers as in the program that a person has edited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from knowledge.catalogue.settings import measured_statements_of
from pi_runners.hooks import sitecustomize as hook
from pi_runners.plan.arm_settings import import_request
from tests.pi_runners.benchmarks import benchmark_of, run_benchmark

AMP = {"amp": "bfloat16"}
MODELS = {
    "cnn": """
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(32, 10))
x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
""",
    "transformer": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(100, 64), nn.Linear(64, 10)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
    def forward(self, x):
        return {"logits": self.head(self.encoder(self.embed(x))[:, 0])}
model, x, y = Model(), torch.randint(0, 100, (4, 16)), torch.randint(0, 10, (4,))
""",
    "checkpoint": """
from torch.utils.checkpoint import checkpoint
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Sequential(nn.Linear(32, 64), nn.GELU()), nn.Linear(64, 10)
    def forward(self, x):
        return self.second(checkpoint(self.first, x, use_reentrant=False))
model, x, y = Model(), torch.randn(8, 32), torch.randint(0, 10, (8,))
""",
    "recurrent": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 10)
    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])
model, x, y = Model(), torch.randn(8, 12, 16), torch.randint(0, 10, (8,))
""",
}
LOSSES = {
    "function": "F.cross_entropy(out, y)",
    "module": "loss_module(out, y)",
    "squares": "F.mse_loss(out, F.one_hot(y, 10).float())",
    "own": "out.log_softmax(-1).gather(1, y[:, None]).pow(2).mean()",
}
IN_FLOAT32 = "with {context}:\n        out = result_of(x)\n    out = out.float()\n    loss = {loss}"
"""The edit of a person who computes the loss in float32."""
IN_CONTEXT = "with {context}:\n        out = result_of(x)\n        loss = {loss}"
"""The edit of a person who computes the loss in the context, too."""
TRAINING = """
import contextlib, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
{model}
def result_of(x):
    out = model(x)
    return out["logits"] if isinstance(out, dict) else out
loss_module = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(4):
    optimizer.zero_grad()
    {step}
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
model.eval()
with torch.no_grad(), {context}:
    print(result_of(x).float().sum().item().hex())
"""
PLAIN, AUTOCAST = "contextlib.nullcontext()", "torch.autocast('cpu', dtype=torch.bfloat16)"


def output_of(model: str, loss: str, step: str, context: str, *, with_setting: bool = False) -> str:
    """Return the losses and the result of a training."""
    program = TRAINING.format(
        model=MODELS[model], step=step.format(context=context, loss=LOSSES[loss]), context=context
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if with_setting:
        environment["PYTHONPATH"] = str(Path(hook.__file__).parent)
        environment[hook.SETTINGS] = json.dumps([asdict(part) for part in measured_statements_of(AMP, "torch")])
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_training_is_bitwise_that_of_the_edited_program(model: str) -> None:
    pytest.importorskip("torch")
    plain = output_of(model, "own", IN_CONTEXT, PLAIN)
    edited = output_of(model, "own", IN_FLOAT32, AUTOCAST)

    assert output_of(model, "own", IN_CONTEXT, PLAIN, with_setting=True) == edited != plain


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["function", "module", "squares"])
def test_usual_losses_are_bitwise_those_computed_in_the_context_of_the_edited_program(loss: str) -> None:
    pytest.importorskip("torch")

    edited = output_of("cnn", loss, IN_CONTEXT, AUTOCAST)

    assert output_of("cnn", loss, IN_CONTEXT, PLAIN, with_setting=True) == edited


MODEL = "import torch\nmodel, x = torch.nn.Linear(8, 8), torch.ones(2, 8)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (f"{MODEL}model(x)", ""),
        (f"{MODEL}with torch.autocast('cpu', dtype=torch.bfloat16): model(x)\nmodel(x)", ""),
        (
            f"{MODEL}model(x)\nwith torch.autocast('cpu', dtype=torch.float16): model(x)",
            "cannot be applied: the program computes with `torch.autocast` and another type",
        ),
        (
            f"{MODEL}model.bfloat16()(x.bfloat16())",
            "cannot be applied: a model of the program has parameters that are not float32",
        ),
        (
            f"{MODEL}class Model(torch.nn.Linear):\n    def forward(self, x):\n        yield super().forward(x)\n"
            "list(Model(8, 8)(x))",
            "cannot be applied: a model of the program returns a generator, which computes after the call",
        ),
        (
            f"{MODEL}model.forward(x)",
            "was not applied: no Python of the stack's environment called a model of `torch`",
        ),
    ],
    ids=["model", "own", "float16", "bfloat16", "generator", "forward"],
)
def test_a_program_without_a_place_for_it_is_not_measured_with_it(tmp_path: Path, program: str, reason: str) -> None:
    pytest.importorskip("torch")
    benchmark = benchmark_of(tmp_path / "project", f"{program}\nprint('throughput: 4')")

    [result] = run_benchmark(tmp_path, benchmark, runs=1, settings=import_request(AMP, ["torch"])).results

    last_line = result.get("failure", "").splitlines()[-1:]
    assert last_line == ([f"`amp=bfloat16` {reason}"] if reason else []), result

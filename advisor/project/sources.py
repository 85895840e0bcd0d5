"""Proposes a workload from the imports and calls in the source files of a project. Nothing is executed."""

from __future__ import annotations

import ast
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SKIPPED_DIRECTORIES = frozenset(
    {"node_modules", "site-packages", "build", "dist", "__pycache__", "tests", "test", "docs"}
)
_MAX_FILES = 2000
_MAX_DIRECTORIES = 5000
_MAX_FILE_BYTES = 2_000_000

_SIGNS: dict[str, tuple[str, ...]] = {
    "cnn": (
        "torch.nn.Conv", "torch.nn.functional.conv", "torchvision.models", "timm.create_model", "keras.layers.Conv",
        "keras.layers.SeparableConv", "keras.layers.DepthwiseConv", "keras.applications", "flax.linen.Conv",
        "flax.nnx.Conv", "jax.lax.conv", "tensorflow.nn.conv", "ultralytics.YOLO",
    ),
    "transformer": (
        "transformers.Auto", "transformers.Bert", "transformers.GPT", "transformers.Llama", "transformers.T5",
        "transformers.pipeline", "transformers.Trainer", "sentence_transformers.", "torch.nn.Transformer",
        "torch.nn.MultiheadAttention", "torch.nn.functional.scaled_dot_product_attention",
        "keras.layers.MultiHeadAttention", "keras_hub.", "keras_nlp.", "flax.linen.MultiHeadDotProductAttention",
        "flax.nnx.MultiHeadAttention", "peft.", "vllm.", "diffusers.",
    ),
    "recurrent": (
        "torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN", "keras.layers.LSTM", "keras.layers.GRU",
        "keras.layers.SimpleRNN", "keras.layers.Bidirectional", "flax.linen.LSTM", "flax.linen.GRU",
    ),
    "recommender": ("torch.nn.EmbeddingBag", "torchrec.", "tensorflow_recommenders."),
    "volume": ("torch.nn.Conv3d", "keras.layers.Conv3D", "monai."),
}  # fmt: skip
"""Calls that indicate a kind of model, as prefixes of full names; the longest matching prefix decides."""

_TRAINING = (
    "torch.optim.", "tensorflow.GradientTape", "keras.optimizers.", "transformers.Trainer",
    "transformers.Seq2SeqTrainer", "lightning.", "pytorch_lightning.", "jax.grad", "jax.value_and_grad", "optax.",
    "accelerate.", "deepspeed.", "trl.",
)  # fmt: skip
_TRAINING_METHODS = frozenset({"backward", "fit"})
_WORKLOADS = {
    ("cnn", True): "cnn-training",
    ("cnn", False): "cnn-inference",
    ("transformer", True): "transformer-training",
    ("transformer", False): "transformer-inference",
    ("recurrent", True): "recurrent-training",
    ("recurrent", False): "recurrent-inference",
    ("recommender", True): "recommender-training",
    ("recommender", False): "recommender-inference",
    ("volume", True): "unet3d-training",
    ("volume", False): "unet3d-inference",
}
_FRAMEWORKS = frozenset({"torch", "tensorflow", "keras", "jax", "flax", "onnxruntime", "transformers"})
_ARRAYS = frozenset({"numpy", "scipy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The workload that the source files of a project indicate.

    Attributes:
        workload: Name of the workload.
        signs: Calls that indicate it, such as ``torch.nn.Conv2d (model.py:12)``, the most frequent first.
        skipped: Files that could not be parsed as Python, each with the reason.
    """

    workload: str
    signs: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def propose_workload(directory: Path) -> Proposal | None:
    """Return the workload that the imports and calls of a project indicate; none if they indicate none."""
    signs: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    imports: set[str] = set()
    training: list[str] = []
    skipped: list[str] = []
    for path in source_files(directory):
        where = path.relative_to(directory)
        try:
            names = _Names()
            with warnings.catch_warnings():
                # Ignore warnings about invalid escape sequences in the files.
                warnings.simplefilter("ignore")
                names.visit(ast.parse(code_of(path)))
        except (SyntaxError, ValueError, RecursionError, OSError, MemoryError) as error:
            skipped.append(f"`{where}`: {' '.join(str(error).split())}")
            continue
        imports |= names.imports
        for name, line in names.calls:
            kind = _kind(name)
            if kind is not None:
                signs[kind][name].append(f"{where}:{line}")
            if name.startswith(_TRAINING) or name.rpartition(".")[2] in _TRAINING_METHODS:
                training.append(name)
    if signs:
        kind = max(sorted(signs), key=lambda k: sum(map(len, signs[k].values())))
        ranked_signs = sorted(signs[kind].items(), key=lambda item: (-len(item[1]), item[0]))
        return Proposal(
            workload=_WORKLOADS[kind, bool(training)],
            signs=tuple(f"{name} ({places[0]})" for name, places in ranked_signs),
            skipped=tuple(skipped),
        )
    if imports & _ARRAYS and not imports & _FRAMEWORKS:
        import_signs = tuple(f"import {name}" for name in sorted(imports & _ARRAYS))
        return Proposal(workload="numeric", signs=import_signs, skipped=tuple(skipped))
    return None


def _kind(name: str) -> str | None:
    """Return the kind of model that a call indicates, by the longest matching prefix of its name."""
    matches = [
        (len(prefix), kind) for kind, prefixes in _SIGNS.items() for prefix in prefixes if name.startswith(prefix)
    ]
    return max(matches)[1] if matches else None


def source_files(directory: Path) -> Iterator[Path]:
    """Yield the Python files and notebooks of a project in order, up to a maximum number."""
    count = 0
    for number, (directory_name, subdirectories, files) in enumerate(os.walk(directory)):
        folder = Path(directory_name)
        subdirectories[:] = sorted(
            name
            for name in subdirectories
            if not name.startswith(".")
            and name not in _SKIPPED_DIRECTORIES
            and not (folder / name / "pyvenv.cfg").exists()
        )
        if number > _MAX_DIRECTORIES:
            return
        for name in sorted(files):
            path = folder / name
            if path.suffix in (".py", ".ipynb") and path.is_file() and path.stat().st_size < _MAX_FILE_BYTES:
                count += 1
                if count > _MAX_FILES:
                    return
                yield path


def code_of(path: Path) -> str:
    """Return the code of a file; for a notebook, the code of its cells without magics and shell commands."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text).get("cells", [])
    lines = [line for cell in cells if cell.get("cell_type") == "code" for line in [*cell.get("source", []), "\n"]]
    return "".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


class _Names(ast.NodeVisitor):
    """Collects the full names of imports and calls, as far as they follow from the imports."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.calls: list[tuple[str, int]] = []
        self._aliases: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imports.add(alias.name.partition(".")[0])
            self._aliases[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level:
            self.imports.add(node.module.partition(".")[0])
            for alias in node.names:
                self._aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def visit_Call(self, node: ast.Call) -> None:
        name = self._full(node.func)
        if name:
            self.calls.append((name, node.lineno))
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            if name := self._full(base):
                self.calls.append((name, node.lineno))
        self.generic_visit(node)

    def _full(self, node: ast.expr) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            # A method of the result of a call: only the name of the method is known.
            return f".{parts[0]}" if parts else ""
        parts.append(self._aliases.get(node.id, node.id))
        # Keras has two names: `keras` and `tensorflow.keras`.
        return ".".join(reversed(parts)).removeprefix("tensorflow.") if _is_keras(parts) else ".".join(reversed(parts))


def _is_keras(parts: list[str]) -> bool:
    return ".".join(reversed(parts)).startswith("tensorflow.keras.")

"""The shape of a model: widths and counts of a transformer from a `config.json` of Hugging Face, or counts of timm.

The number of parameters is computed from the shape. It is that of the whole model with the head that it was pre-trained
with, so a published checkpoint without this head has slightly fewer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from knowledge.domain.errors import InputError, suggest
from knowledge.estimate.workloads import TASKS, Workload
from knowledge.evidence.timm import USUAL_SIZE, closest_models, timm_tables
from knowledge.exchange.published.timm import TIMM
from knowledge.records import shipped_yaml

MOST_BYTES = 2**20
"""Largest `config.json`; the largest one that was seen lists 21 000 classes in 700 kB."""
MOST = 10**9
"""Largest width or count in it."""
_CLASSES = 1000
"""Classes of a model of images that does not list them: those of ImageNet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """A transformer of equal layers.

    Attributes:
        name: Name of the model, or the path of its file.
        layers: Number of layers.
        hidden: Width of the residual stream.
        heads: Number of attention heads.
        kv_heads: Number of heads of keys and values.
        head_width: Width of a head.
        ffn: Width inside the feed-forward network, of one expert if there are several.
        is_gated: Whether the feed-forward network multiplies by a gate.
        is_causal: Whether it generates text, with a cache of keys and values.
        has_rms_norm: Whether its normalisation is by the root mean square, computed in float32.
        has_dropout: Whether it has dropout in training, also of attention.
        experts: Number of feed-forward networks of a layer.
        active_experts: Number of them that compute a token.
        vocabulary: Rows of the embedding; 0 for images.
        outputs: Width of the output for each token; 0 if there is one output for each item.
        length: Tokens of an item; 0 if the user chooses it.
        most_positions: Largest length; 0 if the positions do not limit it.
        parameters: Number of parameters.
        layer_parameters: Those of a layer.
        source: Address that states the shape; empty for a file.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    ffn: int
    is_gated: bool
    is_causal: bool
    has_rms_norm: bool
    has_dropout: bool
    experts: int
    active_experts: int
    vocabulary: int
    outputs: int
    length: int
    most_positions: int
    parameters: int
    layer_parameters: int
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModelShape:
    """An image model, by the counts of timm.

    Attributes:
        name: Name of the model.
        parameters: Number of parameters.
        activations: Outputs of all convolutions and matrix products for one image.
        size: Width and height of an image, in pixels.
        source: Address that states the counts.
    """

    name: str
    parameters: int
    activations: float
    size: int
    source: str


ModelShape = TransformerShape | ImageModelShape


class _Family(NamedTuple):
    """How the models of a type of Hugging Face are built; see the class of this name in its library.

    Attributes:
        is_gated: Whether the feed-forward network has a gate.
        is_causal: Whether it generates text.
        has_rms_norm: Whether it normalises by the root mean square: no bias.
        norms: Normalisations of a layer, of the width of the residual stream.
        biases: Which linear layers have one: some of ``q`` (queries, keys and values), ``o``, ``f``; ``?`` reads
            ``attention_bias`` and ``mlp_bias``.
        is_tied: Whether embedding and output are one matrix, if the file does not say.
        has_positions: Whether positions have embeddings.
        more_positions: Rows of this embedding beyond the length.
        has_head_norms: Whether queries and keys are normalised.
        final_norm: Whether a normalisation follows the last layer.
        is_encoder: Whether it has segments, a norm of its embeddings and a head for masked words.
        has_output_bias: Whether the output layer has a bias.
    """

    is_gated: bool = True
    is_causal: bool = True
    has_rms_norm: bool = True
    norms: int = 2
    biases: str = ""
    is_tied: bool = False
    has_positions: bool = False
    more_positions: int = 0
    has_head_norms: bool = False
    final_norm: bool = True
    is_encoder: bool = False
    has_output_bias: bool = False


_PLAIN = _Family(is_gated=False, has_rms_norm=False, biases="qof")
_ENCODER = _PLAIN._replace(
    is_causal=False, is_tied=True, has_positions=True, final_norm=False, is_encoder=True, has_output_bias=True
)
_FAMILIES = {
    "llama": _Family(biases="?"),
    "mistral": _Family(),
    "mixtral": _Family(),
    "qwen2": _Family(biases="q"),
    "qwen3": _Family(biases="?", has_head_norms=True),
    "gemma": _Family(biases="?", is_tied=True),
    "gemma2": _Family(biases="?", norms=4, is_tied=True),
    "phi": _PLAIN._replace(norms=1, has_output_bias=True),
    "phi3": _Family(),
    "gpt2": _PLAIN._replace(is_tied=True, has_positions=True),
    "gpt_neox": _PLAIN,
    "opt": _PLAIN._replace(is_tied=True, has_positions=True, more_positions=2),
    "bert": _ENCODER,
    "roberta": _ENCODER,
    "vit": _PLAIN._replace(is_causal=False),
}
_KEYS = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim"),
    "positions": ("max_position_embeddings", "n_positions"),
}
"""Names of the widths and counts, of which a file has one."""
_DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop", "attn_pdrop"),
    *("dropout", "hidden_dropout", "attention_dropout"),
)
_USUAL_DROPOUT = frozenset({"gpt2", "opt", "bert", "roberta"})
"""Types whose dropout is 0.1 if the file does not state it."""


def read_shape(path: Path) -> TransformerShape:
    """Read the `config.json` of a model of Hugging Face.

    Raises:
        InputError: If the file cannot be read, is too large, or is not that of a model whose type is known.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"the model `{path}` is not a file")
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"the model file `{path}` is larger than {MOST_BYTES // 2**20} MiB")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the model file `{path}` cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(
            f"the model file `{path}` is not JSON", hint="name the `config.json` of a model of Hugging Face"
        ) from None
    if not isinstance(document, dict):
        raise InputError(f"the model file `{path}` is not a table of fields")
    return shape_of(document, name=str(path))


def shape_of(config: Mapping[str, Any], *, name: str, length: int = 0, source: str = "") -> TransformerShape:
    """Return the shape that a configuration of Hugging Face describes.

    Args:
        config: Its fields.
        name: Name of the model, or the path of its file.
        length: Usual length of its items in tokens; 0 if there is none.
        source: Address that states the fields.

    Raises:
        InputError: If a field is missing or wrong, or the type of the model is not known.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _FAMILIES:
        stated = "states no `model_type`" if kind is None else f"has the unknown `model_type` {str(kind)[:40]!r}"
        raise InputError(
            f"the model `{name}` {stated}", hint=f"the known types are {', '.join(f'`{k}`' for k in _FAMILIES)}"
        )
    if config.get("quantization_config"):
        raise InputError(
            f"the weights of the model `{name}` are quantised, and their memory is not known",
            hint="name the `config.json` of the model that it was made from",
        )
    return _Reader(config, name, kind).shape(length, source)


class _Reader:
    """Reads the fields of a configuration."""

    def __init__(self, config: Mapping[str, Any], name: str, kind: str) -> None:
        self._config, self._name, self._kind = config, name, kind
        self._family = _FAMILIES[kind]

    def shape(self, length: int, source: str) -> TransformerShape:
        """Return the shape, with the number of parameters."""
        family, is_image = self._family, self._kind == "vit"
        hidden, heads, layers = self._number("hidden"), self._number("heads"), self._number("layers")
        if self._config.get("head_dim") is None and hidden % heads:
            raise InputError(f"the model `{self._name}` has a width of {hidden} that {heads} heads do not divide")
        if self._number("word_embed_proj_dim", hidden) != hidden:
            raise InputError(f"the model `{self._name}` has embeddings of another width than its layers: not known")
        experts = self._number("num_local_experts", 8) if self._kind == "mixtral" else 1
        active = self._number("num_experts_per_tok", 2) if experts > 1 else 1
        if active > experts:
            raise InputError(f"the model `{self._name}` computes a token with {active} of {experts} experts")
        vocabulary = 0 if is_image else self._number("vocab_size")
        positions = self._number("positions") if family.has_positions else 0
        shape = TransformerShape(
            name=self._name,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self._number("num_key_value_heads", heads),
            head_width=self._number("head_dim", hidden // heads),
            ffn=self._number("ffn", 4 * hidden if self._kind == "gpt2" else None),
            is_gated=family.is_gated,
            is_causal=family.is_causal,
            has_rms_norm=family.has_rms_norm,
            has_dropout=any(self._config.get(key) for key in _DROPOUTS) or self._has_usual_dropout(),
            experts=experts,
            active_experts=active,
            vocabulary=vocabulary,
            outputs=vocabulary,
            length=self._patches() + 1 if is_image else length,
            most_positions=positions,
            parameters=0,
            layer_parameters=0,
            source=source,
        )
        if heads % shape.kv_heads:
            raise InputError(f"the model `{self._name}` has {heads} heads, and {shape.kv_heads} of keys and values")
        record = {field: getattr(shape, field) for field in TransformerShape.__slots__}
        layer = self._layer_parameters(shape)
        ends = self._parameters_of_ends(shape)
        return TransformerShape(**{**record, "parameters": layers * layer + ends, "layer_parameters": layer})

    def _norm(self, shape: TransformerShape) -> int:
        """Return the parameters of a norm."""
        return shape.hidden * (1 if self._family.has_rms_norm else 2)

    def _layer_parameters(self, shape: TransformerShape) -> int:
        """Return the number of parameters of a layer."""
        family, hidden = self._family, shape.hidden
        queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
        biases = self._biases()
        inner = 2 if family.is_gated else 1
        network = (inner + 1) * hidden * shape.ffn + ("f" in biases) * (inner * shape.ffn + hidden)
        layer = 2 * hidden * (queries + keys) + family.norms * self._norm(shape)
        layer += ("q" in biases) * (queries + 2 * keys) + ("o" in biases) * hidden
        layer += shape.experts * network + (hidden * shape.experts if shape.experts > 1 else 0)
        return layer + 2 * shape.head_width * family.has_head_norms

    def _parameters_of_ends(self, shape: TransformerShape) -> int:
        """Return the number of parameters outside of the layers: embeddings, last norm and head."""
        family, hidden, norm = self._family, shape.hidden, self._norm(shape)
        total = family.final_norm * norm
        total += (shape.most_positions + family.more_positions * family.has_positions) * hidden
        if self._kind == "vit":
            return total + self._ends_of_images(hidden)
        is_tied = self._config.get("tie_word_embeddings", family.is_tied)
        if not isinstance(is_tied, bool):
            raise InputError(f"the model `{self._name}` has a wrong field `tie_word_embeddings`: it is true or false")
        total += shape.vocabulary * hidden * (1 if is_tied else 2) + shape.vocabulary * family.has_output_bias
        if family.is_encoder:
            segments = self._number("type_vocab_size", 2)
            total += segments * hidden + norm + hidden * hidden + hidden + norm
        return total

    def _ends_of_images(self, hidden: int) -> int:
        """Return the parameters of the embedding of patches, the positions and the classifier."""
        patch, channels = self._number("patch_size"), self._number("num_channels", 3)
        classes = len(labels) if isinstance(labels := self._config.get("id2label"), dict) else _CLASSES
        patches = (patch * patch * channels + 1) * hidden
        return patches + hidden + (self._patches() + 1) * hidden + classes * (hidden + 1)

    def _patches(self) -> int:
        return (self._number("image_size") // self._number("patch_size")) ** 2

    def _biases(self) -> str:
        if self._family.biases != "?":
            return self._family.biases
        return ("qo" if self._config.get("attention_bias") else "") + ("f" if self._config.get("mlp_bias") else "")

    def _has_usual_dropout(self) -> bool:
        return self._kind in _USUAL_DROPOUT and not any(key in self._config for key in _DROPOUTS)

    def _number(self, name: str, default: int | None = None) -> int:
        """Return a width or a count, by its name here or in the file.

        Raises:
            InputError: If it is missing and has no default, or is not a whole number from 1 to :data:`MOST`.
        """
        keys = _KEYS.get(name, (name,))
        key = next((key for key in keys if self._config.get(key) is not None), None)
        if key is None:
            if default is None:
                raise InputError(f"the model `{self._name}` has no field `{keys[0]}`")
            return default
        value = self._config[key]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            raise InputError(
                f"the model `{self._name}` has a wrong field `{key}`: {str(value)[:40]!r}",
                hint=f"it is a whole number from 1 to {MOST:.0e}",
            )
        return value


def find_shape(name: str) -> ModelShape:
    """Return the shape of a model: a shipped one, one of timm, or that of a `config.json`.

    Raises:
        InputError: If there is no such model, or the file is wrong.
    """
    entries = _entries()
    if name in entries:
        return _shipped(name)
    model = name.removeprefix(TIMM)
    if model in timm_tables().models:
        return _image_model(model)
    if name.endswith(".json") or Path(name).is_file():
        return read_shape(Path(name))
    others = [*entries, *(f"{TIMM}{other}" for other in closest_models(model))]
    listed = (
        f"name the `config.json` of a model, `{TIMM}NAME`, or one of {', '.join(f'`{other}`' for other in entries)}"
    )
    raise InputError(f"there is no model `{name}`", hint=suggest(name, others, otherwise=listed))


def shape_of_workload(workload: Workload) -> ModelShape | None:
    """Return the shape of the model of a workload; ``None`` if it has several, or an unknown one."""
    if workload.timm_model:
        return _image_model(workload.timm_model)
    if workload.is_kind or workload.is_similar:
        return None
    tasks = {part.parameters["task"] for part in workload.parts.get(TASKS, ())}
    names = [name for name, entry in _entries().items() if tasks.intersection(entry.get("tasks", ()))]
    return _shipped(names[0]) if len(names) == 1 else None


def shipped_names() -> list[str]:
    """Return the names of the models whose shapes ship."""
    return list(_entries())


@cache
def _entries() -> Mapping[str, Any]:
    return shipped_yaml("knowledge.estimate", "model_shapes.yaml")


@cache
def _shipped(name: str) -> ModelShape:
    entry = _entries()[name]
    if "timm" in entry:
        return _image_model(entry["timm"])
    return shape_of(entry["config"], name=name, length=entry.get("length", 0), source=entry["source"])


def _image_model(name: str) -> ImageModelShape:
    """Return the counts of a model of timm at the usual size of its images.

    Raises:
        InputError: If the tables do not have them.
    """
    tables = timm_tables()
    model = tables.models[name]
    sizes = {size: macts for size, (_, macts) in model.sizes.items() if macts > 0}
    if not sizes:
        raise InputError(f"timm's tables do not state the activations of `{name}`")
    size = min(sizes, key=lambda size: abs(size - USUAL_SIZE))
    return ImageModelShape(
        name=f"{TIMM}{name}",
        parameters=round(model.parameters * 1e6),
        activations=sizes[size] * 1e6,
        size=size,
        source=tables.origin["address"],
    )

"""The workload of a model that a call in the source files names: by its function, its class or its checkpoint."""

from __future__ import annotations

import importlib.resources
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from advisor.project.code.names import NAMED
from knowledge.estimate.workloads import timm_workload_name
from knowledge.evidence.timm import architecture_of, family_of, timm_tables

_MODEL = re.compile(
    rf'(?:{"|".join(map(re.escape, NAMED))})\("(?P<named>[^"]+)"\)'
    r"|torchvision\.models\.(?P<built>\w+)"
    r"|keras\.applications\.(?:[a-z0-9_]+\.)?(?P<keras>[A-Z]\w*)"
    r'|transformers\.\w+\.from_pretrained\("(?P<checkpoint>[^"]+)"\)'
)
"""Calls that may name a model that timm has."""
_SIZE_OF_CHECKPOINT = re.compile(r"_(?:224|384)(?=_|$)(?:_(?:in)?(?:21k|22k|1k))*$|_in21k$")


class NamedModel(NamedTuple):
    """A model that a call names, or any model of a kind.

    Attributes:
        kind: Its kind, as of other calls.
        training: Workload that trains it.
        inference: Workload that uses it.
    """

    kind: str
    training: str
    inference: str

    def workload(self, *, trains: bool) -> str:
        """Return the workload that trains it, or the one that uses it."""
        return self.training if trains else self.inference


_NO_MODEL = re.compile(r"transformers\.\w*(?:Tokenizer|Processor|FeatureExtractor|Config)")
"""Classes of transformers that are no models."""


@cache
def sign_tables() -> Mapping[str, Any]:
    """Return the tables of what calls say about a workload (`signs.toml`)."""
    file = importlib.resources.files("advisor.project.workload") / "signs.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def named_model(call: str) -> NamedModel | None:
    """Return the model that a call names; `None` if it names none that is known.

    Args:
        call: Full name of the call, such as ``timm.create_model("resnet50.a1")``, ``torchvision.models.resnet50``,
            ``keras.applications.ResNet50``, ``transformers.BertModel`` or
            ``transformers.AutoModel.from_pretrained("bert-base-uncased")``.
    """
    if _NO_MODEL.match(call):
        return None
    for model in sign_tables()["models"]:
        if re.fullmatch(rf"(?:{model['pattern']})(?:\.\w+.*)?", call):
            return NamedModel(model["kind"], model["training"], model["inference"])
    if name := _timm_model_of(call):
        kind = "transformer" if architecture_of(family_of(name)) == "transformer" else "cnn"
        return NamedModel(kind, *(timm_workload_name(name, trains=trains) for trains in (True, False)))
    return None


def _timm_model_of(call: str) -> str:
    """Return the model of timm that a call names, without the tag of its weights; empty if timm's tables lack it."""
    match = _MODEL.fullmatch(call)
    if match is None:
        return ""
    return next((name for name in _timm_names(match) if name in timm_tables().models), "")


def _timm_names(match: re.Match[str]) -> tuple[str, ...]:
    """Return what timm may call a model."""
    if name := match["keras"]:
        forms = sign_tables()["keras_names"].items()
        spellings = (re.sub(pattern, form, name).lower() for pattern, form in forms if re.fullmatch(pattern, name))
        return sign_tables()["timm_names"].get(name, ""), *spellings
    # Weights of a hub have names such as `hf-hub:timm/resnet50.a1_in1k`.
    name = match["built"] or (match["named"] or match["checkpoint"]).rpartition("/")[2].partition(".")[0]
    name = name.replace("-", "_") if match["checkpoint"] else name
    names = name, _SIZE_OF_CHECKPOINT.sub("", name), _SIZE_OF_CHECKPOINT.sub("_224", name)
    return tuple(sign_tables()["timm_names"].get(name, name) for name in names)

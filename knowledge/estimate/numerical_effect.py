"""Measured effects of settings on results, which ship with the program (`benchmarks/reduced_precision`)."""

from __future__ import annotations

import importlib.resources
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from knowledge.catalogue.settings import Numerics

CONFIDENCE = 0.9
"""Confidence of intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference of a result with a setting from the result without it, over pairs with the same seed.

    Attributes:
        mean: Mean of the differences.
        deviation: Their standard deviation.
        pairs: Number of pairs.
    """

    mean: float
    deviation: float
    pairs: int

    def interval(self) -> tuple[float, float]:
        """Return the interval of the mean by Student's t distribution, with :data:`CONFIDENCE`."""
        from scipy.stats import t

        half = float(t.ppf((1 + CONFIDENCE) / 2, self.pairs - 1)) * self.deviation / math.sqrt(self.pairs)
        return self.mean - half, self.mean + half


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericalEffect:
    """What settings do to the results of a model, compared with float32 and the default settings.

    Attributes:
        framework: The framework.
        settings: The settings: values by name.
        numerics: What they do to results.
        how: How they were applied.
        model: Kind of model: ``mlp``, ``cnn`` or ``transformer``.
        mode: ``training`` if the model was trained with the settings, ``inference`` if only the test used them.
        forward_error: Norm of the difference of the logits over the norm of the logits: mean over models that were
            trained in float32, one for each seed.
        float32_loss: Mean loss on the test images in float32.
        float32_deviation: Standard deviation of that loss between the seeds.
        loss: Difference of the loss on the test images.
        float32_accuracy: Mean share of the test images that are classified correctly in float32.
        accuracy: Difference of this share.
        packages: Packages as ``name==version``.
        machine: Microarchitecture of the machine.
        features: Features of its processor that decide how a reduced precision is computed.
    """

    framework: str
    settings: Mapping[str, str]
    numerics: Numerics
    how: str
    model: str
    mode: str
    forward_error: float
    float32_loss: float
    float32_deviation: float
    loss: Difference
    float32_accuracy: float
    accuracy: Difference
    packages: tuple[str, ...]
    machine: str
    features: tuple[str, ...]


@lru_cache(maxsize=1)
def numerical_effects() -> tuple[NumericalEffect, ...]:
    """Return every measured effect, by framework, settings and model in the order of the file."""
    text = (importlib.resources.files("knowledge.data") / "reduced-precision.json").read_text(encoding="utf-8")
    frameworks: dict[str, Any] = json.loads(text)["frameworks"]
    return tuple(
        _effect(name, framework, record) for name, framework in frameworks.items() for record in framework["effects"]
    )


def effects_of(framework: str, settings: Mapping[str, str]) -> tuple[NumericalEffect, ...]:
    """Return the effects of exactly these settings in a framework, one for each kind of model.

    Args:
        framework: Name of the framework.
        settings: Values by name; combinations that were not measured have no effects.
    """
    return tuple(e for e in numerical_effects() if e.framework == framework and dict(e.settings) == dict(settings))


def _effect(name: str, framework: Mapping[str, Any], record: Mapping[str, Any]) -> NumericalEffect:
    reference = framework["float32"][record["model"]]
    return NumericalEffect(
        framework=name,
        settings=dict(record["settings"]),
        numerics=record["numerics"],
        how=record["how"],
        model=record["model"],
        mode=framework["mode"],
        forward_error=statistics.fmean(record["forward_error"]),
        float32_loss=statistics.fmean(reference["loss"]),
        float32_deviation=statistics.stdev(reference["loss"]),
        loss=_difference(record["loss"], reference["loss"]),
        float32_accuracy=statistics.fmean(reference["accuracy"]),
        accuracy=_difference(record["accuracy"], reference["accuracy"]),
        packages=tuple(framework["packages"]),
        machine=framework["machine"]["microarchitecture"],
        features=tuple(framework["machine"]["features"]),
    )


def _difference(values: Sequence[float], reference: Sequence[float]) -> Difference:
    differences = [value - other for value, other in zip(values, reference, strict=True)]
    return Difference(
        mean=statistics.fmean(differences), deviation=statistics.stdev(differences), pairs=len(differences)
    )

"""Compares the model of gains with a mixed model of statsmodels, on effects of settings that both had not seen.

    pip install statsmodels
    python -m benchmarks.mixed_model

The mixed model (restricted maximum likelihood) has an intercept and a slope of the logarithm of the operations of a
step for each change, and an effect of each change for each architecture. Root mean square errors of log ratios; each
model, and each size, is held out in turn.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from importlib import import_module
from itertools import islice
from typing import Any

from benchmarks.held_out import GROUPS, groups_of, programs_of, rows_of, settings_of
from docs.fits import program_of
from knowledge.evidence.block_evidence import load_evidence
from knowledge.evidence.contrasts import Contrast
from knowledge.store.engine import open_knowledge_base

FRAMEWORKS = ("torch", "tensorflow-cpu", "jax", "onnxruntime")


def predictions(known: Sequence[Contrast], held: Sequence[Contrast]) -> list[float]:
    """Return the predictions of the mixed model."""
    # Not installed with the program, and without types.
    pandas = import_module("pandas")
    model = import_module("statsmodels.regression.mixed_linear_model").MixedLM

    def table(contrasts: Sequence[Contrast]) -> Any:
        programs = map(program_of, contrasts)
        rows = (
            (c.mean, str(settings_of(c)), p.place[0], p.architecture) for c, p in zip(contrasts, programs, strict=True)
        )
        return pandas.DataFrame(
            (
                {"gain": gain, "change": change, "size": size, "kind": " ".join(kind)}
                for gain, change, size, kind in rows
            )
        )

    with warnings.catch_warnings():
        # Some variances are at the bound of zero.
        warnings.simplefilter("ignore")
        fitted = model.from_formula(
            "gain ~ size", table(known), groups="change", re_formula="~size", vc_formula={"kind": "0 + C(kind)"}
        ).fit(reml=True, maxiter=60)
    effects, predicted = fitted.random_effects, []
    for row in table(held).itertuples():
        own = effects.get(row.change, {})
        total = fitted.fe_params["Intercept"] + fitted.fe_params["size"] * row.size + own.get("change", 0.0)
        predicted.append(total + own.get("size", 0.0) * row.size + own.get(f"kind[C(kind)[{row.kind}]]", 0.0))
    return predicted


def main() -> None:
    """Hold out and print."""
    with open_knowledge_base("sqlite://") as store:
        evidence = load_evidence(store)
    print("| framework, held out | n | model of gains | mixed model |")
    print("| --- | --- | --- | --- |")
    for framework in FRAMEWORKS:
        contrasts = programs_of(evidence, framework, "cpu")
        for name in ("model", "size"):
            squares: list[tuple[float, float]] = []
            groups = groups_of(contrasts, GROUPS[name], True)
            members = {number for group in groups for number in group}
            every = rows_of(contrasts, groups, framework, "cpu")
            for group in groups:
                rest = [contrasts[number] for number in sorted(members - set(group))]
                others = predictions(rest, [contrasts[number] for number in group])
                squares += [
                    ((row.model - row.truth) ** 2, (other - row.truth) ** 2)
                    for row, other in zip(islice(every, len(group)), others, strict=True)
                ]
            errors = [math.sqrt(sum(column) / len(squares)) for column in zip(*squares, strict=True)]
            print(f"| {framework}, {name} | {len(squares)} | {errors[0]:.3f} | {errors[1]:.3f} |", flush=True)


if __name__ == "__main__":
    main()

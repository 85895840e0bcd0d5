"""Compares the fitted variances of the model of gains with their whole posterior distribution.

    pip install numpyro
    python -m benchmarks.full_bayes [--draws 200] [FRAMEWORK ...]

The variances of the shipped ratios of a framework on processors are sampled by the No-U-Turn sampler (Hoffman and
Gelman, Journal of Machine Learning Research 15, 2014), with the priors of `python docs/fits.py` and its scales of
settings. Models and sizes are held out as in `python -m benchmarks.held_out`; a prediction of the posterior is the mean
over every tenth draw, with the variance of the mixture. Root mean square errors of log ratios, and coverage of 90 %
intervals.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.held_out import CHANGES, GROUPS, HALF, groups_of, programs_of
from docs.fits import program_of
from knowledge.estimate.gain_fit import TYPICAL_VARIANCE, VarianceProblem
from knowledge.estimate.gain_model import GainModel
from knowledge.estimate.gain_terms import Variances, terms_of
from knowledge.estimate.model_cache import shipped_variances
from knowledge.evidence.block_evidence import load_evidence
from knowledge.evidence.contrasts import Contrast
from knowledge.store.engine import open_knowledge_base

FRAMEWORKS = ("onnxruntime", "jax")
THINNED = 10
"""One of so many draws is used for predictions."""


class Draws:
    """Draws of variances, one for each call; all are made on the first."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._values: list[list[float]] = []

    def __call__(self, means: Any, parts: Any, rest: Any, typical: Any, loose: Any, least: Any) -> list[float]:
        """Return the next draw; see :func:`knowledge.estimate.gain_fit.maximise_likelihood`."""
        if not self._values:
            self._values = _sampled(means, parts, rest, typical, loose, least, self.count)
        return self._values.pop()


def _sampled(means: Any, parts: Any, rest: Any, typical: Any, loose: Any, least: Any, count: int) -> list[list[float]]:
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro.distributions import MultivariateNormal, Normal
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    centres, floor = jnp.log(jnp.array(typical)), jnp.array(least)

    def model() -> None:
        logs = numpyro.sample("logs", Normal(centres, jnp.array(loose)))
        covariance = rest + jnp.tensordot(jnp.maximum(jnp.exp(logs), floor), parts, axes=1)
        numpyro.sample("means", MultivariateNormal(0.0, covariance), obs=means)

    sampler = MCMC(NUTS(model, max_tree_depth=6), num_warmup=count, num_samples=count, progress_bar=False)
    sampler.run(jax.random.key(0))
    draws = np.maximum(np.exp(np.asarray(sampler.get_samples()["logs"])), np.array(least))
    return [[float(value) for value in draw] for draw in draws[::THINNED]]


def held_out(
    contrasts: Sequence[Contrast], groups: Sequence[Sequence[int]], every: Sequence[Variances]
) -> tuple[float, float]:
    """Return the error and the coverage of the mean prediction over several variances."""
    means, variances = np.zeros((len(every), len(contrasts))), np.ones((len(every), len(contrasts)))
    for row, own in enumerate(every):
        for group, predicted, spread in GainModel(contrasts, program_of, own).held_out(groups):
            means[row, group], variances[row, group] = predicted, np.diag(spread)
    members = [number for group in groups for number in group]
    truth = np.array([contrasts[number].mean for number in members])
    mean, deviation = means.mean(axis=0)[members], np.sqrt((variances.mean(axis=0) + means.var(axis=0))[members])
    return float(np.sqrt(np.mean((mean - truth) ** 2))), float(np.mean(np.abs(mean - truth) <= HALF * deviation))


def main() -> None:
    """Sample, hold out and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frameworks", nargs="*", default=FRAMEWORKS, metavar="FRAMEWORK")
    parser.add_argument("--draws", type=int, default=200)
    arguments = parser.parse_args()
    with open_knowledge_base("sqlite://") as store:
        evidence = load_evidence(store)
    print("| framework, change, held out | n | fitted | covered | posterior | covered |")
    print("| --- | --- | --- | --- | --- | --- |")
    for framework in arguments.frameworks:
        contrasts = programs_of(evidence, framework, "cpu")
        fitted, start = shipped_variances(framework, "cpu"), time.monotonic()
        problem = VarianceProblem(contrasts, program_of, dict.fromkeys(terms_of("cpu"), TYPICAL_VARIANCE))
        draws = Draws(arguments.draws)
        posterior = [problem.fit_terms(fitted.scales, draws) for _ in range(arguments.draws // THINNED)]
        seconds = time.monotonic() - start
        for change, settings in CHANGES:
            for name in ("model", "size"):
                groups = groups_of(contrasts, GROUPS[name], settings)
                results = [held_out(contrasts, groups, every) for every in ([fitted], posterior)]
                cells = [f"{value:.3f} | {covered:.0%}" for value, covered in results]
                print(f"| {framework}, {change}, {name} | {sum(map(len, groups))} | {' | '.join(cells)} |", flush=True)
        print(f"{framework}: {seconds:.0f} seconds to sample", flush=True)


if __name__ == "__main__":
    main()

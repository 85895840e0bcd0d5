"""Measure documented slow-downs that need no GPU: both versions of each report, with the program's own benchmarks.

    python -m benchmarks.regressions                        all of them, 8 rounds each
    python -m benchmarks.regressions NAME ... --rounds 2    some of them
    python -m benchmarks.regressions --list

Each is a small project in `benchmarks/regressions`. The old and the new version take turns, and the old one is measured
twice (A/A). A slow-down is confirmed if the interval of the ratio is above 1. A row that is worth to ship belongs into
`reproduction` of its rule (`knowledge/catalogue/data/rules/slower-*.yaml`), with the machine that it was measured on.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.api.measurements.benchmark import measure_benchmark
from advisor.api.measurements.options import EnvironmentOptions, SamplingOptions
from advisor.api.options import ResolutionOptions
from knowledge.catalogue.rules import shipped_rules
from knowledge.catalogue.slower import SlowerRule
from knowledge.domain.errors import AdvisorError
from knowledge.evidence.compare import Comparison, compare_block

FOLDER = Path(__file__).parent / "regressions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A documented slow-down that can be measured here.

    Attributes:
        name: Name for the command line.
        rule: Identity of its rule.
        old: Requirements of the faster stack.
        new: Requirements of the slower one.
        project: Folder of its benchmark; by default its name.
    """

    name: str
    rule: str
    old: str
    new: str
    project: str = ""

    @property
    def directory(self) -> Path:
        """The project with the benchmark."""
        return FOLDER / (self.project or self.name)


def jax_pair(old: str, new: str) -> dict[str, str]:
    """Return the requirements of two versions of JAX, each with the same version of jaxlib."""
    return {"old": f"jax=={old} jaxlib=={old}", "new": f"jax=={new} jaxlib=={new}"}


REGRESSIONS = (
    Regression(name="scipy-linprog", rule="slower-scipy-1.15-linprog", old="scipy==1.14.1", new="scipy==1.15.2"),
    Regression(name="scipy-nnls", rule="slower-scipy-1.12-nnls", old="scipy==1.11.4", new="scipy==1.15.2"),
    Regression(
        name="keras-inputs",
        rule="slower-tensorflow-2.13-keras-inputs",
        old="tensorflow-cpu==2.12.1",
        new="tensorflow-cpu==2.13.0",
    ),
    Regression(
        name="transformers-long-llama",
        rule="slower-transformers-4.38-codellama",
        old="transformers==4.34.0",
        new="transformers==4.38.2",
    ),
    Regression(name="blackjax-nuts", rule="slower-jaxlib-0.4.32-thunk-runtime", **jax_pair("0.4.30", "0.4.34")),
    Regression(name="jax-while-loop", rule="slower-jaxlib-0.4.33-while-loop", **jax_pair("0.4.31", "0.4.33")),
    Regression(name="jax-scan-float64", rule="slower-jaxlib-0.4.33-scan-float64", **jax_pair("0.4.31", "0.4.33")),
    Regression(
        name="jax-differences-0.5.3",
        rule="slower-jaxlib-0.5.3-differences",
        project="jax-differences",
        **jax_pair("0.5.0", "0.5.3"),
    ),
    Regression(
        name="jax-differences-0.8",
        rule="slower-jaxlib-0.8-differences",
        project="jax-differences",
        **jax_pair("0.7.2", "0.8.0"),
    ),
)


def measure(
    regression: Regression, *, rounds: int, samples: int, python: str, knowledge: str
) -> tuple[Comparison, ...]:
    """Measure both versions, and return the comparison of the new one and that of the A/A control.

    Args:
        regression: The slow-down.
        rounds: Passes over both versions.
        samples: Runs in each process.
        python: Interpreter: a path or a version.
        knowledge: Address of the knowledge base for the observations.
    """
    observations = measure_benchmark(
        regression.directory,
        [regression.old, regression.new],
        sampling=SamplingOptions(rounds=rounds, samples=samples),
        environment=EnvironmentOptions(python=python),
        resolution=ResolutionOptions(knowledge=knowledge),
    )
    if failures := sorted({o.failure for o in observations if o.status != "ok"}):
        raise AdvisorError(f"`{regression.name}` failed: {failures[0]}")
    return compare_block(observations)


def row(regression: Regression, comparisons: Sequence[Comparison]) -> str:
    """Return the result as a row of a table: seconds of the new version divided by those of the old one."""
    rule = next(rule for rule in shipped_rules() if rule.id == regression.rule)
    assert isinstance(rule, SlowerRule)
    new = next(comparison for comparison in comparisons if not comparison.is_control)
    control = next((comparison for comparison in comparisons if comparison.is_control), None)
    if not new.conclusive:
        verdict = "too few rounds, or too noisy"
    elif new.high < 1:
        verdict = "confirmed"
    else:
        verdict = "not confirmed"
    noise = f"{1 / control.speedup:.3f}" if control else "-"
    interval = f"[{1 / new.high:.3f}, {1 / new.low:.3f}]"
    return (
        f"| {regression.name} | {regression.old} | {regression.new} | {rule.ratio:.3g} | {1 / new.speedup:.3f} | "
        f"{interval} | {noise} | {new.rounds} | {verdict} |"
    )


def main() -> None:
    """Measure what the command line selects, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="slow-downs to measure (default: all)")
    parser.add_argument("--rounds", type=int, default=8, help="passes over both versions (default: 8)")
    parser.add_argument("--samples", type=int, default=3, help="runs in each process (default: 3)")
    parser.add_argument("--python", default="3.11", help="interpreter: a path or a version (default: 3.11)")
    parser.add_argument("--knowledge", help="address of a knowledge base to keep the observations in (default: none)")
    parser.add_argument("--list", action="store_true", help="list the slow-downs")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{r.name}: {r.old} -> {r.new} ({r.rule})" for r in REGRESSIONS))
        return
    by_name = {regression.name: regression for regression in REGRESSIONS}
    if unknown := sorted(set(options.names) - set(by_name)):
        parser.error(f"there is no slow-down `{unknown[0]}`; `--list` lists them")
    print("| slow-down | old | new | reported | measured | 95 % interval | A/A | rounds | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        knowledge = options.knowledge or f"sqlite:///{folder}/knowledge.db"
        for name in options.names or by_name:
            try:
                comparisons = measure(
                    by_name[name],
                    rounds=options.rounds,
                    samples=options.samples,
                    python=options.python,
                    knowledge=knowledge,
                )
                print(row(by_name[name], comparisons), flush=True)
            except AdvisorError as error:
                print(f"| {name} | {by_name[name].old} | {by_name[name].new} | failed: {error} |", flush=True)


if __name__ == "__main__":
    main()

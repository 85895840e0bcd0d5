"""Prove the optimum of synthetic stacks with the program's own search, and print optimum, bound, gap and time.

The files have the format of `benchmarks/synthetic.py`. Scores are converted to integers exactly.

Usage: python benchmarks/optimum.py FILE... [--work UNITS] [--workers N]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.target import make_target
from advisor.index.pages.page import DistributionFile
from advisor.resolve.candidates.problem import Candidate, Dependency, ResolutionProblem
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.score.costs import Candidates, Choice, Limits, Objective, PairedChoice
from knowledge.domain.hardware import Cpu, HardwareProfile


@dataclass(frozen=True)
class _Costs:
    """The only objective of a problem, which has no limits.

    Attributes:
        objective: The objective.
        rewarded: Packages that may have negative costs.
    """

    objective: Objective
    rewarded: tuple[NormalizedName, ...]

    def objectives(self, candidates: Candidates) -> tuple[Objective, ...]:
        """Return the objective."""
        return (self.objective,)

    def limits(self, candidates: Candidates) -> Limits:
        """Return that nothing is excluded."""
        return Limits(forbidden={})

    def compared_beyond(self, stack: Sequence[Candidate]) -> tuple[NormalizedName, ...]:
        """Return the packages that may have negative costs."""
        return self.rewarded


class SyntheticSource:
    """Candidates of a synthetic problem; all metadata is available from the start."""

    def __init__(self, packages: dict[str, Any]) -> None:
        self._packages = packages
        self._candidates: dict[NormalizedName, tuple[Candidate, ...]] = {}
        self._admitted = cache(self._specifier)
        self._numbers = {name: {number: i for i, number in enumerate(versions)} for name, versions in packages.items()}
        self.fetched: set[str] = set()

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        """Return the candidates of a package, newest first."""
        if name not in self._candidates:
            candidates = [
                Candidate(
                    name=name,
                    version=Version(number),
                    file=DistributionFile(filename=f"{name}-{number}.whl", url=f"{name}-{number}", index=""),
                )
                for number in self._packages[name]
            ]
            self._candidates[name] = tuple(sorted(candidates, reverse=True))
            self.fetched.update(c.file.url for c in candidates)
        return self._candidates[name]

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...]:
        """Return the dependencies of a candidate."""
        ranges = self._packages[candidate.name][str(candidate.version)]["deps"]
        return tuple(self._admitted(name, tuple(numbers)) for name, numbers in ranges.items())

    def _specifier(self, name: str, numbers: tuple[str, ...]) -> Dependency:
        places = sorted(self._numbers[name][number] for number in numbers)
        every = list(self._packages[name])
        missing = "".join(f",!={every[i]}" for i in range(places[0], places[-1] + 1) if i not in set(places))
        requirement = Requirement(f"{name}>={every[places[0]]},<={every[places[-1]]}{missing}")
        return Dependency(name=NormalizedName(name), requirement=requirement)

    def vulnerabilities(self, candidate: Candidate) -> tuple[str, ...] | None:
        """Return ``None``: there are no records."""
        return None

    def lacks_extra(self, candidate: Candidate, extra: NormalizedName) -> bool:
        """Return that every extra exists."""
        return False

    def size(self, candidate: Candidate) -> int | None:
        """Return no size."""
        return None

    def is_known(self, candidate: Candidate) -> bool:
        """Return True: the metadata of all candidates is available."""
        return True

    def lacks_build(self, candidate: Candidate) -> bool:
        """Whether a candidate cannot be used without a build: no."""
        return False

    def fetch(self, candidates: Iterable[Candidate]) -> None:
        """Do nothing: all metadata is available."""

    def prefetch(self, names: Iterable[NormalizedName], requirements: Iterable[Requirement] = ()) -> None:
        """Do nothing: all metadata is available."""

    def failed_newer(self, candidate: Candidate) -> Sequence[Version]:
        """Return that no build failed."""
        return ()

    def prefetch_metadata(self, candidates: Iterable[Candidate]) -> None:
        """Do nothing: all metadata is available."""


def prove(document: dict[str, Any], effort: Effort) -> tuple[Decimal, Decimal]:
    """Return the best sum of scores, and its upper bound."""
    packages, terms = document["packages"], document.get("pairs", [])
    scores = [Decimal(repr(v["score"])) for versions in packages.values() for v in versions.values()]
    scores += [Decimal(repr(score)) for _, _, score in terms]
    scale = Decimal(10) ** max(-int(score.as_tuple().exponent) for score in scores)

    def cost(score: float) -> int:
        return -int(Decimal(repr(score)) * scale)

    def choice(pair: Sequence[str]) -> Choice:
        return NormalizedName(pair[0]), Version(pair[1])

    costs = {choice((name, v)): cost(e["score"]) for name, versions in packages.items() for v, e in versions.items()}
    pairs: dict[tuple[Choice, PairedChoice], int] = {}
    for left, right, score in terms:
        key = (choice(left), choice(right))
        pairs[key] = pairs.get(key, 0) + cost(score)
    objective = Objective(name="score", costs=costs, pairs=pairs)

    machine = HardwareProfile(name="any", cpu=Cpu(architecture="x86_64", microarchitecture="x86_64"))
    problem = ResolutionProblem(
        roots=tuple(RootRequirement(requirement=Requirement(name), origin="direct") for name in document["direct"]),
        target=make_target(python="3.12", platform="manylinux_2_28_x86_64", hardware=machine),
    )
    optimum = optimise(
        problem,
        SyntheticSource(packages),
        _Costs(objective, rewarded=tuple(map(NormalizedName, packages))),
        start=(),
        effort=effort,
        # All candidates are explicit: scores have no order and all metadata is available, so fewer would save nothing.
        explicit=max(map(len, packages.values())),
    )
    return -optimum.bounds[0].value / scale, -optimum.bounds[0].bound / scale


def main() -> None:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--work", type=float, default=60.0, help="deterministic work of the solver")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    for file in options.files:
        document = json.loads(file.read_text())
        started, busy = time.perf_counter(), time.process_time()
        optimum, bound = prove(document, Effort(work=options.work, workers=options.workers))
        print(
            f"{file.name}: optimum {optimum}, bound {bound}, gap {bound - optimum}, "
            f"{time.perf_counter() - started:.2f} s, {time.process_time() - busy:.2f} s CPU",
            flush=True,
        )


if __name__ == "__main__":
    main()

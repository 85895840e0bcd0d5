"""Small problems with extras and replacements, and all stacks that solve them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.candidates.index import SkippedCandidates
from advisor.resolve.candidates.problem import Candidate, Dependency, ResolutionProblem
from tests.advisor.fixed_candidates import FixedCandidates

NAMES = ("app", "jax", "tf", "tf-gpu", "lib")


Release = tuple[frozenset[tuple[str, frozenset[int]]], frozenset[tuple[str, frozenset[int]]]]
"""What a version requires, and what its extras require in addition: packages with the admitted versions."""


Releases = dict[str, dict[int, Release]]


versions = st.integers(1, 3)


sets = st.frozensets(versions, min_size=1)


def releases_of(needed: tuple[str, ...], extra: tuple[str, ...] = ()) -> st.SearchStrategy[dict[int, Release]]:
    requirements = (
        st.frozensets(st.tuples(st.sampled_from(needed), sets), max_size=2) if needed else st.just(frozenset())
    )
    of_extra = st.frozensets(st.tuples(st.sampled_from(extra), sets), max_size=1) if extra else st.just(frozenset())
    return st.dictionaries(versions, st.tuples(requirements, of_extra), min_size=1)


problems = st.fixed_dictionaries(
    {
        "app": releases_of(("jax", "tf", "lib")),
        "jax": releases_of(("lib",), ("lib",)),
        "tf": releases_of(("lib",)),
        "tf-gpu": releases_of(("lib",)),
        "lib": releases_of(()),
    }
)


def requirement(name: str, admitted: frozenset[int], extras: Iterable[str] = ()) -> Requirement:
    excluded = ",".join(f"!={v}" for v in (1, 2, 3) if v not in admitted)
    listed = ",".join(sorted(extras))
    return Requirement(f"{name}{f'[{listed}]' if listed else ''}{excluded}")


class DictionarySource(FixedCandidates):
    """Candidates of a dictionary of releases, for a problem; each extra of `jax` requires something else."""

    def __init__(self, releases: Releases, problem: ResolutionProblem) -> None:
        super().__init__()
        self._releases = releases
        self._problem = problem
        self.loaded_packages: set[NormalizedName] = set()
        self.undeclared_builds: dict[NormalizedName, list[Version]] = {}
        self.has_further_builds = False
        self.lacks_builds = False

    def for_problem(self, problem: ResolutionProblem) -> DictionarySource:
        return DictionarySource(self._releases, problem)

    def versions_of(self, name: NormalizedName) -> Iterable[Version]:
        self.loaded_packages.add(name)
        return (Version(str(v)) for v in self._releases.get(name, {}))

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        # As in `IndexCandidates`, a request for dependencies reads the metadata.
        self.fetch([candidate])
        return super().dependencies(candidate, extra)

    def requirements_of(self, candidate: Candidate, extra: NormalizedName | None) -> Iterable[Requirement]:
        required = self._releases[candidate.name][candidate.version.major][0 if extra is None else 1]
        for name, admitted in sorted(required, key=str) if extra != "cuda12" else ():
            yield from self._problem.overridden(requirement(name, admitted))

    def lacks_extra(self, candidate: Candidate, extra: NormalizedName) -> bool:
        # Version 3 of `jax` has no extra `cuda12`, whatever the catalogue says.
        return (candidate.name, candidate.version.major, extra) == ("jax", 3, "cuda12")

    def is_on_index(self, name: NormalizedName) -> bool:
        return name in self._releases

    def reasons(self, name: str) -> str:
        return ""

    def skipped(self) -> tuple[SkippedCandidates, ...]:
        return ()


def stacks(releases: Releases, roots: Iterable[str], extra: str, tf: str) -> Iterator[dict[str, int]]:
    """Yield every stack with an extra of `jax` and a package instead of `tf`."""
    for choice in itertools.product(*([None, *releases[name]] for name in NAMES)):
        stack = {name: v for name, v in zip(NAMES, choice, strict=True) if v is not None}
        queue = [(tf if root == "tf" else root, frozenset({1, 2, 3})) for root in roots]
        reached: set[str] = set()
        fits = not (extra and "jax" in stack and (stack["jax"] < 2 or (stack["jax"], extra) == (3, "cuda12")))
        while queue and fits:
            name, admitted = queue.pop()
            name = tf if name == "tf" else name
            fits = stack.get(name) in admitted
            if fits and name not in reached:
                reached.add(name)
                queue += releases[name][stack[name]][0]
                if name == "jax" and extra == "cuda13":
                    queue += releases[name][stack[name]][1]
        if fits and reached == set(stack):
            yield stack

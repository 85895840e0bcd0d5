"""Other packages and extras for the hardware, and interpreters, are compared with brute force on small problems."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.domain.time_limit import TimeLimit
from advisor.resolve.candidates.index import IndexCandidates, SkippedCandidates, UndeclaredBuild
from advisor.resolve.candidates.problem import (
    AllowedReplacements,
    Candidate,
    Dependency,
    NoStackError,
    ResolutionProblem,
)
from advisor.resolve.optimum.result import InfeasibleError
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.recommendation.package_choices import with_best_packages
from advisor.resolve.recommendation.problem_variants import ProblemVariant, Selection, compare_variants
from advisor.resolve.recommendation.recommend import make_request
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.criteria import HOURS_PER_RELEASE
from knowledge.catalogue.builds import BuildExtra, CatalogueEntry, Replacement
from knowledge.catalogue.rule_book import RuleBook
from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile
from tests.advisor.factories import build_problem, score_of
from tests.advisor.fixed_candidates import FixedCandidates
from tests.examples import examples

MACHINE = HardwareProfile(
    name="gpu",
    cpu=Cpu(architecture="x86_64", microarchitecture="zen4"),
    accelerators=(Accelerator(vendor="nvidia", model="GPU", compute_capability="9.0"),),
)
EXTRAS = {"cuda13": "13", "cuda12": "12"}
CATALOGUE: tuple[CatalogueEntry, ...] = (
    *(
        BuildExtra(
            kind="extra",
            id=extra,
            package="jax",
            extras=(extra,),
            versions=">=2",
            runtime="cuda",
            version=v,
            source="s",
        )
        for extra, v in EXTRAS.items()
    ),
    Replacement(
        kind="replacement", id="gpu", package="tf", replacement="tf-gpu", modules=("tf",), when="cuda", source="s"
    ),
)
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
        self.undeclared_builds: dict[NormalizedName, UndeclaredBuild] = {}
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


def cost(releases: Releases, stack: dict[str, int], roots: Iterable[str], extra: str, tf: str) -> tuple[int, ...]:
    """Return the costs by objective `latest`, without the program's criteria."""
    # Extras are a matter of the packages that the project names.
    idle = int("jax" in roots and not extra) + int("tf" in stack)
    build = int("jax" in stack and extra == "cuda12")

    def behind(name: str) -> int:
        return sum(v > stack[name] for v in releases[name]) * HOURS_PER_RELEASE

    offset = 0
    if "tf" in roots:
        every = {*releases["tf"], *releases["tf-gpu"]}
        offset = sum(v > max(releases[tf]) for v in every) * HOURS_PER_RELEASE
    direct = sum(behind(name) for name in stack if ("tf" if name == "tf-gpu" else name) in roots and name != "lib")
    return (0, idle, direct + offset, build, sum(map(behind, stack)) + offset)


@settings(max_examples=examples(60))
@given(releases=problems, roots=st.sampled_from([("app",), ("app", "jax"), ("jax", "tf"), ("tf",)]))
def test_the_packages_are_those_of_brute_force(releases: Releases, roots: tuple[str, ...]) -> None:
    combinations = list(itertools.product(["", *EXTRAS] if "jax" in roots else [""], ["tf", "tf-gpu"]))
    best = min(
        (
            (cost(releases, stack, roots, extra, tf), bool("jax" in stack and extra), stack)
            for extra, tf in combinations
            for stack in stacks(releases, roots, extra, tf)
        ),
        key=lambda entry: entry[0],
        default=None,
    )
    problem = build_problem(*roots)
    rules = RuleBook((), MACHINE)
    source = DictionarySource(releases, problem)

    try:
        request = make_request(
            problem,
            score_of(problem, source, "latest", builds=TargetBuilds(CATALOGUE, rules, MACHINE)),
            cast(IndexCandidates, source),
            Effort(),
        )
        solved = with_best_packages(request, AllowedReplacements(by_hardware=True)).solve()
        request, optimum = solved.request, solved.optimum
    except (NoStackError, InfeasibleError):
        # The project as it is has no stack; what replaces its packages is not searched for.
        assert not list(stacks(releases, roots, "", "tf"))
        return

    assert best is not None
    stack = {str(c.name): c.version.major for c in optimum.stack}
    extras = [s.extras for s in request.problem.substitutions.values() if s.package == "jax" and s.extras]
    extra = next(iter(extras[0])) if extras else ""
    tf = "tf-gpu" if "tf" in request.problem.substitutions else "tf"
    assert stack in list(stacks(releases, roots, extra, tf))
    assert cost(releases, stack, roots, extra, tf) == best[0]


@settings(max_examples=examples(40))
@given(
    by_interpreter=st.lists(problems, min_size=2, max_size=3),
    roots=st.sampled_from([("app",), ("app", "lib"), ("lib", "tf")]),
    ages=st.lists(st.integers(0, 3), min_size=3, max_size=3),
)
def test_the_interpreter_is_that_of_brute_force(
    by_interpreter: list[Releases], roots: tuple[str, ...], ages: list[int]
) -> None:
    """Each interpreter has candidates of its own; its age counts as that of a package of the project."""
    rules, problem = RuleBook((), MACHINE), build_problem(*roots)
    with_stack = [releases for releases in by_interpreter if any(stacks(releases, roots, "", "tf"))]
    newest = {root: {v for releases in with_stack for v in releases[root]} for root in roots}

    def variant(number: int) -> ProblemVariant:
        source = DictionarySource(by_interpreter[number], problem)
        score = score_of(problem, source, "latest", builds=TargetBuilds((), rules, MACHINE))
        return ProblemVariant(
            label=str(number),
            select=lambda: Selection(request=make_request(problem, score, cast(IndexCandidates, source), Effort())),
            costs={"freshness-direct": ages[number] * HOURS_PER_RELEASE, "freshness": ages[number] * HOURS_PER_RELEASE},
        )

    def total(number: int, stack: dict[str, int]) -> tuple[int, int]:
        releases = by_interpreter[number]
        behind = {name: sum(v > version for v in releases[name]) for name, version in stack.items()}
        added = ages[number] + sum(sum(v > max(releases[root]) for v in newest[root]) for root in roots)
        return (
            (sum(behind[root] for root in roots) + added) * HOURS_PER_RELEASE,
            (sum(behind.values()) + added) * HOURS_PER_RELEASE,
        )

    expected = [
        total(number, stack)
        for number, releases in enumerate(by_interpreter)
        for stack in stacks(releases, roots, "", "tf")
    ]

    comparison = compare_variants(
        [variant(number) for number in range(len(by_interpreter))],
        limit=TimeLimit(60),
        direct=map(canonicalize_name, roots),
    )

    assert bool(comparison.solved) == bool(expected)
    if expected:
        best = comparison.solved[0]
        assert (best.score["freshness-direct"], best.score["freshness"]) == min(expected)
        assert best.optimum.proven
        number = int(best.variant.label)
        assert total(number, {str(c.name): c.version.major for c in best.optimum.stack}) == min(expected)

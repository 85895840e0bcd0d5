"""Other packages and extras for the hardware, and interpreters, are compared with brute force on small problems."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from advisor.domain.time_limit import TimeLimit
from advisor.resolve.candidates.problem import (
    AllowedReplacements,
    NoStackError,
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
from tests.advisor.package_problems import (
    DictionarySource,
    Releases,
    problems,
    stacks,
)
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
            select=lambda: Selection(request=make_request(problem, score, Effort())),
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

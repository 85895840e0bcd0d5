"""The choice among builds of a release is compared with brute force on random small problems."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.resolve.candidates.problem import Candidate, admits
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.optimum.result import InfeasibleError
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.criteria import HOURS_PER_RELEASE
from advisor.resolve.score.criterion_costs import CriterionCosts
from knowledge.catalogue.builds import BuildFamily, DefaultBuild
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import CpuOnlyRule, Rule, RuntimeRule
from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile
from tests.advisor.factories import build_problem, score_of
from tests.advisor.fixed_candidates import FixedCandidates
from tests.examples import examples

FRAMEWORK, COMPANION, USER = (NormalizedName(name) for name in ("frame", "vision", "app"))
FAMILY = BuildFamily(
    kind="family",
    id="frame",
    packages=("frame", "vision"),
    defaults=(DefaultBuild(os=("linux",), architectures=("x86_64",), runtime="cuda"),),
    source="https://example.invalid/frame",
)
RULES: tuple[Rule, ...] = (
    CpuOnlyRule(kind="cpu-only", id="frame-cpu", severity="discouraged", package="frame", local="cpu", source="s"),
    RuntimeRule(kind="runtime", id="13.0", cuda="13.0", packages=(), driver="580", capability="7.5", source="s"),
)
CPU_MACHINE = HardwareProfile(name="cpu", cpu=Cpu(architecture="x86_64", microarchitecture="zen4"))
OLD_GPU = Accelerator(vendor="nvidia", model="Old", compute_capability="7.0")
NEW_GPU = Accelerator(vendor="nvidia", model="New", compute_capability="9.0")
MACHINES = (
    CPU_MACHINE,
    *(
        HardwareProfile(name="gpu", cpu=CPU_MACHINE.cpu, accelerators=(gpu,))
        for gpu in (OLD_GPU, NEW_GPU, Accelerator(vendor="amd", model="Other"))
    ),
)
LOCALS = ("", "+cpu", "+cu126", "+cu130", "+rocm7.0")

releases = st.frozensets(st.tuples(st.integers(1, 3), st.sampled_from(LOCALS)), min_size=1, max_size=7)
apps = st.dictionaries(
    st.integers(1, 3), st.tuples(st.frozensets(st.integers(1, 3), min_size=1), st.booleans()), min_size=1
)
"""By version of the application: the releases of the framework that it admits, and whether it needs the companion."""


class BuildSource(FixedCandidates):
    """Candidates of the framework, its companion and an application that requires them."""

    def __init__(
        self,
        frame: frozenset[tuple[int, str]],
        vision: frozenset[tuple[int, str]],
        app: dict[int, tuple[frozenset[int], bool]],
    ) -> None:
        super().__init__()
        self._versions = {
            FRAMEWORK: [Version(f"{release}{local}") for release, local in frame],
            COMPANION: [Version(f"{release}{local}") for release, local in vision],
            USER: [Version(str(release)) for release in app],
        }
        self._app = app

    def versions_of(self, name: NormalizedName) -> Iterable[Version]:
        return self._versions.get(name, ())

    def requirements_of(self, candidate: Candidate, extra: NormalizedName | None = None) -> Iterable[Requirement]:
        if candidate.name == USER:
            admitted, needs_companion = self._app[candidate.version.major]
            yield Requirement("frame" + ",".join(f"!={v}" for v in (1, 2, 3) if v not in admitted))
            if needs_companion:
                yield Requirement("vision")
        if candidate.name == COMPANION:
            # As `torchvision` requires `torch`: the release without its build.
            yield Requirement(f"frame<={candidate.version.major}")


def stacks(source: BuildSource, roots: Iterable[str]) -> Iterator[dict[NormalizedName, Candidate]]:
    """Yield every stack that satisfies the requirements and contains only required packages."""
    names = (FRAMEWORK, COMPANION, USER)
    for choice in itertools.product(*((None, *source.candidates(name)) for name in names)):
        stack = {c.name: c for c in choice if c is not None}
        queue = list(map(Requirement, roots))
        reached: set[NormalizedName] = set()
        fits = True
        while queue and fits:
            requirement = queue.pop()
            name = canonicalize_name(requirement.name)
            candidate = stack.get(name)
            fits = candidate is not None and admits(requirement, candidate.version)
            if fits and candidate is not None and name not in reached:
                reached.add(name)
                queue += source.requirements_of(candidate)
        if fits and reached == set(stack):
            yield stack


def runtime(version: Version) -> str:
    local = version.local or "cuda"
    return "cpu" if local == "cpu" else "rocm" if local.startswith("rocm") else "cuda"


def is_allowed(stack: dict[NormalizedName, Candidate], machine: HardwareProfile) -> bool:
    """Whether the builds match, and the machine can run them."""
    versions = [stack[name].version for name in (FRAMEWORK, COMPANION) if name in stack]
    capability = machine.gpu.capability if machine.gpu else None
    if any(v.local == "cu130" for v in versions) and capability is not None and capability < (7, 5):
        return False
    if len(versions) < 2 or versions[0].local == versions[1].local:
        return True
    locals_of = [v.local for v in versions]
    return runtime(versions[0]) == runtime(versions[1]) and None in locals_of


def cost(
    stack: dict[NormalizedName, Candidate], source: BuildSource, machine: HardwareProfile, direct: set[str]
) -> tuple[int, ...]:
    """Return the costs of a stack by objective `latest`, computed without the program's criteria."""
    vendors = {a.vendor for a in machine.accelerators}

    def is_idle(version: Version) -> bool:
        return {"cpu": bool(vendors), "cuda": "nvidia" not in vendors, "rocm": "amd" not in vendors}[runtime(version)]

    def rank(candidate: Candidate) -> int:
        alike = [v for v in source.versions_of(candidate.name) if v.public == candidate.version.public]
        if machine.gpu and machine.gpu.capability == (7, 0):
            alike = [v for v in alike if v.local != "cu130"]
        preferred = "cuda" if "nvidia" in vendors else "rocm" if "amd" in vendors else "cpu"
        cuda = {None: -99, "cu126": -12.6, "cu130": -13.0, "rocm7.0": -7.0, "cpu": 0}
        alike.sort(key=lambda v: (runtime(v) != preferred, cuda[v.local], v.local is not None, v.local or ""))
        return alike.index(candidate.version)

    family = [stack[name] for name in (FRAMEWORK, COMPANION) if name in stack]
    locals_of = [c.version.local for c in family]
    rules = int(bool(machine.accelerators) and FRAMEWORK in stack and stack[FRAMEWORK].version.local == "cpu")
    rules += int(len(family) == 2 and locals_of[0] != locals_of[1])
    idle = sum(is_idle(c.version) and not all(is_idle(v) for v in source.versions_of(c.name)) for c in family)
    hours = {
        name: sorted({v.public for v in source.versions_of(name)}, reverse=True).index(c.version.public)
        * HOURS_PER_RELEASE
        for name, c in stack.items()
    }
    return (
        rules,
        idle,
        sum(h for name, h in hours.items() if name in direct),
        sum(map(rank, family)),
        sum(hours.values()),
    )


@settings(max_examples=examples(80))
@given(
    frame=releases,
    vision=releases,
    app=apps,
    machine=st.sampled_from(MACHINES),
    roots=st.sampled_from([("app",), ("app", "frame"), ("frame", "vision"), ("app", "vision")]),
)
def test_the_build_is_that_of_brute_force(
    frame: frozenset[tuple[int, str]],
    vision: frozenset[tuple[int, str]],
    app: dict[int, tuple[frozenset[int], bool]],
    machine: HardwareProfile,
    roots: tuple[str, ...],
) -> None:
    source = BuildSource(frame, vision, app)
    rules = RuleBook(RULES, machine)
    problem = build_problem(*roots)
    score = score_of(problem, source, "latest", builds=TargetBuilds((FAMILY,), rules, machine))
    allowed = [stack for stack in stacks(source, roots) if is_allowed(stack, machine)]

    try:
        optimum = optimise(problem, source, CriterionCosts(score), start=(), effort=Effort(), explicit=2)
    except InfeasibleError:
        assert not allowed
        return

    best = min(cost(stack, source, machine, set(roots)) for stack in allowed)
    assert tuple(bound.value for bound in optimum.bounds) == best
    assert optimum.proven
    assert optimum.unique
    assert {c.name: c for c in optimum.stack} in allowed
    assert cost({c.name: c for c in optimum.stack}, source, machine, set(roots)) == best

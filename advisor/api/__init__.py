"""Python API: what the `advisor` command does, without printing or exiting.

Warnings go to the logger ``advisor``. Every expected error is an :class:`~knowledge.domain.errors.AdvisorError` with a
message, a hint and the exit code of the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.api.options import IndexOptions, ProjectFiles, ProjectOptions, ResolutionOptions, TargetOptions
from knowledge.domain.errors import AdvisorError, InputError, UnavailableError, UnsatisfiableError

if TYPE_CHECKING:
    from advisor.api.campaign_session import CampaignSession, CollectionResult
    from advisor.api.campaigns import (
        CampaignEstimate,
        CampaignOptions,
        ExecutorOptions,
        find_campaign,
        list_campaigns,
        open_campaign,
        plan_campaign,
    )
    from advisor.api.measurement import EnvironmentOptions, IndicatorOptions, SamplingOptions
    from advisor.api.queries import compare, estimate
    from advisor.api.session import AdviceResult
    from advisor.gate.check import GateResult
    from advisor.resolve.explanation.alternatives import Explanation
    from advisor.resolve.explanation.prices import Price
    from knowledge.domain.observation import Observation

__all__ = [
    "AdvisorError",
    "CampaignEstimate",
    "CampaignOptions",
    "CampaignSession",
    "CollectionResult",
    "EnvironmentOptions",
    "ExecutorOptions",
    "IndexOptions",
    "IndicatorOptions",
    "InputError",
    "ProjectFiles",
    "ResolutionOptions",
    "SamplingOptions",
    "TargetOptions",
    "UnavailableError",
    "UnsatisfiableError",
    "advise",
    "check",
    "compare",
    "estimate",
    "explain",
    "find_campaign",
    "list_campaigns",
    "measure",
    "measure_benchmark",
    "open_campaign",
    "plan_campaign",
    "prices",
]

Project = ProjectFiles | Path | str
"""A project: its directory, or its files."""

_MODULES = {
    "campaign_session": ("CampaignSession", "CollectionResult"),
    "campaigns": (
        *("CampaignEstimate", "CampaignOptions", "ExecutorOptions"),
        *("find_campaign", "list_campaigns", "open_campaign", "plan_campaign"),
    ),
    "measurement": ("EnvironmentOptions", "IndicatorOptions", "SamplingOptions"),
    "queries": ("compare", "estimate"),
}
"""Modules that are imported only when one of their names is used: every command imports this package."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"advisor.api.{module}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def advise(
    project: Project = ".",
    *,
    target: TargetOptions | None = None,
    indexes: IndexOptions | None = None,
    resolution: ResolutionOptions | None = None,
    outputs: Sequence[Path | str] | Path | str = (),
) -> AdviceResult:
    """Recommend the stack with the best score for a project and a target.

    Args:
        project: The project's directory, or its files.
        target: The machine and the interpreter; by default the project's settings, else this machine.
        indexes: The package indexes; by default as pip and uv are configured.
        resolution: What the best stack is, and which files may be part of it.
        outputs: Lock file or files to write: ``pylock.toml``, ``*.txt``, ``Pipfile.lock`` or ``*.cdx.json``.

    Returns:
        The stack with its proof, predictions and findings.

    Raises:
        InputError: If a file or an option is wrong (exit code 2).
        UnsatisfiableError: If no stack satisfies the requirements and the rules (exit code 3).
        UnavailableError: If an index or the knowledge base cannot be read (exit code 4).
    """
    from advisor.api.session import open_session

    paths = [Path(output) for output in _listed(outputs)]
    with open_session(_options(project, target, indexes, resolution)) as session:
        session.reads_sizes = True
        session.write_locks(paths)
        return session.result(outputs=paths)


def explain(
    package: str,
    project: Project = ".",
    *,
    target: TargetOptions | None = None,
    indexes: IndexOptions | None = None,
    resolution: ResolutionOptions | None = None,
) -> Explanation:
    """Explain why a package of the best stack has its version.

    Args:
        package: Name of the package.
        project: The project's directory, or its files.
        target: The machine and the interpreter.
        indexes: The package indexes.
        resolution: What the best stack is.

    Returns:
        Who requires the package, why not its newest version, and what the runner-up loses.

    Raises:
        InputError: If the stack does not contain the package, or a file or an option is wrong (exit code 2).
        UnsatisfiableError: If no stack satisfies the requirements and the rules (exit code 3).
        UnavailableError: If an index or the knowledge base cannot be read (exit code 4).
    """
    from advisor.api.session import open_session

    with open_session(_options(project, target, indexes, resolution)) as session:
        return session.explain(package)


def prices(
    project: Project = ".",
    *,
    other_pythons: Sequence[str] | str | None = None,
    target: TargetOptions | None = None,
    indexes: IndexOptions | None = None,
    resolution: ResolutionOptions | None = None,
) -> tuple[Price, ...]:
    """Return what each constraint of a project costs, and what other interpreters would gain.

    Args:
        project: The project's directory, or its files.
        other_pythons: Versions of interpreters to price, such as ``3.13``; by default those in common use.
        target: The machine and the interpreter.
        indexes: The package indexes.
        resolution: What the best stack is.

    Returns:
        Predicted speed and freshness without each constraint, the most expensive first.

    Raises:
        InputError: If a file or an option is wrong (exit code 2).
        UnsatisfiableError: If no stack satisfies the requirements and the rules (exit code 3).
        UnavailableError: If an index or the knowledge base cannot be read (exit code 4).
    """
    from advisor.api.session import OTHER_PYTHONS, open_session

    with open_session(_options(project, target, indexes, resolution)) as session:
        return session.prices(other_pythons=OTHER_PYTHONS if other_pythons is None else _listed(other_pythons))


def check(
    project: Project = ".",
    *,
    base: str | None = None,
    policy_from_base: bool = False,
    target: TargetOptions | None = None,
    indexes: IndexOptions | None = None,
    resolution: ResolutionOptions | None = None,
) -> GateResult:
    """Judge the present stack of a project for each of its targets: the gate.

    Args:
        project: The project's directory, or its files.
        base: A commit or a lock: judge only the change from it.
        policy_from_base: Whether policy and targets are those of the base; without a base, of the last commit.
        target: The machines and the interpreter.
        indexes: The package indexes.
        resolution: Workload, knowledge base and objective.

    Returns:
        Findings, and the exit code of ``advisor check``.

    Raises:
        InputError: If the project, its policy or its lock cannot be read (exit code 2).
        UnavailableError: If an index or the knowledge base cannot be read (exit code 4).
    """
    from advisor.api.gate_session import GateOptions, open_gate

    options = GateOptions(base=base, policy_from_base=policy_from_base)
    with open_gate(_options(project, target, indexes, resolution), options) as gate:
        return gate.result


def measure(
    indicators: Sequence[str] | str,
    stacks: Sequence[str] | str,
    *,
    options: IndicatorOptions | None = None,
    sampling: SamplingOptions | None = None,
    environment: EnvironmentOptions | None = None,
    indexes: IndexOptions | None = None,
    knowledge: str | None = None,
) -> tuple[Observation, ...]:
    """Measure indicators over stacks on this machine, and store the observations.

    Each stack is installed in an environment of its own; rounds are interleaved, each in a fresh process.

    Args:
        indicators: Names of indicators.
        stacks: Requirements of each stack, separated by spaces; the first of each framework is its reference.
        options: Sizes, element types, device and settings.
        sampling: Rounds, samples, time and memory limits.
        environment: Interpreter and environments.
        indexes: The package indexes.
        knowledge: Address of the knowledge base; by default the user's own.

    Returns:
        The observations of the block, oldest first; failures are observations, too.

    Raises:
        InputError: If an indicator, a size, a setting or a stack does not exist (exit code 2).
        UnsatisfiableError: If a stack cannot be resolved (exit code 3).
        UnavailableError: If an index or the knowledge base is not available (exit code 4).
    """
    from advisor.api import measurement
    from advisor.api.measurement import EnvironmentOptions, IndicatorOptions, SamplingOptions

    return measurement.measure_stacks(
        _listed(indicators),
        _listed(stacks),
        indicator_options=options or IndicatorOptions(),
        sampling=sampling or SamplingOptions(),
        environment=environment or EnvironmentOptions(),
        indexes=indexes or IndexOptions(),
        knowledge=knowledge,
    )


def measure_benchmark(
    project: Project = ".",
    stacks: Sequence[str] | str = (),
    *,
    sampling: SamplingOptions | None = None,
    environment: EnvironmentOptions | None = None,
    indexes: IndexOptions | None = None,
    resolution: ResolutionOptions | None = None,
) -> tuple[Observation, ...]:
    """Measure the benchmark of a project on this machine, and store the observations.

    The command in ``[tool.advisor.benchmark]`` of ``pyproject.toml`` runs in copies of the project; this executes the
    project's own code. The stacks take turns in rounds, as those of :func:`measure`.

    Args:
        project: The project's directory, or its files.
        stacks: Requirements of each stack, separated by spaces: a stack is the project's lock that also satisfies
            them. The first is the reference. Without any, the baseline and the recommended stack are measured.
        sampling: Rounds, runs in each round, time limit of a run, memory limit.
        environment: Interpreter and environments.
        indexes: The package indexes.
        resolution: What the best stack is, and the knowledge base.

    Returns:
        The observations of the block, oldest first; failures are observations, too.

    Raises:
        InputError: If the project has no benchmark, or the benchmark or a stack is wrong (exit code 2).
        UnsatisfiableError: If the project cannot be resolved with the requirements of a stack (exit code 3).
        UnavailableError: If an index or the knowledge base is not available (exit code 4).
    """
    from advisor.api import benchmark
    from advisor.api.measurement import EnvironmentOptions, SamplingOptions

    return benchmark.measure_benchmark(
        _options(project, None, indexes, resolution),
        _listed(stacks),
        sampling=sampling or SamplingOptions(),
        environment=environment or EnvironmentOptions(),
    )


def _listed(values: Sequence[Any] | Path | str) -> Sequence[Any]:
    """Return values as a sequence: one text or path is one value."""
    return (values,) if isinstance(values, str | Path) else values


def _options(
    project: Project,
    target: TargetOptions | None,
    indexes: IndexOptions | None,
    resolution: ResolutionOptions | None,
) -> ProjectOptions:
    """Return the options, with defaults."""
    return ProjectOptions(
        files=project if isinstance(project, ProjectFiles) else ProjectFiles(directory=Path(project)),
        target=target or TargetOptions(),
        indexes=indexes or IndexOptions(),
        resolution=resolution or ResolutionOptions(),
    )

"""Recommend, explain, price and judge the stack of a project, each in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.api.gate.gate_session import open_gate
from advisor.api.options import (
    IndexOptions,
    Project,
    ProjectOptions,
    ResolutionOptions,
    TargetOptions,
    listed,
)
from advisor.api.session import OTHER_PYTHONS, AdviceResult, open_session
from advisor.gate.check import GateResult
from advisor.resolve.explanation.alternatives import Explanation
from advisor.resolve.explanation.prices import Price


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
        outputs: Lock file or files to write; the name of each determines its format.

    Returns:
        The stack with its proof, predictions and findings.

    Raises:
        InputError: If a file or an option is wrong (exit code 2).
        UnsatisfiableError: If no stack satisfies the requirements and the rules (exit code 3).
        UnavailableError: If an index or the knowledge base cannot be read (exit code 4).
    """
    paths = [Path(output) for output in listed(outputs)]
    with open_session(ProjectOptions.of(project, target, indexes, resolution)) as session:
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
    with open_session(ProjectOptions.of(project, target, indexes, resolution)) as session:
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
    with open_session(ProjectOptions.of(project, target, indexes, resolution)) as session:
        return session.prices(other_pythons=OTHER_PYTHONS if other_pythons is None else listed(other_pythons))


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
        policy_from_base: Whether to take policy and targets from the base; without a base, from the last commit.
        target: The machines and the interpreter.
        indexes: The package indexes.
        resolution: Workload, knowledge base and objective.

    Returns:
        Findings, and the exit code of ``advisor check``.

    Raises:
        InputError: If the project, its policy or its lock cannot be read (exit code 2).
        UnavailableError: If an index or the knowledge base cannot be read (exit code 4).
    """
    options = ProjectOptions.of(project, target, indexes, resolution)
    with open_gate(options, base=base, policy_from_base=policy_from_base) as (result, _):
        return result

"""Comparison of measured stacks at one indicator: which runs are comparable, and why the others are not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import BENCHMARK, Observation, Scalar
from knowledge.evidence.compare import Comparison, References, compare_block, measured_references, refusals
from knowledge.evidence.contrasts import Contrast, contrast_of
from knowledge.store.base import KnowledgeBase


class NotComparableError(InputError):
    """Raised when stacks cannot be compared because they were not measured together."""

    code = "not-comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackComparisons:
    """Comparisons of stacks at one indicator.

    Attributes:
        comparisons: Comparisons in order of block, label and arm.
        refused: One sentence for each group of runs that is not compared, with the reason.
    """

    comparisons: tuple[Comparison, ...]
    refused: tuple[str, ...]


def stack_name(o: Observation) -> str:
    """Return the framework's version and the settings of a run, for people."""
    settings = "".join(f" {name}={value}" for name, value in sorted(o.settings.items()))
    return f"{o.framework} {o.stack.version_of(o.framework) or '(unknown version)'}{settings}"


def is_machine(hardware: HardwareProfile, name: str) -> bool:
    """Whether a text is the name, microarchitecture, accelerator model, or a prefix of the identity of a machine."""
    names = {hardware.name, hardware.cpu.microarchitecture, *(a.model for a in hardware.accelerators)}
    if name.lower() in {identity.lower() for identity in names}:
        return True
    return len(name) > 5 and hardware.identity.startswith(name)


def compare_stacks(observations: Iterable[Observation], *, stacks: Sequence[str] = ()) -> StackComparisons:
    """Compare stacks within the blocks that they share.

    Without ``stacks``, each stack is compared with the reference of its block. Stacks that are named are compared with
    each other: with the reference of the block if it is one of them, else with the first of them that the block holds.

    Args:
        observations: Observations of one indicator, in any sizes.
        stacks: Stacks to compare, written as ``FRAMEWORK==VERSION``; all if empty.

    Returns:
        The comparisons, and the runs that are not compared.

    Raises:
        NotComparableError: If stacks are named and no block compares them; the message says why.
    """
    observations = tuple(observations)
    if not stacks:
        return StackComparisons(
            comparisons=compare_block(observations),
            refused=(*_refused(observations, measured_references(observations)), *_without_reference(observations)),
        )
    _check(observations, frozenset(stacks))
    requested = frozenset(stacks)
    references = _references(observations, stacks)
    comparisons = tuple(
        c
        for c in compare_block(observations, references=references)
        if {_requirement(c.observation), _requirement(c.reference)} <= requested
    )
    refused = _refused([o for o in observations if _requirement(o) in requested], references)
    if not comparisons:
        raise _nothing_compared(requested, refused)
    return StackComparisons(comparisons=comparisons, refused=refused)


def _references(observations: Sequence[Observation], stacks: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return what named stacks are compared with, by block and label: the block's reference, or else the first stack.

    If a stack was measured with several settings, the arm with the fewest settings counts.
    """
    arms: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for o in observations:
        if o.status == "ok" and (name := _requirement(o)) in stacks:
            place = -1 if o.reference else stacks.index(name)
            arms[o.block, o.indicator.label].append((place, len(o.settings), o.arm))
    return {key: min(candidates)[-1] for key, candidates in arms.items()}


def _refused(observations: Iterable[Observation], references: References) -> tuple[str, ...]:
    return tuple(
        f"`{stack_name(r.observation)}` in block `{r.block}`, {r.indicator}, {r.rounds} rounds: {r.reason}"
        for r in refusals(observations, references=references)
    )


def _nothing_compared(stacks: Collection[str], refused: Sequence[str]) -> NotComparableError:
    if len(stacks) == 1:
        return NotComparableError(
            f"only {_listed(stacks)} is named, and it was measured with one combination of settings",
            hint="name two stacks, or omit `--stack` to compare all stacks with the reference of their block",
        )
    return NotComparableError(
        f"{_listed(stacks)} cannot be compared: fewer than two rounds of a block measured them under equal conditions",
        hint=refused[0] if refused else "measure them with more rounds (`advisor pi run --rounds`)",
    )


def _requirement(o: Observation) -> str:
    return f"{o.framework}=={o.stack.version_of(o.framework)}"


def _listed(names: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in sorted(names))


def _check(observations: tuple[Observation, ...], stacks: frozenset[str]) -> None:
    """Check that one block measured all stacks at one size of the indicator; the error says what differs."""
    places: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in stacks}
    for o in observations:
        if o.status == "ok" and (name := _requirement(o)) in stacks:
            for key, value in (
                ("label", o.indicator.label),
                ("block", o.block),
                ("machine", o.hardware.identity),
                ("both", f"{o.block} {o.indicator.label}"),
            ):
                places[name][key].add(value)
    missing = [name for name in stacks if not places[name]]
    if missing:
        raise NotComparableError(
            f"{_listed(missing)} was not measured at this indicator",
            hint="`advisor knowledge compare --indicator NAME` without `--stack` lists the measured stacks",
        )
    if set.intersection(*(places[name]["both"] for name in stacks)):
        return
    reasons = {
        "machine": "they were measured on different machines",
        "label": "they ran different sizes, element types, backends or versions of the indicator",
        "block": "they were measured in different blocks, at different times",
    }
    why = next(
        (reason for key, reason in reasons.items() if not set.intersection(*(places[name][key] for name in stacks))),
        "no block ran one size of the indicator on all of them",
    )
    raise NotComparableError(
        f"{_listed(stacks)} cannot be compared: {why}, so their ratio would not depend on the stacks alone",
        hint="measure them in one block with `advisor pi run`, or predict the ratio with `advisor knowledge estimate`",
    )


def _without_reference(observations: Collection[Observation]) -> list[str]:
    """Return one sentence for each group of runs without a reference in their block."""
    references = measured_references(observations)
    others: dict[tuple[str, str], set[str]] = defaultdict(set)
    for o in observations:
        if o.status == "ok" and (o.block, o.indicator.label) not in references:
            others[o.block, o.indicator.label].add(stack_name(o))
    return [
        f"{', '.join(f'`{name}`' for name in sorted(names))} in block `{block}`, {label}: the reference did not run"
        for (block, label), names in sorted(others.items())
    ]


def benchmark_comparisons(store: KnowledgeBase, identity: str) -> tuple[Comparison, ...]:
    """Return the measured ratios of a benchmark: each arm compared with the reference of its block, in order.

    A ratio above 1 is better than the reference, whatever the benchmark's metric is. Controls (A/A) and comparisons
    without a result (:attr:`~knowledge.evidence.compare.Comparison.conclusive`) are included. Results of an older
    version of the program have another :attr:`~pi_runners.execution.benchmark.Benchmark.identity`. Of settings that
    options of the command applied, only results with the newest options are compared.
    """
    observations = store.observations(indicator=BENCHMARK)
    own = [o for o in observations if o.indicator.parameters.get("identity") == identity]
    newest = {_settings_key(o): o.environment.get("options") for o in sorted(own, key=lambda o: o.started_at)}
    return compare_block(o for o in own if o.environment.get("options") == newest[_settings_key(o)])


def _settings_key(o: Observation) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted(o.settings.items()))


def benchmark_contrasts(store: KnowledgeBase, identity: str) -> tuple[Contrast, ...]:
    """Return the measured ratios of a benchmark as evidence for its project."""
    contrasts = (contrast_of(comparison, 0.0) for comparison in benchmark_comparisons(store, identity))
    return tuple(contrast for contrast in contrasts if contrast is not None)

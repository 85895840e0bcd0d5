"""Queries of a knowledge base: measured comparisons, and predictions for a named stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.api.stores import open_readable_store
from advisor.domain.words import quoted
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import FRAMEWORKS, able_frameworks, runs_on_processors_only
from knowledge.domain.hardware import Accelerator
from knowledge.domain.observation import Observation
from knowledge.estimate.accelerator_ratio import AcceleratorRatio, accelerator_ratios, are_connected
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.interface import Estimate
from knowledge.estimate.model_cache import ModelCache, shipped_ratio_variances
from knowledge.estimate.workloads import TASKS, find_workload, kinds_of, one_indicator, workload_catalogue
from knowledge.evidence.accelerator_pairs import load_pairs
from knowledge.evidence.contrasts import features_of
from knowledge.evidence.stacks import StackComparisons, compare_stacks, is_machine
from knowledge.hardware.accelerators import AcceleratorModel, closest_models, find_accelerator, model_of
from knowledge.hardware.partitions import states_part
from knowledge.hardware.peaks import ratio_bounds
from knowledge.hardware.profiles import find_profile
from knowledge.hardware.shipped_machines import find_machine


@dataclass(frozen=True, kw_only=True)
class StackEstimate:
    """A predicted ratio of two stacks.

    Attributes:
        estimate: The ratio, its interval, and the observations that support it.
        stack: Version of each package of the stack.
        against: Version of each package of the stack that it is compared with.
        device: The machine's accelerator, or the microarchitecture of its processor.
        sizes: Number of sizes and types of indicators that the prediction is of.
    """

    estimate: Estimate
    stack: Mapping[str, Version]
    against: Mapping[str, Version]
    device: str
    sizes: int


@dataclass(frozen=True, kw_only=True)
class HardwareComparison:
    """A predicted ratio of two accelerators, or a bound of it.

    Attributes:
        accelerator: Model of the accelerator.
        reference: Model of the one that it is compared with.
        workload: Name of the workload.
        tasks: Published tasks that stand for the workload, each with its mode.
        ratios: A ratio for each regime with evidence, with its interval and the published pairs of these two; empty if
            no published pairs connect them.
        bound: Otherwise the result of :func:`knowledge.hardware.peaks.ratio_bounds`.
    """

    accelerator: str
    reference: str
    workload: str
    tasks: tuple[tuple[str, str], ...]
    ratios: tuple[AcceleratorRatio, ...]
    bound: tuple[float, float] | None = None


def select_observations(
    indicator: str, *, hardware: str | None = None, framework: str | None = None, knowledge: str | None = None
) -> tuple[Observation, ...]:
    """Return the observations of an indicator, as :func:`compare` selects them.

    Raises:
        InputError: If there is none; the hint lists what there is.
        KnowledgeBaseError: If the knowledge base cannot be opened.
    """
    with open_readable_store(knowledge) as store:
        machine = None if hardware is None else _machine_name(hardware)
        every = list(store.observations(indicator=indicator, frameworks=[framework] if framework else None))
        observations = tuple(o for o in every if machine is None or is_machine(o.hardware, machine))
        names = {entry[0].split()[0] for entry in store.content().indicators} if not every else set()
    if not observations:
        names |= {o.hardware.gpu.model if o.hardware.gpu else o.hardware.cpu.microarchitecture for o in every} - {""}
        where = f" on `{hardware}`" if hardware else ""
        raise InputError(
            f"there is no observation of indicator `{indicator}`{where}",
            hint=f"there is {', '.join(f'`{name}`' for name in sorted(names))}" if names else "",
        )
    return observations


def compare(
    indicator: str,
    stacks: Sequence[str] | str = (),
    *,
    hardware: str | None = None,
    framework: str | None = None,
    knowledge: str | None = None,
) -> StackComparisons:
    """Compare measured stacks at one indicator.

    Args:
        indicator: Name of the indicator.
        stacks: Stacks to compare with each other, such as ``torch==2.13.0``: with the reference of their block if it is
            one of them, otherwise with the first. By default every stack is compared with its reference.
        hardware: Only this machine: a profile, a microarchitecture, an accelerator model, an identity or ``detect``.
        framework: Only this distribution.
        knowledge: Address of the knowledge base; by default the user's own.

    Returns:
        Paired ratios of speed with their intervals.

    Raises:
        InputError: If there is no such observation (exit code 2).
        KnowledgeBaseError: If the knowledge base cannot be read (exit code 4).
    """
    observations = select_observations(indicator, hardware=hardware, framework=framework, knowledge=knowledge)
    return compare_stacks(observations, stacks=(stacks,) if isinstance(stacks, str) else stacks)


def estimate(
    stack: str,
    *,
    against: str | None = None,
    hardware: str = "detect",
    indicator: str | None = None,
    workload: str | None = None,
    knowledge: str | None = None,
) -> StackEstimate:
    """Predict how fast a stack is compared with another one.

    Args:
        stack: A framework and other packages, such as ``torch==2.13.0 numpy==2.4.6``.
        against: The stack to compare with; by default the framework's usual reference version.
        hardware: A profile, a YAML or JSON file, or ``detect``.
        indicator: One indicator instead of a workload.
        workload: Name of the workload; it or the indicator is required.
        knowledge: Address of the knowledge base; by default the user's own.

    Returns:
        The predicted ratio of speed, its interval, and the observations that support it.

    Raises:
        InputError: If the stack is not written as above, or was not measured on such a device (exit code 2).
        KnowledgeBaseError: If the knowledge base cannot be read (exit code 4).
    """
    versions = _versions(stack)
    # A framework, rather than the library of arrays that it uses.
    others = (n for n in versions if n in FRAMEWORKS and FRAMEWORKS[n] not in able_frameworks("arrays"))
    framework = next(others, None) or next(iter(versions))
    if indicator is None and workload is None:
        kinds = kinds_of(FRAMEWORKS.get(framework, ""))
        raise InputError(
            "a speed is predicted for a workload or an indicator, and neither is named",
            hint=f"add `--workload`, such as {quoted([kind.name for kind in kinds])}",
        )
    weighting = one_indicator(indicator) if indicator else find_workload(workload or "")
    profile = find_profile(hardware)
    with open_readable_store(knowledge) as store:
        estimator = WorkloadEstimator(
            ModelCache(store), hardware=profile, workload=weighting, frameworks=frozenset(FRAMEWORKS)
        )
        model = estimator.model(framework)
        if model is None or not model.versions:
            raise InputError(
                f"versions of `{framework}` were not compared at "
                f"{f'indicator `{indicator}`' if indicator else f'workload `{workload}`'} on such a device",
                hint="`advisor knowledge status` lists what was measured; `advisor pi run` measures more",
            )
        other = _versions(against) if against else {**versions, framework: model.measured.usual_reference}
        if framework not in other:
            raise InputError(f"`--against {against}` does not name a version of `{framework}`")
        on_processor = runs_on_processors_only(framework)
        return StackEstimate(
            estimate=model.estimate(versions, other, confidence=0.9),
            stack=versions,
            against=other,
            device=profile.gpu.model if profile.gpu and not on_processor else profile.cpu.microarchitecture,
            sizes=sum(len(case.programs) for case in model.cases),
        )


def compare_hardware(
    accelerator: str, reference: str, *, workload: str, knowledge: str | None = None
) -> HardwareComparison:
    """Predict how much faster one accelerator is than another for a workload, from published measurements.

    Accelerators are named as such or by a hardware profile.

    Returns:
        The predicted ratio of speed for each regime (the default precision, a shorter one, MLPerf, latencies), its
        interval, and the published pairs that support it. If no chain of published pairs leads from one to the other,
        it is a bound from peak rates.

    Raises:
        InputError: If an accelerator or the workload is unknown, or nothing was published for it (exit code 2).
        KnowledgeBaseError: If the knowledge base cannot be read (exit code 4).
    """
    models = [_accelerator(name) for name in (accelerator, reference)]
    if models[0].name == models[1].name:
        raise InputError(f"`{accelerator}` and `{reference}` are the same accelerator")
    for model in models:
        if not features_of(model):
            raise InputError(
                f"the catalogue does not state the bandwidth and the peak rates of {model.model}",
                hint="`advisor hardware list` lists what it states",
            )
    parts = find_workload(workload).parts.get(TASKS, ())
    with open_readable_store(knowledge) as store:
        pairs = load_pairs(store)
    measured = {(pair.task, pair.mode) for pair in pairs}
    tasks = [(part.parameters["task"], part.parameters["mode"]) for part in parts]
    tasks = [task for task in tasks if task in measured]
    if not tasks:
        raise InputError(
            f"nothing was published for workload `{workload}` on two accelerators",
            hint=f"published are {quoted([name for name, w in workload_catalogue().items() if TASKS in w.parts])}",
        )
    names = {"accelerator": models[0].name, "reference": models[1].name}
    is_connected = are_connected(pairs, **names)
    return HardwareComparison(
        accelerator=models[0].model,
        reference=models[1].model,
        workload=workload,
        tasks=tuple(tasks),
        ratios=accelerator_ratios(pairs, shipped_ratio_variances(), **names, tasks=tasks) if is_connected else (),
        bound=None if is_connected else ratio_bounds(*models),
    )


def _accelerator(name: str) -> AcceleratorModel:
    """Return the catalogue's entry of an accelerator, by its name or by the name of a profile."""
    profile = _accelerator_of_profile(name)
    model = find_accelerator(name) or (model_of(profile) if profile is not None else None)
    if model is not None and (states_part(name) or (profile is not None and profile.partition)):
        raise InputError(
            f"`{name}` is a part of a GPU, and accelerators are compared as a whole",
            hint=f"compare the whole GPU, `{model.name}`",
        )
    if model is None:
        closest = closest_models(name)
        hint = f"similar names: {quoted(closest)}" if closest else "`advisor hardware list` lists the accelerators"
        raise InputError(f"there is no accelerator `{name}` in the catalogue", hint=hint)
    return model


def _accelerator_of_profile(name: str) -> Accelerator | None:
    """Return the accelerator of a profile or a cloud instance; ``None`` if there is no such profile or accelerator."""
    try:
        accelerators = find_profile(name).accelerators
    except InputError:
        return None
    return accelerators[0] if accelerators else None


def _machine_name(hardware: str) -> str:
    """Return how the knowledge base names a machine.

    This machine's identity for ``detect``; of a shipped profile or a cloud instance its accelerator or its
    microarchitecture.
    """
    if hardware == "detect":
        return find_profile(hardware).identity
    machine = find_machine(hardware)
    if machine is not None:
        gpu = machine.profile.gpu
        return gpu.model if gpu else machine.profile.cpu.microarchitecture
    return hardware


def _versions(text: str) -> dict[str, Version]:
    """Read ``NAME==VERSION`` words, separated by spaces or commas."""
    versions: dict[str, Version] = {}
    for word in text.replace(",", " ").split():
        name, separator, version = word.partition("==")
        try:
            if not (separator and name):
                raise InvalidVersion(word)
            versions[canonicalize_name(name)] = Version(version)
        except InvalidVersion:
            raise InputError(
                f"`{word}` does not name a version", hint="write it as `--stack 'torch==2.13.0 numpy==2.4.6'`"
            ) from None
    if not versions:
        raise InputError("the stack is empty", hint="write it as `--stack torch==2.13.0`")
    return versions

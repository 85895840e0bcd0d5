"""Runs: the rounds of an arm next to those of its reference, and everything that is recorded of one run."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from advisor.dashboard.access import DeniedError
from advisor.dashboard.pages.compare import verdict
from advisor.dashboard.site import Site, answer, device_name, site_of
from advisor.report.axes import LogAxis
from knowledge.domain.observation import Observation, Scalar
from knowledge.domain.stack import Stack
from knowledge.evidence.block_results import ComparedArm, block_results
from knowledge.evidence.conditions import differing_conditions
from knowledge.evidence.stacks import stack_name

router = APIRouter()
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _EDGE = 860.0, 260.0, 64.0, 34.0, 12.0
_MOST_SAMPLES = 40
"""Samples of a run in the plot; of more, a part that is chosen at random, always the same."""
_SIDE = 0.22
"""Distance of the samples of arm and reference from the middle of a round, as a share of the width of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow:
    """One round of an arm and of its reference.

    Attributes:
        round: Number of the round.
        seconds: Median seconds per call of the arm; ``None`` if it failed.
        reference_seconds: The same of the reference.
        ratio: Reference seconds over the arm's.
        status: How the run of the arm ended.
        identity: Identity of the observation of the arm; empty if there is none.
        reference_identity: Identity of the observation of the reference.
        differences: Conditions that differed between the two, for which the round is not compared.
    """

    round: int
    seconds: float | None
    reference_seconds: float | None
    ratio: float | None
    status: str
    identity: str
    reference_identity: str
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedSample:
    """A sample in the plot: its position, and whether it is of the reference."""

    x: float
    y: float
    is_reference: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmView:
    """An arm compared with its reference.

    Attributes:
        block: The block.
        label: Label of the indicator run.
        name: Framework, version and settings of the arm.
        reference: The same of the reference.
        result: The comparison; ``None`` if there is none.
        verdict: What it shows.
        rounds: The rounds.
        samples: Samples of all rounds in the plot.
        conditions: What was recorded of both runs, by name: of the arm and of the reference.
        packages: Versions of each package in both stacks.
        hardware: Identity of the machine.
        machine: Name of the machine.
    """

    block: str
    label: str
    name: str
    reference: str
    result: ComparedArm | None
    verdict: str
    rounds: tuple[RoundRow, ...]
    samples: tuple[PlottedSample, ...]
    y_ticks: tuple[tuple[float, str], ...]
    x_ticks: tuple[tuple[float, str], ...]
    conditions: tuple[tuple[str, str, str], ...]
    packages: tuple[tuple[str, str, str], ...]
    hardware: str
    machine: str


def arm_view(site: Site, *, block: str, label: str, arm: int | None = None) -> ArmView:
    """Return an arm next to its reference; without an arm, the reference itself.

    Raises:
        DeniedError: If there are no such runs.
    """
    runs: dict[int, dict[int, Observation]] = defaultdict(dict)
    reference_arm = None
    for o in site.store.observations(block=block, label=label):
        runs[o.arm][o.round] = o
        if o.reference:
            reference_arm = o.arm
    arm = reference_arm if arm is None else arm
    if arm is None or arm not in runs:
        what = "reference" if arm is None else f"arm {arm}"
        raise DeniedError(404, f"block `{block}` has no {what} at this indicator", "the page `Compare` lists the arms")
    own = runs[arm]
    reference = runs.get(reference_arm, {}) if reference_arm is not None else {}
    first = own[min(own)]
    other = reference[min(reference)] if reference else first
    (stored,) = site.store.blocks([block])
    results = block_results(site.store, stored, indicator=first.indicator.name, framework=first.framework)
    result = next((r for r in results.arms if r.arm == arm and r.label == label), None)
    samples, y = _samples(own, reference)
    numbers = sorted({*own, *reference})
    return ArmView(
        block=block,
        label=label,
        name=stack_name(first),
        reference=stack_name(other) if reference else "",
        result=result,
        verdict=verdict(result) if result is not None else "not compared",
        rounds=tuple(_round(number, own.get(number), reference.get(number)) for number in numbers),
        samples=samples,
        y_ticks=y.texts(),
        x_ticks=tuple((round(_middle(place, len(numbers)), 1), str(n)) for place, n in enumerate(numbers)),
        conditions=_conditions(first, other),
        packages=_packages(first.stack, other.stack),
        hardware=first.hardware.identity,
        machine=f"{device_name(first.hardware, first.indicator.device)} ({first.hardware.name})",
    )


def _round(number: int, own: Observation | None, reference: Observation | None) -> RoundRow:
    seconds = own.median if own is not None else None
    other = reference.median if reference is not None else None
    return RoundRow(
        round=number,
        seconds=seconds,
        reference_seconds=other,
        ratio=other / seconds if seconds and other else None,
        status=own.status if own is not None else "not run",
        identity=own.identity if own is not None else "",
        reference_identity=reference.identity if reference is not None else "",
        differences=tuple(differing_conditions(own, reference)) if own is not None and reference is not None else (),
    )


def _middle(place: int, rounds: int) -> float:
    width = (_WIDTH - _EDGE - _LEFT) / rounds
    return _LEFT + (place + 0.5) * width


def _samples(
    own: Mapping[int, Observation], reference: Mapping[int, Observation]
) -> tuple[tuple[PlottedSample, ...], LogAxis]:
    """Return the samples of all rounds with their positions, and the axis of the seconds."""
    numbers = sorted({*own, *reference})
    parts = [
        (place, side, _some(runs[number].samples))
        for place, number in enumerate(numbers)
        for side, runs in enumerate((reference, own))
        if number in runs
    ]
    y = LogAxis.of((v for *_, values in parts for v in values), first=_HEIGHT - _BOTTOM, last=_EDGE)
    width = (_WIDTH - _EDGE - _LEFT) / max(len(numbers), 1)
    samples = []
    for place, side, values in parts:
        middle = _middle(place, len(numbers)) + (2 * side - 1) * _SIDE * width
        for number, value in enumerate(values):
            # Spread over a part of the width, so that equal samples do not hide each other.
            offset = ((number * 7) % 11 / 11 - 0.5) * _SIDE * width
            samples.append(PlottedSample(x=round(middle + offset, 1), y=y.place(value), is_reference=not side))
    return tuple(samples), y


def _some(samples: Sequence[float]) -> Sequence[float]:
    if len(samples) <= _MOST_SAMPLES:
        return samples
    return random.Random(len(samples)).sample(list(samples), _MOST_SAMPLES)


def _conditions(own: Observation, reference: Observation) -> tuple[tuple[str, str, str], ...]:
    def listed(o: Observation) -> dict[str, Scalar]:
        stack: dict[str, Scalar] = {"python": o.stack.python, "platform": o.stack.platform}
        stack |= {"CUDA runtime": o.stack.cuda or "", "cuDNN": o.stack.cudnn or ""}
        return {**stack, **dict(sorted(o.environment.items()))}

    one, two = listed(own), listed(reference)
    names = [*one, *(name for name in two if name not in one)]
    rows = ((name, str(one.get(name, "")), str(two.get(name, ""))) for name in names)
    return tuple(row for row in rows if row[1] or row[2])


def _packages(own: Stack, reference: Stack) -> tuple[tuple[str, str, str], ...]:
    one = {p.name: p.version for p in own.packages}
    two = {p.name: p.version for p in reference.packages}
    return tuple((name, one.get(name, "-"), two.get(name, "-")) for name in sorted({*one, *two}))


def find_run(site: Site, identity: str) -> Observation:
    """Return an observation by its identity, or by a prefix of at least eight characters.

    Raises:
        DeniedError: If there is none.
    """
    o = site.store.find_observation(identity)
    if o is None:
        raise DeniedError(404, f"there is no observation `{identity[:64]}`", "the page of its block lists them")
    return o


def requirements_of(stack: Stack) -> str:
    """Return the packages of a stack as lines of a requirements file."""
    lines = [f"# Python {stack.python}, {stack.platform}"]
    lines += [f"{p.name}=={p.version}" for p in sorted(stack.packages, key=lambda p: p.name)]
    # A runner delivers these texts: a line break in one would be an option of pip.
    return "\n".join([*(" ".join(line.split()) for line in lines), ""])


PLOT: dict[str, Any] = {"width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "bottom": _HEIGHT - _BOTTOM, "edge": _EDGE}
"""Size of the plot for its template."""


@router.get("/arm", response_class=HTMLResponse, include_in_schema=False)
def arm_page(request: Request, block: str, label: str, arm: int | None = None) -> HTMLResponse:
    """Show an arm next to its reference."""
    view = arm_view(site_of(request), block=block, label=label, arm=arm)
    template = "arm_part.html" if request.headers.get("hx-request") else "arm.html"
    return answer(request, template, page="compare", view=view, plot=PLOT)


@router.get("/api/arm")
def arm_record(request: Request, block: str, label: str, arm: int | None = None) -> ArmView:
    """Return an arm next to its reference: rounds, samples, environment, packages."""
    return arm_view(site_of(request), block=block, label=label, arm=arm)


@router.get("/observation/{identity}", response_class=HTMLResponse, include_in_schema=False)
def run_page(request: Request, identity: str) -> HTMLResponse:
    """Show everything that is recorded of a run."""
    o = find_run(site_of(request), identity)
    return answer(request, "observation.html", page="compare", run=o, name=stack_name(o), statistics=statistics)


@router.get("/api/observation/{identity}")
def run_record(request: Request, identity: str) -> dict[str, Any]:
    """Return the record of an observation, with its stack and its hardware."""
    o = find_run(site_of(request), identity)
    return {"id": o.identity, **o.record(), "stack": o.stack.record(), "hardware": o.hardware.record()}


@router.get("/observation/{identity}/requirements.txt", response_class=PlainTextResponse)
def run_lock(request: Request, identity: str) -> Response:
    """Return the packages of the run's environment as a requirements file."""
    text = requirements_of(find_run(site_of(request), identity).stack)
    headers = {"Content-Disposition": 'attachment; filename="requirements.txt"'}
    return PlainTextResponse(text, headers=headers)

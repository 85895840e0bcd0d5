"""Profiled workloads as text, JSON and a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from advisor.domain.words import count
from advisor.project.workload.file import workload_record
from knowledge.domain.workload import ProfiledWorkload

SCHEMA_VERSION = 1
_BAR = 30
_PLOT_PARTS = 20


def workload_json(workload: ProfiledWorkload) -> dict[str, Any]:
    """Return a workload as JSON-ready values."""
    return {"schema_version": SCHEMA_VERSION, "workload": workload_record(workload)}


def workloads_json(workloads: Sequence[ProfiledWorkload]) -> dict[str, Any]:
    """Return the workloads of a project as JSON-ready values."""
    return {"schema_version": SCHEMA_VERSION, "workloads": [workload_record(workload) for workload in workloads]}


def workloads_text(workloads: Sequence[ProfiledWorkload]) -> str:
    """Return one line for each workload."""
    width = max((len(workload.name) for workload in workloads), default=0)
    return "\n".join(f"{workload.name:{width}}  {_headline(workload)}" for workload in workloads)


def workload_text(workload: ProfiledWorkload, *, parts: int = 0) -> str:
    """Return a workload with bars of its time shares, of at most some parts; 0 for all."""
    return "\n".join(_lines(workload, parts or len(workload.parts)))


def _headline(workload: ProfiledWorkload) -> str:
    framework = f"{workload.framework} {workload.framework_version}".rstrip()
    hardware = f", {workload.hardware}" if workload.hardware else ""
    attributed = f"{1 - workload.unattributed:.0%} of the time in {count(len(workload.parts), 'part')}"
    return f"{framework} on {workload.device}{hardware}: {_duration(workload)}, {attributed}"


def _duration(workload: ProfiledWorkload) -> str:
    seconds = workload.seconds_per_step
    text = f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
    return f"{text} for a step" if workload.steps else f"{text} in total (the trace marks no steps)"


def _lines(workload: ProfiledWorkload, most: int) -> Iterator[str]:
    yield f"workload   {workload.name}"
    framework = f"{workload.framework} {workload.framework_version or '(version unknown)'}"
    yield f"framework  {framework} on {workload.device}" + (f", {workload.hardware}" if workload.hardware else "")
    if workload.command:
        yield f"command    {' '.join(workload.command)}"
    yield f"source     {workload.source or 'unknown'}"
    yield f"time       {_duration(workload)}" + (f", mean of {count(workload.steps, 'step')}" if workload.steps else "")
    if workload.versions:
        yield f"versions   {', '.join(f'{name} {version}' for name, version in workload.versions.items())}"
    yield ""
    yield "Share of the time of each part, with its calls in a step:"
    for part in workload.parts[:most]:
        yield _row(part.share, f"{part.calls:.3g} x {part.label}" if part.calls else part.label)
    hidden = workload.parts[most:]
    if hidden:
        yield _row(sum(part.share for part in hidden), count(len(hidden), "smaller part"))
    yield _row(workload.unattributed, "without an indicator")
    if workload.layers:
        yield ""
        yield "Share of each layer:"
        for layer, share in sorted(workload.layers.items(), key=lambda item: -item[1]):
            yield _row(share, layer)
    if workload.kernels:
        yield ""
        yield "Dominating kernels and operations:"
        for kernel in workload.kernels[:most]:
            yield _row(kernel.share, kernel.name[:80])


def _row(share: float, text: str) -> str:
    return f"{share:6.1%}  {'#' * round(share * _BAR):{_BAR}}  {text}"


def workload_plot(workload: ProfiledWorkload) -> tuple[Callable[[Any], None], int]:
    """Return a function that draws the time shares on matplotlib's axes, and the number of its rows."""
    listed = workload.parts[:_PLOT_PARTS]
    rest = sum(part.share for part in workload.parts[_PLOT_PARTS:])
    rows = [(part.label, part.share, "tab:blue") for part in listed]
    if rest:
        rows.append((count(len(workload.parts) - _PLOT_PARTS, "smaller part"), rest, "tab:blue"))
    rows.append(("without an indicator", workload.unattributed, "0.6"))
    layers = sorted(workload.layers.items(), key=lambda item: -item[1])
    rows += [(f"layer: {layer}", share, "tab:orange") for layer, share in layers]

    def draw(axes: Any) -> None:
        places = range(len(rows))
        axes.barh(places, [100 * share for _, share, _ in rows], color=[color for *_, color in rows], height=0.7)
        axes.set_yticks(list(places), [name for name, *_ in rows])
        axes.invert_yaxis()
        axes.tick_params(axis="both", labelsize=7)
        axes.set_xlabel("share of the time in % (blue: parts; orange: layers)", fontsize=8, loc="right")
        # The labels of the parts take half of the width: a title that starts at the axes would be cut.
        axes.set_title(f"{workload.name}: {_headline(workload)}", fontsize=8, loc="right")

    return draw, len(rows)

"""The result of a bisection as text, as JSON, and as Markdown for an issue of the package that is slower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from advisor.api.measurements.bisect import BisectionResult, Culprit
from advisor.domain.words import count, memory_text, quoted, ratio_text
from advisor.experiment.stack_pair import StackDifference, StackEnd
from advisor.report.layout import Layout, labelled, rendered
from knowledge.domain.ratio import Ratio

_ENDINGS = {
    "time": "the time is over",
    "interrupted": "interrupted",
    "disturbed": "other programs disturbed the measurements all the time",
}
_MOST_LISTED = 12
"""Differences that the text lists if none of them is a culprit."""


def slowdown_text(ratio: Ratio, other: str = "") -> str:
    """Return a ratio of times in words: ``8.1 % slower [7.6, 8.5]``."""
    percent, low, high = (ratio_text(value, "percent") for value in (ratio.speedup, ratio.low, ratio.high))
    than = f" than {other}" if other else ""
    if ratio.speedup < 1:
        percent, low, high = (ratio_text(2 - value, "percent") for value in (ratio.speedup, ratio.high, ratio.low))
        return f"{percent} % faster{than} [{low}, {high}]"
    return f"{percent} % slower{than} [{low}, {high}]"


def bisection_text(result: BisectionResult, layout: Layout, *, written: Path | None = None) -> str:
    """Return the result as plain text."""
    pair = result.pair
    blocks = [
        [
            *labelled("good", [_end_text(pair.good)]),
            *labelled("bad", [_end_text(pair.bad)]),
            *labelled("result", _verdict_lines(result), "warning" if result.has_loss else "strong"),
        ],
        labelled("explained", [(name, text) for name, text in _culprit_rows(result)]),
        [
            *labelled("recover", _recovery_lines(result), "good"),
            *labelled("open", _open_lines(result)),
        ],
        [
            *labelled("measured", _effort_lines(result)),
            *labelled("note", [*pair.good.notes, *(note for note in pair.bad.notes if note not in pair.good.notes)]),
            *labelled("wrote", [str(written)] if written else ()),
        ],
    ]
    return rendered(blocks, layout)


def bisection_json(result: BisectionResult) -> dict[str, Any]:
    """Return the result as JSON-ready values; ratios are those of times."""
    pair = result.pair
    return {
        "schema_version": 1,
        "verdict": result.verdict,
        "ending": result.ending,
        "good": _end_record(pair.good),
        "bad": _end_record(pair.bad),
        "differences": [_difference_record(d) for d in pair.all],
        "slowdown": _ratio_record(result.slowdown),
        "failure": result.failure,
        "culprits": [
            {
                "differences": [_difference_record(d) for d in culprit.differences],
                "slowdown": _ratio_record(culprit.slowdown),
            }
            for culprit in result.culprits
        ],
        "pins": list(result.pins),
        "dependents": [_difference_record(d) for d in result.dependents],
        "is_recovered": result.is_recovered,
        "remaining": _ratio_record(result.remaining),
        "unresolved": [{"stack": stack, "failure": failure} for stack, failure in result.unresolved],
        "control": _ratio_record(result.control),
        "rounds": result.rounds,
        "combinations": result.combinations,
        "minutes": round(result.minutes, 2),
        "minutes_left": round(result.minutes_left, 1),
        "tolerance": result.tolerance,
        "block": result.block,
    }


def bisection_markdown(result: BisectionResult) -> str:
    """Return the result as Markdown for an issue: what, versions, figures, machine, how to repeat it."""
    pair, hardware = result.pair, result.hardware
    names = " and ".join(d.text for c in result.culprits for d in c.differences) or "the newer stack"
    title = f"{names}: the program fails" if result.failure else f"{names}: the program is slower"
    memory = memory_text(hardware.memory_bytes)
    gpu = hardware.gpu
    machine = [
        f"- processor: {hardware.cpu.model or hardware.cpu.microarchitecture}, {hardware.cpu.cores} cores",
        *([f"- memory: {memory}"] if memory else []),
        *(
            [f"- accelerator: {gpu.model}, driver {hardware.driver.version if hardware.driver else 'not known'}"]
            if gpu
            else []
        ),
        f"- operating system: {hardware.os}, {hardware.libc} {hardware.libc_version}".rstrip(),
        f"- Python {pair.bad.python_minor}",
    ]
    figures = [
        *_verdict_lines(result),
        *(f"{name}: {text}" for name, text in _culprit_rows(result)),
        *list(_recovery_lines(result))[:1],
        *_effort_lines(result),
    ]
    lines = [
        f"# {title}",
        "",
        f"The program ({result.program}) ran with two sets of packages and with sets in between, in fresh",
        f"processes that take turns.{'' if result.failure else ' Intervals hold with 95 % confidence.'}",
        "",
        "## Figures",
        "",
        *(f"- {line}" for line in figures),
        "",
        "## Machine",
        "",
        *machine,
        "",
        "## How to repeat it",
        "",
        "Install the slow or failing set and run the program, then apply the change and run it again:",
        "",
        "```sh",
        "pip install --no-deps \\",
        *_install_lines(pair.bad),
        *_change_lines(result),
        "```",
    ]
    return "\n".join([*lines, ""])


def _install_lines(end: StackEnd) -> Iterator[str]:
    *first, last = [f"  {candidate.name}=={candidate.version}" for candidate in end.stack]
    yield from (f"{line} \\" for line in first)
    yield last
    for name, value in sorted(end.settings.items()):
        yield f"# run-time setting: {name}={value}"


def _change_lines(result: BisectionResult) -> Iterator[str]:
    differences = [*(d for c in result.culprits for d in c.differences), *result.dependents]
    packages = [d.pin for d in differences if d.kind == "package" and d.pin]
    if packages:
        yield f"pip install --no-deps {' '.join(packages)}"
    for difference in differences:
        if difference.kind != "package":
            yield f"# {difference.kind} {difference.name}: {difference.good or 'not set'} instead of {difference.bad}"
        elif not difference.pin:
            yield f"# without {difference.name} {difference.bad}" if not difference.good else f"# {difference.text}"


def _end_text(end: StackEnd) -> str:
    settings = "".join(f", {name}={value}" for name, value in sorted(end.settings.items()))
    return f"{end.name}: Python {end.python_minor}, {count(len(end.stack), 'package')}{settings}"


def _verdict_lines(result: BisectionResult) -> Iterator[str]:
    pair, loss = result.pair, result.slowdown
    number = count(len(pair.all), "difference")
    if not pair.all:
        yield "the two stacks are equal: nothing was measured"
    elif result.verdict == "failing":
        yield f"the program fails with bad, and runs with good; {number}"
        yield result.failure
    elif loss is None:
        yield f"not known yet; {number}"
    elif result.verdict == "equal":
        yield f"no loss of {_percent(result.tolerance)} or more: bad is {slowdown_text(loss, 'good')}; {number}"
    elif result.verdict == "open":
        yield f"not certain yet: bad is {slowdown_text(loss, 'good')}; {number}"
    else:
        yield f"bad is {slowdown_text(loss, 'good')}; {number}"
        if result.verdict == "faster":
            yield "there is no loss to explain; to explain the gain, exchange `--good` and `--bad`"


def _culprit_rows(result: BisectionResult) -> Iterator[tuple[str, str]]:
    whole = result.slowdown
    for culprit in result.culprits:
        yield _names(culprit.differences), _share_text(culprit, whole)


def _names(differences: Sequence[StackDifference]) -> str:
    return " with ".join(difference.text for difference in differences)


def _share_text(culprit: Culprit, whole: Ratio | None) -> str:
    if culprit.slowdown is None:
        return "explains the failure" if whole is None else ""
    ends = (culprit.slowdown.low, culprit.slowdown.high)
    share, (low, high) = ratio_text(culprit.slowdown.speedup, "percent"), (ratio_text(e, "percent") for e in ends)
    total = f" of {ratio_text(whole.speedup, 'percent')} %" if whole else ""
    return f"explains {share} %{total} [{low}, {high}]"


def _recovery_lines(result: BisectionResult) -> Iterator[str]:
    if not result.culprits:
        return
    differences = [*(d for c in result.culprits for d in c.differences), *result.dependents]
    action = ", ".join(map(_action, differences))
    if result.is_recovered and result.remaining is not None:
        yield f"{action}: measured, {slowdown_text(result.remaining, 'good')}"
    elif result.is_recovered:
        yield f"{action}: measured, {'it runs' if result.failure else 'the same as good'}"
    elif result.is_recovered is False:
        state = "still fails" if result.failure else "is still slower"
        yield f"{action}: this is not enough, the program {state}"
    else:
        yield f"{action}: not measured yet"
    if result.dependents:
        yield f"{quoted([d.name for d in result.dependents])} must change, too: the metadata of the packages require it"
    packages = [d.pin for c in result.culprits for d in c.differences if d.kind == "package" and d.pin]
    if packages:
        listed = ", ".join(f'"{pin}"' for pin in packages)
        yield f"for `[tool.advisor]` in `pyproject.toml`: constraints = [{listed}]"


def _action(difference: StackDifference) -> str:
    """Return what to do to have a difference as in the good stack."""
    name, good = difference.name, difference.good
    if difference.kind == "setting":
        return f"set `{difference.pin}`" if good else f"do not set `{name}`"
    if difference.kind == "interpreter":
        return f"use Python {good}"
    if difference.pin:
        return f"pin `{difference.pin}`"
    return f"install the other file of `{name}`" if good else f"remove `{name}`"


def _open_lines(result: BisectionResult) -> Iterator[str]:
    if result.verdict == "slower" and result.ending == "complete" and not result.is_recovered:
        if result.remaining is not None and result.culprits:
            yield f"not explained: without the culprits, bad is {slowdown_text(result.remaining, 'good')}"
        further = f"no further difference costs {_percent(result.tolerance)} alone"
        yield f"{further}; a smaller `--tolerance` finds smaller ones"
    if result.ending in _ENDINGS:
        needed = f": about {max(1, round(result.minutes_left))} more minutes are needed"
        yield f"{_ENDINGS[result.ending]}{needed}; the same command continues"
    for stack, failure in result.unresolved:
        yield f"`{stack}` does not run: {failure}"
    if result.verdict == "slower" and not result.culprits and result.ending != "complete":
        texts = [difference.text for difference in result.pair.all]
        more = f" and {len(texts) - _MOST_LISTED} more" if len(texts) > _MOST_LISTED else ""
        yield f"it is one or more of: {', '.join(texts[:_MOST_LISTED])}{more}"


def _effort_lines(result: BisectionResult) -> Iterator[str]:
    effort = f"{count(result.combinations, 'stack')}, {count(result.rounds, 'round')}, {result.minutes:.1f} minutes"
    yield f"{effort} on {result.machine}"
    if result.control is not None:
        noise = "" if result.control.is_significant() else ": no difference, as it must be"
        yield f"good twice (A/A): {slowdown_text(result.control)}{noise}"
    if result.disturbance:
        yield f"some runs were repeated: {result.disturbance}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:g} %"


def _ratio_record(ratio: Ratio | None) -> dict[str, float] | None:
    return None if ratio is None else {"ratio": ratio.speedup, "low": ratio.low, "high": ratio.high}


def _difference_record(difference: StackDifference) -> dict[str, str]:
    return {"kind": difference.kind, "name": difference.name, "good": difference.good, "bad": difference.bad}


def _end_record(end: StackEnd) -> dict[str, Any]:
    return {
        "name": end.name,
        "python": end.python_minor,
        "packages": {str(candidate.name): str(candidate.version) for candidate in end.stack},
        "settings": dict(end.settings),
        "notes": list(end.notes),
    }

"""The result of a bisection as text, as JSON, and as Markdown for an issue of the package that is slower."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.api.measurements.bisect import Culprit, ProjectBisection
from advisor.api.measurements.laboratory import machine_name
from advisor.domain.words import count, listed, memory_text, quoted, slowdown_text
from advisor.experiment.stack_pair import StackDifference, StackEnd
from advisor.report.layout import Layout, labelled, rendered
from knowledge.domain.ratio import Ratio

_ENDINGS = {
    "time": "the time is over",
    "interrupted": "the measurements were interrupted",
    "disturbed": "other programs disturbed the measurements all the time",
    "good-failed": "the program began to fail with good",
}
_MOST_LISTED = 12
"""Differences that the text lists if none of them is a culprit."""


def bisection_text(result: ProjectBisection, layout: Layout, *, written: Path | None = None) -> str:
    """Return the result as plain text."""
    pair = result.pair
    blocks = [
        [
            *labelled("good", [_end_text(pair.good)]),
            *labelled("bad", [_end_text(pair.bad)]),
            *labelled("result", _verdict_lines(result), "warning" if result.has_loss else "strong"),
        ],
        labelled("explained", [*_culprit_rows(result), *_excess_lines(result)]),
        [
            *labelled("recover", _recovery_lines(result), "good"),
            *labelled("open", [f"{fact}{advice}" for fact, advice in _open_lines(result)]),
        ],
        [
            *labelled("measured", _effort_lines(result)),
            *labelled("note", [*pair.good.notes, *(note for note in pair.bad.notes if note not in pair.good.notes)]),
            *labelled("wrote", [str(written)] if written else ()),
        ],
    ]
    return rendered(blocks, layout)


def bisection_json(result: ProjectBisection) -> dict[str, Any]:
    """Return the result as JSON-ready values; ratios are those of times."""
    pair, state = result.pair, result.bisection
    return {
        "schema_version": 1,
        "verdict": state.verdict,
        "ending": state.ending,
        "good": _end_record(pair.good),
        "bad": _end_record(pair.bad),
        "differences": [d._asdict() for d in pair.all],
        "slowdown": _ratio_record(result.slowdown),
        "failure": result.failure,
        "culprits": [
            {
                "differences": [d._asdict() for d in c.differences],
                "slowdown": _ratio_record(c.slowdown),
                "share": c.share,
            }
            for c in result.culprits
        ],
        "pins": list(result.pins),
        "dependents": [d._asdict() for d in result.dependents],
        "is_recovered": state.is_recovered,
        "remaining": _ratio_record(result.remaining),
        "unresolved": [{"stack": stack, "failure": failure} for stack, failure in result.unresolved],
        "unconfirmed": [{"stack": stack, "failure": failure} for stack, failure in result.unconfirmed],
        "control": _ratio_record(state.control_ratio()),
        "rounds": result.rounds,
        "combinations": result.combinations,
        "minutes": round(result.minutes, 2),
        "minutes_left": round(result.minutes_left, 1),
        "tolerance": state.tolerance,
        "block": result.machine.block.name,
    }


def bisection_markdown(result: ProjectBisection) -> str:
    """Return the result as Markdown for an issue: what, versions, figures, machine, how to repeat it."""
    names = " and ".join(d.text for c in result.culprits for d in c.differences) or "the newer stack"
    figures = [
        *_verdict_lines(result),
        *(f"{name}: {text}" for name, text in _culprit_rows(result)),
        *_excess_lines(result),
        *list(_recovery_lines(result))[:1],
        *_effort_lines(result),
    ]
    # What the user can do about it says nothing to others.
    unknown = [f"- {fact}" for fact, _ in _open_lines(result)]
    lines = [
        f"# {names}: the program {'fails' if result.failure else 'is slower'}",
        "",
        f"The program ({result.machine.program.text}) ran with two sets of packages and with sets in between, in fresh",
        f"processes that take turns.{'' if result.failure else ' Intervals hold with 95 % confidence.'}",
        "",
        "## Differences",
        "",
        *(f"- {label}: {_end_text(end)}" for label, end in (("good", result.pair.good), ("bad", result.pair.bad))),
        "",
        "| package or setting | good | bad |",
        "| --- | --- | --- |",
        *(f"| {d.name} | {d.good or 'absent'} | {d.bad or 'absent'} |" for d in result.pair.all),
        "",
        "## Figures",
        "",
        *(f"- {line}" for line in figures),
        "",
        *(["## Not explained or not known yet", "", *unknown, ""] if unknown else []),
        "## Machine",
        "",
        *_machine_lines(result),
        "",
        "## How to repeat it",
        "",
        "Install the slow or failing set and run the program, then apply the change and run it again:",
        "",
        "```sh",
        "pip install --no-deps \\",
        *_install_lines(result.pair.bad),
        *_change_lines(result),
        "```",
        "",
    ]
    return "\n".join(lines)


def _machine_lines(result: ProjectBisection) -> Iterator[str]:
    hardware = result.machine.hardware
    yield f"- processor: {hardware.cpu.model or hardware.cpu.microarchitecture}, {hardware.cpu.cores} cores"
    if memory := memory_text(hardware.memory_bytes):
        yield f"- memory: {memory}"
    if hardware.gpu:
        driver = hardware.driver.version if hardware.driver else "not known"
        yield f"- accelerator: {hardware.gpu.model}, driver {driver}"
    yield f"- operating system: {hardware.os}, {hardware.libc} {hardware.libc_version}".rstrip()
    yield f"- Python {result.pair.bad.python_minor}"


def _install_lines(end: StackEnd) -> Iterator[str]:
    *first, last = [f"  {candidate.name}=={candidate.version}" for candidate in end.stack]
    yield from (f"{line} \\" for line in first)
    yield last
    for name, value in sorted(end.settings.items()):
        yield f"# run-time setting: {name}={value}"


def _change_lines(result: ProjectBisection) -> Iterator[str]:
    if packages := [d.pin for d in result.recovery if d.kind == "package" and d.pin]:
        yield f"pip install --no-deps {' '.join(packages)}"
    for difference in result.recovery:
        if difference.kind != "package":
            yield f"# {difference.kind} {difference.name}: {difference.good or 'not set'} instead of {difference.bad}"
        elif not difference.pin:
            yield f"# without {difference.name} {difference.bad}" if not difference.good else f"# {difference.text}"


def _end_text(end: StackEnd) -> str:
    settings = "".join(f", {name}={value}" for name, value in sorted(end.settings.items()))
    return f"{end.name}: Python {end.python_minor}, {count(len(end.stack), 'package')}{settings}"


def _verdict_lines(result: ProjectBisection) -> Iterator[str]:
    loss, verdict = result.slowdown, result.bisection.verdict
    number = count(len(result.pair.all), "difference")
    if not result.pair.all:
        yield "the two stacks are equal: nothing was measured"
    elif verdict == "failing":
        yield f"the program fails with bad, and ran with good; {number}"
        yield result.failure
    elif loss is None:
        yield f"not known yet; {number}"
    elif verdict == "equal":
        yield f"no loss of {_tolerance(result)} or more: bad is {slowdown_text(loss, 'good')}; {number}"
    elif verdict == "open":
        yield f"not certain yet: bad is {slowdown_text(loss, 'good')}; {number}"
    else:
        yield f"bad is {slowdown_text(loss, 'good')}; {number}"
        if verdict == "faster":
            yield "there is no loss to explain; to explain the gain, exchange `--good` and `--bad`"


def _culprit_rows(result: ProjectBisection) -> Iterator[tuple[str, str]]:
    for culprit in result.culprits:
        yield (
            " with ".join(difference.text for difference in culprit.differences),
            _culprit_text(culprit, has_share=result.has_shares),
        )


def _culprit_text(culprit: Culprit, *, has_share: bool) -> str:
    if culprit.slowdown is None or culprit.share is None:
        return "explains the failure"
    share = f"explains {100 * culprit.share:.0f} % of the loss: " if has_share else ""
    return f"{share}{slowdown_text(culprit.slowdown)}"


def _excess_lines(result: ProjectBisection) -> Iterator[str]:
    """Say why the culprits cost more than the whole loss, if they certainly do."""
    if result.exceeds_loss:
        gain, is_one = "more than the loss: other differences make the program faster", len(result.culprits) == 1
        yield gain if is_one else f"together {gain}, or each culprit costs less once the other is there"


def _recovery_lines(result: ProjectBisection) -> Iterator[str]:
    if not result.culprits:
        return
    action, is_recovered = ", ".join(map(_action, result.recovery)), result.bisection.is_recovered
    if is_recovered and result.remaining is not None:
        yield f"{action}: measured, {slowdown_text(result.remaining, 'good')}"
    elif is_recovered:
        yield f"{action}: measured, {'it runs' if result.failure else 'the same as good'}"
    elif is_recovered is False:
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


def _open_lines(result: ProjectBisection) -> Iterator[tuple[str, str]]:
    """Yield what is not explained or not known yet, each with what the user can do about it."""
    state = result.bisection
    if state.verdict == "slower" and state.ending == "complete" and not state.is_recovered:
        if result.remaining is not None and result.culprits:
            yield f"not explained: without the culprits, bad is {slowdown_text(result.remaining, 'good')}", ""
        if not result.unresolved:
            smaller = "; a smaller `--tolerance` finds smaller ones"
            yield f"no further difference costs {_tolerance(result)} alone", smaller
    if state.ending in _ENDINGS:
        minutes = count(max(1, round(result.minutes_left)), "more minute")
        needed = "" if state.ending == "good-failed" else f": it needs about {minutes}"
        yield _ENDINGS[state.ending], f"{needed}; the same command continues"
    for stack, failure in result.unresolved:
        yield f"`{stack}` does not run: {failure}", ""
    for stack, failure in result.unconfirmed:
        yield f"`{stack}` failed, which is not certain yet: {failure}", ""
    if state.verdict == "slower" and not result.culprits and state.ending != "complete":
        yield f"it is one or more of: {listed([difference.text for difference in result.pair.all], _MOST_LISTED)}", ""


def _effort_lines(result: ProjectBisection) -> Iterator[str]:
    stacks, rounds = count(result.combinations, "stack"), count(result.rounds, "round")
    yield f"{stacks}, {rounds}, {result.minutes:.1f} minutes on {machine_name(result.machine.hardware)}"
    if control := result.bisection.control_ratio():
        noise = "" if control.is_significant() else ": no difference, as it must be"
        yield f"good twice (A/A): {slowdown_text(control)}{noise}"
    if result.disturbance:
        yield f"some runs were repeated: {result.disturbance}"


def _tolerance(result: ProjectBisection) -> str:
    return f"{100 * result.bisection.tolerance:g} %"


def _ratio_record(ratio: Ratio | None) -> dict[str, float] | None:
    return None if ratio is None else {"ratio": ratio.speedup, "low": ratio.low, "high": ratio.high}


def _end_record(end: StackEnd) -> dict[str, Any]:
    return {
        "name": end.name,
        "python": end.python_minor,
        "packages": {str(candidate.name): str(candidate.version) for candidate in end.stack},
        "settings": dict(end.settings),
        "notes": list(end.notes),
    }

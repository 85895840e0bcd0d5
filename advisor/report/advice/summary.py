"""What a report of an advice says first: what changes, why, what to do, and what is not known."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from advisor.api.locked_stack import no_deps_reasons
from advisor.api.session import AdviceResult
from advisor.domain.words import count, operations_text, quoted, size_text, speed_text, workload_text
from advisor.index.configuration import without_credentials
from advisor.locks.registry import format_to_read
from advisor.report.advice.experiment import experiment_lines
from advisor.report.advice.interpreters import interpreters_text
from advisor.report.phrases import change_groups, changes, changes_from_current, target_line, version_change
from advisor.resolve.explanation.advice import ScoreBasis
from advisor.resolve.explanation.findings import CUDA_LIBRARIES, AdviceFinding
from advisor.resolve.explanation.reasons import AVOIDED_SLOWDOWN
from advisor.resolve.explanation.recommended_settings import gain_with_settings
from advisor.resolve.explanation.sizes import StackSizes
from knowledge.domain.hardware import DETECTED
from knowledge.domain.observation import BENCHMARK
from knowledge.estimate.interface import Prediction

_MOST_CHANGES = 5
"""Changes of packages that nobody named, up to which they are listed one by one."""
_MOST_ALIKE = 3
"""Findings with the same code that are listed."""
_ELSEWHERE = ("ADV101", "ADV105", "ADV106", "ADV118")
"""Codes of findings whose facts are in the changes, in what is not known, and in the proof."""
_PROPOSAL = "ADV112"
"""Code of notes that propose another package."""
_CONDITIONS = ("ADV119", "ADV120")
"""Codes of notes about what the target must have for the stack to use its accelerator."""
_PLACE = re.compile(r"\((\S+:\d+)\)$")
"""Place at the end of a sign of a workload."""
_COMMON = ("rules", "idle-builds", "speed", "freshness-direct", "build", "freshness")
"""Criteria of every objective, which are named together, and speed, which is named with what was measured."""


def facts(report: AdviceResult) -> dict[str, tuple[str, ...]]:
    """Return the lines of each labelled section that every format shows, without markup; a section may be empty."""
    is_interrupted = report.advice.optimum.interrupted or (
        report.experiment and report.experiment.ending == "interrupted"
    )
    nothing = f"nothing ({'interrupted' if is_interrupted else '--dry-run'})"
    lines = {
        "target": [target_line(report.target)],
        "python": interpreters_text(report.interpreters) if report.interpreters is not None else [],
        "workload": [workload_line(report)],
        "lock": [lock_line(report)],
        "current": [current_line(report)],
        "speed": speed_lines(report) if report.experiment is None else (),
        "measured": experiment_lines(report),
        "unknown": unknown_lines(report),
        "proof": [proof_line(report)],
        "wrote": [*output_lines(report)] or [nothing],
    }
    return {label: tuple(filter(None, texts)) for label, texts in lines.items()}


def workload_line(report: AdviceResult) -> str:
    """Return which program the predictions are for, and why; empty if nothing depends on it."""
    prediction = report.advice.prediction
    if report.experiment is not None:
        return ""
    if prediction.workload == BENCHMARK:
        return "the project's own benchmark, as `advisor pi run --benchmark` measured it"
    if report.proposal is not None:
        place = _PLACE.search(report.proposal.signs[0])
        source = place[1] if place else report.proposal.signs[0]
        return f"{report.proposal.workload}, guessed from {source} (`--workload` sets it)"
    if len(prediction.kinds) > 1:
        return f"none selected: the worst of {len(prediction.kinds)} kinds counts (`--workload NAME`)"
    if prediction.kinds:
        return f"none selected: {prediction.workload} is the only measured kind (`--workload NAME`)"
    return prediction.workload


def lock_line(report: AdviceResult) -> str:
    """Return the size of the recommended stack, compared with the newest versions."""
    sizes, differ = report.sizes, changes(report)
    text = _size_text(sizes.stack)
    if not report.advice.baseline:
        return text
    stated = stated_text(report)
    if not differ:
        newest = (
            "the newest versions that were built"
            if report.advice.optimum.failed_builds
            else "the newest versions, like pip"
        )
        return f"{text}: {f'the newest versions {stated}' if stated else newest}"
    if sizes.baseline is None:
        return text
    return f"{text} (newest{f' {stated}' if stated else ', as pip'}: {_size_text(sizes.baseline, short=True)})"


def stated_text(report: AdviceResult) -> str:
    """Return whose metadata the project states, so that pip would not choose the newest stack; empty if none."""
    candidates = {*report.advice.optimum.stack, *report.advice.baseline}
    names = sorted({c.name for c in candidates} & {stated.metadata.name for stated in report.request.problem.stated})
    return f"with the metadata that the project states for {quoted(names)}, which pip does not read" if names else ""


def current_line(report: AdviceResult) -> str:
    """Return how the recommended stack differs from the current lock; empty if there is none."""
    if report.advice.current is None:
        return ""
    locked, prediction = report.advice.current
    differing = changes_from_current(report)
    if not differing:
        return f"{count(len(locked), 'package')}: the recommended stack itself"
    kinds = Counter(
        "added" if before == "-" else "removed" if after == "-" else "change" for _, before, after in differing
    )
    direct = [name for name, before, after in differing if name in report.direct and "-" not in (before, after)]
    more = " and others" if kinds["change"] > len(direct[:_MOST_CHANGES]) else ""
    names = f" ({', '.join(direct[:_MOST_CHANGES])}{more})" if direct else ""
    text = f"{count(len(locked), 'package')}: {count(kinds['change'], 'change')}{names}"
    text += "".join(f", {kinds[kind]} {kind}" for kind in ("added", "removed") if kinds[kind])
    if prediction.is_known:
        text += f"; the recommended stack: {speed_text(prediction, 'the current lock')}{operations_text(prediction)}"
    return text


def speed_lines(report: AdviceResult) -> Iterator[str]:
    """Yield the predicted speed of the stack over the newest versions, alone and with its settings."""
    prediction = report.advice.prediction
    if not prediction.is_known or prediction.is_same:
        return
    yield f"{speed_text(prediction, 'the newest versions')}{operations_text(prediction)}"
    if total := gain_with_settings(prediction, report.settings_gain):
        yield f"with the settings below: {speed_text(total)}"
    if any(AVOIDED_SLOWDOWN in reason for reason in report.advice.reasons.values()):
        yield "by measurements: documented slow-downs of the newest versions are not in this number"


def replaceable_line(report: AdviceResult) -> str:
    """Return which packages others could replace under a condition; empty if there are none."""
    names = [f.package for f in report.advice.findings if f.code == _PROPOSAL and not _is_listed(f)]
    listed = ", ".join(dict.fromkeys(names))
    return f"other packages could take the place of {listed} (`--details`)" if names else ""


def _is_listed(finding: AdviceFinding) -> bool:
    """Whether a person acts on a finding: a warning, or a note about a condition or a free replacement."""
    is_free = finding.code == _PROPOSAL and "`--allow replace-packages`" in finding.message
    return finding.severity != "note" or finding.code in _CONDITIONS or is_free


def listed_changes(report: AdviceResult) -> tuple[tuple[tuple[str, str, str], ...], tuple[str, ...]]:
    """Return name, versions and reason of each change that matters, and a line for each group of the others."""
    predicted = {change.package for change in report.advice.prediction.changes}
    differing = changes(report)
    own = [c for c in differing if c[0] in report.direct or c[0] in predicted]
    others = [c for c in differing if c not in own]
    rest = [c for c in others if not c[0].startswith(CUDA_LIBRARIES)]
    if len(rest) <= _MOST_CHANGES:
        own = sorted((*own, *rest), key=lambda c: (c[0] not in report.direct, c[0]))
        others = [c for c in others if c not in rest]
    reasons = report.advice.reasons
    listed = tuple((n, version_change(old, new), reasons.get(n, "no longer required")) for n, old, new in own)
    return listed, change_groups(others)


def listed_findings(report: AdviceResult) -> tuple[tuple[AdviceFinding, ...], int]:
    """Return the findings that a person acts on, and the number of the others.

    Of many findings with the same code, the first ones are listed. What the newest versions lack is listed only if
    no change gives it as its reason.
    """
    explained = any("does not run on the target" in why for _, _, why in listed_changes(report)[0])
    hidden = _ELSEWHERE if explained else tuple(code for code in _ELSEWHERE if code != "ADV101")
    listed: list[AdviceFinding] = []
    alike: Counter[str] = Counter()
    for finding in report.advice.findings:
        if finding.code in hidden or not _is_listed(finding):
            continue
        alike[finding.code] += 1
        if alike[finding.code] <= _MOST_ALIKE:
            listed.append(finding)
    return tuple(listed), len(report.advice.findings) - len(listed)


def unknown_lines(report: AdviceResult) -> Iterator[str]:
    """Yield what the advice does not know about its own stack."""
    if report.experiment is not None:
        yield from report.experiment.certificate.open_lines()
        return
    basis, prediction = report.advice.basis, report.advice.prediction
    if "speed" not in basis.criteria:
        yield f"the speed of every package: objective `{basis.objective}` ignores it"
        return
    versions = report.advice.optimum.stack.versions
    if any(effect.gains_from for effect in report.setting_effects):
        yield (
            "how large a step of the program is, on which the gain of settings depends: `--workload timm/NAME` states "
            "the model, `advisor workload profile` finds the size, `advisor pi run --benchmark` measures the program"
        )
    for name, newest in prediction.newest_measured:
        yield f"the speed of {name} {versions[name]} on such hardware (newest compared: {newest})"
    for name in basis.unmeasured:
        yield f"the speed of {name} on such hardware: no usable measurement of it"
    if basis.without_measurements:
        others = "other " if basis.measured or basis.unmeasured else ""
        yield f"the speed of {count(len(basis.without_measurements), f'{others}package')} that nobody measured"


def unknown_questions(report: AdviceResult) -> Iterator[str]:
    """Yield everything that is not known: about the stack, whether it is optimal, and whether it is faster."""
    yield from unknown_lines(report)
    if report.experiment is not None:
        return
    optimum, prediction = report.advice.optimum, report.advice.prediction
    if not optimum.proven:
        state = ", ".join(filter(None, (optimum.stopped, *optimum.doubts)))
        yield f"whether another stack has a better score: {state}"
    if prediction.is_known and not prediction.is_same and not prediction.is_significant:
        yield f"whether the stack is faster than the newest versions: {speed_text(prediction)}"


def remedies(report: AdviceResult, program: str) -> Iterator[str]:
    """Yield what it would take to find out what is not known.

    Args:
        report: The advice.
        program: What `advisor advise --measure` would run, in words; empty if there is nothing to run.
    """
    if report.experiment is not None:
        return
    if report.advice.optimum.stopped:
        yield "More time for the search, `--time-limit SECONDS`, may prove which stack is optimal."
    if "speed" not in report.advice.basis.criteria:
        yield "Another objective, such as `--objective speed`, predicts the speed."
        return
    place = "this machine" if report.target.hardware.name == DETECTED else "the target"
    prediction = report.advice.prediction
    is_selected = report.proposal is None and prediction.workload != BENCHMARK and not prediction.kinds
    option = f" --workload {prediction.workload}" if is_selected and prediction.workload else ""
    first = "" if program else "`advisor benchmark init` proposes a benchmark of the project; then "
    yield (
        f"To find out: {first}`advisor advise{option} --measure TIME` on {place}, until the choice is certain or the "
        f"time is over. It runs {program or 'the benchmark'}. How long it takes is known after its first runs."
    )


def proof_line(report: AdviceResult) -> str:
    """Return what is proven about the stack."""
    optimum = report.advice.optimum
    if report.experiment is not None:
        arms = report.experiment.certificate.arms
        return f"chosen by measurement among {count(arms, 'arm')}; verified by resolvelib"
    doubts = ", ".join(optimum.doubts)
    state = f"not proven to be optimal for the score ({doubts})" if doubts else "optimal for the score"
    if optimum.stopped:
        state = f"{optimum.stopped}, the best stack so far: {state}"
    return f"{state} over {optimum.candidates} versions; verified by resolvelib"


def score_lines(basis: ScoreBasis, prediction: Prediction) -> list[str]:
    """Return one or two lines about what a score is based on, and which packages have an unknown speed."""
    others = [name for name in basis.criteria if name not in _COMMON]
    criteria = ", ".join([*others, "rules, builds and freshness"])
    if "speed" not in basis.criteria:
        return [f"{criteria} of all packages; objective `{basis.objective}` ignores speed"]
    measured = f"{quoted(basis.measured)} measured on comparable hardware" if basis.measured else "nothing measured"
    speed = f"speed from a gain of {100 * basis.min_gain:.3g} %"
    lines = [f"{criteria} of all packages; {speed}, {workload_text(prediction)}: {measured}"]
    parts = []
    if basis.unmeasured:
        parts.append(f"{quoted(basis.unmeasured)} (no usable measurement on comparable hardware)")
    if basis.not_in_workload:
        parts.append(f"{quoted(basis.not_in_workload)} (not part of the workload)")
    if basis.without_measurements:
        number = len(basis.without_measurements)
        parts.append(count(number, "other package") if parts or basis.measured else count(number, "package"))
    if parts:
        last = parts.pop()
        lines.append(f"unknown speed: {', '.join(parts)}{' and ' if parts else ''}{last}")
    return lines


def _size_text(stack: StackSizes, *, short: bool = False) -> str:
    unknown = stack.unknown("download")
    size = size_text(stack.total("download"))
    if unknown:
        size = "unknown size" if unknown == len(stack.packages) else f"{size} and {unknown} of unknown size"
    return f"{count(len(stack.packages), 'package')}, {size}{'' if short else ' to download'}"


def alike_lines(findings: Iterable[AdviceFinding], listed: Sequence[AdviceFinding]) -> Iterator[str]:
    """Yield how many further findings each listed code has."""
    shown, total = Counter(f.code for f in listed), Counter(f.code for f in findings)
    for code, number in shown.items():
        if total[code] > number:
            yield f"{total[code] - number} more [{code}]: `--details` lists them"


def output_lines(report: AdviceResult) -> Iterator[str]:
    """Yield the path of each written lock, with the command that installs it if the usual one does not."""
    request, stack = report.request, report.advice.optimum.stack
    reasons = no_deps_reasons(request.problem, request.source, stack) if report.outputs else ()
    for path in report.outputs:
        yield f"`{path}`"
        if reasons and (commands := format_to_read(Path(path)).install_commands(path)):
            yield f"install it with {' or '.join(f'`{command}`' for command in commands)}: {'; '.join(reasons)}"


def uv_sources(report: AdviceResult) -> str:
    """Return the tables for uv; empty if the stack has no further builds."""
    indexes: dict[str, str] = {}
    sources: dict[str, str] = {}
    for candidate in report.advice.optimum.stack:
        if report.request.source.is_further_build(candidate):
            name = report.request.score.builds.index_name(candidate)
            indexes[name] = without_credentials(candidate.file.index)
            sources[candidate.name] = name
    if not sources:
        return ""
    # With `explicit`, uv takes nothing else from these indexes. Strings of JSON are strings of TOML.
    lines: list[str] = []
    for name, url in sorted(indexes.items()):
        lines += ["[[tool.uv.index]]", f"name = {json.dumps(name)}", f"url = {json.dumps(url)}", "explicit = true", ""]
    lines += ["[tool.uv.sources]", *(f"{name} = {{ index = {json.dumps(index)} }}" for name, index in sources.items())]
    return "\n".join(lines) + "\n"

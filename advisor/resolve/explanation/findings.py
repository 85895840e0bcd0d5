"""Findings about a recommendation, each with a stable code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.domain.words import count, quoted, size_text, unknown_driver_text, unmeasured_text
from advisor.index.configuration import without_credentials
from advisor.resolve.candidates.index import IndexCandidates, SkippedCandidates
from advisor.resolve.candidates.problem import Candidate, CandidateStack, Substitution, admits
from advisor.resolve.explanation.stack_requirements import replaced_packages, requirements_of_stack
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.result import Optimum
from advisor.resolve.score.criteria import CRITERIA, StackScore
from advisor.resolve.score.slowdowns import slowdown_texts
from knowledge.catalogue.builds import Build
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import Verdict
from knowledge.domain.errors import UnavailableError
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.estimate.interface import Prediction

CUDA_LIBRARIES = ("nvidia-", "cuda-")
"""First parts of the names of packages with NVIDIA's libraries."""
_MOST_NAMES = 3
"""Number of packages up to which they are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceFinding:
    """A ``warning`` or a ``note`` about the recommendation: one sentence, with a stable code such as ``ADV101``."""

    code: str
    severity: str
    message: str
    package: str = ""
    source: str = ""


def warning(code: str, message: str, *, package: str = "", source: str = "") -> AdviceFinding:
    """Return a warning."""
    return AdviceFinding(code=code, severity="warning", message=message, package=package, source=source)


def note(code: str, message: str, *, package: str = "", source: str = "") -> AdviceFinding:
    """Return a note."""
    return AdviceFinding(code=code, severity="note", message=message, package=package, source=source)


def violated_rules(versions: Mapping[str, Version], rules: RuleBook) -> list[Verdict]:
    """Return the verdicts of the rules that say why a stack does not run on the target."""
    alone = [verdict for name, version in versions.items() for verdict in rules.judge(name, version)]
    verdicts = [*alone, *(verdict for _, verdict in rules.judge_together(versions))]
    return [verdict for verdict in verdicts if verdict.severity == "forbidden"]


def run_obstacle(label: str, versions: Mapping[str, Version], score: StackScore) -> str:
    """Return why a stack does not run on the target, by the rules or by observed failures; empty if it does."""
    reasons = [verdict.message for verdict in violated_rules(versions, score.rules)]
    for name in sorted(FRAMEWORKS.keys() & versions.keys()):
        if reason := score.estimator.failures(name).get(str(versions[name])):
            reasons.append(f"`{name} {versions[name]}` failed to run on comparable hardware: {reason}")
    return f"{label} does not run on the target: {reasons[0]}" if reasons else ""


def collect_findings(
    request: ResolutionRequest, optimum: Optimum, prediction: Prediction, *, current: Mapping[str, Version]
) -> list[AdviceFinding]:
    """Return the findings about the best stack of a request, and about the current lock, which may be empty."""
    source, rules, stack = request.source, request.score.rules, optimum.stack
    return [
        *(
            warning("ADV101", f"the newest versions do not run on the target: {v.message}", source=v.source)
            for v in violated_rules(request.baseline.versions, rules)
        ),
        *(finding for candidate in stack for finding in _of_candidate(request, candidate)),
        *(
            warning("ADV104", f"`{package}` does not provide the extra `{extra}`", package=package)
            for package, extra in sorted(source.unknown_extras)
            if package in stack.versions and _is_required(request, package, extra)
        ),
        *_of_prediction(prediction, stack.versions),
        *_of_proof(optimum),
        *(
            # Nobody said which driver the target has.
            note("ADV119", unknown_driver_text(runtime), source=runtime.source)
            for runtime in filter(None, [rules.runtime_without_driver(stack.versions)])
        ),
        *build_findings(request, stack),
        *_slowdown_findings(request, stack, current),
        *_missing_records(optimum, source),
        *(_skip_finding(s) for s in source.skipped() if "metadata" in s.reason or "upload time" in s.reason),
    ]


def _of_candidate(request: ResolutionRequest, candidate: Candidate) -> Iterator[AdviceFinding]:
    """Yield what rules say about a package of the stack, which variant it is, and whether it has to be built."""
    name, variants = candidate.name, request.source.variants
    for v in request.score.rules.judge(name, candidate.version):
        if v.severity != "note":
            yield warning("ADV102", v.message, package=name, source=v.source)
        else:
            yield note("ADV120" if v.about == "vendor" else "ADV102", v.message, package=name, source=v.source)
    if variants and (message := variants.explain(candidate)):
        yield note("ADV113", message, package=name)
    if candidate.is_sdist:
        message = f"`{name} {candidate.version}` has no wheel for the target: installing it builds it"
        yield warning("ADV103", message, package=name)


def _of_prediction(prediction: Prediction, versions: Mapping[str, Version]) -> Iterator[AdviceFinding]:
    """Yield the packages whose speed is not predicted, or not for their version."""
    for package in prediction.unmeasured:
        yield note("ADV105", f"{unmeasured_text([package])}: its speed is not predicted", package=package)
    for package, newest in prediction.newest_measured:
        message = (
            f"`{package} {versions[package]}` is newer than the newest version that was compared on such hardware, "
            f"`{newest}`: what it changed is not known"
        )
        yield note("ADV118", message, package=package)


def _of_proof(optimum: Optimum) -> Iterator[AdviceFinding]:
    """Yield what is not proven about the best stack."""
    if not optimum.proven:
        yield warning("ADV106", f"not proven to be optimal for the score: {', '.join(optimum.doubts)}")
    elif not optimum.unique:
        message = "optimal for the score, but another stack with the same score may come first by name and version"
        yield warning("ADV106", message)


def sorted_findings(findings: Iterable[AdviceFinding]) -> tuple[AdviceFinding, ...]:
    """Return findings in the order of reports: by code, package and message."""
    return tuple(sorted(findings, key=lambda f: (f.code, f.package, f.message)))


def _is_required(request: ResolutionRequest, package: str, extra: str) -> bool:
    """Whether an extra is required, and was not only considered for the target's accelerator."""
    name = canonicalize_name(package)
    roots = request.problem.roots_of(name)
    considered = {canonicalize_name(other) for other in request.score.builds.extra_names(name)}
    required = {canonicalize_name(other) for root in roots for other in root.requirement.extras}
    return extra not in considered or extra in required or not roots


def _slowdown_findings(
    request: ResolutionRequest, stack: CandidateStack, current: Mapping[str, Version]
) -> Iterator[AdviceFinding]:
    """Yield the documented slow-downs of a stack, and the ones of the baseline and the current lock that it avoids."""
    score = request.score
    scored = score.slowdowns if "speed" in CRITERIA[score.objective] else None
    remaining = set()
    for rule, name, text in slowdown_texts(stack.versions, score.rules, scored=scored):
        remaining.add(rule.id)
        yield warning("ADV116", text, package=name, source=rule.source)
    for label, before in (
        ("the newest versions, not the recommended ones, have", request.baseline.versions),
        ("the current lock, not the recommended one, has", current),
    ):
        for rule, name, text in slowdown_texts(before, score.rules):
            if rule.id not in remaining:
                message = f"{label} a documented slow-down: {text}"
                yield note("ADV117", message, package=name, source=rule.source)


def _skip_finding(skipped: SkippedCandidates) -> AdviceFinding:
    message = (
        f"{count(skipped.count, 'file')} of `{skipped.package}` cannot be used: {skipped.reason} (`{skipped.example}`)"
    )
    return note("ADV107", message, package=skipped.package)


def _missing_records(optimum: Optimum, source: IndexCandidates) -> list[AdviceFinding]:
    """Return findings about criteria of the objective for which the index has no data."""
    criteria = {bound.objective for bound in optimum.bounds}
    record_checks: dict[str, tuple[str, Callable[[Candidate], bool]]] = {
        "vulnerabilities": ("no vulnerability record", lambda c: source.vulnerabilities(c) is None),
        "young": ("no upload time", lambda c: c.file.uploaded is None),
    }
    findings = []
    for criterion, (missing, is_missing) in record_checks.items():
        number = sum(map(is_missing, optimum.stack)) if criterion in criteria else 0
        if number:
            message = f"there is {missing} for {number} of {len(optimum.stack)} packages: `{criterion}` ignores them"
            findings.append(warning("ADV108", message))
    return findings


def build_findings(request: ResolutionRequest, stack: Sequence[Candidate]) -> Iterator[AdviceFinding]:
    """Yield the findings about the builds of a stack."""
    for candidate in stack:
        yield from _of_build(request, candidate)
        yield from _proposals(request, stack, candidate)
    yield from _of_idle_builds(request, stack)
    names = {candidate.name for candidate in stack}
    replaced = {package.name for package in replaced_packages(request.problem, request.source, stack)}
    for substitution in request.problem.substitutions.values():
        code, reason, affected = "ADV112", "suits the target", replaced
        if substitution.replacement == substitution.package:
            code, reason, affected = "ADV109", "uses the target's accelerator", names
        if substitution.package in affected:
            message = f"`{substitution}` is locked where `{substitution.package}` is required, and {reason}"
            yield note(code, message, package=substitution.replacement, source=substitution.source)
    yield from _idle_extras(request)
    if failed := sorted(request.source.failed_builds.items()):
        indexes = quoted([without_credentials(base) for base, _ in failed])
        message = f"no build on {indexes} was considered: {failed[0][1].message}"
        yield warning("ADV111", message)


def untried_replacements_finding(packages: Sequence[str], *, compared: int, untried: int) -> AdviceFinding:
    """Return the finding that replacements of some packages were not tried, because there are too many combinations."""
    message = (
        f"{untried} of {count(compared + untried, 'combination')} of replacements were not tried: {quoted(packages)} "
        f"{'is' if len(packages) == 1 else 'are'} left as required; name fewer packages in `replace-packages`, or "
        "require the replacement in the project"
    )
    return warning("ADV115", message)


def _of_idle_builds(request: ResolutionRequest, stack: Sequence[Candidate]) -> Iterator[AdviceFinding]:
    """Yield the packages that are builds for an accelerator which the target lacks, together if they are alike."""
    alike: dict[tuple[str, str], list[tuple[Candidate, Build]]] = {}
    for candidate in stack:
        build = request.score.builds.build_of(candidate.name, candidate.version)
        if build is not None and request.score.builds.is_idle(candidate):
            hint = "" if request.source.has_further_builds else request.score.builds.publisher_hint(candidate.name)
            alike.setdefault((build.runtime, hint), []).append((candidate, build))
    libraries = sum(candidate.name.startswith(CUDA_LIBRARIES) for candidate in stack)
    for (runtime, hint), packages in alike.items():
        names = quoted([f"{c.name} {c.version}" for c, _ in packages])
        # The version of the runtime is not known of each build.
        builds = {build for _, build in packages if build.version} or {packages[0][1]}
        is_one = len(packages) == 1
        text = f"{names} {'is a build' if is_one else 'are builds'} for {' and '.join(sorted(map(str, builds)))}"
        text += f", {request.score.builds.why(packages[0][1])}"
        if runtime == "cuda" and libraries:
            text += f"; {'it requires' if is_one else 'they require'} {count(libraries, 'package')} for CUDA"
        yield warning("ADV110", f"{text}{hint}", package=packages[0][0].name)


def _of_build(request: ResolutionRequest, candidate: Candidate) -> Iterator[AdviceFinding]:
    """Yield which build a package is, if there are several, or that it has none for the target's accelerator."""
    builds, source = request.score.builds, request.source
    build = builds.build_of(candidate.name, candidate.version)
    if build is None:
        yield from _without_extras(request, candidate)
        return
    text = f"`{candidate.name} {candidate.version}` is a build for {build}, {builds.why(build)}"
    offered = source.candidates(candidate.name)
    further = "" if source.has_further_builds else builds.publisher_hint(candidate.name)
    if builds.is_idle(candidate):
        return
    newer = any(c.version > candidate.version and c.release != candidate.release and builds.is_idle(c) for c in offered)
    if newer or len(builds.alternatives(candidate, offered)) > 1:
        skipped = f"; newer releases have only builds for other hardware there{further}" if newer else ""
        message = f"{text}; from `{without_credentials(candidate.file.index)}`{skipped}"
        yield note("ADV109", message, package=candidate.name)


def _without_extras(request: ResolutionRequest, candidate: Candidate) -> Iterator[AdviceFinding]:
    """Yield that a package of the project has none of the extras that make it use the target's accelerator."""
    roots = request.problem.roots_of(candidate.name)
    extras = request.score.builds.extras_of(candidate.name)
    if not extras or all(root.constraint for root in roots) or any(root.requirement.extras for root in roots):
        return
    names = quoted([f"{candidate.name}[{','.join(extra.extras)}]" for extra in extras])
    message = f"`{candidate.name} {candidate.version}` leaves the target's accelerator idle: no stack has {names}"
    yield warning("ADV110", message, package=candidate.name)


def _idle_extras(request: ResolutionRequest) -> Iterator[AdviceFinding]:
    """Yield the extras that the project requires for an accelerator which the target does not have."""
    for root in request.problem.required:
        for extra in request.score.builds.idle_extras(root.name, root.requirement.extras):
            message = (
                f"the project requires `{extra.package}[{','.join(extra.extras)}]`, which is for {extra.build}, "
                f"{request.score.builds.why(extra.build)}"
            )
            yield warning("ADV110", message, package=root.name, source=extra.source)


def _proposals(request: ResolutionRequest, stack: Sequence[Candidate], candidate: Candidate) -> Iterator[AdviceFinding]:
    """Yield the packages that could replace one on the target, each with its effect."""
    if candidate.name in request.problem.substitutions or candidate.direct is not None:
        return
    for entry in request.score.builds.replacements_of(candidate.name):
        condition = f" if {entry.condition}" if entry.condition else ""
        allow = "`--allow replace-packages`"
        if entry.condition or entry.when == "any":
            allow = f'`replace-packages = {{ {entry.package} = "{entry.replacement}" }}` in `[tool.advisor]`'
        message = (
            f"`{entry.replacement}` provides the same modules as `{entry.package}` for the target{condition}"
            f"{_effect(request, stack, candidate, canonicalize_name(entry.replacement))}; {allow} allows it"
        )
        yield note("ADV112", message, package=candidate.name, source=entry.source)


def prefetch_proposals(request: ResolutionRequest) -> None:
    """Start to read what could replace packages of the baseline, without waiting."""
    names = (candidate.name for candidate in request.baseline if candidate.name not in request.problem.substitutions)
    proposals = [entry for name in names for entry in request.score.builds.replacements_of(name)]
    request.source.prefetch(dict.fromkeys(canonicalize_name(entry.replacement) for entry in proposals))


def _effect(
    request: ResolutionRequest, stack: Sequence[Candidate], candidate: Candidate, replacement: NormalizedName
) -> str:
    """Return how the download changes with a replacement of the same version; empty if it is not known."""
    try:
        offered = request.source.candidates(replacement)
        same = next((c for c in offered if c.release == candidate.release), None)
        if same is None:
            return f" (it has no version {candidate.release})"
        unneeded, added = _other_packages(request, stack, candidate, same)
        before = [request.source.size(c) for c in (candidate, *unneeded)]
        after = [request.source.size(c) for c in (same, *added)]
    except UnavailableError:
        return ""
    if None in (*before, *after):
        return ""
    totals = [sum(size or 0 for size in sizes) for sizes in (after, before)]
    text = f" ({size_text(totals[0])} instead of {size_text(totals[1])} to download"
    if unneeded:
        names = _listed([c.name for c in unneeded])
        text += f": {names} {'is' if len(unneeded) == 1 else 'are'} not needed either"
    if added:
        text += f"; with {_listed([c.name for c in added])}, which it also requires"
    return f"{text})"


def _other_packages(
    request: ResolutionRequest, stack: Sequence[Candidate], candidate: Candidate, same: Candidate
) -> tuple[list[Candidate], list[Candidate]]:
    """Return what a stack does not need with a replacement, and the newest versions of what it needs in addition."""
    substitution = Substitution(package=candidate.name, replacement=same.name)
    other = request.with_problem(request.problem.with_substitutions([substitution]))
    replaced = {c.name: c for c in stack if c.name != candidate.name} | {same.name: same}
    added: dict[NormalizedName, Candidate] = {}
    newest: list[Candidate] = [same]
    while newest:
        other.source.fetch(newest)
        dependencies = list(requirements_of_stack(other.problem, other.source, [*replaced.values(), *added.values()]))
        missing = {d.name: d.requirement for _, d in dependencies if d.name not in {*replaced, *added}}
        newest = [
            admitted[0]
            for name, requirement in sorted(missing.items())
            if (admitted := [c for c in other.source.candidates(name) if admits(requirement, c.version)])
        ]
        added |= {c.name: c for c in newest}
    needed = {d.name for _, d in dependencies}
    return [c for name, c in sorted(replaced.items()) if name not in needed], list(added.values())


def _listed(names: Sequence[str]) -> str:
    """Return names, or the number of packages if there are many."""
    return quoted(names) if len(names) <= _MOST_NAMES else count(len(names), "package")

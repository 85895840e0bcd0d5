"""Findings about the builds of a recommended stack, and about packages that could replace others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.utils import NormalizedName, canonicalize_name

from advisor.domain.words import count, quoted, size_text
from advisor.index.configuration import without_credentials
from advisor.resolve.finding_types import AdviceFinding
from advisor.resolve.problem import Candidate, Substitution, admits
from advisor.resolve.stack_requirements import replaced_packages, requirements_of_stack
from knowledge.domain.errors import UnavailableError

if TYPE_CHECKING:
    from advisor.resolve.request import ResolutionRequest
    from knowledge.catalogue.builds import Build

CUDA_LIBRARIES = ("nvidia-", "cuda-")
"""First parts of the names of packages with NVIDIA's libraries."""

_MOST_NAMES = 3
"""Number of packages up to which they are named."""


def build_findings(request: ResolutionRequest, stack: Sequence[Candidate]) -> Iterator[AdviceFinding]:
    """Yield the findings about the builds of a stack.

    Args:
        request: The request that it is for.
        stack: The stack.
    """
    for candidate in stack:
        yield from _of_build(request, candidate)
        yield from _proposals(request, stack, candidate)
    yield from _of_idle_builds(request, stack)
    names = {candidate.name for candidate in stack}
    replaced = {package.name for package in replaced_packages(request.problem, request.source, stack)}
    for substitution in request.problem.substitutions.values():
        adds_extras = substitution.replacement == substitution.package
        if substitution.package not in (names if adds_extras else replaced):
            continue
        if adds_extras:
            code, reason = "ADV109", "and uses the target's accelerator"
        else:
            code, reason = "ADV112", "and suits the target"
        message = f"`{substitution}` is locked where `{substitution.package}` is required, {reason}"
        yield AdviceFinding(
            code=code, severity="note", message=message, package=substitution.replacement, source=substitution.source
        )
    yield from _idle_extras(request)
    if failed := sorted(request.source.failed_builds.items()):
        indexes = quoted([without_credentials(base) for base, _ in failed])
        message = f"no build on {indexes} was considered: {failed[0][1].message}"
        yield AdviceFinding(code="ADV111", severity="warning", message=message)


def untried_replacements_finding(packages: Sequence[str], *, compared: int, untried: int) -> AdviceFinding:
    """Return the finding that there were too many combinations of replacements to compare all of them.

    Args:
        packages: Packages whose replacements were not tried.
        compared: Number of combinations that were compared.
        untried: Number of combinations that were not.
    """
    message = (
        f"{untried} of {count(compared + untried, 'combination')} of replacements were not tried: {quoted(packages)} "
        f"{'is' if len(packages) == 1 else 'are'} left as required; name fewer packages in `replace-packages`, or "
        "require the replacement in the project"
    )
    return AdviceFinding(code="ADV115", severity="warning", message=message)


def _of_idle_builds(request: ResolutionRequest, stack: Sequence[Candidate]) -> Iterator[AdviceFinding]:
    """Yield the packages that are builds for an accelerator which the target lacks, together if they are alike."""
    alike: dict[tuple[str, str], list[tuple[Candidate, Build]]] = {}
    for candidate in stack:
        build = request.builds.build_of(candidate.name, candidate.version)
        if build is not None and request.builds.is_idle(candidate):
            hint = "" if request.source.has_further_builds else request.builds.publisher_hint(candidate.name)
            alike.setdefault((build.runtime, hint), []).append((candidate, build))
    libraries = sum(candidate.name.startswith(CUDA_LIBRARIES) for candidate in stack)
    for (runtime, hint), packages in alike.items():
        names = quoted([f"{c.name} {c.version}" for c, _ in packages])
        # The version of the runtime is not known of each build.
        builds = {build for _, build in packages if build.version} or {packages[0][1]}
        is_one = len(packages) == 1
        text = f"{names} {'is a build' if is_one else 'are builds'} for {' and '.join(sorted(map(str, builds)))}"
        text += f", {request.builds.why(packages[0][1])}"
        if runtime == "cuda" and libraries:
            text += f"; {'it requires' if is_one else 'they require'} {count(libraries, 'package')} for CUDA"
        yield AdviceFinding(code="ADV110", severity="warning", message=f"{text}{hint}", package=packages[0][0].name)


def _of_build(request: ResolutionRequest, candidate: Candidate) -> Iterator[AdviceFinding]:
    """Yield which build a package is, if there are several, or that it has none for the target's accelerator."""
    builds, source = request.builds, request.source
    build = builds.build_of(candidate.name, candidate.version)
    if build is None:
        yield from _without_extras(request, candidate)
        return
    text = f"`{candidate.name} {candidate.version}` is a build for {build}, {builds.why(build)}"
    offered = source.candidates(candidate.name)
    further = "" if source.has_further_builds else builds.publisher_hint(candidate.name)
    if builds.is_idle(candidate):
        return
    newer = any(c.version > candidate.version and builds.is_idle(c) for c in _other_releases(candidate, offered))
    if newer or len(builds.alternatives(candidate, offered)) > 1:
        skipped = f"; newer releases have only builds for other hardware there{further}" if newer else ""
        message = f"{text}; from `{without_credentials(candidate.file.index)}`{skipped}"
        yield AdviceFinding(code="ADV109", severity="note", message=message, package=candidate.name)


def _other_releases(candidate: Candidate, offered: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yield the candidates that are no builds of the release of a candidate."""
    return (other for other in offered if other.version.public != candidate.version.public)


def _without_extras(request: ResolutionRequest, candidate: Candidate) -> Iterator[AdviceFinding]:
    """Yield that a package of the project has none of the extras that make it use the target's accelerator."""
    roots = request.problem.roots_of(candidate.name)
    extras = request.builds.extras_of(candidate.name)
    if not extras or all(root.constraint for root in roots) or any(root.requirement.extras for root in roots):
        return
    names = quoted([f"{candidate.name}[{','.join(extra.extras)}]" for extra in extras])
    message = f"`{candidate.name} {candidate.version}` leaves the target's accelerator idle: no stack has {names}"
    yield AdviceFinding(code="ADV110", severity="warning", message=message, package=candidate.name)


def _idle_extras(request: ResolutionRequest) -> Iterator[AdviceFinding]:
    """Yield the extras that the project requires for an accelerator which the target does not have."""
    for root in request.problem.roots:
        if root.constraint or not request.problem.applies(root.requirement):
            continue
        for extra in request.builds.idle_extras(root.name, root.requirement.extras):
            message = (
                f"the project requires `{extra.package}[{','.join(extra.extras)}]`, which is for {extra.build}, "
                f"{request.builds.why(extra.build)}"
            )
            yield AdviceFinding(
                code="ADV110", severity="warning", message=message, package=root.name, source=extra.source
            )


def _proposals(request: ResolutionRequest, stack: Sequence[Candidate], candidate: Candidate) -> Iterator[AdviceFinding]:
    """Yield the packages that could replace one on the target, each with its effect."""
    if candidate.name in request.problem.substitutions or candidate.direct is not None:
        return
    for entry in request.builds.replacements_of(candidate.name):
        condition = f" if {entry.condition}" if entry.condition else ""
        allow = "`--allow replace-packages`"
        if entry.condition or entry.when == "any":
            allow = f'`replace-packages = {{ {entry.package} = "{entry.replacement}" }}` in `[tool.advisor]`'
        message = (
            f"`{entry.replacement}` provides the same modules as `{entry.package}` for the target{condition}"
            f"{_effect(request, stack, candidate, canonicalize_name(entry.replacement))}; {allow} allows it"
        )
        yield AdviceFinding(
            code="ADV112", severity="note", message=message, package=candidate.name, source=entry.source
        )


def prefetch_proposals(request: ResolutionRequest) -> None:
    """Start to read what could replace packages of the baseline, without waiting."""
    names = (candidate.name for candidate in request.baseline if candidate.name not in request.problem.substitutions)
    proposals = [entry for name in names for entry in request.builds.replacements_of(name)]
    request.source.prefetch(dict.fromkeys(canonicalize_name(entry.replacement) for entry in proposals))


def _effect(
    request: ResolutionRequest, stack: Sequence[Candidate], candidate: Candidate, replacement: NormalizedName
) -> str:
    """Return how the download changes with a replacement of the same version; empty if it is not known."""
    try:
        offered = request.source.candidates(replacement)
        same = next((c for c in offered if c.version.public == candidate.version.public), None)
        if same is None:
            return f" (it has no version {candidate.version.public})"
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

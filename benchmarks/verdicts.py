"""Judge the last releases of five packages for five projects by shipped data alone, as Markdown tables.

    python -m benchmarks.verdicts [--releases 10] [--only PROJECT,...] [--targets cpu-zen4,h100] [--cache-dir FOLDER]
                                  [--save FILE]

A step goes from the release before a release to the release. Its base is a lock with the newest stack that has the
older release; the change is the smallest one that has the newer release (`advisor verdict PACKAGE==VERSION`). The
interpreter is Python 3.12, the knowledge base is a new one. On the GPU, the projects take the builds for GPUs.

Three projects are in `examples/`; their sources are not read for the workload, which is stated here. The GPU is that of
the shipped profile with a driver for CUDA 13. Yanked releases and pre-releases are left out.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from advisor import api
from advisor.api.options import IndexOptions, ProjectFiles, ProjectOptions, ResolutionOptions, TargetOptions
from advisor.domain.words import count, interval_text, ratio_text
from advisor.gate.check import GateResult, TargetResult
from advisor.report.tables import table_lines
from knowledge.catalogue.entries import admits
from knowledge.catalogue.rules import shipped_rules
from knowledge.catalogue.slower import SlowerRule
from knowledge.domain.errors import AdvisorError
from knowledge.hardware.profiles import find_profile

EXAMPLES = Path(__file__).parent.parent / "examples"
INDEX = "https://pypi.org/simple"
"""The only index, so that builds in further indexes and directories of this machine do not count."""
PYTHON = "3.12"
DRIVER = "580.65.06"
"""Driver of the GPU: the oldest one of CUDA 13."""
PACKAGES = ("torch", "tensorflow", "jax", "onnxruntime", "numpy")
BUILDS = {
    "h100": {"tensorflow-cpu": "tensorflow[and-cuda]", "onnxruntime": "onnxruntime-gpu", "jax": "jax[cuda12]"},
}
"""What a project requires on a target in place of a package."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project whose dependencies are upgraded, with its workload."""

    name: str
    dependencies: tuple[str, ...]
    workload: str

    @classmethod
    def example(cls, name: str, workload: str) -> Project:
        """Return a project of the folder of examples."""
        document = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text())
        return cls(name=name, dependencies=tuple(document["project"]["dependencies"]), workload=workload)

    def requirements(self, target: str) -> tuple[str, ...]:
        """Return what the project requires on a target."""
        return tuple(BUILDS.get(target, {}).get(name, name) for name in self.dependencies)


PROJECTS = (
    Project.example("cnn-pytorch", "cnn-training"),
    Project.example("keras-text", "transformer-training"),
    Project.example("onnx-service", "cnn-inference"),
    Project.example("benchmark", "numeric"),
    Project(name="jax-language-model", dependencies=("jax", "numpy"), workload="transformer-training"),
)


@dataclass(frozen=True, kw_only=True)
class Documented:
    """A documented slow-down that a step begins or ends.

    Attributes:
        rule: Identifier of the rule.
        begins: Whether the newer release has it, and the older one does not.
        reported: Whether the verdict names it.
        reason: Why the verdict does not name it.
    """

    rule: str
    begins: bool
    reported: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The verdict on one step of one project on one target.

    Attributes:
        package: One of :data:`PACKAGES`.
        distribution: What the project requires of it on the target, without extras.
        before: The older release.
        after: The newer release.
        project: Name of the project.
        target: Name of the target.
        outcome: Outcome of the verdict; ``no stack`` if one of the releases has none on the target.
        text: The speed with its interval, or the reason.
        comparisons: Number of comparisons behind the speed.
        reports: Number of public reports behind it.
        measured: Whether both releases were measured on comparable hardware.
        basis: What is known about the measurements.
        recoveries: What recovers a loss.
        minutes: Minutes of a measurement that would settle it; `None` if that is not known.
        slowdowns: Documented slow-downs that the step begins or ends.
        others: Number of further packages whose version changes.
        seconds: Time that the step took.
    """

    package: str
    distribution: str
    before: str
    after: str
    project: str
    target: str
    outcome: str
    text: str
    comparisons: int = 0
    reports: int = 0
    measured: bool = False
    basis: str = ""
    recoveries: tuple[str, ...] = ()
    minutes: int | None = None
    slowdowns: tuple[Documented, ...] = ()
    others: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all steps share: folder for locks, caches, the knowledge base, and the targets' hardware."""

    scratch: Path
    indexes: IndexOptions
    hardware: dict[str, str]

    def releases(self, distribution: str) -> list[Version]:
        """Return the final releases of a distribution that were not yanked, oldest first."""
        with api.indexes.open_indexes(self.indexes, self.scratch) as client:
            files = client.files(canonicalize_name(distribution))
        versions = {_version(file.filename) for file in files if not file.yanked}
        return sorted(v for v in versions if v is not None and not v.is_prerelease and not v.local)

    def judge(self, project: Project, target: str, package: str, distribution: str, step: tuple[str, str]) -> Row:
        """Return the verdict on a step."""
        started, (before, after) = time.monotonic(), step
        row = Row(
            package=package,
            distribution=distribution,
            before=before,
            after=after,
            project=project.name,
            target=target,
            outcome="no stack",
            text="",
        )
        folder = self.scratch / project.name / target
        folder.mkdir(parents=True, exist_ok=True)
        requirements, pinned, lock = folder / "requirements.in", folder / "pin.in", folder / "pylock.toml"
        requirements.write_text("\n".join(project.requirements(target)) + "\n")
        pinned.write_text(f"{distribution}=={before}\n")
        files = ProjectFiles(directory=folder, requirements=(requirements,))
        target_options = TargetOptions(hardware=self.hardware[target], python=PYTHON)
        resolution = ResolutionOptions(
            knowledge=f"sqlite:///{self.scratch / 'knowledge.sqlite'}",
            workload=project.workload,
            recommend_settings=False,
        )
        stage = before
        try:
            api.advise(
                replace(files, constraints=(pinned,)),
                target=target_options,
                indexes=self.indexes,
                resolution=replace(resolution, objective="latest"),
                outputs=lock,
            )
            stage = after
            options = ProjectOptions.of(replace(files, current=str(lock)), target_options, self.indexes, resolution)
            with api.gate_session.open_verdict(options, [f"{distribution}=={after}"]) as (result, opened):
                result = api.measured_verdict.with_minutes(result, opened)
                row = judged(row, result)
        except AdvisorError as error:
            details: Sequence[str] = getattr(error, "details", ())
            row = replace(row, text=f"{stage}: {[error.message, *details][-1].removeprefix('so ')}")
        text = row.text.replace(f"{folder}/", "")
        return replace(row, text=text, seconds=time.monotonic() - started)


def judged(row: Row, result: GateResult) -> Row:
    """Return a row with the verdict of a result."""
    [target_result] = result.targets
    verdict, comparison = target_result.verdict, target_result.comparison
    if verdict is None or comparison is None:
        return replace(row, outcome="incomplete", text=str(target_result.failure))
    speed, prediction = verdict.speed, comparison.prediction
    versions = {change.package: (str(change.before), str(change.after)) for change in comparison.changes}
    if versions.get(row.distribution) != (row.before, row.after):
        return replace(row, outcome="incomplete", text=f"the step is {versions.get(row.distribution)}")
    change = next((c for c in prediction.changes if c.package == row.distribution), None) if prediction else None
    newest = dict(prediction.newest_measured).get(row.distribution) if prediction else None
    return replace(
        row,
        outcome=verdict.outcome,
        text=f"{ratio_text(speed.speedup)} {interval_text(speed)}" if speed else verdict.reason,
        comparisons=verdict.rows,
        reports=verdict.reports,
        measured=change is not None and change.measured,
        basis=f"newest measured release: {newest}" if newest else "",
        recoveries=tuple(recovery.what for recovery in verdict.recoveries),
        minutes=verdict.minutes,
        slowdowns=tuple(slowdowns(result, target_result)),
        others=len(comparison.changes) - 1,
    )


def slowdowns(result: GateResult, target_result: TargetResult) -> Iterator[Documented]:
    """Yield the documented slow-downs that a step begins or ends, also those on other hardware."""
    case, verdict = target_result.case, target_result.verdict
    before, after = (case.base[1].lock.versions if case.base else {}), case.head.lock.versions
    begun = {finding.subject for finding in result.findings}
    ended = {finding.subject for finding in verdict.resolved} if verdict else set()
    for rule in (rule for rule in shipped_rules() if isinstance(rule, SlowerRule)):
        for name in rule.packages:
            was, is_ = (name in stack and rule.concerns(name, stack[name]) for stack in (before, after))
            if was == is_:
                continue
            stack = after if is_ else before
            reason = ""
            if not rule.hardware.admits(case.head.problem.target.hardware):
                reason = f"reported on {rule.hardware.text}"
            elif rule.other and not (rule.other in stack and admits(rule.other_versions, stack[rule.other])):
                reason = f"only with `{rule.other} {rule.other_versions}`"
            yield Documented(rule=rule.id, begins=is_, reported=rule.id in (begun if is_ else ended), reason=reason)


def _version(filename: str) -> Version | None:
    """Return the version of a wheel or an sdist; `None` for another file."""
    try:
        return parse_wheel_filename(filename)[1] if filename.endswith(".whl") else parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def steps(bench: Bench, projects: Sequence[Project], targets: Sequence[str], number: int) -> Iterator[Row]:
    """Yield the rows by package, target, release and project."""
    for package in PACKAGES:
        for target in targets:
            users: dict[str, list[Project]] = {}
            for project in projects:
                for written in project.requirements(target):
                    name = Requirement(written).name
                    if name in (package, f"{package}-cpu", f"{package}-gpu"):
                        users.setdefault(name, []).append(project)
            for distribution, own in users.items():
                last = bench.releases(distribution)[-number - 1 :]
                for older, newer in pairwise(map(str, last)):
                    for project in own:
                        row = bench.judge(project, target, package, distribution, (older, newer))
                        print(
                            *(row.distribution, row.before, row.after, row.target, row.project, row.outcome, row.text),
                            f"{row.seconds:.1f} s",
                            sep="\t",
                            file=sys.stderr,
                            flush=True,
                        )
                        yield row


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of the verdicts: projects with the same verdict share a row."""
    cells = []
    for (distribution, before, after, target), group in groupby(
        rows, key=lambda row: (row.distribution, row.before, row.after, row.target)
    ):
        same: dict[tuple[str, ...], list[str]] = {}
        for row in group:
            verdict = row.outcome.replace("-", " ")
            basis = "; ".join(filter(None, [row.basis, *(f"recovery: `{what}`" for what in row.recoveries)]))
            numbers = f"{row.comparisons}, {row.reports}" if row.comparisons or row.reports else ""
            same.setdefault((verdict, row.text, numbers, basis), []).append(row.project)
        for (verdict, text, numbers, basis), names in same.items():
            cells.append(
                (f"{distribution} {before} -> {after}", target, ", ".join(names), verdict, text, numbers, basis)
            )
    heads = ("step", "target", "projects", "verdict", "speed, or the reason", "comparisons, reports", "further")
    yield from table_lines(heads, cells)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of the numbers of outcomes by package and target."""
    outcomes = ("better", "worse", "no-difference", "not-known", "no stack", "incomplete")
    columns = [outcome for outcome in outcomes if any(row.outcome == outcome for row in rows)]
    cells = []
    for key, group in groupby(rows, key=lambda row: (row.package, row.target)):
        own = list(group)
        counts = Counter(row.outcome for row in own)
        measured = sum(row.measured for row in own)
        with_ratio = sum(row.comparisons > 0 or row.reports > 0 for row in own)
        minutes = sum(row.minutes or 0 for row in own)
        numbers = (len(own), *(counts[name] for name in columns), with_ratio, measured, minutes)
        cells.append((*key, *map(str, numbers)))
    names = [outcome.replace("-", " ") for outcome in columns]
    heads = ("package", "target", "verdicts", *names, "with a ratio", "both releases measured", "minutes to measure")
    yield from table_lines(heads, cells)


def documented(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of the documented slow-downs that the steps begin or end."""
    cells = {
        (
            f"`{slow.rule}`",
            f"{row.distribution} {row.before} -> {row.after}",
            "begins" if slow.begins else "ends",
            row.target,
            "yes" if slow.reported else f"no: {slow.reason or 'unexpected'}",
            "yes" if row.reports else "no",
        )
        for row in rows
        for slow in row.slowdowns
    }
    heads = ("documented slow-down", "step", "", "target", "named by the verdict", "counts in the speed")
    yield from table_lines(heads, sorted(cells))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=10)
    parser.add_argument("--only", default="", help="projects")
    parser.add_argument("--targets", default="cpu-zen4,h100")
    parser.add_argument("--cache-dir", type=Path, help="cache of the index that stays for the next run")
    parser.add_argument("--save", type=Path, help="JSON file of the rows")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    names = options.only.split(",") if options.only else [project.name for project in PROJECTS]
    targets = options.targets.split(",")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verdicts-") as scratch:
        hardware = {}
        for target in targets:
            profile = find_profile(target)
            hardware[target] = target
            if profile.accelerators:
                path = Path(scratch) / f"{target}.json"
                path.write_text(json.dumps({**asdict(profile), "driver": DRIVER}))
                hardware[target] = str(path)
        cache = options.cache_dir or Path(scratch) / "cache"
        indexes = IndexOptions(index_url=INDEX, cache_directory=cache, advisories="off")
        bench = Bench(scratch=Path(scratch), indexes=indexes, hardware=hardware)
        rows = list(steps(bench, [p for p in PROJECTS if p.name in names], targets, options.releases))
    if options.save:
        options.save.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    minutes = (time.monotonic() - started) / 60
    print(f"{count(len(rows), 'verdict')} in {minutes:.0f} minutes\n")
    print("\n".join([*summary(rows), "", *documented(rows), "", *table(rows)]))


if __name__ == "__main__":
    main()

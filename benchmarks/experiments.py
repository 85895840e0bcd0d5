"""Measure projects of realistic sizes until the choice is certain, and compare it with every arm measured in full.

    python -m benchmarks.experiments                        all of them, 20 minutes each and 8 rounds of all arms
    python -m benchmarks.experiments NAME ... --minutes 20 --rounds 8 --max-download 1

Each is a small project in `benchmarks/experiments`. `advisor advise --measure` starts from the shipped knowledge alone,
with empty caches. Then the exhaustive campaign runs every arm of it, and the advice without measuring, once in each
round, in environments that exist. Speeds are over that of the newest stack without settings. Nothing else may run on
the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from advisor.api.measurements.experiment import ProjectExperiment, open_experiment
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.options import IndexOptions, ProjectOptions, ResolutionOptions
from advisor.api.session import AdviceSession
from advisor.experiment.arms import ExperimentArm
from advisor.experiment.change import Change
from advisor.experiment.experiment import REFERENCE
from advisor.experiment.paired_runs import PairedRuns
from advisor.resolve.explanation.recommended_settings import values_to_set
from knowledge.domain.errors import AdvisorError
from knowledge.domain.ratio import NO_GAIN, Ratio

FOLDER = Path(__file__).parent / "experiments"
EARLY_MINUTES = 10
ERROR = 0.05
TRIES = 5
"""Runs of an arm in a round until one is undisturbed."""
HEADER = "| project | arms | without measuring | after 10 min | at the end | best of all arms | minutes | of all arms |"
RULE = "| --- " * 8 + "|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an experiment chose, and how fast all arms are.

    Attributes:
        choices: Numbers of the advice without measuring, of the choice after ten minutes, and of that at the end.
        is_certain: Whether the last choice is certain.
        speeds: Speed of each arm over that of the reference, measured in full; no entry for an arm that failed.
        labels: Name of each arm.
        minutes: Minutes of the experiment.
        all_minutes: Minutes of the exhaustive campaign.
    """

    choices: tuple[int, int, int]
    is_certain: bool
    speeds: dict[int, Ratio]
    labels: list[str]
    minutes: float
    all_minutes: float

    def row(self, name: str) -> str:
        """Return a row of the table."""
        best = max(self.speeds, key=lambda arm: self.speeds[arm].mean)
        cells = " | ".join(map(self._cell, (*self.choices, best)))
        end = "certain" if self.is_certain else "open"
        return f"| {name} | {len(self.labels)} | {cells} | {self.minutes:.1f}, {end} | {self.all_minutes:.1f} |"

    def _cell(self, arm: int) -> str:
        return f"{self.labels[arm]} {_text(self.speeds[arm]) if arm != REFERENCE else ''}".rstrip()


def _text(ratio: Ratio | None) -> str:
    return f"{ratio.speedup:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "no ratio"


def unmeasured_arm(session: AdviceSession) -> ExperimentArm:
    """Return the advice without measuring."""
    values = values_to_set(session.settings())
    changes = [
        Change(name=name, value=value, is_setting=True) for own in values.values() for name, value in own.items()
    ]
    return ExperimentArm(changes=tuple(changes), stack=session.solved().stack)


def speeds_of_all(experiment: ProjectExperiment, rounds: int) -> dict[int, Ratio]:
    """Run all arms in rounds, and return the speed of each over that of the reference."""
    laboratory, runs, failed = experiment.laboratory, PairedRuns(), set(experiment.experiment.failures)
    first, arms = experiment.experiment.rounds + 1, range(len(laboratory.arms))
    for number in range(first, first + rounds):
        shift = number % len(arms)
        for arm in (*arms[shift:], *arms[:shift]):
            for _ in range(0 if arm in failed else TRIES):
                run = laboratory.run(number, arm)
                if run.seconds is not None:
                    runs.add(number, arm, run.seconds)
                    break
                if not run.disturbance:
                    failed.add(arm)
                    print(f"{experiment.label(arm)} failed: {run.failure}", flush=True)
                    break
                print(f"round {number}, {experiment.label(arm)}: {run.disturbance}", flush=True)
    fit = runs.fit()
    ratios = {arm: fit.ratio(arm, REFERENCE, error=ERROR) for arm in fit.arms if arm != REFERENCE}
    return {REFERENCE: NO_GAIN, **{arm: ratio for arm, ratio in ratios.items() if ratio is not None}}


def measure(directory: Path, options: ExperimentOptions, rounds: int) -> Outcome:
    """Measure a project until the choice is certain, then all of its arms.

    Raises:
        AdvisorError: If it cannot be measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        project = ProjectOptions.of(
            directory,
            indexes=IndexOptions(cache_directory=Path(folder) / "cache"),
            resolution=ResolutionOptions(knowledge=f"sqlite:///{folder}/knowledge.db"),
        )
        with open_experiment(project, options) as experiment:
            advice = unmeasured_arm(experiment.session)
            started, early = time.monotonic(), REFERENCE

            def notify(running: ProjectExperiment, number: int, arm: int) -> None:
                nonlocal early
                minutes = (time.monotonic() - started) / 60
                if minutes < EARLY_MINUTES:
                    early = running.experiment.last_decision().choice
                print(f"{minutes:.1f} min, round {number}: {running.label(arm)}", flush=True)

            result = experiment.run(notify)
            minutes = (time.monotonic() - started) / 60
            for arm in (result.choice, *result.arms):
                print(f"{arm.arm.label or 'the newest stack'}: {arm.verdict}, {arm.rounds} rounds, {_text(arm.ratio)}")
            arms, last = experiment.laboratory.arms, experiment.experiment.decision.choice
            same = [n for n, a in enumerate(arms) if (a.stack, a.settings) == (advice.stack, advice.settings)]
            arms += [] if same else [advice]
            started = time.monotonic()
            speeds = speeds_of_all(experiment, rounds)
            for number, ratio in speeds.items():
                print(f"{experiment.label(number)}: {_text(ratio)} in {rounds} rounds of all arms", flush=True)
            return Outcome(
                choices=(same[0] if same else len(arms) - 1, last if minutes < EARLY_MINUTES else early, last),
                is_certain=result.certificate.is_certain,
                speeds=speeds,
                labels=[experiment.label(number) for number in range(len(arms))],
                minutes=minutes,
                all_minutes=(time.monotonic() - started) / 60,
            )


def main() -> None:
    """Measure what the command line selects, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.name for path in FOLDER.iterdir())
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"projects (default: all): {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=20, help="budget of the experiment (default: 20)")
    parser.add_argument("--rounds", type=int, default=8, help="passes over all arms (default: 8)")
    parser.add_argument("--max-download", type=float, default=1, help="gigabytes of all environments (default: 1)")
    parser.add_argument("--max-load", type=float, default=10, help="most load of other programs, in %% (default: 10)")
    values = parser.parse_args()
    if unknown := sorted(set(values.names) - set(names)):
        parser.error(f"there is no project `{unknown[0]}`; there are {', '.join(names)}")
    options = ExperimentOptions(
        budget_seconds=60 * values.minutes,
        max_download_bytes=round(1e9 * values.max_download),
        max_load=values.max_load,
    )
    rows = []
    for name in values.names or names:
        try:
            rows.append(measure(FOLDER / name, options, values.rounds).row(name))
        except AdvisorError as error:
            rows.append(f"| {name} | failed: {error} |")
        print(f"{HEADER}\n{RULE}\n" + "\n".join(rows), flush=True)


if __name__ == "__main__":
    main()

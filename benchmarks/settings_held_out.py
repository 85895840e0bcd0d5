"""Test predicted effects of run-time settings on a processor on what the model has not seen.

    python -m benchmarks.settings_held_out [--framework NAME...] [--shipped-variances]

Of the program's own measurements of whole models and blocks, each model or block, each size of a model that has
several, each release of a framework that has several, and each kind of machine is held out in turn with all its
settings. The model and its variances are fitted to the rest, and it predicts what each setting that was measured
elsewhere, or combination of such settings, does there. With `--shipped-variances`, the variances are those that ship,
which were fitted to everything. How far another kind of machine may be always is the shipped one: to estimate it, two
kinds are needed, and no more were measured. Baselines: no effect; the mean effect of the same settings on everything
else (for a combination that was not measured elsewhere, the sum of the means). For an arm of another release than the
reference, the measured effect of the release is subtracted from everything.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.held_out import Row, report
from knowledge.domain.observation import words_of
from knowledge.estimate.amplitudes import Amplitudes
from knowledge.estimate.compared_settings import ReleaseSteps
from knowledge.estimate.discrepancy import BLOCK_OF_MODEL, MACHINES, WHOLE_MODEL, of_settings
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.gaussian_process import predict_held_out
from knowledge.estimate.machine_discrepancy import MachineDiscrepancy
from knowledge.estimate.model_cache import framework_contrasts, frameworks_of, shipped_amplitudes
from knowledge.estimate.similarity import side_on
from knowledge.estimate.stack_discrepancy import program_of
from knowledge.estimate.stored_evidence import load_evidence
from knowledge.store.engine import open_knowledge_base

BASELINES = ("mean effect",)
Settings = tuple[tuple[str, str], ...]


class Effects(ReleaseSteps):
    """Effects of settings in the contrasts of one framework, without those of its releases."""

    def is_target(self, c: Contrast) -> bool:
        """Whether a contrast shows the effect of settings over the defaults, for a whole model or a block."""
        is_whole = c.family in (WHOLE_MODEL, BLOCK_OF_MODEL)
        return is_whole and bool(c.side.settings) and not c.reference.settings and self.step_of(c) is not None

    def mean_effect(self, contrasts: Sequence[Contrast], settings: Settings) -> float:
        """Return the mean effect of settings; the sum of those of each setting, if they were not measured together."""
        same = [
            c.mean - (self.step_of(c) or 0.0) for c in contrasts if self.is_target(c) and settings_of(c) == settings
        ]
        if same:
            return statistics.fmean(same)
        return sum(self.mean_effect(contrasts, (one,)) for one in settings) if len(settings) > 1 else 0.0


def settings_of(c: Contrast) -> Settings:
    """Return the settings of the arm of a contrast, sorted."""
    return tuple(sorted(c.side.settings.items()))


def model_of(c: Contrast) -> str:
    """Return the model or block of a contrast; empty for other indicators."""
    words = words_of(c.label) if c.family in (WHOLE_MODEL, BLOCK_OF_MODEL) else {}
    return words.get("model") or words.get("block") or ""


def _model_and_mode(c: Contrast) -> tuple[str, str]:
    return model_of(c), words_of(c.label).get("mode", "")


def splits(targets: Sequence[Contrast]) -> Iterator[tuple[str, Callable[[Contrast], bool]]]:
    """Yield what is held out, and whether a contrast belongs to it."""
    for model in sorted(set(map(model_of, targets))):
        yield "model", _is(model_of, model)
    sizes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for c in targets:
        sizes[_model_and_mode(c)].add(c.label)
    for label in sorted(label for labels in sizes.values() if len(labels) > 1 for label in labels):
        yield "size", _is(lambda c: c.label, label)
    releases = sorted({c.side.version for c in targets})
    for release in releases if len(releases) > 1 else ():
        yield "release", _is(lambda c: c.side.version if c.side.settings else "", release)
    kinds = sorted({c.machine.kind for c in targets})
    for kind in kinds if len(kinds) > 1 else ():
        yield "machine", _is(lambda c: c.machine.kind if c.side.settings else "", kind)


def _is(key: Callable[[Contrast], str], value: str) -> Callable[[Contrast], bool]:
    return lambda c: key(c) == value


def rows_of(
    contrasts: Sequence[Contrast], amplitudes: Amplitudes | None, *, of_machines: float
) -> Iterator[tuple[str, str, Row]]:
    """Yield what was held out, the settings, and the row, for each effect of one framework.

    Args:
        contrasts: Contrasts of the framework.
        amplitudes: Amplitudes; by default those that are fitted to what is not held out.
        of_machines: Discrepancy of settings on other kinds of machines, as a share of their effects.
    """
    effects = Effects(contrasts)
    targets = [c for c in contrasts if effects.is_target(c)]
    for name, is_hidden in splits(targets):
        training = [c for c in contrasts if not is_hidden(c)]
        elsewhere = {setting for c in training if effects.is_target(c) for setting in settings_of(c)}
        hidden = [c for c in targets if is_hidden(c) and elsewhere.issuperset(settings_of(c))]
        if not hidden:
            continue
        means, deviations = predict_held_out(training, hidden, amplitudes)
        on_machine = MachineDiscrepancy(training, hidden[0].machine.kind, of_machines)
        for c, mean, deviation in zip(hidden, means, deviations, strict=True):
            offset, settings = effects.step_of(c) or 0.0, settings_of(c)
            one, other = (program_of(side_on(side, c.machine)) for side in (c.side, c.reference))
            beyond = on_machine.between(one, other, float(mean) - offset) if name == "machine" else 0.0
            row = Row(
                truth=c.mean - offset,
                mean=float(mean) - offset,
                deviation=math.hypot(deviation, beyond),
                baselines=(effects.mean_effect(training, settings),),
            )
            yield name, " ".join(f"{n}={v}" for n, v in settings), row


def main() -> None:
    """Run the test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--shipped-variances", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        evidence = load_evidence(store)
    results: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for framework, device in frameworks_of(evidence):
        if device != "cpu" or (options.framework and framework not in options.framework):
            continue
        shipped, contrasts = shipped_amplitudes(framework, device), framework_contrasts(evidence, framework, device)
        amplitudes = shipped if options.shipped_variances else None
        of_machines = shipped.discrepancies[of_settings(MACHINES)]
        for held_out, settings, row in rows_of(contrasts, amplitudes, of_machines=of_machines):
            results[held_out, "all"].append(row)
            results[held_out, f"{framework}: all"].append(row)
            results[held_out, f"{framework}: {settings}"].append(row)
    report(results, BASELINES)


if __name__ == "__main__":
    main()

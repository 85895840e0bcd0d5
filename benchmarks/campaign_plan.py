"""Compares the campaigns that `advisor pi plan --budget` proposes with random ones of the same duration.

    python -m benchmarks.campaign_plan [--draws NUMBER]

Each machine with shipped blocks of whole models is held out in turn, for each framework. Half of its programs are
decided about, and never measured. Of the other half, a plan may measure arms and programs in some of the time that all
take: the proposed plan, or random extensions of the same blocks. What it measured is then revealed. The regret is how
much slower an option (the default, another version or a value of a setting) is than the best measured one, as the mean
over the decisions at the other half: first of the option with the largest predicted speed, then of the one that the
advice takes. Then the halves change places. The last row is the mean over all decisions.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from advisor.campaign.plan import run_seconds_by_label
from advisor.campaign.proposal import ENVIRONMENT_SECONDS, PROCESS_SECONDS, ROUNDS, VERSION
from advisor.resolve.score.costs import counted_steps
from benchmarks.held_out import programs_of
from docs.fits import program_of
from knowledge.domain.ratio import MIN_GAIN, Ratio
from knowledge.estimate.cases import Case
from knowledge.estimate.compared_settings import setting_change
from knowledge.estimate.gain_model import GainModel
from knowledge.estimate.gain_terms import Pair
from knowledge.estimate.information import DEFAULT, BlockCosts, CaseDecision, PossibleBlock, decide, select
from knowledge.estimate.model_cache import frameworks_of, shipped_variances
from knowledge.evidence.block_evidence import load_evidence
from knowledge.evidence.contrasts import Contrast, Machine
from knowledge.store.engine import open_knowledge_base

SHARES = (0.1, 0.2, 0.4)
"""Parts of the time of all measurements."""
FEWEST = 30
"""Fewest ratios of a machine that is held out."""
FEWEST_DECISIONS = 20
"""Fewest decisions of a row."""
_USUAL_SECONDS = 1.0
"""Duration of a run that is not known."""


class Regrets(NamedTuple):
    """Mean regrets, as log ratios.

    Attributes:
        best: Of the option with the largest predicted speed.
        advised: Of the option that the advice takes: the default, if no other one counts.
    """

    best: float
    advised: float

    @property
    def text(self) -> str:
        """Both in percent."""
        return f"{self.best:.1%}, {self.advised:.1%}"


class Group(NamedTuple):
    """Arms with one reference on the machine that is held out.

    Attributes:
        subjects: The options of each choice by name, with their pair of stacks.
        ratios: Measured ratios by option and label.
        arms: Choice and option of each arm.
    """

    subjects: dict[str, dict[str, Pair]]
    ratios: dict[tuple[str, str, str], Contrast]

    @property
    def arms(self) -> list[tuple[str, str]]:
        """Choice and option of each arm."""
        return [(subject, option) for subject, options in self.subjects.items() for option in options]


def change_of(c: Contrast) -> tuple[str, str] | None:
    """Return the choice and the option of an arm that differs from its reference in one thing; none for others."""
    if change := setting_change(c):
        return (change[0], change[1]) if change[1] and not change[2] and not c.reference.settings else None
    if c.side.settings or c.reference.settings or c.side.version == c.reference.version:
        return None
    return VERSION, c.side.version


def groups_of(contrasts: Iterable[Contrast]) -> list[Group]:
    """Return the arms of a machine by their reference."""
    groups: dict[object, Group] = {}
    for c in contrasts:
        if change := change_of(c):
            group = groups.setdefault((c.block, c.reference.key, change[0] == VERSION), Group({}, {}))
            group.subjects.setdefault(change[0], {})[change[1]] = (c.side, c.reference)
            group.ratios[(*change, c.label)] = c
    return list(groups.values())


class HeldOut:
    """A framework on a machine of which half of the programs may be measured."""

    def __init__(
        self, known: Sequence[Contrast], hidden: Sequence[Contrast], targets: frozenset[str], history: dict[str, float]
    ) -> None:
        self.known = known
        self.machine = hidden[0].machine
        self.variances = shipped_variances(hidden[0].framework, "cpu")
        self.groups = groups_of(hidden)
        self.targets = targets
        self.history = history
        self.model = GainModel(known, program_of, self.variances)

    def decisions(self, model: GainModel, group: Group) -> list[CaseDecision]:
        """Return the decisions about each choice of a group at the programs that are not measured."""
        decisions = []
        for subject, pairs in group.subjects.items():
            ratios = {t: [group.ratios.get((subject, option, t)) for option in pairs] for t in sorted(self.targets)}
            cases = [
                Case(workload=label, basis="", programs=(((1.0, program_of(listed[0])),),))
                for label, listed in ratios.items()
                if listed[0] is not None and None not in listed
            ]
            sides = {DEFAULT: next(iter(pairs.values()))[1]} | {option: pair[0] for option, pair in pairs.items()}
            if cases:
                decisions += decide(subject, sides, partial(gains_of, model, cases, self.machine))
        return decisions

    def blocks(self) -> list[tuple[Group, PossibleBlock]]:
        """Return what may be measured."""
        blocks = []
        for group in self.groups:
            decisions = self.decisions(self.model, group)
            labels = sorted({label for _, _, label in group.ratios if label not in self.targets})
            cells: dict[tuple[int, int], int] = {}
            ratios: list[Contrast] = []
            for a, arm in enumerate(group.arms):
                for p, label in enumerate(labels):
                    if ratio := group.ratios.get((*arm, label)):
                        cells[a, p] = len(ratios)
                        ratios.append(ratio)
            if not decisions or not cells:
                continue
            gains = [(pair, case.programs[0][0][1], self.machine) for d in decisions for pair, case in d.compared]
            across, within = self.model.explained_by(ratios, [program_of(c) for c in ratios], gains)
            costs = BlockCosts(
                rounds=ROUNDS,
                process_seconds=PROCESS_SECONDS,
                program_seconds=[self.history.get(label, _USUAL_SECONDS) for label in labels],
                arm_seconds=[ENVIRONMENT_SECONDS if arm[0] == VERSION else 0.0 for arm in group.arms],
                setup_seconds=ENVIRONMENT_SECONDS,
            )
            block = PossibleBlock(cells=cells, costs=costs, decisions=decisions, across=across, within=within)
            blocks.append((group, block))
        return blocks

    def regrets(self, blocks: Sequence[tuple[Group, PossibleBlock]]) -> Regrets:
        """Return the mean regrets of the decisions when the selected measurements are known."""
        revealed = [c for group, block in blocks for c in selected(group, block, self.targets)]
        model = GainModel([*self.known, *revealed], program_of, self.variances) if revealed else self.model
        losses = []
        for group in self.groups:
            for d in self.decisions(model, group):
                truth = {o: group.ratios[d.subject, o, d.case.workload].mean for o in d.sides if o != DEFAULT}
                truth[DEFAULT] = 0.0
                best = max(truth.values())
                losses.append((best - truth[d.best], best - truth[advised(d)]))
        return Regrets(*(statistics.fmean(column) for column in zip(*losses, strict=True)))

    @property
    def number(self) -> int:
        """Number of decisions."""
        return sum(len(self.decisions(self.model, group)) for group in self.groups)


def advised(d: CaseDecision) -> str:
    """Return the option that counts most over the default, or the default."""
    steps = {option: counted_steps(gain, len(d.gains), MIN_GAIN) for option, gain in d.gains.items()}
    option = max(steps, key=steps.__getitem__)
    return option if steps[option] > 0 else DEFAULT


def gains_of(
    model: GainModel, cases: Sequence[Case], machine: Machine, pairs: Sequence[Pair]
) -> list[dict[Case, Ratio]]:
    """Return the predicted gain of each pair of stacks in each case."""
    predicted = model.predict(pairs, [case.programs[0] for case in cases], machine)
    return [
        {
            case: Ratio(mean=float(own.means[n]), variance=float(own.variances[n]))
            for case, own in zip(cases, predicted, strict=True)
        }
        for n in range(len(pairs))
    ]


def selected(group: Group, block: PossibleBlock, targets: frozenset[str]) -> list[Contrast]:
    """Return the ratios that a plan measures."""
    labels = sorted({label for _, _, label in group.ratios if label not in targets})
    cells = [(group.arms[a], labels[p]) for a in block.arms for p in block.programs if (a, p) in block.cells]
    return [group.ratios[(*arm, label)] for arm, label in cells]


def select_randomly(blocks: Sequence[PossibleBlock], seconds: float, generator: random.Random) -> None:
    """Extend blocks by random steps within a time: first a block, then one of its steps."""
    while True:
        remaining = seconds - sum(block.seconds for block in blocks)
        fitting = [
            [side for side in block.extensions() if block.costs.seconds(*side) - block.seconds <= remaining]
            for block in blocks
        ]
        numbers = [n for n, listed in enumerate(fitting) if listed]
        if not numbers:
            return
        number = generator.choice(numbers)
        blocks[number].take(*generator.choice(fitting[number]))


def whole(block: PossibleBlock) -> float:
    """Return the duration of a whole block."""
    arms, programs = (sorted({cell[place] for cell in block.cells}) for place in (0, 1))
    return block.costs.seconds(arms, programs)


def compare(case: HeldOut, draws: int) -> list[Regrets]:
    """Return the regrets without measurements, then for each share of the time those of the plan and of random ones."""
    total = sum(whole(block) for _, block in case.blocks())
    rows = [case.regrets([])]
    for share in SHARES:
        blocks = case.blocks()
        select([block for _, block in blocks], share * total)
        rows.append(case.regrets(blocks))
        drawn = []
        for seed in range(draws):
            other = case.blocks()
            select_randomly([block for _, block in other], share * total, random.Random(seed))
            drawn.append(case.regrets(other))
        rows.append(Regrets(*(statistics.fmean(column) for column in zip(*drawn, strict=True))))
    return rows


def held_out_cases() -> Iterator[tuple[str, HeldOut]]:
    """Yield each framework with each machine and half of its programs."""
    with open_knowledge_base("sqlite://") as store:
        evidence = load_evidence(store)
        history = run_seconds_by_label(store.observations())
    for framework, device in frameworks_of(evidence):
        contrasts = [c for c in programs_of(evidence, framework, device) if not c.is_control]
        by_machine: dict[str, list[Contrast]] = defaultdict(list)
        for c in contrasts if device == "cpu" else ():
            if not c.source and change_of(c):
                by_machine[c.machine.identity].append(c)
        for identity, hidden in by_machine.items():
            elsewhere = [c for c in contrasts if c.machine.identity != identity]
            labels = sorted({c.label for c in hidden})
            for half in (0, 1) if len(hidden) >= FEWEST and elsewhere else ():
                targets = frozenset(labels[half::2])
                name = f"{framework}, {hidden[0].machine.name} {identity[:4]}"
                yield name, HeldOut(elsewhere, hidden, targets, history)


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=8, help="random plans for each share of the time")
    draws = parser.parse_args().draws
    heads = [f"{share:.0%} of the time, {plan}" for share in SHARES for plan in ("planned", "random")]
    print(f"| held out | decisions | nothing | {' | '.join(heads)} |")
    print("| --- " * (3 + len(heads)) + "|")
    total: list[tuple[int, list[Regrets]]] = []
    for name, case in held_out_cases():
        if case.number >= FEWEST_DECISIONS:
            total.append((case.number, compare(case, draws)))
            print(f"| {name} | {case.number} | {' | '.join(row.text for row in total[-1][1])} |", flush=True)
    weight = sum(number for number, _ in total)
    means = [
        Regrets(*(sum(n * rows[place][which] for n, rows in total) / weight for which in (0, 1)))
        for place in range(1 + len(heads))
    ]
    print(f"| all | {weight} | {' | '.join(row.text for row in means)} |")


if __name__ == "__main__":
    main()

"""Fill a knowledge base with generated observations like those of a year of a team, and measure its queries.

    python -m benchmarks.generator FILE [--observations 1000000]

A file that exists is only measured. The observations have the records and stacks of shipped ones; machines, times and
values are invented: 30 machines measure five frameworks in blocks with a reference arm, an A/A control and rounds. Some
runs fail, some series have a step at a date, and three sources with different trust deliver most blocks. Times are
medians of several calls.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pi_runners as pi_runners  # It adds the frameworks.
from benchmarks.store import timed
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation, Status
from knowledge.domain.stack import Stack
from knowledge.exchange.files import read_lines, read_observations
from knowledge.hardware.shipped_machines import shipped_machines
from knowledge.store.base import QuarantinedObservation
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase

TRUSTS = {"nightly": 1.0, "cluster": 0.9, "partner": 0.5}
"""Trust in each source."""
FIRST_DAY = datetime(2025, 12, 1, tzinfo=UTC)
DAYS = 365
MACHINES = 30
LABELS = 20
"""Most labels of a framework."""
SHORTEST, LONGEST = 200, 2500
"""Fewest and most observations of a block."""
NIGHTLY, NIGHTLY_SHARE = 4, 0.6
"""Machines that measure every night, and their share of the blocks."""
FAILURES: Mapping[Status, str] = {
    "error": "RuntimeError: could not create a primitive",
    "out-of-memory": "MemoryError: cannot allocate 8589934592 bytes",
    "timed-out": "the run was ended after 600 seconds",
}
FAILURE_SHARE = 0.02
STEP_SHARE = 0.1
"""Share of the series whose time rises by ``STEP`` on a day."""
STEP = 1.15
QUARANTINED = 12

_CAMPAIGNS = ("campaign-cpu-vm", "models-torch-cpu-vm")
"""Parts of the names of the files with the models of the observations and of PyTorch's stacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """What a framework's observations are generated after.

    Attributes:
        models: One successful observation of each label.
        stacks: Stacks with different versions of the framework, newest first.
    """

    models: tuple[Observation, ...]
    stacks: tuple[Stack, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A generated block.

    Attributes:
        source: Name of the source; empty for own measurements.
        observations: Its observations.
    """

    source: str
    observations: tuple[Observation, ...]


def frameworks() -> dict[str, Framework]:
    """Return the frameworks of the shipped campaign, by distribution."""
    models: dict[str, dict[str, Observation]] = defaultdict(dict)
    stacks: dict[str, dict[Stack, None]] = defaultdict(dict)
    for file in sorted(files("knowledge.data").iterdir(), key=lambda f: f.name):
        if any(file.name.endswith(f"{part}.jsonl.gz") for part in _CAMPAIGNS):
            for o in read_observations(read_lines(file.read_bytes(), where=file.name), where=file.name):
                stacks[o.framework].setdefault(o.stack)
                if o.status == "ok" and not o.settings and _CAMPAIGNS[0] in file.name:
                    models[o.framework].setdefault(o.indicator.label, o)
    return {
        name: Framework(models=tuple(models[name].values())[:LABELS], stacks=tuple(stacks[name])) for name in models
    }


def machines() -> tuple[HardwareProfile, ...]:
    """Return shipped machines, as far apart in the list as possible, with names of their own."""
    profiles = [machine.profile for machine in shipped_machines().values()]
    profiles = profiles[:: len(profiles) // MACHINES][:MACHINES]
    return tuple(replace(profile, name=f"{profile.name}-{n:02}") for n, profile in enumerate(profiles))


def blocks(observations: int) -> Iterator[Block]:
    """Yield blocks with this number of observations in all, spread over the days; always the same ones."""
    draw = random.Random(0)
    members, hosts = frameworks(), machines()
    sources = ("", *TRUSTS)
    count = number = 0
    while count < observations:
        host = draw.randrange(NIGHTLY if draw.random() < NIGHTLY_SHARE else MACHINES)
        name = draw.choice(sorted(members))
        begun = FIRST_DAY + timedelta(days=int(DAYS * count / observations), hours=draw.randrange(20))
        some = tuple(_block(f"{name}-{number:05}", hosts[host], members[name], begun=begun, draw=draw))
        yield Block(source=sources[host % len(sources)], observations=some[: observations - count])
        count += len(some)
        number += 1


def _block(
    name: str, machine: HardwareProfile, framework: Framework, *, begun: datetime, draw: random.Random
) -> Iterator[Observation]:
    """Yield the observations of a block; the last arm is the reference again."""
    models = draw.sample(framework.models, draw.randint(min(8, len(framework.models)), len(framework.models)))
    versions = framework.stacks[: draw.randint(2, 6)]
    arms = (*versions, versions[0])
    a_round = len(models) * len(arms)
    rounds = draw.randint(-(-SHORTEST // a_round), max(LONGEST // a_round, 4))
    device = machine.device if framework.models[0].framework != "numpy" else "cpu"
    runs = [replace(model, indicator=replace(model.indicator, device=device)) for model in models]
    levels = {(m, a): _level(machine, runs[m], arms[a], begun) for m in range(len(runs)) for a in range(len(arms))}
    failures = {
        cell: draw.choice(tuple(FAILURES)) for cell in sorted(levels) if draw.random() < FAILURE_SHARE and cell[1]
    }
    for round_ in range(rounds):
        for (model, arm), level in levels.items():
            run = runs[model]
            place = round_ * a_round + model * len(arms) + arm
            status = failures.get((model, arm), "ok")
            noise = level * draw.gauss(1, 0.01)
            yield replace(
                run,
                stack=arms[arm],
                hardware=machine,
                block=name,
                round=round_,
                arm=arm,
                reference=arm == 0,
                started_at=(begun + timedelta(seconds=3 * place)).strftime("%Y-%m-%dT%H:%M:%SZ"),
                status=status,
                samples=tuple(s * noise for s in run.samples) if status == "ok" else (),
                failure=FAILURES.get(status, ""),
            )


def _level(machine: HardwareProfile, model: Observation, stack: Stack, begun: datetime) -> float:
    """Return the time of a series on a day, relative to the shipped observation."""
    draw = random.Random(f"{machine.identity} {model.indicator.label}")
    level = draw.uniform(0.2, 2)
    changes, day = draw.random() < STEP_SHARE, draw.uniform(0.2, 0.8) * DAYS
    if changes and (begun - FIRST_DAY).days >= day:
        level *= STEP
    return level * random.Random(f"{stack.identity} {model.indicator.label}").uniform(0.9, 1.1)


def _quarantine() -> tuple[QuarantinedObservation, ...]:
    """Return observations that are impossible, of the source that is trusted least."""
    some = next(blocks(QUARANTINED)).observations
    return tuple(
        QuarantinedObservation(
            observation=replace(o, block="impossible", status="ok", samples=(1e-12,) * 6, failure=""),
            source=min(TRUSTS, key=lambda name: TRUSTS[name]),
            reason="its speed is above the peak of the machine",
            received_at=o.started_at,
        )
        for o in some
    )


def fill(store: SqlKnowledgeBase, observations: int) -> None:
    """Add generated observations, one transaction for each block, with their sources and a few quarantined ones."""
    for name, trust in TRUSTS.items():
        store.trust(name, trust)
    for block in blocks(observations):
        store.add(block.observations, source=block.source)
    store.add((), quarantine=_quarantine())


def queries(store: SqlKnowledgeBase) -> dict[str, Callable[[], object]]:
    """Return the queries of a dashboard, by what they read; those of one block read the largest one."""
    largest = max(store.blocks(), key=lambda block: block.observations).name
    some = next(store.observations(block=largest))
    label, where = some.indicator.label, {"hardware": some.hardware.identity, "framework": some.framework}

    def newest_blocks() -> Sequence[object]:
        return sorted(store.coverage(("block",)), key=lambda entry: entry.newest, reverse=True)

    return {
        "coverage by hardware, framework": lambda: store.coverage(("hardware", "framework")),
        "coverage by indicator, label of one of them": lambda: store.coverage(("indicator", "label"), **where),
        "coverage by source": lambda: store.coverage(("source",)),
        "coverage by block, newest first": newest_blocks,
        "one observation": lambda: store.find_observation(some.identity[:12]),
        "one machine": lambda: store.machine(some.hardware.identity),
        "one stack": lambda: store.stack(some.stack.identity),
        "block, label, two arms": lambda: list(store.observations(block=largest, label=label, arms=(0, 1))),
        "content": store.content,
        "sources": store.sources,
        "blocks": store.blocks,
        "quarantine": store.quarantined,
    }


def main() -> None:
    """Fill a file, if it does not exist, and print the milliseconds of queries."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", help="SQLite file, or the address of a knowledge base to measure")
    parser.add_argument("--observations", type=int, default=1_000_000)
    options = parser.parse_args()
    absent = "://" not in options.file and not Path(options.file).exists()
    with open_knowledge_base(options.file, shipped=False) as store:
        if absent:
            start = time.perf_counter()
            fill(store, options.observations)
            print(f"filled in {time.perf_counter() - start:.0f} s")
        print(f"{sum(n for _, n in store.content().observations)} observations, {len(store.blocks())} blocks")
        for name, call in queries(store).items():
            print(f"{name}: {timed(call):.1f} ms")


if __name__ == "__main__":
    main()

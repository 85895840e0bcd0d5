"""Admission of observations from other sources: accepted, or quarantined with the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Protocol

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import BENCHMARK, DAWNBENCH, PUBLISHED, IndicatorRun, Observation
from knowledge.hardware.peaks import peak_operations
from knowledge.records import shipped_yaml
from knowledge.store.base import KnowledgeBase, QuarantinedObservation

_Key = tuple[int, int, str]
"""Round, arm and label of the indicator run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionResult:
    """Result of one delivery.

    Attributes:
        added: Number of new observations that were stored.
        known: Number of observations that were already stored or quarantined.
        omitted: Number of observations that were left out: only shipped files brought them to the sender.
        quarantined: Observations of this delivery that were quarantined, with the reasons.
    """

    added: int
    known: int
    omitted: int
    quarantined: tuple[QuarantinedObservation, ...]


@dataclass(frozen=True, slots=True)
class Admission:
    """Checks the observations of a source and adds them to a knowledge base; use one instance at a time.

    Observations whose form is wrong do not reach it: reading them fails (:mod:`knowledge.exchange.files`).

    Attributes:
        store: The knowledge base.
        catalogue: The program's indicators.
        source: Name of the source; empty for the user's own measurements.
        clock: Returns the current time.
    """

    store: KnowledgeBase
    catalogue: IndicatorCatalogue
    source: str = ""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def add(self, observations: Iterable[Observation], *, shipped: Collection[str] = ()) -> AdmissionResult:
        """Store plausible observations and quarantine the others, in one transaction.

        Stored observations that the user adds, too, stay if the program no longer ships them; a delivery of another
        source does not change that. Observations that only shipped files brought to the sender are not stored: each
        program imports its own files.

        Args:
            observations: The delivered observations.
            shipped: Identities of those that are in the delivery only because the program ships them.

        Returns:
            How many observations are new, known, left out and quarantined.

        Raises:
            KnowledgeBaseError: If the knowledge base cannot be written; nothing was stored.
        """
        incoming = tuple(observations)
        stored = self.store.known_identities(o.identity for o in incoming)
        absent = [o for o in incoming if o.identity not in stored]
        new = [o for o in absent if o.identity not in shipped]
        now = self.clock()
        reasons = self._conflicts(new)
        for o in new:
            if sentences := tuple(implausibilities(o, self.catalogue, now=now)):
                reasons[o.identity] = "; ".join(sentences)
        quarantined = tuple(
            QuarantinedObservation(
                observation=o,
                source=self.source,
                reason=reasons[o.identity],
                received_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            for o in new
            if o.identity in reasons
        )
        accepted = [o for o in new if o.identity not in reasons]
        own = frozenset() if self.source else stored.difference(shipped)
        ingest = self.store.add(accepted, source=self.source, quarantine=quarantined, own=own)
        return AdmissionResult(
            added=ingest.added,
            known=len(incoming) - len(absent) + ingest.known,
            omitted=len(absent) - len(new),
            quarantined=quarantined,
        )

    def _conflicts(self, new: Iterable[Observation]) -> dict[str, str]:
        """Return why observations contradict the stored or delivered rest of their block, by identity."""
        reasons: dict[str, str] = {}
        by_block: dict[str, list[Observation]] = defaultdict(list)
        for o in new:
            by_block[o.block].append(o)
        stored_blocks = {block.name: block for block in self.store.blocks(by_block)}
        for name, members in by_block.items():
            measured: dict[_Key, str] = {}
            machine = members[0].hardware.identity
            if name in stored_blocks:
                stored = self.store.observations(block=name, rounds={o.round for o in members})
                measured = {_key(o): o.identity for o in stored}
                machine = min(self.store.machines_of(name), default=machine)
            for o in members:
                if name in stored_blocks and stored_blocks[name].source != self.source:
                    owner = stored_blocks[name].source
                    text = f"source `{owner}`" if owner else "this knowledge base"
                    reasons[o.identity] = f"block `{name}` belongs to {text}: a block has only one source"
                elif o.indicator.name == PUBLISHED:
                    # The block is a repository: its rows have their own machines, and one round.
                    continue
                elif o.hardware.identity != machine:
                    reasons[o.identity] = f"block `{name}` was measured on another machine"
                elif measured.setdefault(_key(o), o.identity) != o.identity:
                    reasons[o.identity] = f"round {o.round} of arm {o.arm} in block `{name}` was measured already"
        return reasons


def _key(o: Observation) -> _Key:
    return o.round, o.arm, o.indicator.label


MLPERF = ("mlperf_training", "mlperf_inference", "mlperf_power")
"""Names of the indicators of imported MLPerf results, which this program does not measure."""
_UNTIMED = (*MLPERF, PUBLISHED, DAWNBENCH, BENCHMARK)
"""Indicators whose samples need not come from a clock of this program."""
_EARLIEST = datetime(2015, 1, 1, tzinfo=UTC)
_SKEW = timedelta(minutes=5)
_LONGEST_SECONDS = 7 * 86400.0
_FORMULA_TOLERANCE = 1e-6
_SHORT = ("float16", "bfloat16", "int8")


class IndicatorCatalogue(Protocol):
    """Interface to the program's indicators."""

    def version_of(self, name: str) -> int | None:
        """Return the newest version of an indicator's definition; ``None`` if there is no such indicator."""

    def amounts(self, run: IndicatorRun) -> tuple[float, float] | None:
        """Return floating-point operations and bytes of a call, by the formulae; ``None`` if they do not apply."""


def implausibilities(o: Observation, catalogue: IndicatorCatalogue, *, now: datetime) -> Iterator[str]:
    """Yield the reasons why an observation of valid form, delivered ``now``, is implausible, one sentence each."""
    yield from _check_time(o, now)
    yield from _check_samples(o)
    if o.indicator.name == PUBLISHED:
        yield from _check_published(o)
    elif o.indicator.name == DAWNBENCH:
        yield from _check_dawnbench(o)
    elif o.indicator.name not in MLPERF:
        yield from _check_indicator(o, catalogue)
        yield from _check_speed(o)


def _check_time(o: Observation, now: datetime) -> Iterator[str]:
    try:
        started = datetime.fromisoformat(o.started_at)
    except ValueError:
        yield f"its start `{o.started_at}` is not a valid time"
        return
    started = started if started.tzinfo else started.replace(tzinfo=UTC)
    if started > now + _SKEW:
        yield f"its start {o.started_at} is in the future: the clock of the machine is wrong"
    elif started < _EARLIEST and o.indicator.name not in MLPERF:
        # Ten published logs of MLPerf v0.7 count from 1970, and those of MLPerf Inference contain no date.
        yield f"its start {o.started_at} is before {_EARLIEST.year}: the clock of the machine is wrong"


def _check_samples(o: Observation) -> Iterator[str]:
    """Check samples, percentiles and the error of the result."""
    if o.status == "ok" and o.indicator.name not in MLPERF and o.loops < 1:
        yield f"its samples are means over {o.loops} calls"
    if sum(o.samples) * max(1, o.loops) > _LONGEST_SECONDS and o.indicator.name not in _UNTIMED:
        yield f"its samples take {sum(o.samples) * max(1, o.loops):.3g} seconds, longer than a week"
    if len(o.samples) >= 5 and len(set(o.samples)) == 1 and o.indicator.name != BENCHMARK:
        yield f"all {len(o.samples)} samples are equal: the resolution of the clock is too low"
    names = ("p50_seconds", "p90_seconds", "p99_seconds")
    percentiles = [(name, o.metrics[name]) for name in names if name in o.metrics]
    for (lower, low), (higher, high) in pairwise(percentiles):
        if low > high:
            yield f"`{lower}` is {low:.3g} and `{higher}` {high:.3g}: percentiles cannot decrease"
    if (o.error is None) != (o.tolerance is None) and o.status in ("ok", "wrong-result"):
        return
    if o.status == "ok" and o.error is not None and o.tolerance is not None and not o.error <= o.tolerance:
        yield f"its status is `ok` although the error {o.error:.3g} exceeds the tolerance {o.tolerance:.3g}"


def _check_indicator(o: Observation, catalogue: IndicatorCatalogue) -> Iterator[str]:
    newest = catalogue.version_of(o.indicator.name)
    if newest is None:
        yield f"there is no indicator `{o.indicator.name}`: another program or a newer version measured it"
    elif not 1 <= o.indicator.version <= newest:
        yield f"version {o.indicator.version} of `{o.indicator.name}` is unknown; the newest is {newest}"
    elif o.indicator.version == newest and (amounts := catalogue.amounts(o.indicator)) is not None:
        for name, value, formula in zip(("flops", "bytes"), (o.flops, o.bytes), amounts, strict=True):
            if value and abs(value - formula) > _FORMULA_TOLERANCE * max(value, formula):
                yield f"`{name}` is {value:.6g}, the indicator's formula gives {formula:.6g}"


def _check_speed(o: Observation) -> Iterator[str]:
    peak = peak_flops(o.hardware, o.indicator.device, o.indicator.dtype)
    if peak is None or not o.flops or not o.samples:
        return
    peaks = shipped_yaml("knowledge.exchange", "peaks.yaml")
    saving = float(peaks["saving"].get(o.indicator.name, 1))
    rate = o.flops / min(o.samples)
    if rate > peak * saving * float(peaks["tolerance"]):
        yield f"{rate:.3g} FLOP/s are above the peak of its hardware, {peak * saving:.3g} FLOP/s"


def _check_published(o: Observation) -> Iterator[str]:
    """Check a published measurement: neither a clock nor a formula of this program stands behind it."""
    yield from _check_statements(o, ("task", "mode", "gpus", "unit"))
    if "precision" not in o.settings:
        yield "it does not say its `precision`"
    if len(o.samples) != 1 or "value" not in o.metrics:
        yield "a published measurement is one value"
    peak = peak_flops(o.hardware, o.indicator.device, o.indicator.dtype)
    if peak is None or not o.flops or not o.samples:
        return
    peak *= o.hardware.nodes or 1
    limit = float(shipped_yaml("knowledge.exchange", "peaks.yaml")["published_factor"])
    if o.flops / o.samples[0] > limit * peak:
        rate = o.flops / o.samples[0]
        yield f"{rate:.3g} FLOP/s are more than {limit:.0f} times the peak of its hardware, {peak:.3g} FLOP/s"


def _check_dawnbench(o: Observation) -> Iterator[str]:
    yield from _check_statements(o, ("task", "mode", "model", "target"))
    if len(o.samples) != 1 or "quality" not in o.metrics:
        yield "an entry of DAWNBench is one time with the quality that was reached"


def _check_statements(o: Observation, parameters: Collection[str]) -> Iterator[str]:
    """Check that a published figure says what it is of, by its parameters, and where it stands."""
    if o.indicator.version != 1:
        yield f"version {o.indicator.version} of `{o.indicator.name}` is unknown; the newest is 1"
    missing = [name for name in parameters if name not in o.indicator.parameters]
    missing += [name for name in ("repository", "source", "date") if not o.environment.get(name)]
    if missing:
        yield f"it does not say its {', '.join(f'`{name}`' for name in missing)}"


def peak_flops(hardware: HardwareProfile, device: str, dtype: str) -> float | None:
    """Return an upper bound of a machine's floating-point operations per second; ``None`` if it is unknown.

    ``device`` is ``cpu``, or ``cuda`` for all GPUs of the machine together.
    """
    if device == "cuda":
        accelerator = hardware.gpu or next(iter(hardware.accelerators), None)
        peak = peak_operations(accelerator, dtype) if accelerator is not None else None
        return None if accelerator is None or peak is None else peak * accelerator.count
    peaks = shipped_yaml("knowledge.exchange", "peaks.yaml")
    cores = hardware.cpu.cores or hardware.cpu.threads
    cycle = next((c["flops"] for c in peaks["cpu"]["cycle"] if c["feature"] in hardware.cpu.features), None)
    if device != "cpu" or cores is None or cycle is None:
        return None
    factor = float(peaks["cpu"]["short_factor"]) if dtype in _SHORT else 1.0
    return float(cycle) * cores * float(peaks["cpu"]["hertz"]) * factor

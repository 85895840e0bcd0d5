"""Hosts whose rates contradict those of other hosts: their number of GPUs is wrong."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from knowledge.exchange.published.machine import find_model
from knowledge.exchange.published.measurement import Measurement
from knowledge.hardware.accelerators import AcceleratorModel
from knowledge.hardware.partitions import part_of
from knowledge.hardware.peaks import largest_ratio

_FEWEST = 4
"""Least number of configurations that two hosts share before their rates are compared."""
_NEARLY_ALL = 0.8
"""Share of these configurations that must agree about a factor."""
_NEAR = 0.07
"""Relative distance from a whole number that is near: a slow host alone is rarely so close to half the speed. Hosts so
close to each other agree."""
_MARGIN = 1.5
"""By how much the median ratio of two accelerators may exceed the ratio of their peak rates: code does not use them in
the same degree. The factor is a judgement."""

_Rates = Mapping[Hashable, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    """The rates of a host for each GPU.

    Attributes:
        name: Its name in the table.
        model: Its accelerator.
        gpus: Stated number of them.
        rows: Line numbers of its rows.
        exact: Items per second by configuration, with the batch size.
        best: Largest number of items per second by configuration, whatever the batch size is.
    """

    name: str
    model: AcceleratorModel
    gpus: int
    rows: tuple[int, ...]
    exact: _Rates
    best: _Rates


def contradicted_hosts(measurements: Sequence[Measurement]) -> Mapping[int, str]:
    """Return the rows of hosts whose rates contradict those of others, with the reason.

    Only hosts with the same stated number of GPUs and the same version are compared. Two with the same accelerator
    contradict each other if one is 2, 3, ... times as fast in nearly all configurations that they share; two with
    different accelerators, if the median ratio of their rates is more than the accelerators' memory bandwidths and peak
    rates allow. The host that contradicts the most others is taken out first, of equal ones the fastest, until no two
    contradict each other. Of two that contradict only each other, one stays if it alone agrees with a third host that
    has the same accelerator; else both are taken out.

    Rows without a setting ``host``, and rows on accelerators that are not in the catalogue, are not compared.
    """
    hosts = _hosts(measurements)
    conflicts: dict[tuple[int, int], str] = {}
    for one, fast in enumerate(hosts):
        for other, slow in enumerate(hosts):
            if one != other and fast.gpus == slow.gpus and (words := _contradiction(fast, slow)):
                conflicts[one, other] = words
    reasons: dict[int, str] = {}
    remaining = set(range(len(hosts)))
    while conflicts:
        involved = Counter(number for pair in conflicts for number in pair)
        faster = Counter(one for one, _ in conflicts)
        worst = max(sorted(involved), key=lambda number: (involved[number], faster[number]))
        pair, text = next((pair, text) for pair, text in conflicts.items() if worst in pair)
        wrong: tuple[int, ...] = (worst,)
        if involved[worst] == 1:
            wrong, words = _wrong_of_two(hosts, pair, remaining)
            text += words
        whose = f"`{hosts[wrong[0]].name}`" if len(wrong) == 1 else "one of the two"
        for number in wrong:
            reasons |= dict.fromkeys(hosts[number].rows, f"{text}: the number of GPUs of {whose} is wrong")
        remaining -= set(wrong)
        conflicts = {pair: text for pair, text in conflicts.items() if not set(wrong) & set(pair)}
    return reasons


def _wrong_of_two(
    hosts: Sequence[_Host], pair: tuple[int, int], remaining: Collection[int]
) -> tuple[tuple[int, ...], str]:
    """Return which of two hosts that contradict only each other are wrong, and words about the other one."""
    witnesses = {
        number: next((hosts[n].name for n in sorted(remaining) if _agree(hosts[number], hosts[n])), "")
        for number in pair
    }
    right = [number for number in pair if witnesses[number]]
    if len(right) != 1:
        # Nothing says which is wrong.
        return pair, ""
    wrong = tuple(number for number in pair if number not in right)
    return wrong, f", and `{hosts[right[0]].name}` agrees with `{witnesses[right[0]]}`"


def _agree(one: _Host, other: _Host) -> bool:
    """Return whether two hosts with the same GPUs are equally fast in nearly all configurations that they share."""
    if one.name == other.name or one.model.name != other.model.name or one.gpus != other.gpus:
        return False
    ratios = [rate / other.exact[key] for key, rate in one.exact.items() if key in other.exact]
    near = sum(max(ratio, 1 / ratio) <= 1 + _NEAR for ratio in ratios)
    return len(ratios) >= _FEWEST and near >= _NEARLY_ALL * len(ratios)


def _hosts(measurements: Sequence[Measurement]) -> list[_Host]:
    groups: dict[tuple[str, str, str, str, int], list[Measurement]] = defaultdict(list)
    for m in measurements:
        if host := str(m.configuration.described.get("host", "")):
            version = m.versions.get("version", "")
            groups[m.row.text("repository"), host, m.gpu, version, m.gpus].append(m)
    hosts = []
    for (_, host, gpu, _, gpus), rows in sorted(groups.items()):
        model = find_model(gpu, "")
        # A part of a GPU (MIG) has only a part of its speed.
        if model is None or part_of(model.accelerator(), gpu).partition:
            continue
        exact: dict[Hashable, float] = {}
        best: dict[Hashable, float] = {}
        for m in rows:
            work = _work(m)
            rate = 1 / m.seconds
            exact[(*work, m.batch)] = max(rate, exact.get((*work, m.batch), 0.0))
            best[work] = max(rate, best.get(work, 0.0))
        numbers = tuple(m.row.number for m in rows)
        hosts.append(_Host(name=host, model=model, gpus=gpus, rows=numbers, exact=exact, best=best))
    return hosts


def _work(m: Measurement) -> tuple[Hashable, ...]:
    """Return everything that must be equal in rows whose rates are compared, except accelerator and batch size."""
    return (
        *m.work,
        m.versions.get("version", ""), m.container, m.precision, m.unit.name,
        tuple(sorted(m.configuration.speed.items())), tuple(sorted(m.configuration.parameters.items())),
    )  # fmt: skip


def _contradiction(fast: _Host, slow: _Host) -> str:
    """Return why one host cannot be as fast as its rows say, given those of another; empty if it can."""
    if fast.model.name == slow.model.name:
        ratios = [rate / slow.exact[key] for key, rate in fast.exact.items() if key in slow.exact]
        if len(ratios) < _FEWEST:
            return ""
        times = round(statistics.median(ratios))
        near = sum(abs(ratio / times - 1) <= _NEAR for ratio in ratios) if times > 1 else 0
        if near < _NEARLY_ALL * len(ratios):
            return ""
        return (
            f"`{fast.name}` is about {times} times as fast as `{slow.name}` with the same GPU in {near} of "
            f"{len(ratios)} configurations"
        )
    bound = largest_ratio(fast.model, slow.model)
    ratios = [rate / slow.best[key] for key, rate in fast.best.items() if key in slow.best]
    if bound is None or len(ratios) < _FEWEST or statistics.median(ratios) <= _MARGIN * bound:
        return ""
    return (
        f"`{fast.name}` ({fast.model.name}) is {statistics.median(ratios):.1f} times as fast as `{slow.name}` "
        f"({slow.model.name}), and its peak rates are at most {bound:.1f} times as high"
    )

"""Units of published measurements: rates and latencies in all their spellings, as seconds for each item."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from knowledge.exchange.published.columns import RowError, words

_NOT_A_UNIT = re.compile(
    r"\b(?:throughput|inference|training|performance|average|avg|mean|with|and|tensorrt|pytorch|tensorflow|trt|xla|asp|"
    r"[tb]?f(?:p|loat)?(?:8|16|32)|int8|mixed[ -]precision|amp)\b|\(?\bbs ?\d+\)?",
    re.IGNORECASE,
)
_RATE = re.compile(r"(?P<prefix>[kKM])?\s*\b(?P<item>[a-zA-Z]+)\s*(?:/|\bper\b)\s*(?P<time>[a-zA-Zµ]+)")
_DURATION = re.compile(r"\b(?P<time>s|secs?|seconds?|ms|msecs?|milliseconds?|us|usecs?|µs|microseconds?)\b")
_LATENCY = re.compile(r"\blatency\b|\btime\b", re.IGNORECASE)
_PER = re.compile(
    r"(?:/|\bper\b)\s*(?:(?P<device>gpus?|devices?|cards?|accelerators?|chips?)|(?P<user>users?))\b", re.IGNORECASE
)
_OTHER_PER = re.compile(r"(?:/|\bper\b)\s*(\w+)", re.IGNORECASE)
_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a value counts.

    Attributes:
        name: Normalised: what is counted in a second, such as ``images`` or ``tokens per user``, or ``latency``.
        factor: Items in a second for a value of 1; for a latency, its seconds.
        lower: Whether a lower value is better.
        per: What of several has the rate: each GPU, or each user; empty for all of them together.
    """

    name: str
    factor: float
    lower: bool
    per: Literal["", "device", "user"] = ""

    @property
    def item(self) -> str:
        """What is counted, of whatever has the rate."""
        return self.name.partition(" per ")[0]

    @property
    def of_all(self) -> Unit:
        """The unit of all devices or users together."""
        return replace(self, name=self.item, per="")

    def seconds_per_item(self, value: float, batch: int | None) -> float:
        """Return the seconds for each item; a latency is that of a batch, or of one item if no batch is stated."""
        return value * self.factor / (batch or 1) if self.lower else 1 / (value * self.factor)


def read_unit(text: str) -> Unit:
    """Read a unit, such as ``Throughput TF32 (img/s)``, ``mol/ms``, ``samples/sec`` or ``latency (ms)``.

    Raises:
        RowError: If it is not one unit.
    """
    # Some tables join a word to the unit: `samples/sAMP`, `Throughput mixed precisionASP`.
    plain = re.sub(r"(?<=[a-z])(?:AMP|ASP|XLA)\b", "", text)
    shares = {match.lastgroup for match in _PER.finditer(plain)}
    if len(shares) > 1:
        raise RowError(f"the unit `{text}` is of each device and of each user")
    plain = " ".join(_NOT_A_UNIT.sub(" ", _PER.sub(" ", plain)).replace("(", " ").replace(")", " ").split())
    rates = list(_RATE.finditer(plain))
    latency = _LATENCY.search(plain) is not None
    durations = [m for m in _DURATION.finditer(plain) if not any(r.start() <= m.start() < r.end() for r in rates)]
    if len(rates) > 1 or (rates and (latency or durations)) or len(durations) > 1:
        raise RowError(f"the unit `{text}` names more than one unit")
    if rates:
        if other := _OTHER_PER.search(_RATE.sub(" ", plain)):
            raise RowError(f"the unit `{text}` is of each `{other[1]}`, which is unknown")
        return _of_each(_rate(rates[0], text), shares)
    if latency or durations:
        if not durations:
            raise RowError(f"the unit `{text}` does not say whether it is in seconds or milliseconds")
        return Unit(name="latency", factor=_seconds(durations[0]["time"], text), lower=True)
    if not plain and re.search(r"throughput", text, re.IGNORECASE):
        return _of_each(Unit(name="items", factor=1.0, lower=False), shares)
    raise RowError(f"the unit `{text}` is unknown; known ones are such as `images/s`, `tokens/s` and `latency (ms)`")


def _of_each(unit: Unit, shares: Collection[str | None]) -> Unit:
    if "device" in shares:
        return replace(unit, name=f"{unit.name} per device", per="device")
    return replace(unit, name=f"{unit.name} per user", per="user") if "user" in shares else unit


def _rate(match: re.Match[str], text: str) -> Unit:
    item, prefix = match["item"], match["prefix"] or ""
    name = next((n for n, p in words()["items"].items() if re.fullmatch(p, item, re.IGNORECASE)), None)
    if name is None and item[:1] in _PREFIXES:
        # `Ksamples/s`, in one word.
        prefix, item = item[0], item[1:]
        name = next((n for n, p in words()["items"].items() if re.fullmatch(p, item, re.IGNORECASE)), None)
    if name is None:
        raise RowError(f"the unit `{text}` counts `{match['item']}`, which is unknown")
    return Unit(name=name, factor=_PREFIXES.get(prefix, 1.0) / _seconds(match["time"], text), lower=False)


def _seconds(word: str, text: str) -> float:
    for pattern, seconds in words()["seconds"].items():
        if re.fullmatch(pattern, word, re.IGNORECASE):
            return float(seconds)
    raise RowError(f"the unit `{text}` counts by `{word}`, which is not a unit of time")

"""Observations of DAWNBench's entries."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time

from packaging.version import InvalidVersion, Version

from knowledge.domain.frameworks import frameworks
from knowledge.domain.observation import DAWNBENCH, IndicatorRun, Observation, Scalar
from knowledge.domain.stack import PackageVersion, Stack
from knowledge.exchange.dawnbench.entries import DawnEntry
from knowledge.exchange.dawnbench.machines import DawnMachine
from knowledge.exchange.published.columns import words
from knowledge.exchange.published.names import read_task
from knowledge.exchange.published.observations import PUBLISHED_INDEX

REPOSITORY = "stanford-futuredata/dawn-bench-entries"
_HOUR = 3600.0
_NAME_AND_VERSION = re.compile(r"(?P<name>.*?)[ v]*(?P<version>\d[\w.+]*)?")
_LONGEST_TEXT = 200


def entry_observation(entry: DawnEntry, machine: DawnMachine, *, hourly: float | None) -> Observation:
    """Return the observation of an entry.

    Args:
        entry: The entry.
        machine: Its machines.
        hourly: USD an hour for all machines together; ``None`` if it is not known.
    """
    framework, version = read_framework(entry.framework)
    result = entry.result
    return Observation(
        indicator=IndicatorRun(
            name=DAWNBENCH,
            version=1,
            backend=framework,
            device=machine.device,
            dtype="as-submitted",
            parameters={
                "task": entry.task.name,
                "mode": entry.mode,
                "model": read_task(entry.model).name,
                "target": entry.task.target,
            },
        ),
        framework=framework,
        stack=_stack(framework, version, entry, machine),
        hardware=machine.hardware,
        block=f"{DAWNBENCH}/{entry.path.removesuffix('.json')}",
        round=0,
        arm=0,
        reference=True,
        started_at=datetime.combine(entry.date, time(), UTC).isoformat(timespec="seconds"),
        status="ok",
        samples=(float(f"{result.seconds:.9g}"),),
        loops=1,
        steady=True,
        environment=_environment(entry, machine),
        metrics={name: value for name, value in _metrics(entry, hourly).items() if value is not None},
        schema=2,
    )


def _metrics(entry: DawnEntry, hourly: float | None) -> dict[str, float | None]:
    """Return the figures of an entry: of a training, the cost is that of the time to the target."""
    result = entry.result
    cost = hourly * result.seconds / _HOUR if hourly is not None and entry.mode == "training" else None
    return {
        "quality": result.quality,
        "epochs": result.epochs,
        "usd_per_hour": hourly,
        "usd": None if cost is None else float(f"{cost:.9g}"),
        "usd_per_10000": None if result.cost_of_many is None else float(f"{result.cost_of_many:.9g}"),
    }


def _stack(framework: str, version: str, entry: DawnEntry, machine: DawnMachine) -> Stack:
    package = PackageVersion(name=framework, version=version, index=PUBLISHED_INDEX)
    architecture = machine.hardware.cpu.architecture
    return Stack(
        packages=(package,) if version else (),
        python="",
        platform=f"linux_{architecture}" if architecture else "",
        implementation="",
        cuda=entry.versions.get("cuda"),
        cudnn=entry.versions.get("cudnn"),
    )


def _environment(entry: DawnEntry, machine: DawnMachine) -> dict[str, Scalar]:
    texts = {
        "repository": REPOSITORY,
        "commit": entry.commit,
        "path": entry.path,
        "source": f"https://github.com/{REPOSITORY}/blob/{entry.commit}/{entry.path.replace(' ', '%20')}",
        "date": entry.date.isoformat(),
        "submitter": entry.author,
        "framework": entry.framework,
        "model": entry.model,
        "hardware": entry.hardware,
        "instance": machine.instance,
        "code": entry.code,
        "note": entry.result.note,
    }
    return {name: text[:_LONGEST_TEXT] for name, text in texts.items() if text}


def read_framework(text: str) -> tuple[str, str]:
    """Return the distribution that a text names, or the text in lower case, and its version if it is stated.

    A framework that this program measures counts more than one below it: ``TensorFlow + TensorRT`` is TensorFlow.
    """
    measured = {f.distributions[0]: f.published["names"] for f in frameworks().values() if f.published}
    for name, pattern in (measured | words()["frameworks"]).items():
        if match := re.search(rf"(?<![a-z])(?:{pattern})(?![a-z])", text, re.IGNORECASE):
            # Patterns of some names include the first digit of a version.
            rest = text[match.start() + len(match[0].rstrip("0123456789. ")) :]
            version = re.match(r"[ v]*(\d[\w.+]*)", rest)
            return str(name), _version(version[1] if version else "")
    whole = _NAME_AND_VERSION.fullmatch(text)
    words_before, stated = (whole["name"], whole["version"] or "") if whole else (text, "")
    return re.sub(r"[^a-z0-9.]+", "-", words_before.lower()).strip("-"), _version(stated)


def _version(text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion:
        return ""

"""Hardware profiles that ship with the program or that users write."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.hardware.accelerators import closest_models, find_accelerator
from knowledge.hardware.detect import detect
from knowledge.hardware.shipped_machines import cloud_instances, find_machine, shipped_machines
from knowledge.records import RecordError, parse_yaml, value_from

_SHORTEST_BEGINNING = 4
"""Least number of characters of the beginning of a name that is completed."""
_MOST_LONGER = 8
"""Number of names that a hint lists for a beginning."""


def name_hint(name: str) -> str:
    """Return a hint with the profiles that begin in the same way, or at most three that a wrong name may mean."""
    machines, instances = shipped_machines(), cloud_instances()
    beginning = name.lower().rstrip(".…*")
    beginnings = (beginning, f"standard_{beginning}")
    longer = [profile for profile in (*machines, *instances) if profile.lower().startswith(beginnings)]
    if longer and len(beginning) >= _SHORTEST_BEGINNING:
        rest = f"; {len(longer) - _MOST_LONGER} more begin in this way" if len(longer) > _MOST_LONGER else ""
        return f"did you mean {' or '.join(f'`{profile}`' for profile in longer[:_MOST_LONGER])}?{rest}"
    model = find_accelerator(name)
    matches = (model.name, model.family, *model.variants) if model is not None else ()
    similar = difflib.get_close_matches(name.lower(), [*machines, *instances], n=3, cutoff=0.7)
    nearest = [
        profile
        for profile in dict.fromkeys((*matches, *similar, *closest_models(name)))
        if profile in machines or profile in instances
    ]
    if not nearest:
        return "`advisor hardware list` lists the shipped profiles"
    return f"did you mean {' or '.join(f'`{profile}`' for profile in nearest[:3])}?"


def find_profile(choice: str) -> HardwareProfile:
    """Return the profile of a ``--hardware`` option: ``detect``, a shipped profile, a cloud instance, or a file.

    Raises:
        InputError: If there is no such profile, whose hint has the nearest names, or the file is not one.
    """
    if choice == "detect":
        return detect()
    path = Path(choice)
    if path.suffix in (".yaml", ".yml", ".json"):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the hardware profile `{path}` cannot be read: {error}") from None
        return read_profile(text, where=str(path), name=path.stem)
    machine = find_machine(choice)
    if machine is None:
        raise InputError(f"there is no hardware profile `{choice}`", hint=name_hint(choice))
    return machine.profile


def read_profile(text: str, *, where: str, name: str) -> HardwareProfile:
    """Read a profile from YAML or JSON; the fields ``source``, ``catalogue`` and ``matrix`` are ignored.

    Raises:
        InputError: If it is not a hardware profile; the message names the field.
    """
    try:
        document = parse_yaml(text)
    except ValueError as error:
        raise InputError(f"the hardware profile `{where}` is not YAML: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"the hardware profile `{where}` is not a table of fields")
    for comment in ("source", "catalogue", "matrix"):
        document.pop(comment, None)
    if document.get("driver") is not None:
        document["driver"] = _driver(document["driver"], where)
    try:
        return value_from(HardwareProfile, {"name": name, **document})
    except RecordError as error:
        raise InputError(
            f"the hardware profile `{where}` has a wrong {error}",
            hint="`advisor hardware show --format json` prints a valid profile",
        ) from None


def _driver(value: Any, where: str) -> dict[str, Any]:
    """Return the driver of a profile, which may be its version alone."""
    driver: dict[str, Any] = (
        value if isinstance(value, dict) else {"version": str(value) if type(value) is int else value}
    )
    version: Any = driver.get("version")
    try:
        Version(version)
    except (InvalidVersion, TypeError):
        raise InputError(
            f"the hardware profile `{where}` has a wrong field `driver`: `{version}` is not the version of a driver",
            hint='write it in quotes: `driver: "580.65.06"`; `nvidia-smi` prints it',
        ) from None
    return driver

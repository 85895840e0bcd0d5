"""Hardware profiles that ship with the program or that users write."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.suggestions import suggest
from knowledge.hardware.detect import detect


def shipped_names() -> tuple[str, ...]:
    """Return the names of the shipped profiles, sorted."""
    folder = importlib.resources.files("knowledge.hardware") / "profiles"
    return tuple(sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")))


def shipped_profile(name: str) -> HardwareProfile:
    """Return a shipped profile.

    Raises:
        InputError: If there is no profile with this name.
    """
    if name not in shipped_names():
        hint = suggest(name, shipped_names(), otherwise="`advisor hardware list` lists the shipped profiles")
        raise InputError(f"there is no hardware profile `{name}`", hint=hint)
    text = (importlib.resources.files("knowledge.hardware") / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")
    return read_profile(text, where=f"{name}.yaml", name=name)


def find_profile(choice: str) -> HardwareProfile:
    """Return the profile of a ``--hardware`` option: ``detect``, a shipped profile, or a YAML or JSON file.

    Raises:
        InputError: If there is no such profile, or the file is not one.
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
    return shipped_profile(choice.lower())


def read_profile(text: str, *, where: str, name: str) -> HardwareProfile:
    """Read a profile from YAML or JSON; the field ``source`` is ignored.

    Raises:
        InputError: If it is not a hardware profile; the message names the field.
    """
    import yaml
    from pydantic import TypeAdapter, ValidationError

    try:
        document: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"the hardware profile `{where}` is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise InputError(f"the hardware profile `{where}` is not a table of fields")
    document.pop("source", None)
    try:
        return TypeAdapter(HardwareProfile).validate_python({"name": name, **document})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"the hardware profile `{where}` has a wrong field `{field}`: {first['msg'].lower()}",
            hint="`advisor hardware show --format json` prints a valid profile",
        ) from None

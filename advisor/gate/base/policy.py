"""The policy of the base: settings of `[tool.advisor]` that a change cannot set for its own check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.gate.findings import Finding, Place
from advisor.gate.policy import GatePolicy, read_policy
from advisor.locks.registry import own_lock
from advisor.project.formats.pyproject import read_settings
from advisor.project.text_file import line_in, read_text
from knowledge.domain.errors import InputError

CHANGE_KEYS = ("constraints", "settings")
"""Keys of `[tool.advisor]` that belong to the project's requirements: they are taken from the change, not the base."""

_TABLES_BY_KEY = ("gate", "targets")
_PROFILES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, kw_only=True)
class BasePolicy:
    """The settings of a base (`[tool.advisor]`, as written there) and its policy, by which a change is checked."""

    name: str
    directory: Path
    settings: Mapping[str, Any]
    policy: GatePolicy

    def settings_for(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings under which a change is checked, from the change's own `[tool.advisor]`.

        They are those of the base, with the change's constraints and run-time settings. Hardware profiles of the
        project are those of the base.
        """
        settings = self._with_own_profile({k: v for k, v in self.settings.items() if k not in CHANGE_KEYS})
        if "targets" in settings:
            settings["targets"] = {n: self._with_own_profile(table) for n, table in settings["targets"].items()}
        return {**settings, **{key: own[key] for key in CHANGE_KEYS if key in own}}

    def _with_own_profile(self, table: Mapping[str, Any]) -> dict[str, Any]:
        profile = table.get("hardware", "")
        return {**table, "hardware": str(self.directory / profile)} if _is_profile(profile) else {**table}

    def changes(self, own: Mapping[str, Any], directory: Path) -> Iterator[Finding]:
        """Yield a finding for each part of the policy that a change, in a directory, has differently from the base."""
        path = directory / "pyproject.toml"
        text = read_text(path) if path.is_file() else ""
        before, after = _by_key(self.settings), _by_key(own)
        for key in sorted({*before, *after}):
            if before.get(key) != after.get(key):
                table, _, last = ".".join(["tool", "advisor", *key]).rpartition(".")
                header = f"[tool.advisor.{'.'.join(key)}]"
                parts = (header,) if header in text else (f"[{table}]", f"{last} =")
                place = Place(path=str(path), line=line_in(text, *parts))
                name = ".".join(key)
                yield self.finding(f"`tool.advisor.{name}` differs from that of {self.name}", place, name)
        for name in profiles(self.settings):
            if _content(directory / name) != _content(self.directory / name):
                place = Place(path=str(directory / name), line=1)
                yield self.finding(f"`{name}` differs from that of {self.name}", place, name)
        lock, same = own_lock(directory), self.lock_in(directory)
        if lock is not None and same is not None and lock != same:
            difference = f"the change adds the lock `{lock.name}`; `{same.name}` is checked, as in {self.name}"
            yield self.finding(difference, Place(path=str(lock), line=1), lock.name)

    def lock_in(self, directory: Path) -> Path | None:
        """Return the project's file that has the name of the base's lock; `None` if either is absent."""
        lock = own_lock(self.directory)
        same = None if lock is None else directory / lock.name
        return same if same is not None and same.is_file() else None

    def finding(self, difference: str, place: Place, subject: str = "") -> Finding:
        """Return the finding for a part of the policy, by default a file, that differs between change and base."""
        return Finding(
            code="ADV028",
            level=self.policy.level_of("ADV028"),
            message=f"{difference}: the policy of {self.name} applies",
            place=place,
            subject=subject or place.path,
        )


def read_base_policy(name: str, directory: Path) -> BasePolicy:
    """Read the policy of a base, or the default one if it has none.

    Raises:
        InputError: If it cannot be read.
    """
    path = directory / "pyproject.toml"
    try:
        settings = read_settings(path) if path.is_file() else {}
        policy = read_policy(settings.get("gate", {}))
    except InputError as error:
        raise InputError(
            f"the policy of the base {name} cannot be read: {error.message}".replace(str(path), path.name),
            hint="repair the base, or apply the change's own policy with `--no-policy-from-base`",
        ) from None
    return BasePolicy(name=name, directory=directory, settings=settings, policy=policy)


def profiles(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hardware profiles that are files of the project, sorted."""
    tables = [settings, *settings.get("targets", {}).values()]
    return tuple(sorted({table["hardware"] for table in tables if _is_profile(table.get("hardware"))}))


def _is_profile(hardware: Any) -> bool:
    return isinstance(hardware, str) and hardware.endswith(_PROFILES)


def _by_key(settings: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return the settings of the policy by key path, with one entry per gate key and per target."""
    values: dict[tuple[str, ...], Any] = {}
    for key, value in settings.items():
        if key in _TABLES_BY_KEY:
            values |= {(key, name): entry for name, entry in value.items()}
        elif key not in CHANGE_KEYS:
            values[(key,)] = value
    return values


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None

"""The run-time settings of a lock: in its table `[tool.advisor]`, or in a file next to a lock without such tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field

from advisor.locks.certificate import Certificate, certificate_from
from advisor.locks.registry import SETTINGS_FILE, format_of, lock_formats
from advisor.locks.setting_value import (
    TABLE_VERSION,
    AppliedSetting,
    applied_setting,
    setting_record,
    settings_table,
    sorted_settings,
)
from advisor.project.text_file import read_toml, toml_text
from knowledge.catalogue.settings import ANY, Numerics
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import MEASURED
from knowledge.records import RecordError, value_from

_HEADER = "# Run-time settings for the lock in this directory, written by `advisor advise`.\n"
_REWRITE = "write it again with `advisor advise`"

_Text = Annotated[str, Field(max_length=10_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSettings:
    """Run-time settings of a lock, or settings that a user named.

    Attributes:
        settings: The settings, sorted by framework and name.
        changed: Settings, as ``name=value``, that the file records differently from the catalogue of today.
        versions: Locked versions of frameworks, by name of the framework; empty for a file next to a lock.
        source: The lock or settings file of settings to run a program with; `None` if a user named all of them.
        certificate: What an experiment says about the lock; `None` if none was made.
    """

    settings: tuple[AppliedSetting, ...] = ()
    changed: tuple[str, ...] = ()
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: Path | None = None
    certificate: Certificate | None = None

    @property
    def values(self) -> dict[str, dict[str, int | str]]:
        """Values by framework and name."""
        values: dict[str, dict[str, int | str]] = {}
        for setting in self.settings:
            values.setdefault(setting.framework, {})[setting.name] = setting.value
        return values

    def known_to(self, stack: Mapping[str, Version]) -> tuple[AppliedSetting, ...]:
        """Return the settings that the frameworks of a stack have, by package name and version."""
        locked = [(MEASURED[name], version) for name, version in stack.items() if name in MEASURED]
        return tuple(
            setting
            for setting in self.settings
            if any(setting.framework in (ANY, name) and setting.choice.admits(version) for name, version in locked)
        )


class _Setting(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    framework: _Text
    name: _Text
    value: Annotated[int, Field(ge=-(2**31), lt=2**31)] | _Text
    numerics: Numerics
    environment: dict[_Text, _Text] = {}
    code: Annotated[list[_Text], Field(max_length=100)] = []
    processors: Literal["count", "node"] | None = None
    hint: _Text = ""


class _Table(BaseModel):
    # Other keys of `[tool.advisor]` are about something else.
    model_config = ConfigDict(extra="ignore", strict=True)
    version: Annotated[int, Field(alias="settings-version", ge=TABLE_VERSION, le=TABLE_VERSION)]
    settings: Annotated[list[_Setting], Field(max_length=1000)]
    certificate: dict[_Text, Any] | None = None


class _File(_Table):
    model_config = ConfigDict(extra="forbid", strict=True)


def locked_settings(values: Mapping[str, Mapping[str, int | str]]) -> tuple[AppliedSetting, ...]:
    """Return sorted settings for a lock from values by framework and name.

    Raises:
        InputError: If the catalogue does not have a framework, setting or value, or a setting that is the same for all
            frameworks has two values.
    """
    settings: dict[tuple[str, str], AppliedSetting] = {}
    for framework, named in values.items():
        for name, value in named.items():
            setting = applied_setting(framework, name, value)
            same = settings.setdefault((setting.framework, name), setting)
            if same.value != value:
                raise InputError(f"`{same.text}` and `{setting.text}` contradict each other", hint="remove one of them")
    return sorted_settings(settings.values())


def settings_text(settings: Iterable[AppliedSetting], certificate: Certificate | None = None) -> str:
    """Return the content of a settings file; the same settings give the same bytes."""
    return _HEADER + toml_text(settings_table(settings, certificate))


def settings_path(lock: Path) -> Path:
    """Return the file with the settings of a lock: the lock itself if its format has settings, or a file next to it.

    Locks with a name of their own, such as ``gpu.txt``, have one of their own, such as ``advisor-settings.gpu.toml``.
    """
    lock_format = format_of(lock)
    if lock_format is not None and lock_format.holds_settings:
        return lock
    stem = lock.name.removesuffix(lock_format.suffix if lock_format else "")
    has_usual_name = any(stem == usual.name.removesuffix(usual.suffix) for usual in lock_formats())
    return lock.with_name(SETTINGS_FILE if has_usual_name else f"advisor-settings.{stem}.toml")


def settings_texts(
    locks: Iterable[Path], settings: Iterable[AppliedSetting], certificate: Certificate | None = None
) -> dict[Path, str]:
    """Return the settings files to write next to locks that cannot contain settings.

    Without settings, only files that exist are written, so that none of them keeps settings of an earlier advice.
    """
    settings = sorted_settings(settings)
    paths = [path for lock in locks if (path := settings_path(lock)) != lock]
    has_content = bool(settings) or certificate is not None
    return {path: settings_text(settings, certificate) for path in paths if has_content or path.exists()}


def read_settings(lock: Path) -> AppliedSettings | None:
    """Return the settings in a lock or a settings file; `None` if the lock was written without settings.

    What applies a setting comes from the catalogue, never from the file: a file cannot set other variables.

    Raises:
        InputError: If the lock does not exist, or its settings cannot be read or are not valid.
    """
    path = settings_path(lock)
    if path != lock and not path.is_file():
        if not lock.is_file():
            problem = "is a directory" if lock.is_dir() else "does not exist"
            raise InputError(f"`{lock}` {problem}", hint="name a lock, or a settings file")
        return None
    document = _parsed(path)
    if not any(lock_format.holds_settings and lock_format.writes(path) for lock_format in lock_formats()):
        return _settings_of(_validated(_File, document, path, place=""), path, {})
    tool = document.get("tool")
    table = tool.get("advisor") if isinstance(tool, Mapping) else None
    if not isinstance(table, Mapping) or "settings" not in table:
        return None
    content = _validated(_Table, table, path, place="tool.advisor.")
    return _settings_of(content, path, _framework_versions(document))


def _parsed(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "does not exist"
        raise InputError(f"`{path}` {problem}", hint="name a lock, or a settings file")
    return read_toml(path, hint=_REWRITE).document


def _validated(model: type[_Table], document: Mapping[str, Any], path: Path, *, place: str) -> _Table:
    version = document.get("settings-version")
    if isinstance(version, int) and version > TABLE_VERSION:
        raise InputError(
            f"`{path}` has settings of version {version}, and this program reads version {TABLE_VERSION}",
            hint="upgrade the program: `pip install --upgrade seshat-advisor`",
        )
    try:
        return value_from(model, document)
    except RecordError as error:
        raise InputError(f"`{path}` is not valid: {error.reason}, in `{place}{error.place}`", hint=_REWRITE) from None


def _settings_of(table: _Table, path: Path, versions: Mapping[str, tuple[str, ...]]) -> AppliedSettings:
    settings: dict[tuple[str, str], AppliedSetting] = {}
    changed = []
    for entry in table.settings:
        try:
            setting = applied_setting(entry.framework, entry.name, entry.value)
        except InputError as error:
            raise InputError(f"`{path}`: {error.message}", hint=error.hint) from None
        key = (setting.framework, setting.name)
        if key in settings:
            raise InputError(f"`{path}` has the setting `{setting.name}` of `{setting.framework}` twice", hint=_REWRITE)
        settings[key] = setting
        if entry.model_dump(exclude_defaults=True) != setting_record(setting):
            changed.append(setting.text)
    return AppliedSettings(
        settings=sorted_settings(settings.values()),
        changed=tuple(changed),
        versions=versions,
        certificate=_certificate_of(table, path),
    )


def _certificate_of(table: _Table, path: Path) -> Certificate | None:
    try:
        return None if table.certificate is None else certificate_from(table.certificate)
    except RecordError as error:
        message = f"`{path}` is not valid: {error.reason}, in `{error.place}` of the certificate"
        raise InputError(message, hint="write it again with `advisor advise --measure`") from None


def _framework_versions(document: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the versions of frameworks in a lock; a lock for several targets can have several of them."""
    versions: dict[str, set[str]] = {}
    packages = document.get("packages")
    for package in packages if isinstance(packages, list) else ():
        name = package.get("name") if isinstance(package, Mapping) else None
        framework = MEASURED.get(canonicalize_name(name)) if isinstance(name, str) else None
        if framework is not None:
            versions.setdefault(framework, set()).add(str(package.get("version", "")))
    return {framework: tuple(sorted(listed - {""})) for framework, listed in sorted(versions.items())}

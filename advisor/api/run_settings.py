"""The run-time settings to run a program with: from a lock, or named by the user."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from packaging.version import InvalidVersion, Version

from advisor.domain.words import in_words, quoted
from advisor.locks.registry import files_with_settings
from advisor.locks.setting_value import AppliedSetting, framework_of, frameworks_text
from advisor.locks.settings_table import AppliedSettings as AppliedSettings
from advisor.locks.settings_table import locked_settings, read_settings
from advisor.project.settings.interface import ProjectSetting
from advisor.project.settings.project_settings import settings_in_file
from knowledge.catalogue.fit import contradictions
from knowledge.catalogue.settings import ANY, DEFAULT, JOINED_VARIABLES, setting_error, shipped_settings
from knowledge.domain.errors import InputError


def read_run_settings(
    *,
    lock: Path | None = None,
    values: Sequence[tuple[str, int | str]] = (),
    frameworks: Sequence[str] = (),
) -> AppliedSettings:
    """Return the settings of a lock, with the settings that the user names in their place.

    Args:
        lock: A lock, or a settings file; by default one in this directory, unless values are given.
        values: Names and values of settings; the value :data:`DEFAULT` leaves out a setting of the lock.
        frameworks: Frameworks that the values are for; by default the lock's frameworks, else all that have the setting
            if its name leaves no doubt.

    Raises:
        InputError: If there are no settings, a setting is not valid, or settings contradict each other.
    """
    content = _read(lock, is_required=not values)
    names = tuple(dict.fromkeys(framework_of(name) for name in frameworks))
    selection = content.values
    last_values = dict(values)
    for name, value in values:
        if last_values[name] != value:
            raise InputError(f"`--settings` has two values of `{name}`: `{value}` and `{last_values[name]}`")
        if value == DEFAULT and name in shipped_settings():
            for framework in (*names, ANY) if names else tuple(selection):
                selection.get(framework, {}).pop(name, None)
            continue
        for framework in _frameworks_of(name, value, names, content):
            selection.setdefault(framework, {})[name] = value
    if names:
        selection = {framework: named for framework, named in selection.items() if framework in (*names, ANY)}
    result = replace(content, settings=locked_settings(selection))
    try:
        _check(result.settings, content.versions)
    except InputError as error:
        where = f"`{content.source}`: " if content.source is not None and not values else ""
        raise InputError(f"{where}{error.message}", hint=error.hint) from None
    return result


def _read(lock: Path | None, *, is_required: bool) -> AppliedSettings:
    if lock is None and not is_required:
        return AppliedSettings()
    paths = [lock] if lock else [path for name in files_with_settings() if (path := Path(name)).is_file()]
    for path in paths:
        if (content := read_settings(path)) is not None:
            return replace(content, source=path)
    if not paths:
        raise InputError(
            f"there is no {in_words([f'`{name}`' for name in files_with_settings()], 'or')} in this directory",
            hint="name a lock with `--lock FILE`, or settings with `--settings NAME=VALUE,...`",
        )
    if not is_required:
        return AppliedSettings(source=paths[0])
    raise InputError(
        f"`{paths[0]}` has no run-time settings",
        hint="write them with `advisor advise`, or name some with `--settings NAME=VALUE,...`",
    )


def _frameworks_of(name: str, value: int | str, selection: Sequence[str], content: AppliedSettings) -> Sequence[str]:
    """Return the frameworks that a value is for."""
    if (problem := setting_error(name, value)) is not None:
        raise InputError(f"`--settings {name}={value}`: {problem}", hint="`advisor pi settings` lists all settings")
    setting = shipped_settings()[name]
    backends = [framework.backend for framework in setting.frameworks]
    if ANY in backends:
        return [ANY]
    # Frameworks that a lock contains, or has settings of.
    candidates = selection or sorted({*content.versions, *content.values} - {ANY})
    having = [framework for framework in candidates if framework in backends]
    if having:
        return having
    if candidates:
        raise InputError(
            f"`{name}` is not a setting of {quoted(candidates)}", hint=f"these have it: {frameworks_text(setting)}"
        )
    if len(backends) > 1:
        raise InputError(
            f"`--settings {name}={value}` does not say which framework it is for",
            hint=f"add `--framework NAME`; these have it: {frameworks_text(setting)}",
        )
    return backends


def _check(settings: Sequence[AppliedSetting], versions: Mapping[str, tuple[str, ...]]) -> None:
    """Check that the locked versions know the settings, and that these do not contradict each other."""
    for setting in settings:
        locked = [version for text in versions.get(setting.framework, ()) if (version := _version(text))]
        if locked and not any(setting.choice.admits(version) for version in locked):
            raise InputError(
                f"`{setting.text}` needs {setting.framework}{setting.choice.versions}, and the lock has "
                f"{' and '.join(map(str, locked))}",
                hint="remove the setting, or lock another version",
            )
    if (contradiction := next(_contradictions(settings), None)) is not None:
        raise InputError(contradiction, hint="remove one of them")


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _contradictions(settings: Sequence[AppliedSetting]) -> Iterator[str]:
    """Yield sentences about settings that exclude each other, or whose frameworks need different variables."""
    for framework in sorted({setting.framework for setting in settings}):
        yield from contradictions(
            {s.name: s.value for s in settings if s.framework in (framework, ANY)}, backend=framework
        )
    for one, other in combinations(settings, 2):
        # In one framework, a setting may override variables of another one.
        if one.framework == other.framework:
            continue
        for variable in sorted(one.environment.keys() & other.environment.keys() - JOINED_VARIABLES.keys()):
            if one.environment[variable] != other.environment[variable]:
                both = f"`{one.text}` of `{one.framework}` and `{other.text}` of `{other.framework}`"
                yield f"{both} contradict each other: both set `{variable}`"


def ignores_variables(command: Sequence[str]) -> bool:
    """Whether a command starts Python without the variables or the module that run code at its start."""
    return any(
        option[1] not in "-WXcm" and set(option) & set("IES") for option in _interpreter_options(command) if option[1:]
    )


_INTERPRETER = re.compile(r"(?:python|pypy)[0-9.]*")


def overridden_settings(
    command: Sequence[str], applied: Sequence[AppliedSetting]
) -> Iterator[tuple[AppliedSetting, ProjectSetting]]:
    """Yield each setting that a Python file of a command overrides, with the place that does it.

    Only the files and modules that the command names are read, not those that they import: `advisor check` reads the
    whole project.
    """
    for path in _python_files(command):
        for used in settings_in_file(path):
            for setting in applied:
                is_other = used.value != str(setting.value)
                applies = setting.framework == ANY or used.applies_to(setting.framework)
                if used.overrides_environment and used.name == setting.name and applies and is_other:
                    yield setting, used


def _python_files(command: Sequence[str]) -> Iterator[Path]:
    """Yield the Python files that a command names, as files or as a module of the present directory (``-m``)."""
    yield from (Path(word) for word in command if word.endswith(".py"))
    for option in _interpreter_options(command):
        name = option.removeprefix("-m") if option.startswith("-m") else ""
        if name and all(part.isidentifier() for part in name.split(".")):
            module = Path(*name.split("."))
            yield from (module.with_suffix(".py"), module / "__main__.py")


def _interpreter_options(command: Sequence[str]) -> Iterator[str]:
    """Yield the options of Python in a command that starts it: they come before the program."""
    if command and _INTERPRETER.fullmatch(Path(command[0]).name):
        # `-W` and `-X` may have their value in the next word.
        yield from itertools.takewhile(lambda word: word.startswith("-"), _without_values(command[1:]))


def _without_values(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command until ``-c`` or a module, each option of two words as one."""
    rest = iter(words)
    for word in rest:
        if word == "-c":
            return
        yield word + next(rest, "") if word in ("-m", "-W", "-X") else word
        if word.startswith("-m"):
            return

"""The benchmark of a project: the table `[tool.advisor.benchmark]` of `pyproject.toml`, and its files.

An `InputError` is raised if there is no benchmark, a key or value of its table is wrong, or a pattern matches no file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from advisor.project.formats.pyproject import read_identity, read_settings
from advisor.project.metadata.copy import list_files
from knowledge.catalogue.settings import ANY, setting_error, shipped_settings
from knowledge.domain.errors import InputError, suggest
from pi_runners.execution.benchmark import Benchmark, Metric

_KEYS = ("command", "startup", "metric", "result", "files", "warmup", "options")
_METRIC_KEYS = ("pattern", "unit", "better")
_STATISTICS = ("median", "last")
_FILE = "pyproject.toml"
_DEFAULT_FILES = ("**/*.py",)
_MOST_WARMUP_RUNS = 100
_EXAMPLES = {
    "command": 'command = "python bench.py"',
    "startup": 'startup = "python bench.py --steps 1"',
    "metric": 'metric = { pattern = "throughput: ([0-9.]+)", unit = "images/s", better = "higher" }',
    "result": 'result = "loss: ([0-9.]+)"',
    "files": 'files = ["bench.py", "data/*.csv"]',
    "warmup": "warmup = 1",
    "options": 'options = { "compile=on" = "--compile" }',
}


class BenchmarkTable(NamedTuple):
    """The table, validated; its files are patterns."""

    command: tuple[str, ...]
    startup: tuple[str, ...]
    metric: Metric
    result: str
    files: tuple[str, ...]
    warmup_runs: int
    options: Mapping[str, tuple[str, ...]]


def read_benchmark(directory: Path) -> Benchmark:
    """Return the benchmark of a project, with the files that it has now.

    Its identity selects its observations (:func:`knowledge.evidence.stacks.benchmark_comparisons`).
    """
    path = directory / _FILE
    settings = read_settings(path) if path.is_file() else {}
    if "benchmark" not in settings:
        raise InputError(
            f"`{path}` defines no benchmark",
            hint="`advisor benchmark init` proposes one; or add `[tool.advisor.benchmark]` with "
            f"`{_EXAMPLES['command']}`",
        )
    return benchmark_of(directory, settings["benchmark"])


def benchmark_of(directory: Path, table: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark of a table ``[tool.advisor.benchmark]``, with the files that a project has now."""
    checked, identity = check_benchmark(table), read_identity(directory / _FILE)
    return Benchmark(
        project=identity.name if identity else os.fsencode(directory.resolve().name).decode("utf-8", "replace"),
        command=checked.command,
        startup=checked.startup,
        metric=checked.metric,
        result=checked.result,
        warmup_runs=checked.warmup_runs,
        files={name: _sha256(directory / name) for name in select_files(checked.files, list_files(directory))},
        directory=directory,
        options=checked.options,
    )


def check_benchmark(table: Mapping[str, Any]) -> BenchmarkTable:
    """Return the benchmark of a table ``[tool.advisor.benchmark]``."""
    _check_keys(table, _KEYS, "benchmark")
    if "command" not in table:
        hint = f"add `{_EXAMPLES['command']}`"
        raise InputError(f"`{_FILE}`: `[tool.advisor.benchmark]` has no `command`", hint=hint)
    metric = _read_metric(table.get("metric", "seconds"))
    if "startup" in table and metric.pattern:
        raise InputError(
            f"`{_FILE}`: `tool.advisor.benchmark.startup` is subtracted from seconds, and `metric` reads the output",
            hint="remove one of them",
        )
    return BenchmarkTable(
        command=_read_command(table["command"], "command"),
        startup=_read_command(table["startup"], "startup") if "startup" in table else (),
        metric=metric,
        result=_read_result(table["result"]) if "result" in table else "",
        files=_read_patterns(table.get("files", list(_DEFAULT_FILES))),
        warmup_runs=_read_warmup(table.get("warmup", 1)),
        options=_read_options(table.get("options", {})),
    )


def select_files(patterns: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the files that patterns match, sorted.

    Args:
        patterns: Patterns of paths with `*`, `?`, `[...]` and, for any number of directories, `**`; a pattern that
            matches a directory selects all files in it.
        names: Paths of all files.
    """
    parts = {name: tuple(name.split("/")) for name in names}
    selected: set[str] = set()
    for pattern in patterns:
        matches = {name for name in parts if _matches(parts[name], tuple(pattern.split("/")))}
        if not matches:
            raise InputError(
                f"`{_FILE}`: `{pattern}` in `tool.advisor.benchmark.files` matches no file of the project",
                hint="correct the pattern; a file that git ignores is not part of the project's copy",
            )
        selected |= matches
    for name in selected:
        if not name.isprintable():
            raise InputError(
                f"`{_FILE}`: `tool.advisor.benchmark.files` selects `{name!a}`, whose name is not printable",
                hint="rename the file, or narrow the pattern",
            )
    return tuple(sorted(selected))


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_matches(path[skipped:], pattern[1:]) for skipped in range(len(path)))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _matches(path[1:], pattern[1:])


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"`{path}`, one of the benchmark's `files`, cannot be read: {error.strerror}",
            hint="narrow `files` of `[tool.advisor.benchmark]`",
        ) from None


def _check_keys(table: Mapping[str, Any], keys: Sequence[str], name: str) -> None:
    for key in table:
        if key not in keys:
            raise InputError(f"`{_FILE}`: `[tool.advisor.{name}]` has no key `{key}`", hint=suggest(key, keys))


def _read_command(value: Any, key: str) -> tuple[str, ...]:
    words = _read_words(value, key, "")
    if not words or not words[0]:
        raise _wrong_value(key, "names no program")
    return words


def _read_words(value: Any, key: str, place: str) -> tuple[str, ...]:
    """Return the words of a text, as a shell splits it."""
    if not isinstance(value, str):
        raise _wrong_value(key, f"{place}is not a string")
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise _wrong_value(key, f"{place}cannot be split into words: {error}") from None
    if "\0" in value:
        raise _wrong_value(key, f"{place}contains a null character")
    return words


def _read_options(value: Any) -> dict[str, tuple[str, ...]]:
    """Return the words that apply settings, by setting."""
    if not isinstance(value, dict):
        raise _wrong_value("options", "is not a table of settings with options of the command")
    options = {}
    for setting, text in value.items():
        name, _, word = setting.partition("=")
        is_number = name in shipped_settings() and shipped_settings()[name].least is not None
        if not (is_number and word == ANY):
            problem = setting_error(name, int(word) if is_number and word.isascii() and word.isdecimal() else word)
            if problem is not None:
                raise _wrong_value("options", f"has the key `{setting}`: {problem}")
        options[setting] = _read_words(text, "options", f"`{setting}` ")
        if not options[setting]:
            raise _wrong_value("options", f"`{setting}` is empty")
    return options


def _read_metric(value: Any) -> Metric:
    if value == "seconds":
        return Metric()
    if not isinstance(value, dict):
        raise _wrong_value("metric", "is neither `seconds` nor a table")
    _check_keys(value, (*_METRIC_KEYS, "statistic"), "benchmark.metric")
    for key in _METRIC_KEYS:
        if not isinstance(value.get(key), str) or not value[key].strip() or not value[key].isprintable():
            raise _wrong_value("metric", f"has no string `{key}`")
    _check_pattern(value["pattern"], "metric", "has a `pattern`")
    if value["better"] not in ("higher", "lower"):
        raise _wrong_value("metric", "has a `better` that is neither `higher` nor `lower`")
    statistic = value.get("statistic", "")
    if "statistic" in value and statistic not in _STATISTICS:
        raise _wrong_value("metric", "has a `statistic` that is neither `median` nor `last`")
    return Metric(pattern=value["pattern"], unit=value["unit"].strip(), better=value["better"], statistic=statistic)


def _read_result(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _wrong_value("result", "is not a regular expression")
    _check_pattern(value, "result", "is a pattern")
    return value


def _check_pattern(pattern: str, key: str, subject: str) -> None:
    """Refuse what is not a regular expression with one group."""
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise _wrong_value(key, f"{subject} that is not a regular expression: {error}") from None
    if groups != 1:
        raise _wrong_value(key, f"{subject} with {groups} groups; exactly one matches the number")


def _read_patterns(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(pattern, str) for pattern in value):
        raise _wrong_value("files", "is not a list of patterns")
    patterns = tuple(pattern.removeprefix("./").rstrip("/") for pattern in value)
    for pattern in patterns:
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise _wrong_value("files", f"contains `{pattern}`, which is not a path in the project")
    return patterns


def _read_warmup(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_WARMUP_RUNS:
        raise _wrong_value("warmup", f"is not a whole number from 0 to {_MOST_WARMUP_RUNS}")
    return value


def _wrong_value(key: str, reason: str) -> InputError:
    return InputError(f"`{_FILE}`: `tool.advisor.benchmark.{key}` {reason}", hint=f"write it as `{_EXAMPLES[key]}`")

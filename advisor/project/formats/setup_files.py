"""Reads `setup.cfg` and `setup.py` without running them.

Sources of the keys: https://setuptools.pypa.io/en/latest/references/keywords.html and
https://setuptools.pypa.io/en/latest/userguide/declarative_config.html. Values in `setup.cfg` replace those in
`setup.py`.
"""

from __future__ import annotations

import ast
import configparser
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from advisor.domain.requirement import RootRequirement
from advisor.domain.words import quoted
from advisor.project.code.static_values import NotStaticError, StaticModule
from advisor.project.formats.requirements import read_requirements
from advisor.project.interface import (
    NOTHING,
    ProjectRequirements,
    SelectedParts,
    UnbuiltProjectError,
    check_available,
    merge_requirements,
    parse_root,
    python_specifier,
)
from advisor.project.metadata.built_metadata import built_requirements
from advisor.project.text_file import place_of, read_text
from knowledge.domain.errors import InputError

_MOST_CHARACTERS = 1_000_000
_NO_VERSION = "0.0.0"
"""Version of a project that states none (setuptools, `Distribution.get_version`)."""
_KEYS = ("install_requires", "extras_require", "python_requires", "name", "version")


@dataclass(kw_only=True)
class _SetupValues:
    """What the setup files of a project state; the path and the text are those of the file with the requirements.

    Attributes:
        files: Requirements files that are read for the requirements.
        computed: Keys of `setup.py` whose values are known only when it runs.
    """

    path: Path
    text: str = ""
    requires: Any = None
    extras: Any = field(default_factory=dict)
    python: str | None = None
    name: str | None = None
    version: str | None = None
    files: tuple[Path, ...] = ()
    computed: tuple[str, ...] = ()


def has_setup_files(directory: Path) -> bool:
    """Whether a project has a `setup.py`, or a `setup.cfg` with requirements."""
    return (directory / "setup.py").is_file() or "install_requires" in _section(directory / "setup.cfg", "options")


def read_setup_files(directory: Path, selection: SelectedParts = NOTHING) -> ProjectRequirements:
    """Read the requirements in `setup.cfg` and `setup.py`.

    A list that `setup.py` computes is read from the one requirements file that it mentions for it.

    Raises:
        InputError: If a file cannot be read, or the requirements are known only after a build, which is refused.
        BuildError: If the build fails.
    """
    try:
        values = _declared(directory) or _programmed(directory / "setup.py")
    except UnbuiltProjectError as error:
        return built_requirements(directory / "setup.py", error.message, selection)
    needed = ["install_requires"] if values.requires is None and not values.files else []
    needed += ["extras_require"] if selection.extras else []
    if unknown := [key for key in needed if key in values.computed]:
        reason = f"`{values.path}` computes its {quoted(unknown)}, so that they are only known after a build"
        return built_requirements(values.path, reason, selection)
    project = ProjectRequirements(
        roots=tuple(_roots(values, selection.extras)),
        requires_python=python_specifier(values.python or None, f"`{values.path}`: `python_requires`"),
        files=(str(values.path),),
        skipped=_messages(values),
    )
    merged = merge_requirements([project, *map(read_requirements, values.files)])
    return replace(merged, skipped=project.skipped)


def setup_identity(directory: Path) -> tuple[str, str]:
    """Return the name and the version that setup files state, each empty if they do not."""
    declared = _section(directory / "setup.cfg", "metadata")
    name, version = declared.get("name", ""), _declared_version(directory, declared.get("version", ""))
    if (directory / "setup.py").is_file() and not (name and version):
        values = _programmed(directory / "setup.py")
        name, version = name or str(values.name or ""), version or str(values.version or "")
    return name, version


def setup_extras(directory: Path) -> tuple[str, ...]:
    """Return the extras that setup files state.

    Raises:
        NotStaticError: If they are known only after a build.
    """
    values = _declared(directory) or _programmed(directory / "setup.py")
    if "extras_require" in values.computed:
        raise NotStaticError("`extras_require` is computed")
    return tuple(dict.fromkeys(name for name, _, _ in _entries(values) if name))


def _declared_version(directory: Path, text: str) -> str:
    """Return the version in a `setup.cfg`: as written, or in the module or the file that it names."""
    if text.startswith("attr:"):
        return attribute_in(directory, text.removeprefix("attr:").strip())
    if text.startswith("file:"):
        return read_text(file_within(directory, text.removeprefix("file:"))).strip()
    return text


def file_within(directory: Path, name: str) -> Path:
    """Return a file that a project names, which must be in its directory, as setuptools demands."""
    path = directory / name.strip()
    if not path.resolve().is_relative_to(directory.resolve()):
        raise InputError(f"`{name.strip()}` is outside of the directory `{directory}` of the project that names it")
    return path


def attribute_in(directory: Path, dotted: str) -> str:
    """Return the value of ``module.variable`` of a project, which is not imported; empty if it is not known."""
    module, _, variable = dotted.rpartition(".")
    below = module.replace(".", "/")
    paths = (
        folder / end for folder in (directory, directory / "src") for end in (f"{below}/__init__.py", f"{below}.py")
    )
    for path in paths:
        if path.is_file():
            return variable_in(path, variable)
    return ""


def variable_in(path: Path, variable: str) -> str:
    """Return the text that a Python file assigns to a variable; empty if it is known only when the file runs."""
    try:
        value = StaticModule(ast.parse(read_text(path))).value(ast.Name(id=variable))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return value if isinstance(value, str) else ""


def _declared(directory: Path) -> _SetupValues | None:
    """Return the values in `setup.cfg`; `None` if it has no requirements."""
    path = directory / "setup.cfg"
    options = _section(path, "options")
    if "install_requires" not in options:
        return None
    text = options["install_requires"].strip()
    names = text.removeprefix("file:").split(",") if text.startswith("file:") else []
    files = tuple(file_within(directory, name) for name in names)
    return _SetupValues(
        path=path,
        text=read_text(path),
        requires=None if files else text,
        extras=_section(path, "options.extras_require"),
        python=options.get("python_requires"),
        files=files,
    )


def _programmed(path: Path) -> _SetupValues:
    """Return the values in `setup.py`."""
    text = read_text(path)
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"`{path}` cannot be read: it is longer than {_MOST_CHARACTERS} characters")
    try:
        module = StaticModule(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"`{path}` is not valid Python: {error}") from None
    calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call) and _name_of(node) == "setup"]
    if len(calls) != 1:
        raise UnbuiltProjectError(
            f"`{path}` calls `setup` {len(calls)} times, so that its requirements are only known after a build"
        )
    values: dict[str, Any] = {}
    computed: list[str] = []
    files: tuple[Path, ...] = ()
    for keyword in calls[0].keywords:
        try:
            if keyword.arg is None:
                values |= {key: value for key, value in module.value(keyword.value).items() if key in _KEYS}
            elif keyword.arg in _KEYS:
                values[keyword.arg] = module.value(keyword.value)
        except (NotStaticError, AttributeError):
            computed.append(keyword.arg or "install_requires")
            if keyword.arg == "install_requires":
                files = _mentioned_files(path.parent, module, keyword.value)
    return _SetupValues(
        path=path,
        text=text,
        requires=values.get("install_requires"),
        extras=values.get("extras_require", {}),
        python=values.get("python_requires"),
        name=values.get("name"),
        version=values.get("version") or (_NO_VERSION if _states_no_version(calls[0]) else None),
        files=files if len(files) == 1 else (),
        computed=tuple(computed),
    )


def _states_no_version(call: ast.Call) -> bool:
    """Whether a call of `setup` has neither a version nor an argument that may compute one."""
    names = {keyword.arg for keyword in call.keywords}
    return not names & {None, "version", "use_scm_version", "setup_requires", "pbr", "cmdclass", "distclass"}


def _name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _mentioned_files(directory: Path, module: StaticModule, node: ast.expr) -> tuple[Path, ...]:
    """Return the requirements files whose names are in the code that computes a value."""
    names = {text for text in module.texts_behind(node) if text.endswith((".txt", ".in")) and "\n" not in text}
    inside = (directory / name for name in sorted(names) if not name.startswith("/") and ".." not in name)
    return tuple(dict.fromkeys(path for path in inside if path.is_file()))


def _messages(values: _SetupValues) -> tuple[str, ...]:
    name = values.path.name
    messages = []
    if values.files and values.computed:
        messages.append(f"`{name}` computes `install_requires`: `{values.files[0].name}`, which it mentions, was read")
    if "python_requires" in values.computed:
        messages.append(f"`{name}` computes `python_requires`: every Python was accepted")
    return tuple(messages)


def _roots(values: _SetupValues, extras: Iterable[str]) -> Iterator[RootRequirement]:
    """Yield the requirements of a project and of some of its extras."""
    selected = [canonicalize_name(extra) for extra in extras]
    entries = list(_entries(values))
    check_available(selected, {name for name, _, _ in entries if name}, values.path)
    for extra in ("", *selected):
        for name, marker, lines in entries:
            if name == extra:
                yield from (_root(values, line, marker) for line in lines)


def _root(values: _SetupValues, line: str, marker: str) -> RootRequirement:
    root = parse_root(line, place_of(values.path, values.text, line), values.path.parent)
    if marker:
        own = root.requirement.marker
        try:
            root.requirement.marker = Marker(f"({own}) and ({marker})" if own else marker)
        except InvalidMarker:
            raise InputError(f"`{values.path}`: the marker `{marker}` of `extras_require` is malformed") from None
    return replace(root, path=str(values.path))


def _entries(values: _SetupValues) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the extra, the marker and the lines of `install_requires`, which has neither, and of `extras_require`.

    An entry of the latter may be `NAME`, `NAME:MARKER`, or `:MARKER` for requirements that need no extra.
    """
    yield "", "", _lines(values.requires)
    if isinstance(values.extras, Mapping):
        for key, lines in values.extras.items():
            name, _, marker = str(key).partition(":")
            yield canonicalize_name(name.strip()), marker.strip(), _lines(lines)


def _lines(value: Any) -> list[str]:
    """Return requirements, which setup files list or write on one line each; comments are left out."""
    lines = value.splitlines() if isinstance(value, str) else value if isinstance(value, (list, tuple)) else []
    if wrong := [line for line in lines if not isinstance(line, str)]:
        raise InputError(f"the setup file lists `{wrong[0]!r}`, which is not a requirement")
    stripped = (line.partition(" #")[0].strip() for line in lines)
    return [line for line in stripped if line and not line.startswith("#")]


def _section(path: Path, name: str) -> Mapping[str, str]:
    """Return a section of a `setup.cfg`; nothing if there is no such section or no such file."""
    parser = configparser.ConfigParser(interpolation=None)
    if path.is_file():
        try:
            parser.read_string(read_text(path))
        except configparser.Error as error:
            raise InputError(f"`{path}` cannot be read: {' '.join(str(error).split())}") from None
    return dict(parser[name]) if name in parser else {}

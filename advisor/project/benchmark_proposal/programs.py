"""Finds the programs of a project, and ranks them: which one a benchmark should run. Nothing is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from advisor.project.benchmark_proposal.interface import Interface, names
from advisor.project.benchmark_proposal.options import merged, read_interface
from advisor.project.benchmark_proposal.readme import ReadmeCommand, readme_commands
from advisor.project.code.files import SourceFile, project_files
from advisor.project.code.names import code_documents, names_in, parse_code
from advisor.project.text_file import read_toml
from advisor.project.workload.named_models import sign_tables
from knowledge.domain.errors import InputError

_MOST_PARSED = 500
_MOST_RANKED = 20
_MOST_IMPORTED = 40
_DEEPEST_IMPORT = 2
_PROGRAM = re.compile(rb"__main__|\.fit\(|\.backward\(|\bfire\.Fire|\btyper\.run|\bapp\.run")
_NO_PROGRAMS = frozenset({"setup", "conftest", "noxfile", "__init__", "fabfile", "conf", "versioneer"})
_TEST = re.compile(r"test_.*|.*_test")
_PARSE_ERRORS = (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, OSError, MemoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectProgram:
    """A program of a project.

    Attributes:
        name: Its file, such as ``train.py``.
        words: The command that runs it, without options.
        interface: Its options.
        points: How well it suits a benchmark, compared with other programs of the project.
        reasons: What it has points for.
        readme: The command in the project's documentation that runs it; ``None`` without one.
    """

    name: str
    words: tuple[str, ...]
    interface: Interface
    points: int
    reasons: tuple[str, ...]
    readme: ReadmeCommand | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of a project.

    Attributes:
        ranked: Those that suit a benchmark best, the best first.
        further: Number of other programs.
        skipped: Files that cannot be run, each with the reason.
    """

    ranked: tuple[ProjectProgram, ...]
    further: int
    skipped: tuple[str, ...]


def find_programs(directory: Path, *, script: str | None = None) -> Programs:
    """Return the programs of a project; the one in the file ``script`` is among the ranked ones if it is a program.

    The files that programs import are read only for the best ones by their own files.
    """
    sources = _Sources(directory, script)
    names, skipped = [], []
    for name in sources.candidates:
        if reason := sources.obstacle(name):
            skipped.append(f"`{name}`: {reason}")
        elif sources.is_program(name):
            names.append(name)
    skipped += [f"`{name}`: is a notebook; only programs are run" for name in sources.notebooks]
    names.sort(key=lambda name: (name != script, -sum(points for points, _ in sources.own_points(name)), name))
    programs = [sources.program(name) for name in names[:_MOST_RANKED]]
    programs.sort(key=lambda program: (-program.points, program.name.count("/"), program.name))
    return Programs(ranked=tuple(programs), further=len(names) - len(programs), skipped=tuple(skipped))


class _File:
    """A parsed file.

    Attributes:
        tree: Its code.
        names: Names in it.
        has_guard: Whether it says what happens when it is run, by a comparison of `__name__`.
        acts: Whether it does something when it is run, in addition to definitions.
        trains: Whether one of its calls trains a model.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.names = names_in(tree)
        self.has_guard = any(_is_guard(node) for node in tree.body)
        self.acts = self.has_guard or any(
            isinstance(node, (ast.For, ast.While, ast.With)) or (isinstance(node, ast.Expr) and _is_call(node.value))
            for node in tree.body
        )
        prefixes, methods = _training_calls()
        self.trains = any(name.startswith(prefixes) or _last(name) in methods for name, _ in self.names.calls)


@cache
def _training_calls() -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the prefixes of calls, and the methods, that indicate training."""
    tables = [document.get("signs", {}) for document in code_documents().values()]
    prefixes = tuple(prefix for table in tables for prefix in table.get("training", ()))
    return prefixes, frozenset(sign_tables()["training_methods"])


def _is_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


class _Sources:
    """The source files of a project; a file is parsed when it is needed."""

    def __init__(self, directory: Path, script: str | None) -> None:
        self._directory = directory
        self._script = script
        listed = list(project_files(directory))
        self._files: Mapping[str, SourceFile] = {Path(f.name).as_posix(): f for f in listed if not f.is_notebook}
        self.notebooks = [Path(f.name).as_posix() for f in listed if f.is_notebook]
        self._parsed: dict[str, _File | str] = {}
        self._entries = _entry_points(directory, self._files)
        self._readme = readme_commands(directory, self._files)

    @cached_property
    def candidates(self) -> list[str]:
        """Names of the files that may be programs."""
        matching = [name for name in self._files if self._may_be_program(name)]
        matching.sort(key=lambda name: (name != self._script, -_named_points(name), name.count("/")))
        return matching[:_MOST_PARSED]

    def _may_be_program(self, name: str) -> bool:
        if name == self._script or name in self._readme or name in self._entries:
            return True
        stem = PurePosixPath(name).stem
        if stem in _NO_PROGRAMS or (_TEST.fullmatch(stem) and stem != "test"):
            return False
        if _named_points(name) > 0:
            return True
        try:
            return _PROGRAM.search(self._files[name].read()) is not None
        except OSError:
            return False

    def _file(self, name: str) -> _File | str:
        """Return a parsed file, or why it cannot be parsed."""
        if name not in self._parsed:
            try:
                self._parsed[name] = _File(parse_code(self._files[name].read().decode("utf-8", "replace")))
            except _PARSE_ERRORS as error:
                self._parsed[name] = " ".join(str(error).split())[:200] or type(error).__name__
        return self._parsed[name]

    def obstacle(self, name: str) -> str:
        """Return why a file cannot be the program of a benchmark; empty if it can."""
        file = self._file(name)
        if isinstance(file, str):
            return f"cannot be parsed: {file}"
        if not file.acts and name not in self._entries:
            return ""
        calls, endless = {call for call, _ in file.names.calls}, names()["endless"]
        for class_name, method in endless["classes"].items():
            if class_name in calls and any(_last(call) == method for call in calls):
                return "starts a server, which does not end"
        if calls & set(endless["calls"]) or {_last(call) for call in calls} & set(endless["methods"]):
            return "starts a server, which does not end"
        return "reads what a user types" if "input" in calls else ""

    def is_program(self, name: str) -> bool:
        """Whether a file is a program: it says what happens when it is run, or its documentation runs it."""
        file = self._file(name)
        if isinstance(file, str):
            return False
        is_named = name == self._script or name in self._readme or _named_points(name) > 0
        return file.has_guard or name in self._entries or (file.acts and (file.trains or is_named))

    def program(self, name: str) -> ProjectProgram:
        """Return the program in a file."""
        file = self._file(name)
        assert isinstance(file, _File)
        modules = list(self._imported(name))
        interface = read_interface(self._directory, name, file.tree)
        if not interface.options and not interface.obstacle:
            libraries = [
                read_interface(self._directory, n, f.tree, is_program=False) for n, f in modules if not f.has_guard
            ]
            interface = merged([interface, *libraries])
        scored = [*self.own_points(name), *self._further_points(name, [m for _, m in modules], interface)]
        return ProjectProgram(
            name=name,
            words=self._words(name, file),
            interface=interface,
            points=sum(points for points, _ in scored),
            reasons=tuple(dict.fromkeys(reason for points, reason in scored if points > 0 and reason)),
            readme=self._readme.get(name),
        )

    def own_points(self, name: str) -> list[tuple[int, str]]:
        """Return the points of a program for its own file, each with the reason."""
        file = self._file(name)
        assert isinstance(file, _File)
        return [
            (_named_points(name), f"is named `{PurePosixPath(name).stem}`"),
            (4 if file.trains else 0, "trains a model"),
            (2 if name in self._readme else 0, f"{self._readme[name].place} runs it" if name in self._readme else ""),
            (2 if name in self._entries else 0, "the project installs it as a command"),
            _use(file.names.imports),
            (-min(3, name.count("/")), ""),
        ]

    def _further_points(self, name: str, modules: Sequence[_File], interface: Interface) -> Iterator[tuple[int, str]]:
        """Yield the points of a program for its options and the files that it imports."""
        file = self._file(name)
        assert isinstance(file, _File)
        if not file.trains and any(module.trains for module in modules):
            yield 3, "trains a model"
        if not _use(file.names.imports)[0]:
            yield _use(frozenset[str]().union(*(module.names.imports for module in modules)))
        steps = next((option for option in interface.options if option.kind() in _STEPS), None)
        if steps is not None:
            yield 2, f"has the option `{steps.flag}`"
        if name not in self._readme:
            # Only the user knows these values.
            required = [option for option in interface.options if option.required and option.kind() != "outputs"]
            yield -min(3, len(required)), ""
            yield -4 if interface.obstacle else 0, ""

    def _words(self, name: str, file: _File) -> tuple[str, ...]:
        """Return the command that runs a file: by its path, or as a module if it imports relatively."""
        module = _module_of(name)
        is_relative = any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(file.tree))
        is_package = PurePosixPath(name).name == "__main__.py" and "/" in name
        if file.acts:
            return ("python", "-m", module) if is_package or (is_relative and "." in module) else ("python", name)
        return ("python", "-c", f"from {module} import {self._entries[name]} as main; main()")

    def _imported(self, name: str) -> Iterator[tuple[str, _File]]:
        """Yield the files of the project that a file imports, and that these import."""
        pending, visited = [(name, 0)], {name}
        while pending:
            current, depth = pending.pop(0)
            file = self._file(current)
            if isinstance(file, str):
                continue
            if current != name:
                yield current, file
            if depth == _DEEPEST_IMPORT or len(visited) > _MOST_IMPORTED:
                continue
            for module in _imported_modules(file.tree, current):
                for path in _paths_of(module, current):
                    if path in self._files and path not in visited:
                        visited.add(path)
                        pending.append((path, depth + 1))


def _named_points(name: str) -> int:
    """Return the points of a program for the words in its name, and for a folder of benchmarks."""
    path = PurePosixPath(name)
    folders = [folder for folder in map(str.lower, path.parts[:-1]) if folder.startswith("bench")]
    words = {*re.split(r"[^a-z]+", path.stem.lower()), *folders} if path.stem != "__main__" else set(folders)
    points = [int(points) for points, listed in names()["programs"].items() if words & set(listed)]
    return max([*points, 0]) + min([*points, 0])


_STEPS = ("steps", "timesteps", "epoch_steps", "epochs")


def _use(imports: Collection[str]) -> tuple[int, str]:
    """Return the points for the libraries that files import, with the reason."""
    used = sorted(_libraries().intersection(imports))
    return (2 if used else 0), f"uses {', '.join(f'`{library}`' for library in used[:3])}"


@cache
def _libraries() -> frozenset[str]:
    listed = (name for document in code_documents().values() for name in document.get("libraries", ()))
    return frozenset([*listed, *sign_tables()["arrays"]])


def _module_of(name: str) -> str:
    return name.removeprefix("src/").removesuffix(".py").removesuffix("/__main__").replace("/", ".")


def _imported_modules(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield the modules that a file imports, with the names that it imports of them, which may be modules, too."""
    package = _module_of(name).split(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join([*package[: -node.level], *filter(None, [node.module])]) if node.level else node.module or ""
            )
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _paths_of(module: str, importer: str) -> Iterator[str]:
    """Yield the paths of the files that a module may have: below the importing file's folder, the top, and `src`."""
    path = module.replace(".", "/")
    folder = PurePosixPath(importer).parent.as_posix()
    for top in dict.fromkeys(("" if folder == "." else f"{folder}/", "", "src/")):
        yield from (f"{top}{path}.py", f"{top}{path}/__init__.py")


def _entry_points(directory: Path, files: Mapping[str, Any]) -> dict[str, str]:
    """Return the functions that the project installs as commands, by their files."""
    path = directory / "pyproject.toml"
    if not path.is_file():
        return {}
    try:
        document = read_toml(path)
        tables = [document.at("project", "scripts"), document.at("tool", "poetry", "scripts")]
    except (InputError, AttributeError):
        return {}
    entries: dict[str, str] = {}
    for target in (target for table in tables if isinstance(table, dict) for target in table.values()):
        module, _, function = str(target).partition(":")
        if function.isidentifier():
            path_of = next((p for p in _paths_of(module, "") if p in files), "")
            entries |= {path_of: function} if path_of else {}
    return entries

"""Finds the programs of a project, and ranks them: which one a benchmark should run. Nothing is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from advisor.project.benchmark_proposal.options import Interface, names, read_interface
from advisor.project.benchmark_proposal.readme import README_FILES, ReadmeCommand, readme_commands
from advisor.project.code.files import SourceFile, project_files
from advisor.project.code.names import PARSE_ERRORS, SourceNames, names_in, parse_code, parse_problem
from advisor.project.text_file import read_toml
from advisor.project.workload.proposal import known_libraries, trains_model
from knowledge.domain.errors import InputError

_MOST_PARSED = 500
_MOST_RANKED = 20
_MOST_IMPORTED = 40
_DEEPEST_IMPORT = 2
_PROGRAM = re.compile(rb"__main__|\.fit\(|\.backward\(|\bfire\.Fire|\btyper\.run|\bapp\.run")
_NO_PROGRAMS = re.compile(r"setup|conftest|noxfile|__init__|fabfile|conf|versioneer|test_.*|.*_test")
_STEPS = ("steps", "timesteps", "epoch_steps", "epochs")


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
        others: Names of the other programs.
        skipped: Files that cannot be run, each with the reason.
    """

    ranked: tuple[ProjectProgram, ...]
    others: tuple[str, ...]
    skipped: tuple[str, ...]


def find_programs(directory: Path, *, script: str | None = None) -> Programs:
    """Return the programs of a project; the one in the file ``script`` is among the ranked ones if it is a program.

    The files that programs import are read only for the best ones by their own files.
    """
    sources = _Sources(directory, script)
    programs, skipped = [], []
    for file in sources.candidates():
        if reason := sources.obstacle(file):
            skipped.append(f"`{file.name}`: {reason}")
        elif sources.is_program(file):
            programs.append(file)
    skipped += [f"`{name}`: is a notebook; only programs are run" for name in sources.notebooks]
    programs.sort(
        key=lambda f: (f.name != script, -sum(points for points, _ in sources.signs([f], Interface())), f.name)
    )
    ranked = [sources.program(file) for file in programs[:_MOST_RANKED]]
    ranked.sort(key=lambda program: (-program.points, program.name.count("/"), program.name))
    others = tuple(file.name for file in programs[_MOST_RANKED:])
    return Programs(ranked=tuple(ranked), others=others, skipped=tuple(skipped))


class _File:
    """A parsed file.

    Attributes:
        name: Its path in the project.
        error: Why it cannot be parsed; empty if it can.
        tree: Its code.
        names: Names in it.
        has_guard: Whether it says what happens when it is run, by a comparison of `__name__`.
        acts: Whether it does something when it is run, in addition to definitions.
        trains: Whether one of its calls trains a model.
    """

    def __init__(self, name: str, file: SourceFile) -> None:
        self.name, self.error = name, ""
        self.tree, self.names = ast.Module(body=[], type_ignores=[]), SourceNames(frozenset(), ())
        try:
            tree = parse_code(file.read().decode("utf-8", "replace"))
            self.tree, self.names = tree, names_in(tree)
        except PARSE_ERRORS as error:
            self.error = parse_problem(error)
        self.has_guard = any(_is_guard(node) for node in self.tree.body)
        self.acts = self.has_guard or any(
            isinstance(node, (ast.For, ast.While, ast.With))
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
            for node in self.tree.body
        )
        self.trains = trains_model(self.names)


def _is_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))


class _Sources:
    """The source files of a project; a file is parsed when it is needed."""

    def __init__(self, directory: Path, script: str | None) -> None:
        self._directory = directory
        self._script = script
        listed = {PurePath(file.name).as_posix(): file for file in project_files(directory, README_FILES)}
        self._files = {name: f for name, f in listed.items() if f.is_code and not f.is_notebook and name[0] != "."}
        self.notebooks = [name for name, file in listed.items() if file.is_notebook]
        self._parsed: dict[str, _File] = {}
        self._entries = _entry_points(directory, self._files)
        self._readme = readme_commands([file for file in listed.values() if not file.is_code], self._files)

    def candidates(self) -> list[_File]:
        """Return the files that may be programs."""
        matching = [name for name in self._files if self._may_be_program(name)]
        matching.sort(key=lambda name: (name != self._script, -_named_points(name), name.count("/")))
        return [self._file(name) for name in matching[:_MOST_PARSED]]

    def _may_be_program(self, name: str) -> bool:
        if name == self._script or name in self._readme or name in self._entries:
            return True
        if _NO_PROGRAMS.fullmatch(PurePosixPath(name).stem):
            return False
        try:
            return _named_points(name) > 0 or _PROGRAM.search(self._files[name].read()) is not None
        except OSError:
            return False

    def _file(self, name: str) -> _File:
        if name not in self._parsed:
            self._parsed[name] = _File(name, self._files[name])
        return self._parsed[name]

    def obstacle(self, file: _File) -> str:
        """Return why a file cannot be the program of a benchmark; empty if it can."""
        if file.error:
            return f"cannot be parsed: {file.error}"
        if not file.acts and file.name not in self._entries:
            return ""
        calls = [call for call, _ in file.names.calls]
        if not file.names.imports.isdisjoint(names()["servers"]) or any(c.endswith(".serve_forever") for c in calls):
            return "starts a server, which does not end"
        return "reads what a user types" if "input" in calls else ""

    def is_program(self, file: _File) -> bool:
        """Whether a file is a program: it says what happens when it is run, or its documentation runs it."""
        is_named = file.name == self._script or file.name in self._readme or _named_points(file.name) > 0
        return file.has_guard or file.name in self._entries or (file.acts and (file.trains or is_named))

    def program(self, file: _File) -> ProjectProgram:
        """Return the program in a file."""
        modules = self._imported(file)
        interface = read_interface(self._directory, {file.name: file.tree})
        if not interface.options and not interface.obstacle:
            declaring = [file, *(module for module in modules if not module.has_guard)]
            interface = read_interface(self._directory, {f.name: f.tree for f in declaring})
        signs = list(self.signs([file, *modules], interface))
        return ProjectProgram(
            name=file.name,
            words=self._words(file),
            interface=interface,
            points=sum(points for points, _ in signs),
            reasons=tuple(reason for points, reason in signs if points > 0),
            readme=self._readme.get(file.name),
        )

    def signs(self, files: Sequence[_File], interface: Interface) -> Iterator[tuple[int, str]]:
        """Yield the points of a program, each with the reason, for its file, those that it imports, and its options."""
        name = files[0].name
        yield _named_points(name), f"is named `{PurePosixPath(name).stem}`"
        if any(file.trains for file in files):
            yield 4, "trains a model"
        if name in self._readme:
            yield 2, f"{self._readme[name].place} runs it"
        if name in self._entries:
            yield 2, "the project installs it as a command"
        uses = (sorted(known_libraries() & file.names.imports) for file in files)
        if used := next(filter(None, uses), []):
            yield 2, f"uses {', '.join(f'`{library}`' for library in used[:3])}"
        if steps := next((option for option in interface.options if option.kind in _STEPS), None):
            yield 2, f"has the option `{steps.flag}`"
        yield -min(3, name.count("/")), "is in a folder"
        if name not in self._readme:
            required = [option for option in interface.options if option.required and option.kind != "outputs"]
            yield -min(3, len(required)), "requires values that only the user knows"
            yield -4 if interface.obstacle else 0, interface.obstacle

    def _words(self, file: _File) -> tuple[str, ...]:
        """Return the command that runs a file: by its path, or as a module if it imports relatively."""
        name = file.name.removeprefix("src/").removesuffix(".py").removesuffix("/__main__")
        module = name.replace("/", ".")
        if not file.acts:
            return ("python", "-c", f"from {module} import {self._entries[file.name]} as main; main()")
        is_relative = any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(file.tree))
        is_module = file.name.endswith("/__main__.py") or (is_relative and "." in module)
        return ("python", "-m", module) if is_module else ("python", file.name)

    def _imported(self, file: _File) -> list[_File]:
        """Return the files of the project that a file imports, and that these import."""
        level, visited = [file], {file.name: file}
        for _ in range(_DEEPEST_IMPORT):
            paths = dict.fromkeys(path for f in level for path in _imported_paths(f) if path in self._files)
            level = [self._file(path) for path in paths if path not in visited]
            visited |= {f.name: f for f in level}
        return list(visited.values())[1 : 1 + _MOST_IMPORTED]


def _named_points(name: str) -> int:
    """Return the points of a program for the words in its name, and for a folder of benchmarks."""
    path = PurePosixPath(name)
    words = {folder for folder in map(str.lower, path.parts[:-1]) if folder.startswith("bench")}
    words |= set(re.split(r"[^a-z]+", path.stem.lower())) if path.stem != "__main__" else set()
    points = [int(points) for points, listed in names()["programs"].items() if words & set(listed)]
    return max([*points, 0]) + min([*points, 0])


def _imported_paths(file: _File) -> Iterator[str]:
    """Yield the paths that imported modules may have: in the folder of the importing file, at the top, and in `src`."""
    folder = PurePosixPath(file.name).parent
    for node in ast.walk(file.tree):
        tops = [folder, PurePosixPath(), PurePosixPath("src")]
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # What is imported of a package may be a module, too.
            modules = [node.module or "", *(f"{node.module or ''}.{alias.name}" for alias in node.names)]
            tops = [folder, *folder.parents][node.level - 1 : node.level] if node.level else tops
        else:
            continue
        for path in (top / module.strip(".").replace(".", "/") for top in tops for module in modules):
            yield from (f"{path}.py", f"{path}/__init__.py")


def _entry_points(directory: Path, files: Mapping[str, Any]) -> dict[str, str]:
    """Return the functions that the project installs as commands, by their files."""
    try:
        document = read_toml(directory / "pyproject.toml")
        targets = [*document.at("project", "scripts").values(), *document.at("tool", "poetry", "scripts").values()]
    except (InputError, AttributeError):
        return {}
    entries: dict[str, str] = {}
    for module, _, function in (str(target).partition(":") for target in targets):
        path = module.replace(".", "/")
        paths = (f"{top}{path}{end}" for top in ("", "src/") for end in (".py", "/__init__.py"))
        if function.isidentifier() and (name := next((path for path in paths if path in files), "")):
            entries[name] = function
    return entries

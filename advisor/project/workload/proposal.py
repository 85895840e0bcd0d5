"""Proposes a workload from the imports and calls in the source files of a project. Nothing is executed.

Most files of a large project do not matter: a file is parsed only if it imports a library that indicates something, and
contains a word that does. What was found in a file is remembered until its size or its time of change differs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from advisor.index.cache import DiskCache
from advisor.index.memo import Memo
from advisor.project.code.files import SourceFile, code_of, imported_names, project_files
from advisor.project.code.names import PARSE_ERRORS, SourceNames, code_documents, names_of, parse_problem
from advisor.project.workload.named_models import NamedModel, named_model, sign_tables

MOST_PARSED = 500
"""Maximum number of files that are parsed; of more, as many are selected evenly."""

_TRAINING_METHODS = frozenset(sign_tables()["training_methods"])
_ARRAYS = frozenset(sign_tables()["arrays"])
_TRAINS = tuple(f".{method}(".encode() for method in sorted(_TRAINING_METHODS))


class _Names:
    """Names in code that indicate something: the file ``code.toml`` in the folder of each framework has them.

    Attributes:
        kinds: Kind of model by the prefix of the full names of calls; the longest matching prefix decides.
        training: Prefixes of calls that indicate training.
        roots: Libraries whose calls indicate something.
        frameworks: Libraries; every program of deep learning imports one of them.
        libraries: All libraries, also libraries of arrays.
        word: Pattern of words; a file without one of them has no call that indicates something.
        library: Pattern of the names of the libraries.
    """

    def __init__(self) -> None:
        documents = code_documents().values()
        tables = [document.get("signs", {}) for document in documents]
        signs = [(kind, prefix) for table in tables for kind, prefixes in table.items() for prefix in prefixes]
        self.kinds = {prefix: kind for kind, prefix in signs if kind != "training"}
        self.training = tuple(prefix for kind, prefix in signs if kind == "training")
        prefixes = sorted({*self.kinds, *self.training})
        self.roots = frozenset(prefix.partition(".")[0] for prefix in prefixes)
        self.frameworks = frozenset(name for d in documents for name in d.get("libraries", ()))
        self.libraries = self.roots | self.frameworks | _ARRAYS
        words = {prefix.rstrip(".").rpartition(".")[2] for prefix in prefixes}
        self.word = re.compile(rf"\b({'|'.join(sorted(words))})".encode())
        self.library = re.compile(rf"\b({'|'.join(sorted(self.libraries))})\b".encode())


@cache
def _names() -> _Names:
    return _Names()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The workload that the source files of a project indicate.

    Attributes:
        workload: Name of the workload.
        signs: Calls that indicate it, such as ``torch.nn.Conv2d (model.py:12)``, those that name a known model before
            others, and the most frequent first.
        skipped: Files that use a library with signs, but could not be parsed as Python, each with the reason.
    """

    workload: str
    signs: tuple[str, ...]
    skipped: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Content:
    """What a file contains.

    Attributes:
        imports: Known libraries that its lines import; of a notebook, only if it was parsed.
        trains: Whether its text calls a method that trains a model.
        matters: Whether it has to be parsed: its calls may indicate something.
        signs: Calls that indicate a kind of model, each with the lines; `None` if the file was not parsed.
        error: Why it could not be parsed.
    """

    imports: list[str] = field(default_factory=list)
    trains: bool = False
    matters: bool = False
    signs: dict[str, list[int]] | None = None
    error: str = ""


def known_libraries() -> frozenset[str]:
    """Return the names of the frameworks, and of libraries that use them or arrays."""
    return _names().libraries


def trains_model(names: SourceNames) -> bool:
    """Whether one of the calls of a file trains a model."""
    return any(
        name.startswith(_names().training) or name.rpartition(".")[2] in _TRAINING_METHODS for name, _ in names.calls
    )


def propose_workload(directory: Path, cache: DiskCache | None = None) -> Proposal | None:
    """Return the workload that imports and calls indicate; `None` without one. The cache remembers files."""
    contents = _read(directory, Memo(cache, "sources") if cache else None)
    signs: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, content in contents.items():
        for sign, lines in (content.signs or {}).items():
            if (kind := _kind(sign)) is not None:
                signs[kind][sign] += [f"{name}:{line}" for line in lines]
    skipped = tuple(f"`{name}`: {content.error}" for name, content in contents.items() if content.error)
    if signs:
        kind = max(sorted(signs), key=lambda k: sum(map(len, signs[k].values())))
        ranked = sorted(signs[kind].items(), key=lambda item: (named_model(item[0]) is None, -len(item[1]), item[0]))
        trains, model = any(content.trains for content in contents.values()), _most_named(signs[kind])
        return Proposal(
            workload=(model or NamedModel(kind, **sign_tables()["workloads"][kind])).workload(trains=trains),
            signs=tuple(f"{sign} ({places[0]})" for sign, places in ranked),
            skipped=skipped,
        )
    imports = {library for content in contents.values() for library in content.imports}
    if imports & _ARRAYS and not imports & _names().frameworks:
        import_signs = tuple(f"import {name}" for name in sorted(imports & _ARRAYS))
        return Proposal(workload="numeric", signs=import_signs, skipped=skipped)
    return None


def _most_named(signs: Mapping[str, Sequence[str]]) -> NamedModel | None:
    """Return the model that calls name most often; `None` if the user chooses one of several."""
    counts: Counter[NamedModel] = Counter()
    for sign, places in signs.items():
        if model := named_model(sign):
            counts[model] += len(places)
    (first, most), (_, second) = [*counts.most_common(2), (None, 0), (None, 0)][:2]
    return first if most > second else None


def _record(content: _Content) -> dict[str, Any]:
    return {name: value for name, value in asdict(content).items() if value or (name == "signs" and value is not None)}


def _read(directory: Path, memo: Memo | None) -> dict[str, _Content]:
    """Return what each file of a project contains, by its name; files that cannot be read are left out.

    The memo has what the files contained, with their sizes and times of change.
    """
    files, place = list(project_files(directory)), directory.resolve()
    stored = (memo.read(place) if memo else None) or {}
    contents: dict[str, _Content] = {}
    for file in files:
        size, modified, record = stored.get(file.name, (-1, -1, {}))
        is_unchanged = (size, modified) == (file.size, file.modified)
        try:
            contents[file.name] = _Content(**record) if is_unchanged else _search(file)
        except OSError:
            continue
    for file in _evenly([file for file in files if file.name in contents and contents[file.name].matters]):
        content = contents[file.name]
        if content.signs is None and not content.error:
            _parse(file, content)
    records = {f.name: [f.size, f.modified, _record(contents[f.name])] for f in files if f.name in contents}
    if memo is not None and records != stored:
        memo.write(place, records)
    return contents


def _evenly(files: Sequence[SourceFile]) -> list[SourceFile]:
    step = max(1.0, len(files) / MOST_PARSED)
    return [files[int(number * step)] for number in range(min(len(files), MOST_PARSED))]


def _search(file: SourceFile) -> _Content:
    """Return what the text of a file shows; the file is not parsed."""
    content = file.read()
    trains = any(method in content for method in _TRAINS)
    if file.is_notebook:
        return _Content(trains=trains, matters=_names().library.search(content) is not None)
    imports = sorted(name.decode() for name in imported_names(content, _names().library))
    matters = not _names().roots.isdisjoint(imports) and _names().word.search(content) is not None
    return _Content(imports=imports, trains=trains, matters=matters)


def _parse(file: SourceFile, content: _Content) -> None:
    """Add the signs of a file, or why it cannot be parsed."""
    try:
        names = names_of(code_of(file.read(), is_notebook=file.is_notebook))
    except PARSE_ERRORS as error:
        content.error = parse_problem(error)
        return
    content.signs = {}
    content.imports = sorted(names.imports & _names().libraries)
    content.trains = trains_model(names)
    for name, line in names.calls:
        if _kind(name) is not None:
            content.signs.setdefault(name, []).append(line)


def _kind(name: str) -> str | None:
    """Return the kind of model that a call indicates: of the model that it names, or by the longest matching prefix."""
    if model := named_model(name):
        return model.kind
    matches = [(len(prefix), kind) for prefix, kind in _names().kinds.items() if name.startswith(prefix)]
    return max(matches)[1] if matches else None

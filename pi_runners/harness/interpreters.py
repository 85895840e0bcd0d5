"""Records the environments of the Python processes that a command starts: some commands choose their own.

A command is measured for the stack only if an interpreter of the stack's environment ran. No interpreter of another
environment may load a file of the project, or a package that the stack has, too, after its start.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any, Dict, List

_FILE = "SESHAT_INTERPRETERS"
"""Variable with the path of the file to which each interpreter adds its `sys.prefix`, and at its end what it loaded."""
_PACKAGES = ("site-packages", "dist-packages")
"""Directories of installed packages."""
# Runs at the start of each interpreter that reads PYTHONPATH, before the `sitecustomize` that it hides.
_HOOK = """
import importlib.machinery, importlib.util, os, sys

def record(**values):
    import json
    try:
        with open(os.environ["{variable}"], "a") as file:
            file.write(json.dumps(dict(values, process=os.getpid(), prefix=sys.prefix)) + "\\n")
    except (KeyError, OSError):
        pass

def record_files(started=os.getcwd(), process=os.getpid(), at_start=frozenset(sys.modules)):
    # `sitecustomize`, `usercustomize` and what `.pth` files import are loaded by every interpreter.
    modules = [m for n, m in list(sys.modules.items()) if n not in at_start and not n.endswith("customize")]
    files = [getattr(module, "__file__", None) for module in modules]
    # At its end, the main module has no file any more.
    script = os.path.join(started, (getattr(sys, "argv", None) or [""])[0])
    files.append(script if os.path.isfile(script) else None)
    if os.getpid() == process:
        record(files=[os.path.join(started, file) for file in files if isinstance(file, str)])

record()
if os.path.realpath(sys.prefix) != {own!r}:
    import atexit
    atexit.register(record_files)
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if spec is not None and spec.loader is not None:
    sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["sitecustomize"])
"""


class InterpreterRecord:
    """The environments of the interpreters that a command and its children run."""

    def __init__(self, folder: str, project: str) -> None:
        """Create the record of commands in a copy of a project, in a folder that must not exist."""
        self._folder = folder
        self._project = os.path.join(os.path.realpath(project), "")
        self._own = os.path.realpath(sys.prefix)
        self._file = os.path.join(folder, "processes")
        os.mkdir(folder)
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(_HOOK.format(variable=_FILE, own=self._own))

    def applied_to(self, variables: Dict[str, str]) -> Dict[str, str]:
        """Return variables of a command with those that record its interpreters."""
        path = os.pathsep.join(filter(None, [self._folder, variables.get("PYTHONPATH", "")]))
        return {**variables, "PYTHONPATH": path, _FILE: self._file}

    def has_own(self) -> bool:
        """Whether an interpreter of the stack's environment ran; those that ignore PYTHONPATH are not recorded."""
        return any(self._is_own(process) for process in self._processes())

    def foreign_prefixes(self) -> List[str]:
        """Return the other environments whose interpreters may have done the work, in order.

        One that was ended before it could record what it loaded may have. If no interpreter of the stack's environment
        ran, each other one counts.
        """
        processes = self._processes()
        loaded = {(p["process"], p["prefix"]): p["files"] for p in processes if "files" in p}
        foreign = [p for p in processes if not self._is_own(p)]
        if len(foreign) < len(processes):
            foreign = [
                p
                for p in foreign
                if (p["process"], p["prefix"]) not in loaded
                or any(map(self._belongs_to_work, loaded[p["process"], p["prefix"]]))
            ]
        return list(dict.fromkeys(p["prefix"] for p in foreign))

    def _processes(self) -> List[Dict[str, Any]]:
        try:
            with open(self._file, encoding="utf-8", errors="replace") as file:
                return [json.loads(line) for line in file]
        except FileNotFoundError:
            return []

    def _is_own(self, process: Dict[str, Any]) -> bool:
        return bool(os.path.realpath(process["prefix"]) == self._own)

    def _belongs_to_work(self, path: str) -> bool:
        """Whether a loaded file is of the project, or of a package that the stack has, too."""
        if os.path.realpath(path).startswith(self._project):
            return True
        for directory in _PACKAGES:
            _, _, inside = path.partition("{0}{1}{0}".format(os.sep, directory))
            if inside:
                name = inside.split(os.sep)[0].split(".")[0]
                return name.isidentifier() and importlib.util.find_spec(name) is not None
        return False

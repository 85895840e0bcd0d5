"""Records the Python processes that a command starts: their environments, and the settings that were applied in them.

A command is measured for the stack only if an interpreter of the stack's environment ran. No interpreter of another
environment may load a file of the project, or a package that the stack has, too, after its start. A setting that is
applied after an import counts only if a process of the stack's environment made the import.

A Python that ignores PYTHONPATH (`-I`, `-E`) or `sitecustomize` (`-S`) leaves no record. If a Python of the stack's
environment started it, it is not noticed. Its executable would not show it: that of a virtual environment is a link.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pkgutil
import sys
from typing import Any, Dict, List, Optional

from pi_runners.hooks import sitecustomize as hook

_PACKAGES = ("site-packages", "dist-packages")
"""Directories of installed packages."""


class InterpreterRecord:
    """The interpreters that a command and its children run."""

    def __init__(self, folder: str, project: str, statements: List[Dict[str, str]]) -> None:
        """Create the record of commands in a copy of a project.

        Args:
            folder: Directory of the record, which must not exist.
            project: The copy of the project.
            statements: What applies settings after imports; see `knowledge.catalogue.settings.Statements`.
        """
        self._folder = folder
        self._statements = statements
        self._project = os.path.join(os.path.realpath(project), "")
        self._own = os.path.realpath(sys.prefix)
        self._file = os.path.join(folder, "processes")
        os.mkdir(folder)
        with open(os.path.join(folder, "sitecustomize.py"), "wb") as file:
            file.write(pkgutil.get_data("pi_runners.hooks", "sitecustomize.py") or b"")

    def applied_to(self, variables: Dict[str, str]) -> Dict[str, str]:
        """Return variables of a command with those that record its interpreters and apply settings after imports."""
        path = os.pathsep.join(filter(None, [self._folder, variables.get("PYTHONPATH", "")]))
        variables = {**variables, "PYTHONPATH": path, hook.RECORD: self._file, hook.PREFIX: self._own}
        return {**variables, hook.SETTINGS: json.dumps(self._statements)} if self._statements else variables

    def begin_run(self) -> None:
        """Forget the interpreters of earlier runs of the command."""
        if os.path.exists(self._file):
            os.remove(self._file)

    def settings_failure(self) -> Optional[str]:
        """Return why a setting was not applied after an import, or did not stay; ``None`` if nothing failed."""
        for process in filter(self._is_own, self._processes()):
            if "failed" in process:
                return "`{failed}` cannot be applied: {reason}".format(**process)
            if "reset" in process:
                return "the program changes `{reset}` itself, so that it has no effect".format(**process)
        return None

    def missing_import(self, settings: List[str]) -> Optional[str]:
        """Return which of some settings was not applied, because nothing imported its module; ``None`` if all were."""
        applied = {process.get("applied") for process in self._processes() if self._is_own(process)}
        for setting in settings:
            if setting not in applied:
                own = [s for s in self._statements if s["setting"] == setting]
                reason = "imported" if all(s["check"] for s in own) else "called a model of"
                return "`{}` was not applied: no Python of the stack's environment {} `{}`".format(
                    setting, reason, "` or `".join(s["module"] for s in own)
                )
        return None

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

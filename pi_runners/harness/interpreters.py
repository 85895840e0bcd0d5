"""Records the environments of the Python processes that a command starts: some commands choose their own."""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Optional

_FILE = "SESHAT_INTERPRETERS"
"""Variable with the path of the file to which each interpreter adds its `sys.prefix`."""
# Runs at the start of each interpreter that reads PYTHONPATH, before the `sitecustomize` that it hides.
_HOOK = """
import importlib.machinery, importlib.util, os, sys
try:
    with open(os.environ["{variable}"], "a") as file:
        file.write(sys.prefix + "\\n")
except (KeyError, OSError):
    pass
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if spec is not None and spec.loader is not None:
    sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["sitecustomize"])
""".format(variable=_FILE)


class InterpreterRecord:
    """The environments of the interpreters that a command and its children run."""

    def __init__(self, folder: str) -> None:
        """Create the record.

        Args:
            folder: Directory for its files; it must not exist.
        """
        self._folder = folder
        self._file = os.path.join(folder, "prefixes")
        os.mkdir(folder)
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(_HOOK)

    def applied_to(self, variables: Dict[str, str]) -> Dict[str, str]:
        """Return variables of a command with those that record its interpreters."""
        path = os.pathsep.join(filter(None, [self._folder, variables.get("PYTHONPATH", "")]))
        return {**variables, "PYTHONPATH": path, _FILE: self._file}

    def prefixes(self) -> List[str]:
        """Return the environments so far, in order; none of interpreters that ignore PYTHONPATH."""
        try:
            with open(self._file, encoding="utf-8", errors="replace") as file:
                return list(dict.fromkeys(file.read().splitlines()))
        except FileNotFoundError:
            return []

    def uses_own_environment(self) -> Optional[bool]:
        """Whether an interpreter of the command runs in the environment of this one; none if none was recorded."""
        own = os.path.realpath(sys.prefix)
        prefixes = self.prefixes()
        return any(os.path.realpath(prefix) == own for prefix in prefixes) if prefixes else None

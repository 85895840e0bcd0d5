"""Calls a function after a framework was imported."""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any, Dict, Optional, Sequence

from .session import Session

_ROOT = __name__.partition(".")[0]


class _Finder:
    """Finds frameworks like the other finders, and installs their hooks after the import."""

    def __init__(self, session: Session, hooks: Dict[str, str]) -> None:
        self._session = session
        self._pending = dict(hooks)

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """Return the specification of a framework with a loader that also installs its hooks."""
        if path is not None or name not in self._pending:
            return None
        hooks = self._pending.pop(name)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            try:
                importlib.import_module(hooks, _ROOT).install(module, self._session)
            except Exception as error:
                sys.stderr.write("advisor: `{}` is not profiled: {}\n".format(name, error))

        try:
            loader.exec_module = exec_module
        except AttributeError as error:
            sys.stderr.write("advisor: `{}` is not profiled: {}\n".format(name, error))
        return spec


def start() -> None:
    """Prepare this process; without the variables of the profiler, do nothing."""
    directory = os.environ.get("SESHAT_PROFILE_DIRECTORY")
    if directory:
        # The module with the function `install(module, session)` for each module, and packages to report.
        frameworks = json.loads(os.environ["SESHAT_PROFILE_FRAMEWORKS"])
        session = Session(
            directory,
            steps=int(os.environ.get("SESHAT_PROFILE_STEPS", "20")),
            warm_up=int(os.environ.get("SESHAT_PROFILE_WARM_UP", "5")),
            packages=frameworks["packages"],
        )
        sys.meta_path.insert(0, _Finder(session, frameworks["hooks"]))

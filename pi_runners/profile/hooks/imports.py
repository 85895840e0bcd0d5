"""Installs the hooks of a framework after the program has imported it."""

import importlib
import json
import os
import signal
import sys
from functools import partial
from types import ModuleType
from typing import Any

from .session import Session

_ROOT = __name__.partition(".")[0]


def start(after_import: Any) -> None:
    """Prepare this process, by the variables of the profiler.

    Args:
        after_import: Finder of modules, whose method `add` calls a function after the import of a module.
    """
    # A shell ignores interruptions in the commands that it runs in the background; the time limit needs them.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The module with the function `install(module, session)` for each module, and packages to report.
    frameworks = json.loads(os.environ["SESHAT_PROFILE_FRAMEWORKS"])
    session = Session(
        os.environ["SESHAT_PROFILE_DIRECTORY"],
        steps=int(os.environ.get("SESHAT_PROFILE_STEPS", "20")),
        warm_up=int(os.environ.get("SESHAT_PROFILE_WARM_UP", "5")),
        packages=frameworks["packages"],
    )
    for name, hooks in frameworks["hooks"].items():
        after_import.add(name, partial(_install, hooks, session))


def _install(hooks: str, session: Session, module: ModuleType) -> None:
    try:
        importlib.import_module(hooks, _ROOT).install(module, session)
    except Exception as error:
        sys.stderr.write("advisor: `{}` is not profiled: {}\n".format(module.__name__, error))

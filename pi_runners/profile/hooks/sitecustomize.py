"""Starts the profiler of the frameworks that a program imports. Its directory is on the program's `PYTHONPATH`."""

import importlib.machinery
import importlib.util
import os
import signal
import sys


def _start() -> None:
    # A shell ignores interruptions in the commands that it runs in the background; the time limit needs them.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        from seshat_hooks.profile.hooks import start  # type: ignore[import-not-found]
    except Exception as error:  # The user's program runs in any case.
        sys.stderr.write("advisor: the profiler was not started: {}\n".format(error))
    else:
        start()


def _run_hidden() -> None:
    """Run the `sitecustomize` of the environment, which this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start()
_run_hidden()

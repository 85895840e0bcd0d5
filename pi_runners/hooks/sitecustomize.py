"""Records this interpreter, applies settings after imports, and starts the profiler, each if a variable asks for it.

Its folder is on the ``PYTHONPATH`` of a command, so each Python of it loads this module at its start, and the module
loads the `sitecustomize` that it hides. It runs in every process, so it imports little.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Sequence

RECORD = "SESHAT_RECORD"
"""Variable with the file to which each interpreter adds lines of JSON: its environment, settings, and loaded files."""
PREFIX = "SESHAT_PREFIX"
"""Variable with the environment of which the loaded files are not recorded."""
SETTINGS = "SESHAT_SETTINGS"
"""Variable with statements that apply settings, as JSON: `knowledge.catalogue.settings.Statements`."""
PROFILE = "SESHAT_PROFILE_DIRECTORY"


class AfterImport:
    """Finds modules like the other finders, and calls functions after the import of some of them."""

    def __init__(self) -> None:
        self._functions: dict[str, list[Callable[[ModuleType], None]]] = {}

    def add(self, name: str, function: Callable[[ModuleType], None]) -> None:
        """Call a function after the import of a module: now, if it is imported already."""
        if name in sys.modules:
            function(sys.modules[name])
            return
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self._functions.setdefault(name, []).append(function)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the specification of a module with a loader that also calls its functions."""
        if name not in self._functions:
            return None
        finders = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next((s for s in (finder.find_spec(name, path, target) for finder in finders) if s is not None), None)
        loader: Any = spec.loader if spec is not None else None
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module: ModuleType) -> None:
            # Not before: a program may look for a module that it never imports, and loaders load several modules.
            functions = self._functions.pop(module.__name__, [])
            try:
                execute(module)
            except BaseException:
                self._functions[module.__name__] = functions
                raise
            for function in functions:
                function(module)

        try:
            loader.exec_module = exec_module
        except AttributeError as error:
            sys.stderr.write("advisor: nothing can run after `import {}`: {}\n".format(name, error))
        return spec


def record(**values: object) -> None:
    """Add a line to the record of the command."""
    import json

    try:
        with open(os.environ[RECORD], "a", encoding="utf-8") as file:
            file.write(json.dumps(dict(values, process=os.getpid(), prefix=sys.prefix)) + "\n")
    except (KeyError, OSError):
        pass


def record_interpreter() -> None:
    """Record the environment of this interpreter, and at its end the files that it loaded, if it is another one."""
    record()
    if os.path.realpath(sys.prefix) == os.environ.get(PREFIX):
        return
    import atexit

    started, process, at_start = os.getcwd(), os.getpid(), frozenset(sys.modules)

    def record_files() -> None:
        # `sitecustomize`, `usercustomize` and what `.pth` files import are loaded by every interpreter.
        modules = [m for n, m in list(sys.modules.items()) if n not in at_start and not n.endswith("customize")]
        files = [getattr(module, "__file__", None) for module in modules]
        # At its end, the main module has no file any more.
        script = os.path.join(started, (getattr(sys, "argv", None) or [""])[0])
        files.append(script if os.path.isfile(script) else None)
        if os.getpid() == process:
            record(files=[os.path.join(started, file) for file in files if isinstance(file, str)])

    atexit.register(record_files)


def apply_after_import(statements: dict[str, str], after_import: AfterImport) -> None:
    """Run the statements of a setting after the import of its module."""

    def apply(module: ModuleType) -> None:
        import atexit

        names: dict[str, Any] = {"use": use, "refuse": refuse}
        try:
            exec(statements["code"], names)
            if not statements["check"]:
                return
            reason = "" if eval(statements["check"], names) else "it has no effect here"  # noqa: S307
        except Exception as error:
            reason = "{}: {}".format(type(error).__name__, error)
        if reason:
            record(failed=statements["setting"], reason=reason)
            # The program must not run without the setting: a measurement of it would count for the setting.
            sys.exit("advisor: `{}` cannot be applied: {}".format(statements["setting"], reason))
        record(applied=statements["setting"])
        atexit.register(confirm, names)

    def confirm(names: dict[str, Any]) -> None:
        try:
            is_applied = eval(statements["check"], names)  # noqa: S307
        except Exception:
            is_applied = False
        if not is_applied:
            record(reset=statements["setting"])
            sys.stderr.write("advisor: the program has changed `{}` itself\n".format(statements["setting"]))

    # Which processes and reasons are recorded already; a forked process has made use of it itself, or not.
    recorded: set[tuple[int, str]] = set()

    def use() -> None:
        if (os.getpid(), "") not in recorded:
            recorded.add((os.getpid(), ""))
            record(applied=statements["setting"])

    def refuse(reason: str) -> None:
        if (os.getpid(), reason) not in recorded:
            recorded.add((os.getpid(), reason))
            record(failed=statements["setting"], reason=reason)

    after_import.add(statements["module"], apply)


def run_hidden() -> None:
    """Run the `sitecustomize` of the environment, which this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


def start() -> None:
    """Do what the variables ask for."""
    after_import = AfterImport()
    if RECORD in os.environ:
        record_interpreter()
    if SETTINGS in os.environ:
        import json

        for statements in json.loads(os.environ[SETTINGS]):
            apply_after_import(statements, after_import)
    if PROFILE in os.environ:
        try:
            from seshat_hooks.profile.hooks import start as start_profile  # type: ignore[import-not-found]

            start_profile(after_import)
        except Exception as error:  # The user's program runs in any case.
            sys.stderr.write("advisor: the profiler was not started: {}\n".format(error))


if __name__ == "sitecustomize":
    start()
    run_hidden()

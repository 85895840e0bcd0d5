"""Steps of TensorFlow without Keras: calls of the `tf.function` that took longest to trace."""

import os
import sys
import weakref
from typing import Any, List

from .calls import CallCounter
from .session import Profiler, Session
from .tensorflow_graphs import FILE, write_graphs

_CALL = 1
_NOT_STEPS = ("adapt_step",)
_FUNCTIONS: Any = weakref.WeakSet()
"""Functions that were called."""


class TensorflowProfiler(Profiler):
    """tf.profiler."""

    framework = "tensorflow"

    def __init__(self, session: Session) -> None:
        self._path = session.path("tensorflow")

    def start(self, result: Any) -> None:
        """Start."""
        import tensorflow as tf

        tf.profiler.experimental.start(
            self._path, options=tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
        )

    def stop(self, result: Any) -> List[str]:
        """Stop, and write the trace and the shapes of the operations."""
        import tensorflow as tf

        tf.profiler.experimental.stop()
        try:
            write_graphs(_FUNCTIONS, os.path.join(self._path, FILE))
        except Exception as error:
            sys.stderr.write("advisor: the shapes of the operations are unknown: {}\n".format(error))
        return [self._path]


def install(tensorflow: Any, session: Session) -> None:
    """Count the calls of functions; their class is private, so newer versions may count only steps of Keras."""
    counter = CallCounter(session, _CALL, lambda: TensorflowProfiler(session))
    function = type(tensorflow.function(lambda: None))
    call = function.__call__

    def counted_call(self: Any, *arguments: Any, **named: Any) -> Any:
        _FUNCTIONS.add(self)
        if getattr(self, "__name__", "") in _NOT_STEPS:
            return call(self, *arguments, **named)
        return counter.call(id(self), call, self, *arguments, **named)

    function.__call__ = counted_call

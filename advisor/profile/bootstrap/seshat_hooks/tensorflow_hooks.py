"""Steps of TensorFlow without Keras: calls of the `tf.function` that took longest to trace."""

from typing import Any, List

from .calls import CallCounter
from .session import Profiler, Session

_CALL = 1
_NOT_STEPS = ("adapt_step",)


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
        """Stop, and write the trace."""
        import tensorflow as tf

        tf.profiler.experimental.stop()
        return [self._path]


def install(tensorflow: Any, session: Session) -> None:
    """Count the calls of functions; their class is private, so newer versions may count only steps of Keras."""
    counter = CallCounter(session, _CALL, lambda: TensorflowProfiler(session))
    function = type(tensorflow.function(lambda: None))
    call = function.__call__

    def counted_call(self: Any, *arguments: Any, **named: Any) -> Any:
        if getattr(self, "__name__", "") in _NOT_STEPS:
            return call(self, *arguments, **named)
        return counter.call(id(self), call, self, *arguments, **named)

    function.__call__ = counted_call

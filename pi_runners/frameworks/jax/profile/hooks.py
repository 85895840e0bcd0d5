"""Steps of JAX: calls of the function transformed by `jax.jit` that took longest to compile."""

import functools
import types
from typing import Any, List

from ....profile.hooks.session import CallCounter, Profiler, Session

_CALL = 1


class JaxProfiler(Profiler):
    """jax.profiler."""

    framework = "jax"

    def __init__(self, session: Session) -> None:
        self._path = session.path("jax")

    def start(self, result: Any) -> None:
        """Start when the calls so far have ended."""
        import jax

        jax.block_until_ready(result)
        options = getattr(jax.profiler, "ProfileOptions", None)
        if options is None:
            jax.profiler.start_trace(self._path)
            return
        profile_options = options()
        profile_options.python_tracer_level = 0
        jax.profiler.start_trace(self._path, profiler_options=profile_options)

    def stop(self, result: Any) -> List[str]:
        """Stop when the calls so far have ended."""
        import jax

        jax.block_until_ready(result)
        jax.profiler.stop_trace()
        return [self._path]


class _Counted:
    """A compiled function whose calls are counted; it has all attributes of the function."""

    def __init__(self, function: Any, counter: CallCounter) -> None:
        self.__wrapped__ = function
        self._counter = counter

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._counter.call(id(self), self.__wrapped__, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def install(jax: Any, session: Session) -> None:
    """Count the calls of compiled functions."""
    counter = CallCounter(session, _CALL, lambda: JaxProfiler(session))
    transform = jax.jit

    @functools.wraps(transform)
    def jit(*arguments: Any, **named: Any) -> Any:
        function = transform(*arguments, **named)
        # Without a function, newer versions return a decorator.
        if arguments or "fun" in named:
            return _Counted(function, counter)
        return lambda *inner, **inner_named: _Counted(function(*inner, **inner_named), counter)

    jax.jit = jit

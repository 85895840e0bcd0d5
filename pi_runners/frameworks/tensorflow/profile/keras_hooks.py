"""Steps of Keras: batches of `fit`, `evaluate` and `predict`, on each of its backends."""

from typing import Any

from ....profile.hooks.session import Profiler, Session

_BATCH = 3


def install(keras: Any, session: Session) -> None:
    """Count batches."""
    callbacks = keras.callbacks.CallbackList

    def make() -> Profiler:
        return _profiler(keras, session)

    for name in ("on_train_batch_end", "on_predict_batch_end", "on_test_batch_end"):
        setattr(callbacks, name, _counted(getattr(callbacks, name), name, session, make))


def _counted(method: Any, name: str, session: Session, make: Any) -> Any:
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        result = method(self, *arguments, **named)
        session.end_step(_BATCH, name, make)
        return result

    return call


def _profiler(keras: Any, session: Session) -> Profiler:
    backend = keras.backend.backend()
    if backend == "torch":
        from ...torch.profile.hooks import TorchProfiler

        return TorchProfiler(session)
    if backend == "jax":
        from ...jax.profile.hooks import JaxProfiler

        return JaxProfiler(session)
    from .hooks import TensorflowProfiler

    return TensorflowProfiler(session)
